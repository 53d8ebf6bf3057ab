/* Who stands around the transports of fuzz_coll_engine, and what both files need. */
#ifndef TUTTI_TESTS_FUZZ_COLL_MEDDLER_H
#define TUTTI_TESTS_FUZZ_COLL_MEDDLER_H

#include "coll/transport.h"

#define HELD_MAX 16
#define OFFERS_MAX 64

/* A packet that is kept back. */
typedef struct held {
    unsigned char *header;
    size_t header_size;
    unsigned char *data;
    size_t size;
} held;

typedef struct meddler {
    tutti_transport base;
    tutti_transport_ops ops;
    tutti_transport *inner;
    const tutti_transport_events *events;
    void *arg;
    held held[HELD_MAX];
    size_t held_count;
} meddler;

/* Data that was never there: who offers it is the meddler. */
typedef struct offer {
    bool out;
    tutti_transport_ticket *ticket; /* of a fetch that goes on */
    meddler *owner;
} offer;

typedef struct offers {
    offer list[OFFERS_MAX];
    size_t count;
} offers;

/* ------------------------------------------------------------------ fuzz_coll_engine.c */

/* The next bytes of the input, as a number; 0 behind its end, and while nobody meddles. */
uint64_t fuzz_take(unsigned bytes);

void fuzz_check(int holds);

/* Of exactly that size, so that what is read behind it is found. data NULL: of filling. */
void *fuzz_copy(const void *data, size_t size);

/* ------------------------------------------------------------------ fuzz_coll_meddler.c */

/* [in, moved] inner, whose ops are those of all inner ones until all are closed. Free it behind its close. */
meddler *meddler_new(tutti_transport *inner, offers *all);

/* A packet, to the engine. */
void meddler_hand_on(meddler *self, const void *header, size_t header_size, const void *data,
                     size_t size, tutti_transport_rndv *rndv);

/* One that was kept. */
void meddler_let_go(meddler *self, size_t which);

/* NULL: there are too many. */
tutti_transport_rndv *meddler_offer(meddler *self);

/* If the engine fetches it, that is over. */
void meddler_end_fetch(offer *it, bool ok);

#endif
