/*
 * Private to lib/coll: send and receive. Engine's thread. p2p.c has the protocol.
 *
 * Functions that take an arrived packet own its rndv from then on; data is borrowed until return.
 */
#ifndef TUTTI_COLL_ENGINE_P2P_H
#define TUTTI_COLL_ENGINE_P2P_H

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/transport.h"

/* Begin a Send or Recv that is in engine->ops and not doomed. It may have ended and be released
 * when this returns. */
void tutti_coll_p2p_begin(tutti_coll_op *op);
/*
 * Called by coll_op_run, with op->held set, when nothing is in flight: the next step, or success.
 */
void tutti_coll_p2p_step(tutti_coll_op *op);
/* A SEND has come: the oldest fitting Recv takes it, else it is parked in group->sends. */
void tutti_coll_p2p_arrive(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_spec *spec, const void *data, size_t size,
                           tutti_transport_rndv *rndv);
/* TAKEN or REFUSED for one of our sends. Ignored if the id is none of a Send to this rank. */
void tutti_coll_p2p_answer(tutti_coll_engine *engine, const tutti_packet *packet, const void *data,
                           size_t size);
/* A sender has given up. Forgets the parked send, or fails the Recv that has taken it. */
void tutti_coll_p2p_retract(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                            size_t size);
/* The op has failed: tell the other side, if there is one, and free what the matching has made. */
void tutti_coll_p2p_failed(tutti_coll_op *op, const tutti_error *err);
/* A SILENT has come: nobody sends or receives at its sender, or (size 0) somebody does again. */
void tutti_coll_p2p_silent(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                           size_t size);
/* NO_RANK = of all members */
void tutti_coll_p2p_forget_silent(tutti_coll_group *group, uint32_t from);
/* The Recv that has matched this send (and is not over). NULL: none has. */
tutti_coll_op *tutti_coll_p2p_taker(tutti_coll_group *group, uint32_t from, uint64_t send_id);

/*
 * Meta bytes: they travel in a packet of their own, META, since a header has no room for them. The
 * SEND says in `step` how many there are; either packet may come first.
 *
 * post_meta: of a Send, before its SEND. expect_meta: of a Recv that has matched; takes a META that
 * is parked. drop_meta: nobody will want it. meta_arrive: a META has come. recv_meta: its bytes are
 * here; they become op->meta, and are freed with the op. TUTTI_RESOURCE_EXHAUSTED
 */
void tutti_coll_p2p_post_meta(tutti_coll_op *op, uint32_t rank);
void tutti_coll_p2p_expect_meta(tutti_coll_op *op, uint32_t from, uint64_t send_id);
void tutti_coll_p2p_drop_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id);
void tutti_coll_p2p_meta_arrive(tutti_coll_group *group, const tutti_packet *packet,
                                const void *data, size_t size, tutti_transport_rndv *rndv);
tutti_code tutti_coll_p2p_recv_meta(tutti_coll_op *op, const void *bytes, size_t size,
                                    tutti_error *err);

#endif
