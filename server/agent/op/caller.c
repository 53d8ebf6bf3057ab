/*
 * Who calls the collectives of a group. A program that dies between two ops leaves no call that
 * could fail: its lease ends (service/lease_pb.c), and here is remembered whose turn it was. What
 * came of that client and is still in line ends as any op whose caller has gone.
 *
 * A call of the client may come after the end of its lease: both were on their way when the program
 * ended. It looks like somebody who calls again, until it is given up, too.
 */
#include "server/agent/op/caller.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/agent/op/group.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/group.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

/* A shrink need not wait for this rank, or has to wait again. */
static void
tell_progress(agent_group *group)
{
    agent_group_changed(group);
    group->agent->hooks->tell_progress(group->agent);
}

static void
orphan_group(agent_group *group, const char *program)
{
    const uint32_t rank = group->agent->rank;
    tutti_error err;

    if (program != group->gone) {
        (void)snprintf(group->gone, sizeof(group->gone), "%s", program);
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE",
                         "rank %" PRIu32 " does not call it: its program %s has ended", rank,
                         group->gone);
    tutti_coll_group_orphan(group->coll, &err);
    group->orphan = true;
    tell_progress(group);
    TUTTI_LOG("agent", INFO, "group %s: program %s, which called its ops, has ended", group->name,
              group->gone);
}

void
agent_caller_lose(tutti_agent *agent, uint64_t client, const char *program)
{
    tutti_map_node *node;

    agent_clients_lose(&agent->clients, client);
    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll != NULL && group->caller == client) {
            orphan_group(group, program);
        }
    }
}

void
agent_caller_count(agent_group *group)
{
    char words[64];

    if (group->orphan && group->coll != NULL && group->barriers == 0) {
        group->entered = tutti_coll_group_last(group->coll, words, sizeof(words));
        agent_group_count_again(group);
    }
}

void
agent_caller_come(agent_group *group)
{
    if (group->orphan && group->coll != NULL) {
        tutti_coll_group_adopt(group->coll);
        agent_caller_count(group);
        group->orphan = false;
        tell_progress(group);
    }
}

void
agent_caller_note(agent_group *group, const agent_op *op)
{
    if (!agent_op_is_p2p(op)) {
        group->caller = op->client == NULL ? 0 : agent_client_number(op->client);
    }
}

void
agent_caller_note_given_up(const agent_op *op)
{
    agent_group *group = op->group;

    if (group != NULL && group->coll != NULL && !group->orphan && op->client != NULL &&
        agent_client_is_lost(op->client) && group->caller == agent_client_number(op->client)) {
        orphan_group(group, group->gone);
    }
}
