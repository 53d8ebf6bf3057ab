/*
 * Private to lib/coll: how ops end for the whole group, and how a member leaves it.
 *
 * All of this runs on the engine's thread (state/engine.h). A sequence of a group here is in one of
 * three states: an op in group->ops; begun and over (at most group->begun); not begun, with or
 * without a pending abort.
 */
#ifndef TUTTI_COLL_ENGINE_ABORT_H
#define TUTTI_COLL_ENGINE_ABORT_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

/* Send an ABORT for the op to all other members. Best effort: without memory, or without a way to a
 * member, that member ends the op by its deadline. `err` is copied. */
void tutti_coll_tell(tutti_coll_group *group, uint64_t epoch, uint64_t sequence,
                     const tutti_error *err);
/* An op succeeds here: if the group was in a resync, that ends with it. */
void tutti_coll_settle(const tutti_coll_op *op);
/*
 * Does this op follow from one that has failed on another rank? True: it is to fail with *ret_err.
 */
bool tutti_coll_is_parted(const tutti_coll_op *op, tutti_error *ret_err);
/* An ABORT has come from a member, for this epoch. Fails the op; or is kept until the op is called;
 * or, for an op that has succeeded here, fails the op that follows from it. */
void tutti_coll_recv_abort(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_error *err);
/* Is this op, which begins now, over already? True: *ret_err says why, and it is forgotten. */
bool tutti_coll_take_pending_abort(tutti_coll_group *group, uint64_t sequence,
                                   tutti_error *ret_err);
/* The group is open: has it some? */
void tutti_coll_count_pending_aborts(tutti_coll_group *group);
void tutti_coll_free_pending_aborts(tutti_coll_group *group);

/* Members may wait in ops that were not called here: refuse these if nobody will call them (orphan). */
void tutti_coll_refuse_awaited(tutti_coll_group *group);

/* A LEAVE has come: the member begins no op behind packet->sequence; err->text is its reason. Ops
 * behind that one fail here without a word to others, who have got the same LEAVE. */
void tutti_coll_recv_leave(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_error *err);
/* An OVER has come: the member's caller of ops up to packet->sequence has gone. */
void tutti_coll_recv_over(tutti_coll_group *group, const tutti_packet *packet);
/*
 * Is the op behind the last one of a member that leaves? True: it can never be complete, and
 * *ret_err says why. False also if that member is lost by now: then the loss is the better reason.
 */
bool tutti_coll_is_behind_leaver(const tutti_coll_op *op, tutti_error *ret_err);

#endif
