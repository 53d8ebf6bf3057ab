/*
 * GetGroup: what a group's name stands for, asked of the coordinator. Control loop.
 *
 * A question holds the group's name and not the group: the group may be freed, and another one of
 * the same name made, before the answer comes. The answer is right for either of them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/data/spans.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/op/coordinator_request.h"
#include "server/agent/op/group.h"
#include "server/agent/op/group_lookup.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define CALL_NS (10 * TUTTI_NS_PER_S)

typedef struct group_ask {
    agent_coordinator_request coord_request; /* first: what ends it frees it */
    char name[TUTTI_NAME_MAX + 1];
    uint64_t number; /* of questions, in their order */
} group_ask;

static void request_group(group_ask *self);

static agent_group *
asked_group(const group_ask *self)
{
    tutti_map_node *node =
        tutti_map_find(&self->coord_request.agent->groups, tutti_bytes_of(self->name));

    return node == NULL ? NULL : tutti_container_of(node, agent_group, by_name);
}

static void
on_again(tutti_timer *timer)
{
    request_group(tutti_container_of(tutti_container_of(timer, agent_coordinator_request, again),
                                     group_ask, coord_request));
}

/*
 * Only when the coordinator is away or does not answer, which may pass; a refusal is final. For a
 * group that is open there is no hurry: the question whether it still exists is asked until it is
 * answered. For one that is not, it is asked while an op in line has time. Ops of an aborted one are
 * refused rather than kept waiting.
 */
static bool
may_ask_again(const group_ask *self, agent_group *group, const tutti_error *err)
{
    if (err->code != TUTTI_UNAVAILABLE && err->code != TUTTI_DEADLINE_EXCEEDED) {
        return false;
    }
    if (self->coord_request.agent->state == AGENT_LEAVING || group == NULL || group->checking) {
        return false;
    }
    return group->coll != NULL || agent_group_waits_until(group) != 0;
}

static tutti_code
fail_answer(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "BAD_ANSWER",
                          "the coordinator's answer has no group");
}

/*
 * Ranks come as a list or, for large groups, as spans. A coordinator that answers without a group,
 * or with more ranks than a job may have, is not believed.
 */
static void
read_group(agent_group *group, tutti_rpc_message *response)
{
    const Tutti__V1__Group *found =
        ((const Tutti__V1__GetGroupResponse *)tutti_rpc_message_get(response))->group;
    const uint32_t *ranks = found == NULL ? NULL : found->ranks;
    size_t count = found == NULL ? 0 : found->n_ranks;
    uint32_t *unpacked = NULL;
    agent_group_found said;
    tutti_code code = TUTTI_OK;
    tutti_error err;

    if (found != NULL && found->n_spans > 0) {
        code = tutti_spans_unpack(found->spans, found->n_spans, &unpacked, &count, &err);
        ranks = unpacked;
    }
    if (code == TUTTI_OK && (count == 0 || count > TUTTI_RANKS_MAX)) {
        code = fail_answer(&err);
    }
    if (code != TUTTI_OK) {
        agent_group_unknown(group, &err);
    } else {
        said = (agent_group_found){.id = found->id,
                                   .epoch = found->epoch,
                                   .ranks = ranks,
                                   .count = (uint32_t)count,
                                   .timeout_ms = found->timeout_ms};
        if (found->abort != NULL) {
            said.abort =
                (agent_group_abort){found->abort->text, found->abort->rank, found->abort->epoch};
        }
        agent_group_known(group, &said);
    }
    free(unpacked);
}

/*
 * The ops' time is up: TIMEOUT says what they waited for, instead of the deadline of a call that
 * their caller has never heard of.
 */
static void
give_up(agent_group *group, const tutti_error *err)
{
    tutti_error late = *err;

    if (err->code == TUTTI_DEADLINE_EXCEEDED && group->coll == NULL) {
        (void)TUTTI_FAIL_FOR(&late, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                             "group %s: timed out before the coordinator said who is in it: %.700s",
                             group->name, err->text);
    }
    agent_group_unknown(group, &late);
}

/*
 * Ops wait for an answer that is no older than they are, and this one is: a later question is under way. Other
 * answers are news, however old.
 */
static bool
is_outdated(const group_ask *self, const agent_group *group)
{
    return group != NULL && (group->checking || group->asking) && self->number < group->asked;
}

static void
on_group(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    group_ask *self = arg;
    agent_group *group = asked_group(self);

    self->coord_request.request = NULL;
    if (is_outdated(self, group)) {
        agent_coordinator_request_end(&self->coord_request);
        return;
    }
    if (err != NULL && may_ask_again(self, group, err)) {
        TUTTI_LOG("agent", DEBUG, "group %s could not be asked for: %s", self->name, err->text);
        agent_coordinator_request_later(&self->coord_request, on_again);
        return;
    }
    /* Frees `self`; only `group` is used from here on. */
    agent_coordinator_request_end(&self->coord_request);
    if (group != NULL && err != NULL) {
        give_up(group, err);
    } else if (group != NULL) {
        read_group(group, response);
    }
}

/*
 * Not beyond the time of the ops that want to know, if any do. When it is up for all of them, the
 * call fails at once, and they with it.
 */
static uint64_t
deadline_of(const agent_group *group)
{
    const uint64_t now = tutti_clock_ns();
    const uint64_t most = now + CALL_NS;
    uint64_t until;

    if (group == NULL || tutti_list_empty(&group->queue) ||
        (group->coll != NULL && !group->checking)) {
        return most;
    }
    until = agent_group_waits_until(group);
    if (until == 0) {
        until = now + TUTTI_NS_PER_MS;
    }
    return until < most ? until : most;
}

static void
request_group(group_ask *self)
{
    static const tutti_rpc_stub stub = {&tutti__v1__coordinator_service__descriptor, "GetGroup"};
    Tutti__V1__GetGroupRequest request = TUTTI__V1__GET_GROUP_REQUEST__INIT;
    tutti_agent *agent = self->coord_request.agent;
    const tutti_rpc_call_options options = {.deadline_ns = deadline_of(asked_group(self))};
    tutti_error err;

    request.job = (char *)(uintptr_t)agent_job(agent); /* packed at once, never written */
    request.name = self->name;
    request.opt_rank_case = TUTTI__V1__GET_GROUP_REQUEST__OPT_RANK_RANK;
    request.rank = agent->rank; /* which of a mesh's groups it is */
    request.accept_spans = true;
    if (tutti_rpc_request_start(agent->coordinator, agent->control, &stub, &request.base, &options,
                                on_group, self, &self->coord_request.request, &err) != TUTTI_OK) {
        on_group(self, NULL, &err);
    }
}

void
agent_wire_get_group(agent_group *group)
{
    group_ask *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory to ask for group %s", group->name);
        agent_group_unknown(group, &err);
        return;
    }
    agent_coordinator_request_begin(&self->coord_request, group->agent);
    memcpy(self->name, group->name, sizeof(self->name));
    self->number = ++group->agent->group_questions;
    group->asked = self->number;
    request_group(self);
}
