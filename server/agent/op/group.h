/*
 * Groups: the coordinator is asked for them, and their ops wait in line. Control loop.
 *
 * A function that dispatches may free a group that is not open and has no ops in line. Those are,
 * for callers that hold an agent_group: agent_group_add, _dispatch, _deleted, _known, _unknown.
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
/*
 * The op is last in line (state QUEUED) and goes as soon as it may. It may have ended, and been
 * freed, when this returns.
 */
/* Of so many ranks "world" is asked for, with the addresses of its members, before an op needs them. In a larger job
 * an op needs few of them, and all together were a square. */
#define AGENT_MEET_MAX 256

/* Make it known, though no op is on it yet. */
void agent_group_want(tutti_agent *agent, const char *name);
void agent_group_add(agent_group *group, agent_op *op);
/*
 * Launch every op at the head of the line that may go. Call it when an op in line has become ready,
 * has failed, or when what held the line is over.
 */
void agent_group_dispatch(agent_group *group);
/* A Backward takes its place in the queue; hooks.place_reached follows when it is at the head.
 * unhold: its place is over, and not in the queue any more; ops in line get their numbers. */
void agent_group_add_slot(agent_op *hold);
void agent_group_unhold(agent_op *hold);
/*
 * `rank` has come back: groups with it that are of an older epoch begin this one. What runs and
 * what has waited for more than the back-off fails with EPOCH_CHANGED.
 */
void agent_groups_renew(tutti_agent *agent, uint32_t rank, uint64_t epoch);
/* The coordinator has deleted it: ops in line fail with NO_GROUP. Unknown names are fine. */
void agent_group_deleted(tutti_agent *agent, const char *name);
/* Who has aborted a group, as the coordinator says it. */
typedef struct agent_group_abort {
    const char *text;
    uint32_t rank;  /* that asked */
    uint64_t epoch; /* of the group then: news of an older one is over */
} agent_group_abort;

/*
 * A member has aborted it: ops that run, in line, or that come later end with GROUP_ABORTED and
 * this text. Groups of another id, and unknown names, are left alone.
 */
void agent_group_aborted(tutti_agent *agent, const char *name, uint64_t id,
                         const agent_group_abort *abort);
/* Behind tutti_coll_engine_stop, when no op lives. */
void agent_groups_free(tutti_agent *agent);
/* What the coordinator says of a group; all borrowed. */
typedef struct agent_group_found {
    uint64_t id;
    uint64_t epoch;
    const uint32_t *ranks;
    uint32_t count;
    agent_group_abort abort; /* its text NULL = the group was not aborted */
    uint32_t timeout_ms;
} agent_group_found;

/* The coordinator has answered: ranks (borrowed), or why not. For a group that is open it was asked
 * whether it still exists: then another id, or NOT_FOUND, means that it was deleted. */
void agent_group_known(agent_group *group, const agent_group_found *found);
void agent_group_unknown(agent_group *group, const tutti_error *err);
/* The latest deadline of the ops in line that have not failed; 0: the time of all is up. Ops whose
 * time is up keep their place meanwhile: the others may have counted them. */
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

/* An op has ended, well or not: is its group broken? A rank of the job was lost: its groups are. */
void agent_groups_note_end(tutti_agent *agent, const agent_op *op);
/* The client that came then has gone: the other ranks hear that nobody here waits for its ops. */
void agent_groups_note_gone(tutti_agent *agent, uint64_t came_ns);
void agent_groups_note_lost(tutti_agent *agent, uint32_t rank);
void agent_group_watch(agent_group *group); /* one whose world changes soon */
bool agent_group_has(const agent_group *group, uint32_t rank);

/* Ops in line fail, but those that came at or after since_ns; 0 = all fail. An op that still waits
 * for a lock stays in line as failed. Does not dispatch. */
void agent_group_fail_before(agent_group *group, uint64_t since_ns, const tutti_error *err);
/*
 * Number the ops in line behind what the engine has. When the epoch has changed, and when it is
 * known how many ops the Backwards before them have made.
 */
void agent_group_count_again(agent_group *group);

/* The agent leaves: ops in line fail with STOPPING, and the members of each open group are told the
 * number of this rank's last op in it. False: no group is open, so there is nobody to tell. */
bool agent_groups_leave(tutti_agent *agent);

/*
 * A member has left politely. True: ops run in an elastic world, and it changes to `epoch` when
 * they have ended, in a second at most. False: agent_world_changed may be called at once.
 */
bool agent_world_settles(tutti_agent *agent, uint64_t epoch);

/* Members of an elastic job have changed, or the job has begun anew (epoch 0): "world" is another group from now on. */
void agent_world_changed(tutti_agent *agent, uint64_t epoch, const char *why);

#endif
