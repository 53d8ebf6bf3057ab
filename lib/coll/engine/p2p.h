/* Private to lib/coll: send and receive. */
#ifndef TUTTI_COLL_ENGINE_P2P_H
#define TUTTI_COLL_ENGINE_P2P_H

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/transport.h"

void tutti_coll_p2p_begin(tutti_coll_op *op);
void tutti_coll_p2p_step(tutti_coll_op *op);
void tutti_coll_p2p_arrive(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_spec *spec, const void *data, size_t size,
                           tutti_transport_rndv *rndv);
void tutti_coll_p2p_answer(tutti_coll_engine *engine, const tutti_packet *packet, const void *data,
                           size_t size);
void tutti_coll_p2p_retract(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                            size_t size);
void tutti_coll_p2p_failed(tutti_coll_op *op, const tutti_error *err);
/* The Recv that takes the tensor of this send. NULL: none does. */
tutti_coll_op *tutti_coll_p2p_taker(tutti_coll_group *group, uint32_t from, uint64_t send_id);

/* Bytes that go with a tensor that is sent. */
void tutti_coll_p2p_post_meta(tutti_coll_op *op, uint32_t rank);
void tutti_coll_p2p_expect_meta(tutti_coll_op *op, uint32_t from, uint64_t send_id);
void tutti_coll_p2p_drop_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id);
void tutti_coll_p2p_meta_arrive(tutti_coll_group *group, const tutti_packet *packet,
                                const void *data, size_t size, tutti_transport_rndv *rndv);
tutti_code tutti_coll_p2p_recv_meta(tutti_coll_op *op, const void *bytes, size_t size,
                                    tutti_error *err);

#endif
