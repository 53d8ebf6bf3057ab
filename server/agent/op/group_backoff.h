/* Private to server/agent: calls that wait a little for news of a return. */
#ifndef TUTTI_SERVER_AGENT_OP_GROUP_BACKOFF_H
#define TUTTI_SERVER_AGENT_OP_GROUP_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os/clock.h"
#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/*
 * News of a return does not reach all ranks at one moment. A call that would fail at
 * once because a member is gone, or that a fresh process makes while the others do not know it yet,
 * waits a little for that news: else the ranks would count their calls apart for ever after.
 */
#define AGENT_BACKOFF_NS (250 * TUTTI_NS_PER_MS)
bool agent_group_backs_off(agent_group *group, const agent_op *op);
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
