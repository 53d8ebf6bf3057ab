/*
 * Groups: the coordinator is asked for them, and their ops wait in line.
 */
#ifndef TUTTI_SERVER_AGENT_OP_GROUP_H
#define TUTTI_SERVER_AGENT_OP_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os/clock.h"
#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* The group of that name, made and asked for when it is not known yet. NULL: no memory. */
agent_group *agent_group_of(tutti_agent *agent, const char *name, tutti_error *err);
/* NULL: no call has named it yet. */
agent_group *agent_group_find(tutti_agent *agent, const char *name);
void agent_group_add(agent_group *group, agent_op *op);
void agent_group_dispatch(agent_group *group);
void agent_group_add_slot(agent_op *hold); /* a Backward takes its place in the queue */
void agent_group_unhold(agent_op *hold);   /* its place is over, and not in the queue any more */
void agent_groups_renew(tutti_agent *agent, uint32_t rank, uint64_t epoch);
void agent_group_deleted(tutti_agent *agent, const char *name);
void agent_groups_free(tutti_agent *agent);
/* The coordinator has answered: ranks, or why not. */
void agent_group_known(agent_group *group, uint64_t id, uint64_t epoch, const uint32_t *ranks,
                       uint32_t count);
void agent_group_unknown(agent_group *group, const tutti_error *err);
/* Until when do ops in line wait? 0: the time of all is up. Those whose time is up keep their place
 * meanwhile: the others may have counted them. */
uint64_t agent_group_waits_until(const agent_group *group);
/* After a time without the coordinator: are our groups still what they were? */
void agent_groups_check(tutti_agent *agent);

/* ------------------------------------------------------------------------------ back-off */

/*
 * News of a return does not reach all ranks at one moment. A call that would fail at once because a
 * member is gone, or that a fresh process makes while the others do not know it yet, waits up to
 * AGENT_BACKOFF_NS for that news. If it did not wait, the ranks would number their calls
 * differently from then on.
 */
#define AGENT_BACKOFF_NS (250 * TUTTI_NS_PER_MS)

/* How an op has ended; a member was lost. */
void agent_groups_note_end(tutti_agent *agent, const agent_op *op);
void agent_groups_note_lost(tutti_agent *agent, uint32_t rank);
void agent_group_watch(agent_group *group); /* one whose world changes soon */
bool agent_group_has(const agent_group *group, uint32_t rank);

/* group.c: ops in line fail, but those that came at or after since_ns; 0 = all fail. */
void agent_group_fail_before(agent_group *group, uint64_t since_ns, const tutti_error *err);
/* Number the ops in line behind what the engine has; also when it is known how many ops the
 * Backwards before them have made. */
void agent_group_count_again(agent_group *group);

/* We leave: ops in line fail, and no member begins one behind those that run. False: no group is
 * open. */
bool agent_groups_leave(tutti_agent *agent);

/* Somebody has left politely: ops of an elastic world that still run may end before it changes. */
bool agent_world_settles(tutti_agent *agent, uint64_t epoch);

/* Members of an elastic job have changed: "world" is another group from now on. */
void agent_world_changed(tutti_agent *agent, uint64_t epoch, const char *why);

#endif
