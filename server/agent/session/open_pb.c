/*
 * What the leader asks the coordinator for: who is in the group, where those ranks are, and a mesh
 * with the groups of the session. Nothing is asked twice: who opens a session can do that again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/spans.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/session/session.h"
#include "server/agent/state/state.h"
#include "tutti/v1/coordinator_service.pb-c.h"
#include "tutti/v1/mesh_service.pb-c.h"

#define CALL_NS (10 * TUTTI_NS_PER_S)
#define FORGET_NS (2 * TUTTI_NS_PER_S)
#define LOOKUP_MAX 1024 /* ranks of one call, as the coordinator has it */

/* One question. */
typedef struct session_ask {
    tutti_list_node link; /* in the session's asks */
    agent_session *session;
    tutti_rpc_request *request;
    void (*on_answer)(agent_session *session, const void *response);
} session_ask;

static char *
text_of(const char *text)
{
    return (char *)(uintptr_t)text; /* packed at once, never written */
}

static void
fill_leader(const tutti_agent *agent, Tutti__V1__Member *ret_member)
{
    tutti__v1__member__init(ret_member);
    ret_member->job = text_of(agent_job(agent));
    ret_member->rank = agent->rank;
    ret_member->incarnation = agent->incarnation;
}

static void
on_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    session_ask *self = arg;
    agent_session *session = self->session;

    tutti_list_remove(&self->link);
    if (session->state == AGENT_SESSION_CLOSING) {
        if (err != NULL && self->on_answer == NULL) {
            TUTTI_LOG("agent", WARN, "the mesh of session %s stays: %s", session->id, err->text);
        }
        agent_session_look(session);
    } else if (err != NULL) {
        agent_session_close(session, err);
    } else {
        self->on_answer(session, tutti_rpc_message_get(response));
    }
    free(self);
}

/* If it cannot be asked the session ends. A coordinator that is away for a moment is a delay, as it
 * is for all else. */
static void
ask(agent_session *session, const tutti_rpc_stub *stub, const ProtobufCMessage *request,
    uint64_t wait_ns, void (*on_answer)(agent_session *session, const void *response))
{
    session_ask *self = calloc(1, sizeof(*self));
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + wait_ns,
                                            .wait_for_ready = on_answer != NULL};
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory to ask the coordinator");
        agent_session_close(session, &err);
        return;
    }
    self->session = session;
    self->on_answer = on_answer;
    tutti_list_add(&session->asks, &self->link);
    if (tutti_rpc_request_start(session->agent->coordinator, session->agent->control, stub, request,
                                &options, on_reply, self, &self->request, &err) != TUTTI_OK) {
        on_reply(self, NULL, &err);
    }
}

void
agent_session_stop_asking(agent_session *session)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &session->asks)
    {
        tutti_rpc_request_cancel(tutti_container_of(link, session_ask, link)->request);
    }
}

/* ------------------------------------------------------------------------------ the mesh */

static void
on_mesh(agent_session *session, const void *response)
{
    (void)response;
    agent_session_step(session);
}

static void
ask_mesh(agent_session *session, const uint32_t *ranks)
{
    static const tutti_rpc_stub stub = {&tutti__v1__mesh_service__descriptor, "CreateMesh"};
    Tutti__V1__CreateMeshRequest request = TUTTI__V1__CREATE_MESH_REQUEST__INIT;
    Tutti__V1__Member member;
    char *dims[] = {text_of("g"), text_of("w"), text_of("f")};
    int32_t shape[] = {(int32_t)session->group_count, (int32_t)session->group_size, 1};

    fill_leader(session->agent, &member);
    request.member = &member;
    request.name = session->mesh;
    request.shape = shape;
    request.n_shape = 3;
    request.dim_names = dims;
    request.n_dim_names = 3;
    request.ranks = (int32_t *)(uintptr_t)ranks; /* all below 2^31 */
    request.n_ranks = session->worker_count;
    request.ephemeral = true; /* an agent that dies cannot delete it */
    session->opening++;
    session->meshed = true;
    ask(session, &stub, &request.base, CALL_NS, on_mesh);
}

/* The session ends by now, and waits for this answer alone. */
void
agent_session_forget_mesh(agent_session *session)
{
    static const tutti_rpc_stub stub = {&tutti__v1__mesh_service__descriptor, "DeleteMesh"};
    Tutti__V1__DeleteMeshRequest request = TUTTI__V1__DELETE_MESH_REQUEST__INIT;
    Tutti__V1__Member member;

    if (!session->meshed) {
        return;
    }
    session->meshed = false;
    fill_leader(session->agent, &member);
    request.member = &member;
    request.name = session->mesh;
    request.allow_missing = true;
    ask(session, &stub, &request.base, FORGET_NS, NULL);
}

/* ------------------------------------------------------------------------------ the workers */

static agent_worker *
worker_of(agent_session *session, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < session->worker_count; i++) {
        if (session->workers[i].rank == rank) {
            return &session->workers[i];
        }
    }
    return NULL;
}

static void
read_places(agent_worker *worker, const Tutti__V1__AgentInfo *info)
{
    size_t i;

    (void)snprintf(worker->host, sizeof(worker->host), "%s", info->host);
    (void)snprintf(worker->device, sizeof(worker->device), "%s", info->device);
    for (i = 0; i < info->n_addresses && i < TUTTI_ADDRESSES_MAX; i++) {
        (void)snprintf(worker->addresses[i], sizeof(worker->addresses[i]), "%s",
                       info->addresses[i]);
    }
    worker->address_count = (uint32_t)i;
    agent_worker_pick(worker, strcmp(info->host_id, worker->session->agent->host_id) == 0);
}

/* It may end the session. */
static void
take_rank_info(agent_session *session, const Tutti__V1__RankInfo *info)
{
    agent_worker *worker = worker_of(session, info->rank);
    tutti_error err;

    if (worker == NULL || worker->channel != NULL) {
        return;
    }
    if (info->state != TUTTI__V1__RANK_STATE__RANK_STATE_ALIVE || info->agent == NULL) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "RANK_LOST",
                             "rank %" PRIu32 " is gone: %.700s", info->rank,
                             info->reason[0] != '\0' ? info->reason : "it has not joined");
        tutti_error_set_op(&err, "", 0, (int32_t)info->rank);
        agent_session_close(session, &err);
        return;
    }
    read_places(worker, info->agent);
    agent_worker_connect(worker);
}

static void
on_ranks(agent_session *session, const void *response)
{
    const Tutti__V1__LookupRanksResponse *found = response;
    size_t i;

    for (i = 0; i < found->n_ranks && session->state == AGENT_SESSION_OPENING; i++) {
        take_rank_info(session, found->ranks[i]);
    }
}

static void
ask_ranks(agent_session *session, uint32_t *ranks)
{
    static const tutti_rpc_stub stub = {&tutti__v1__coordinator_service__descriptor, "LookupRanks"};
    Tutti__V1__LookupRanksRequest request = TUTTI__V1__LOOKUP_RANKS_REQUEST__INIT;

    request.job = text_of(agent_job(session->agent));
    request.ranks = ranks;
    request.n_ranks = session->worker_count; /* AGENT_SESSION_WORKERS_MAX are LOOKUP_MAX */
    session->opening += session->worker_count;
    ask(session, &stub, &request.base, CALL_NS, on_ranks);
}

/* ------------------------------------------------------------------------------ the group */

static tutti_code
check_group(agent_session *session, const Tutti__V1__GetGroupResponse *response, uint32_t count,
            tutti_error *err)
{
    const char *name = response->group->name;

    if (response->group_rank < 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s: one of its ranks has to lead "
                              "the session",
                              session->agent->rank, name);
    }
    if (count == 0 || count % session->group_count != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                              "%" PRIu32 " groups of the %" PRIu32
                              " ranks of group %s: the number has to divide that",
                              session->group_count, count, name);
    }
    if (count > AGENT_SESSION_WORKERS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                              "group %s has %" PRIu32 " ranks, a session at most %d workers", name,
                              count, AGENT_SESSION_WORKERS_MAX);
    }
    return TUTTI_OK;
}

/* Who shows no token is known here alone: the workers see the leader's certificate. */
static tutti_code
check_rights(agent_session *session, const uint32_t *ranks, uint32_t count, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    uint32_t i;

    for (i = 0; i < count && session->token == NULL && code == TUTTI_OK; i++) {
        code = tutti_rpc_call_check_rank(session->call, ranks[i], err);
    }
    return code;
}

/* [in] ranks  as many as check_group has seen */
static void
take_group(agent_session *session, const Tutti__V1__GetGroupResponse *response, uint32_t *ranks,
           uint32_t count)
{
    tutti_error err;
    tutti_code code = check_group(session, response, count, &err);

    code = code == TUTTI_OK ? check_rights(session, ranks, count, &err) : code;
    code = code == TUTTI_OK ? agent_session_hire(session, ranks, count, &err) : code;
    if (code != TUTTI_OK) {
        agent_session_close(session, &err);
        return;
    }
    session->leader = (uint32_t)response->group_rank;
    session->opening = 1; /* until all is asked for */
    ask_mesh(session, ranks);
    if (session->state == AGENT_SESSION_OPENING) {
        ask_ranks(session, ranks);
    }
    agent_session_step(session);
}

static void
on_session_group(agent_session *session, const void *response)
{
    const Tutti__V1__GetGroupResponse *found = response;
    uint32_t *unpacked = NULL;
    size_t count = found->group == NULL ? 0 : found->group->n_ranks;
    tutti_code code = TUTTI_OK;
    tutti_error err;

    if (found->group == NULL) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_INTERNAL, "BAD_ANSWER",
                              "the coordinator's answer has no group");
    } else if (found->group->n_spans > 0) {
        code =
            tutti_spans_unpack(found->group->spans, found->group->n_spans, &unpacked, &count, &err);
    }
    if (code != TUTTI_OK) {
        agent_session_close(session, &err);
    } else {
        take_group(session, found, unpacked != NULL ? unpacked : found->group->ranks,
                   (uint32_t)count);
    }
    free(unpacked);
}

void
agent_session_ask_group(agent_session *session, const char *group)
{
    static const tutti_rpc_stub stub = {&tutti__v1__coordinator_service__descriptor, "GetGroup"};
    Tutti__V1__GetGroupRequest request = TUTTI__V1__GET_GROUP_REQUEST__INIT;

    request.job = text_of(agent_job(session->agent));
    request.name = text_of(group);
    request.opt_rank_case = TUTTI__V1__GET_GROUP_REQUEST__OPT_RANK_RANK;
    request.rank = session->agent->rank;
    request.accept_spans = true;
    ask(session, &stub, &request.base, CALL_NS, on_session_group);
}
