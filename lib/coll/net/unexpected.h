/* Private to lib/coll: packets that came before the op that wants them (the unexpected queue of
 * MPI). */
#ifndef TUTTI_COLL_NET_UNEXPECTED_H
#define TUTTI_COLL_NET_UNEXPECTED_H

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/transport.h"

#define UNEXPECTED_MAX 65536 /* packets that came before they were wanted */

/* A packet that came before it was wanted. In one list: that of the engine, a group or an op, which
 * owns it. With a rndv the bytes are still at the sender. */
typedef struct coll_unexpected {
    tutti_list_node link;
    tutti_packet packet;
    tutti_transport_rndv *rndv;
    tutti_spec spec; /* of a SEND */
    size_t size;
    unsigned char data[]; /* when there is no rndv */
} coll_unexpected;

/* Park a packet at the end of `where`; owns the rndv, copies data. Over the limit, or without
 * memory, the packet is dropped: its op ends by its deadline. `spec`: of a SEND, else NULL. */
void tutti_coll_unexpected_add(tutti_coll_engine *engine, tutti_list_node *where,
                               const tutti_packet *packet, const tutti_spec *spec, const void *data,
                               size_t size, tutti_transport_rndv *rndv);
/* Forget a parked packet, and drop its rndv. */
void tutti_coll_unpark(tutti_coll_engine *engine, coll_unexpected *stored);
/*
 * Take a parked packet out before it is worked on: what it leads to may fail the op, or end the group, whose
 * packets are all forgotten then. Returns its rndv, which is the caller's from here. tutti_coll_unpark the packet
 * when the work is done.
 */
tutti_transport_rndv *tutti_coll_take_parked(coll_unexpected *stored);
/* Those of an epoch whose op this rank has come to, or passed, without taking them: up to `sequence`. */
void tutti_coll_unpark_until(tutti_coll_engine *engine, tutti_list_node *where, uint64_t epoch,
                             uint64_t sequence);
void tutti_coll_unpark_all(tutti_coll_engine *engine, tutti_list_node *where);
/* Forget what waits for a group that is not open here. `retract`: only the send that it ends; NULL:
 * all. Returns whether a SEND was among it. */
bool tutti_coll_unpark_group(tutti_coll_engine *engine, uint64_t group,
                             const tutti_packet *retract);
/* Forget what former processes of this rank have sent for groups that are not open here. Their
 * memory stays mapped until then. */
void tutti_coll_unpark_stale(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation);

#endif
