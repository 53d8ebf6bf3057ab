/*
 * Who calls the ops of a group: its collectives, and its sends and receives, which may be another
 * program's. A program that dies between two ops leaves no call that could fail: its lease ends
 * (service/lease_pb.c), and here is remembered whose turn it was. What came of that client and is still
 * in line ends as any op whose caller has gone.
 *
 * A call of the client may come after the end of its lease: both were on their way when the program
 * ended. It looks like somebody who calls again, until it is given up, too.
 */
#include "server/agent/op/caller.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

/* The last ones are remembered, as several programs of a rank may send and receive. */
static void
note_messenger(agent_group *group, uint64_t client)
{
    size_t last = 0;

    while (last + 1 < AGENT_MESSENGERS && group->messengers[last] != client) {
        last++;
    }
    memmove(&group->messengers[1], group->messengers, last * sizeof(group->messengers[0]));
    group->messengers[0] = client;
}

static bool
is_messenger(const agent_group *group, uint64_t client)
{
    size_t i = 0;

    while (i < AGENT_MESSENGERS && group->messengers[i] != client) {
        i++;
    }
    return i < AGENT_MESSENGERS;
}

/* Is another one there, as far as an agent can know? */
static bool
has_other_messenger(const agent_group *group, uint64_t client)
{
    bool has = false;
    size_t i;

    for (i = 0; i < AGENT_MESSENGERS && !has; i++) {
        has = group->messengers[i] != client &&
              agent_clients_has(&group->agent->clients, group->messengers[i]);
    }
    return has;
}

/*
 * Nobody calls here any more what the client has called. Who calls collectives may send and receive as
 * well; who sends and receives is taken for the caller until there was a collective.
 */
static void
lose_client(agent_group *group, uint64_t client, const char *program)
{
    const bool calls = group->caller == client;
    const bool last = (calls || is_messenger(group, client)) && !has_other_messenger(group, client);
    const bool orphan = !group->orphan && (group->caller == 0 ? last : calls);
    const bool silent = !group->silent && last;
    const uint32_t rank = group->agent->rank;
    tutti_error err;

    if (!orphan && !silent) {
        return;
    }
    if (program != group->gone) {
        (void)snprintf(group->gone, sizeof(group->gone), "%s", program);
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE",
                         "rank %" PRIu32 " does not call it: its program %s has ended", rank,
                         group->gone);
    TUTTI_LOG("agent", INFO, "group %s: program %s, which called its ops, has ended", group->name,
              group->gone);
    if (silent) {
        tutti_coll_group_silence(group->coll, &err);
        group->silent = true;
    }
    if (orphan) {
        tutti_coll_group_orphan(group->coll, &err);
        group->orphan = true;
        tell_progress(group);
    }
}

void
agent_caller_lose(tutti_agent *agent, uint64_t client, const char *program)
{
    tutti_map_node *node;

    agent_clients_lose(&agent->clients, client);
    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll != NULL) {
            lose_client(group, client, program);
        }
    }
}

bool
agent_caller_count(agent_group *group)
{
    char words[64];
    uint64_t last;

    if (group->coll == NULL || group->barriers > 0) {
        return false;
    }
    last = tutti_coll_group_last(group->coll, words, sizeof(words));
    if (last <= group->entered) {
        return false;
    }
    group->entered = last;
    agent_group_count_again(group);
    return true;
}

void
agent_caller_come(agent_group *group)
{
    if (group->silent && group->coll != NULL) {
        tutti_coll_group_silence(group->coll, NULL);
        group->silent = false;
    }
    if (group->orphan && group->coll != NULL) {
        tutti_coll_group_adopt(group->coll);
        (void)agent_caller_count(group);
        group->orphan = false;
        tell_progress(group);
    }
}

void
agent_caller_note(agent_group *group, const agent_op *op)
{
    const uint64_t client = op->client == NULL ? 0 : agent_client_number(op->client);

    if (!agent_op_is_p2p(op)) {
        group->caller = client;
    } else if (client != 0) {
        note_messenger(group, client);
    }
}

void
agent_caller_note_given_up(const agent_op *op)
{
    if (op->group != NULL && op->group->coll != NULL && op->client != NULL &&
        agent_client_is_lost(op->client)) {
        lose_client(op->group, agent_client_number(op->client), op->group->gone);
    }
}
