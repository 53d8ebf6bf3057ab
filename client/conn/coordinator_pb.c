/* CoordinatorService: what clients ask about jobs and ranks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/address_pick.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/coordinator.h"
#include "client/conn/pager.h"
#include "client/conn/types_pb.h"
#include "tutti/job.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define SERVICE (&tutti__v1__coordinator_service__descriptor)
#define LOOKUP_MAX 1024

static const tutti_rpc_stub stub_lookup = {SERVICE, "LookupRanks"};
static const tutti_rpc_stub stub_get_job = {SERVICE, "GetJob"};

client_call
client_ask_coordinator(const tutti_client *client, const tutti_rpc_stub *stub)
{
    return (client_call){
        .stub = stub, .kind = CLIENT_COORDINATOR, .deadline_ns = client_deadline(client, 0)};
}

/* ------------------------------------------------------------------------------ jobs, ranks */

tutti_code
tutti_job_get(tutti_client *client, tutti_job_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_info, err);

    Tutti__V1__GetJobRequest request = TUTTI__V1__GET_JOB_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_get_job);
    const Tutti__V1__Job *job;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code != TUTTI_OK) {
        return code;
    }
    job = ((const Tutti__V1__GetJobResponse *)tutti_rpc_message_get(message))->job;
    if (job == NULL) {
        code =
            TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "the coordinator answered no job");
    } else {
        client_read_job(job, ret_info);
    }
    tutti_rpc_message_free(message);
    return code;
}

/* By the connection of an agent, which follows nobody. Whether there is such a job does not matter. */
tutti_code
client_wire_leads(tutti_client *client, uint64_t deadline_ns, tutti_leader_info *ret_info,
                  tutti_error *err)
{
    Tutti__V1__GetJobRequest request = TUTTI__V1__GET_JOB_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_get_job, .kind = CLIENT_CONTROL, .deadline_ns = deadline_ns};
    tutti_rpc_message *message = NULL;
    tutti_error why = {0};
    tutti_code code;

    request.job = client_write_text(client_job(client));
    code = client_invoke(client, &call, &request.base, &message, &why);
    if (code == TUTTI_OK) {
        tutti_rpc_message_free(message);
    }
    *ret_info = (tutti_leader_info){.leads = code == TUTTI_OK || code == TUTTI_NOT_FOUND};
    if (ret_info->leads) {
        return TUTTI_OK;
    }
    if (strcmp(why.reason, "NOT_LEADER") == 0) {
        client_read_text(why.group, ret_info->leader, sizeof(ret_info->leader));
        return TUTTI_OK;
    }
    return tutti_error_pass(err, &why);
}

static void
read_rank(const Tutti__V1__RankInfo *message, tutti_rank_info *ret)
{
    const Tutti__V1__AgentInfo *agent = message->agent;

    *ret = (tutti_rank_info){.rank = message->rank,
                             .state = (tutti_rank_state)message->state,
                             .incarnation = message->incarnation,
                             .joined_epoch = message->joined_epoch,
                             .since_ms = message->since_ms,
                             .op_count = message->ops,
                             .op_bytes = message->bytes,
                             .counted_ms = message->counted_ms};
    client_read_text(message->reason, ret->reason, sizeof(ret->reason));
    if (agent == NULL) {
        return;
    }
    ret->pid = agent->pid;
    client_read_text(agent->host, ret->host, sizeof(ret->host));
    client_read_text(agent->device, ret->device, sizeof(ret->device));
    client_read_text(agent->version, ret->version, sizeof(ret->version));
    client_read_text(client_pick_address(agent->addresses, agent->n_addresses, agent->host_id),
                     ret->address, sizeof(ret->address));
}

/* [out, owned] ret_message  its struct is a LookupRanksResponse */
static tutti_code
look_up_coordinator(tutti_client *client, const uint32_t *ranks, size_t count, uint64_t deadline_ns,
                    tutti_rpc_message **ret_message, tutti_error *err)
{
    Tutti__V1__LookupRanksRequest request = TUTTI__V1__LOOKUP_RANKS_REQUEST__INIT;
    client_call call = client_ask_coordinator(client, &stub_lookup);

    call.deadline_ns = deadline_ns;
    request.job = client_write_text(client_job(client));
    request.n_ranks = count;
    request.ranks = (uint32_t *)(uintptr_t)ranks;
    return client_invoke(client, &call, &request.base, ret_message, err);
}

tutti_code
tutti_ranks_get(tutti_client *client, const uint32_t *ranks, size_t count,
                tutti_rank_info *ret_infos, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED_LIST(ranks, count, err);

    const Tutti__V1__LookupRanksResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;
    size_t i;

    if (count == 0 || count > LOOKUP_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LOOKUP_LIMIT",
                              "%zu ranks at once, need 1 to %d", count, LOOKUP_MAX);
    }
    code = look_up_coordinator(client, ranks, count, client_deadline(client, 0), &message, err);
    if (code != TUTTI_OK) {
        return code;
    }
    response = tutti_rpc_message_get(message);
    if (response->n_ranks != count) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the coordinator was asked for %zu ranks and answered %zu", count,
                              response->n_ranks);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        read_rank(response->ranks[i], &ret_infos[i]);
    }
    tutti_rpc_message_free(message);
    return code;
}

/* How many hosts these ranks name; a rank that is not there is taken to be on one of its own. */
static uint32_t
count_hosts(const Tutti__V1__LookupRanksResponse *response)
{
    uint32_t hosts = 0;
    size_t i;
    size_t k;

    for (i = 0; i < response->n_ranks; i++) {
        const Tutti__V1__AgentInfo *one = response->ranks[i]->agent;
        bool is_new = true;

        for (k = 0; k < i && one != NULL && is_new; k++) {
            const Tutti__V1__AgentInfo *other = response->ranks[k]->agent;

            is_new = other == NULL || strcmp(one->host_id, other->host_id) != 0;
        }
        hosts += is_new ? 1 : 0;
    }
    return hosts;
}

tutti_code
client_wire_host_count(tutti_client *client, uint32_t world_size, uint64_t deadline_ns,
                       uint32_t *ret_count, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    uint32_t ranks[LOOKUP_MAX];
    uint32_t i;

    if (world_size > LOOKUP_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LOOKUP_LIMIT",
                              "%u ranks at once, need 1 to %d", world_size, LOOKUP_MAX);
    }
    for (i = 0; i < world_size; i++) {
        ranks[i] = i;
    }
    TUTTI_TRY(look_up_coordinator(client, ranks, world_size, deadline_ns, &message, err));
    *ret_count = count_hosts(tutti_rpc_message_get(message));
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
client_wire_rank_states(tutti_client *client, uint64_t deadline_ns, tutti_rank_state *ret_states,
                        size_t *ret_count, tutti_error *err)
{
    const Tutti__V1__LookupRanksResponse *response;
    tutti_rpc_message *message = NULL;
    size_t i;

    TUTTI_TRY(look_up_coordinator(client, NULL, 0, deadline_ns, &message, err));
    response = tutti_rpc_message_get(message);
    for (i = 0; i < response->n_ranks && i < LOOKUP_MAX; i++) {
        ret_states[i] = (tutti_rank_state)response->ranks[i]->state;
    }
    *ret_count = i;
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ all jobs */

static const tutti_rpc_stub stub_list_jobs = {&tutti__v1__coordinator_service__descriptor,
                                              "ListJobs"};

void
client_read_job(const void *item, tutti_job_info *ret)
{
    const Tutti__V1__Job *job = item;

    *ret = (tutti_job_info){.id = job->id,
                            .world_size = job->world_size,
                            .epoch = job->epoch,
                            .alive_count = job->alive_count,
                            .lost_count = job->lost_count,
                            .group_count = job->group_count,
                            .since_ms = job->since_ms,
                            .op_count = job->ops,
                            .op_bytes = job->bytes};
    client_read_text(job->name, ret->name, sizeof(ret->name));
}

static tutti_code
ask_jobs(tutti_client *client, const char *token, tutti_rpc_message **ret_response,
         client_page *ret_page, tutti_error *err)
{
    Tutti__V1__ListJobsRequest request = TUTTI__V1__LIST_JOBS_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_list_jobs);
    const Tutti__V1__ListJobsResponse *response;
    tutti_code code;

    request.page_size = CLIENT_PAGE_SIZE;
    request.page_token = client_write_text(token);
    code = client_invoke(client, &call, &request.base, ret_response, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(*ret_response);
        *ret_page = (client_page){.items = (void *const *)response->jobs,
                                  .count = response->n_jobs,
                                  .next_token = response->next_page_token};
    }
    return code;
}

static tutti_code
read_job_item(const void *item, void *ret_item, tutti_error *err)
{
    (void)err;
    client_read_job(item, ret_item);
    return TUTTI_OK;
}

tutti_code
tutti_jobs_list(tutti_client *client, tutti_job_info **ret_infos, size_t *ret_count,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED(ret_count, err);

    static const client_pager pager = {.what = "jobs",
                                       .item_size = sizeof(tutti_job_info),
                                       .ask = ask_jobs,
                                       .read = read_job_item};
    void *items = NULL;
    const tutti_code code = client_list_pages(client, &pager, &items, ret_count, err);

    if (code == TUTTI_OK) {
        *ret_infos = items;
    }
    return code;
}
