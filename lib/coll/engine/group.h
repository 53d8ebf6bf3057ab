/*
 * Private to lib/coll: the life of a group. The engine's thread; unref from any thread.
 *
 * A group is open (in engine->groups), then closing (deleted by the coordinator, ops still run),
 * then closed (in no map), then freed with its last reference. Each op holds a reference until it
 * is released.
 */
#ifndef TUTTI_COLL_ENGINE_GROUP_H
#define TUTTI_COLL_ENGINE_GROUP_H

#include <stdbool.h>

#include "coll/coll.h"
#include "coll/state/group.h"

/* Drop a reference; the last one frees the group. */
void tutti_coll_group_unref(tutti_coll_group *group);
/* Fail all ops of the group with these words; `tell` the other members of each. An op whose memory
 * is in flight is released later. */
void tutti_coll_group_fail_all(tutti_coll_group *group, const tutti_error *err, bool tell);
/* It is over: it leaves engine->groups, its timers stop, and it is freed with the last op that uses
 * it. No op of it runs any more. */
void tutti_coll_group_drop(tutti_coll_group *group);
/* Has a group that was open here, or of which tutti_coll_group_gone told, come to its end? Of many
 * the last ones are known. */
bool tutti_coll_group_is_gone(const tutti_coll_engine *engine, uint64_t id);
/* An op of the group has ended: if the oldest is a barrier that waited for it, that goes on, and
 * may end and be released inside. */
void tutti_coll_group_next(tutti_coll_group *group);
/* If the group is deleted and this was its last op, the group ends soon: by a timer, not inside,
 * since the caller still uses it. */
void tutti_coll_group_end_if_closing(tutti_coll_group *group);

/* A member may have been lost, or have returned: sets group->lost_rank and starts or stops the time
 * (LOSS_GRACE_NS) after which ops fail. The event of events.h. */
void coll_group_look(tutti_coll_group *group);

#endif
