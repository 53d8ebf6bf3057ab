/*
 * Private to lib/coll: messages out and in. Engine's thread.
 *
 * An io is one message. From its making to tutti_coll_io_end it counts in op->pending (or in
 * engine->notes), is in op->ios and peer->ios, and is in one of these states:
 *
 * waiting    in peer->waiting: a send whose peer has no address yet
 * expected   in op->expected: a receive whose packet has not come
 * flying     with the transport: its memory is read or written until the ticket comes back
 * ended      in engine->spare_ios
 *
 * From waiting and expected it may be ended at any time; from flying only by its ticket. So whoever
 * frees memory of an op waits for flying ios alone.
 */
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
    /* Of a receive: the rank of the job that sends; NO_RANK = any. */
    uint32_t from;
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

/* Counted from now on. `op` NULL: a note. `rank` NO_RANK: no peer. NULL: no memory; nothing is
 * counted. */
coll_io *tutti_coll_io_new(tutti_coll_op *op, tutti_coll_engine *engine, uint32_t rank);
/*
 * The message is over: off all lists, and the op may go on or be released inside. Not while flying.
 */
void tutti_coll_io_end(coll_io *io);
/* Send it now, or when the peer's address is known. It may have ended when this returns; a failure
 * has failed the op. */
void tutti_coll_io_submit(coll_io *io);
/* Write the header. `spec`: of a SEND, else NULL. */
void tutti_coll_io_write(coll_io *io, const tutti_packet *packet, const tutti_spec *spec);
/* Bytes have come for this receive. Owns the rndv; data is borrowed. A wrong size fails the op. */
void tutti_coll_io_take(coll_io *io, const tutti_packet *packet, const void *data, size_t size,
                        tutti_transport_rndv *rndv);
/* Wait for a packet. `whole`: of any size up to WHOLE_MAX, read in place by agree or announce;
 * otherwise exactly `size` bytes to `dest`. ret_extra may be NULL. May fail the op; does nothing if
 * it has failed. */
void tutti_coll_expect(tutti_coll_op *op, uint32_t step, uint32_t rank, void *dest, size_t size,
                       bool whole, uint64_t *ret_extra);
coll_io *tutti_coll_io_for(tutti_coll_op *op, uint32_t rank); /* NULL: the op has failed */
void tutti_coll_fill_packet(const tutti_coll_op *op, tutti_packet_kind kind,
                            tutti_packet *ret_packet);
/*
 * One thing less is pending: if nothing is, the op goes on or is released inside; not while held.
 */
void tutti_coll_lose_one(tutti_coll_op *op);
/* A receive that is filled in: takes the packet if it is parked in the op, else waits for it. */
void tutti_coll_submit_expected(coll_io *io);
/* Send a packet of the op; `data` stays as it is until the op goes on. May fail the op; does
 * nothing if it has failed. */
void tutti_coll_post_packet(tutti_coll_op *op, tutti_packet_kind kind, uint32_t step, uint32_t rank,
                            const void *data, size_t size, uint64_t extra);
/* How much is in flight that the op waits for now: pending, without regions that are out while this
 * rank still works. */
uint32_t tutti_coll_waits_for(const tutti_coll_op *op);

/*
 * A packet without an op, best effort: without memory or without a connection it is lost, and
 * nobody is told. `data` is copied.
 */
void tutti_coll_note(tutti_coll_engine *engine, uint32_t rank, const tutti_packet *packet,
                     const void *data, size_t size);
/* Free the spares. At the end, when no io is out. */
void tutti_coll_ios_free(tutti_coll_engine *engine);

#endif
