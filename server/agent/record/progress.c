/*
 * Where the ops of each group stand: counters that heartbeats compare (group->changes, told), and
 * the group's last op. Control loop.
 */
#include "server/agent/record/progress.h"

#include "base/os/clock.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

void
agent_group_changed(agent_group *group)
{
    group->changes++;
}

void
agent_group_note_end(agent_group *group, const agent_op *op)
{
    group->last_args = op->said; /* of which only what needs no memory is looked at */
    group->last_sequence = agent_op_is_p2p(op) ? 0 : op->sequence;
    group->last_ns = tutti_clock_ns();
    if (op->failed && !agent_op_is_p2p(op)) {
        group->failed_ns = op->came_ns;
    }
    agent_group_changed(group);
}

/* Failed ops also make the flight record due. */
void
agent_op_note_over(agent_op *op)
{
    if (!tutti_list_empty(&op->link)) { /* else its group has gone before it */
        tutti_list_remove(&op->link);
        agent_group_note_end(op->group, op);
    }
    agent_op_record_retired(op);
    if (op->failed) {
        agent_dump_soon(op->agent);
    }
}

/*
 * `told` differs from `changes` wherever anything has ever happened, so a new session is told of
 * every group that was used.
 */
void
agent_progress_again(tutti_agent *agent)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        tutti_container_of(node, agent_group, by_name)->told = 0;
    }
}
