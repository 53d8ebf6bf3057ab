/* Members go and come: groups begin a new epoch, and the world of an elastic job anew. */
#include <inttypes.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/op/group.h"
#include "server/agent/op/group_backoff.h"
#include "server/agent/op/group_lookup.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"

#define SETTLE_NS TUTTI_NS_PER_S

static void
say_leaving(agent_group *group)
{
    if (group->agent->draining && group->coll != NULL) {
        tutti_coll_group_leave(group->coll, "stopped");
    }
}

bool
agent_groups_leave(tutti_agent *agent)
{
    tutti_map_node *node;
    tutti_map_node *next;
    bool any = false;
    tutti_error why;

    (void)agent_check_open(agent, &why);
    for (node = tutti_map_first(&agent->groups); node != NULL; node = next) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        next = tutti_map_next(node);
        any = any || group->coll != NULL;
        say_leaving(group);
        agent_group_fail_before(group, 0, &why);
        agent_group_dispatch(group);
    }
    return any;
}

/* A rank is back: its groups begin a new epoch, and count from one again. */
void
agent_groups_renew(tutti_agent *agent, uint32_t rank, uint64_t epoch)
{
    tutti_map_node *node;
    tutti_map_node *next;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = next) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);
        tutti_error err;

        next = tutti_map_next(node);
        if (group->coll == NULL || epoch <= group->epoch || !agent_group_has(group, rank)) {
            continue;
        }
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "EPOCH_CHANGED",
                             "group %s: rank %" PRIu32 " has come back: call again", group->name,
                             rank);
        group->epoch = epoch;
        group->entered = 0;
        agent_group_changed(group);
        group->broken = false;
        agent_group_fail_before(group, tutti_clock_ns() - AGENT_BACKOFF_NS, &err);
        tutti_coll_group_renew(group->coll, epoch);
        say_leaving(group);
        agent_group_count_again(group);
        TUTTI_LOG("agent", INFO, "group %s goes on at epoch %" PRIu64, group->name, epoch);
        agent_group_dispatch(group);
    }
}

static agent_group *
find_world(tutti_agent *agent, uint64_t epoch)
{
    tutti_map_node *node = tutti_map_find(&agent->groups, tutti_bytes_of("world"));
    agent_group *group = node == NULL ? NULL : tutti_container_of(node, agent_group, by_name);
    const bool changes =
        agent->elastic && group != NULL && group->coll != NULL && epoch > group->epoch;

    return changes ? group : NULL;
}

bool
agent_world_settles(tutti_agent *agent, uint64_t epoch)
{
    agent_group *group = find_world(agent, epoch);

    if (group == NULL || tutti_list_empty(&group->running)) {
        return false;
    }
    group->next_epoch = epoch;
    group->change_ns = tutti_clock_ns() + SETTLE_NS;
    agent_group_watch(group);
    return true;
}

void
agent_world_changed(tutti_agent *agent, uint64_t epoch, const char *why)
{
    agent_group *group = find_world(agent, epoch);
    tutti_error err;

    if (group == NULL) {
        return;
    }
    group->change_ns = 0;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "EPOCH_CHANGED",
                         "group world: a member %s (epoch %" PRIu64 "): call again", why, epoch);
    tutti_coll_group_renew(group->coll, epoch); /* what runs fails by that name */
    tutti_coll_group_close(group->coll);
    group->coll = NULL;
    group->broken = false;
    agent_group_fail_before(group, tutti_clock_ns() - AGENT_BACKOFF_NS, &err);
    group->sequence = 0;
    if (!tutti_list_empty(&group->queue)) {
        group->asking = true;
        agent_wire_get_group(group);
    }
    agent_group_dispatch(group);
}
