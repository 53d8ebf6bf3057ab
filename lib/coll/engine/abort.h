/* Private to lib/coll: how ops end for the whole group, and how a member leaves it. */
#ifndef TUTTI_COLL_ENGINE_ABORT_H
#define TUTTI_COLL_ENGINE_ABORT_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

void tutti_coll_tell(tutti_coll_group *group, uint64_t epoch, uint64_t sequence,
                     const tutti_error *err);
void tutti_coll_settle(const tutti_coll_op *op); /* it succeeds */
/* Does it follow from one that has failed elsewhere? */
bool tutti_coll_is_parted(const tutti_coll_op *op, tutti_error *ret_err);
void tutti_coll_recv_abort(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_error *err);
bool tutti_coll_take_pending_abort(tutti_coll_group *group, uint64_t sequence,
                                   tutti_error *ret_err);
void tutti_coll_free_pending_aborts(tutti_coll_group *group);

/* A member begins no more ops. */
void tutti_coll_recv_leave(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_error *err);
/* Then nobody will ever have it, and ret_err says why. */
bool tutti_coll_is_behind_leaver(const tutti_coll_op *op, tutti_error *ret_err);

#endif
