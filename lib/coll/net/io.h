/* Private to lib/coll: messages out and in. */
#ifndef TUTTI_COLL_NET_IO_H
#define TUTTI_COLL_NET_IO_H

#include "coll/backend.h"
#include "coll/net/peer.h"
#include "coll/packet/packet.h"

#define WHOLE_MAX (64u << 20) /* bytes of a message that has no place prepared for it */

/* One message out or in. Those of ops hang on the op and on the peer; the others stand alone. */
typedef struct coll_io {
    tutti_transport_ticket ticket;
    tutti_coll_engine *engine;
    tutti_coll_op *op; /* NULL: a note, such as an abort */
    coll_peer *peer;   /* NULL: a receive from anybody */
    tutti_list_node in_op;
    tutti_list_node in_peer;
    tutti_list_node queue; /* op->expected, or peer->waiting */
    bool incoming;
    bool flying; /* the transport has it: ticket will come back */
    bool whole;  /* incoming: any size, into memory of our own */
    uint32_t step;
    uint32_t from; /* rank of the job */
    size_t header_size;
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    void *data;
    size_t size;
    void *owned; /* freed with it */
    uint64_t *ret_extra;
    bool lent;                     /* outgoing: memory that the peer works in */
    tutti_transport_region region; /* ... which */
    tutti_coll_mapping *view;      /* incoming: the peer's memory */
} coll_io;

coll_io *tutti_coll_io_new(tutti_coll_op *op, tutti_coll_engine *engine, uint32_t rank);
void tutti_coll_io_end(coll_io *io); /* over: takes it off its op, which may go on */
void tutti_coll_io_submit(coll_io *io);
void tutti_coll_io_write(coll_io *io, const tutti_packet *packet, const tutti_spec *spec);
void tutti_coll_io_take(coll_io *io, const tutti_packet *packet, const void *data, size_t size,
                        tutti_transport_rndv *rndv);
void tutti_coll_expect(tutti_coll_op *op, uint32_t step, uint32_t rank, void *dest, size_t size,
                       bool whole, uint64_t *ret_extra);
coll_io *tutti_coll_io_for(tutti_coll_op *op, uint32_t rank); /* NULL: the op has failed */
void tutti_coll_fill_packet(const tutti_coll_op *op, tutti_packet_kind kind,
                            tutti_packet *ret_packet);
void tutti_coll_lose_one(tutti_coll_op *op);  /* of the pending */
void tutti_coll_submit_expected(coll_io *io); /* a receive: what is here already is taken */
void tutti_coll_post_packet(tutti_coll_op *op, tutti_packet_kind kind, uint32_t step, uint32_t rank,
                            const void *data, size_t size, uint64_t extra);
/* What is in flight that the op waits for now. */
uint32_t tutti_coll_waits_for(const tutti_coll_op *op);

/* A packet without an op. `data` is copied. */
void tutti_coll_note(tutti_coll_engine *engine, uint32_t rank, const tutti_packet *packet,
                     const void *data, size_t size);
void tutti_coll_ios_free(tutti_coll_engine *engine);

#endif
