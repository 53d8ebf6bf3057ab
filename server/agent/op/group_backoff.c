#include "server/agent/op/group_backoff.h"

#include <string.h>

#include "base/os/clock.h"
#include "server/agent/op/group.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

#define LOOK_AGAIN_NS (10 * TUTTI_NS_PER_MS)

static void
on_backoff(tutti_timer *timer)
{
    agent_group *group = tutti_container_of(timer, agent_group, backoff);

    if (group->change_ns == 0) {
        agent_group_dispatch(group);
    } else if (tutti_list_empty(&group->running) || group->change_ns <= tutti_clock_ns()) {
        agent_world_changed(group->agent, group->next_epoch, "has left");
    } else {
        agent_group_watch(group);
    }
}

void
agent_group_watch(agent_group *group)
{
    group->backoff.on_expiry = on_backoff;
    tutti_rpc_loop_timer_start(group->agent->control, &group->backoff,
                               tutti_clock_ns() + LOOK_AGAIN_NS);
}

bool
agent_group_backs_off(agent_group *group, const agent_op *op)
{
    tutti_agent *agent = group->agent;
    const uint64_t now = tutti_clock_ns();
    uint64_t until = agent->settled_ns;

    if (group->broken && op->enqueued_ns + AGENT_BACKOFF_NS > until) {
        until = op->enqueued_ns + AGENT_BACKOFF_NS;
    }
    if (group->change_ns != 0 && !op->failed) {
        return true; /* its world is another one soon: agent_group_watch */
    }
    if (op->failed || until <= now || agent->state != AGENT_JOINED) {
        return false;
    }
    group->backoff.on_expiry = on_backoff;
    tutti_rpc_loop_timer_start(agent->control, &group->backoff, until);
    return true;
}

bool
agent_group_has(const agent_group *group, uint32_t rank)
{
    const uint32_t *ranks = tutti_coll_group_ranks(group->coll);
    uint32_t i;

    for (i = 0; i < tutti_coll_group_size(group->coll); i++) {
        if (ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* The group may be gone, so it is looked for; most ends are successes with nothing broken. */
void
agent_groups_note_end(tutti_agent *agent, const agent_op *op)
{
    const bool lost = op->failed && (strcmp(op->err.reason, "RANK_LOST") == 0 ||
                                     strcmp(op->err.reason, "RANK_LEAVING") == 0);
    tutti_map_node *node;
    bool any = false;

    if (op->op.group == NULL || (!lost && (op->failed || !agent->broken))) {
        return;
    }
    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll == op->op.group) {
            group->broken = lost;
        }
        any = any || group->broken;
    }
    agent->broken = any;
}

void
agent_groups_note_lost(tutti_agent *agent, uint32_t rank)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll != NULL && agent_group_has(group, rank)) {
            group->broken = true;
            agent->broken = true;
        }
    }
}
