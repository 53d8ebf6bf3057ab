/*
 * CoordinatorService: leaving, looking up ranks, and jobs. The other methods of the service are
 * in files of their own.
 *
 * What is the same in all files of this folder: a handler enters the service loop, turns the
 * message into the core's own structs (which borrow from it), calls the core, turns the answer
 * into a message (which borrows from the core) and replies, all before anything else can change
 * the core. So nothing is copied on the way.
 */
#include "server/coordinator/service/coordinator_pb.h"

#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define PAGE_MAX 1000
#define PAGE_DEFAULT 100

tutti_code
coord_page_size(uint32_t wanted, size_t *ret_size, tutti_error *err)
{
    if (wanted > PAGE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "PAGE_LIMIT",
                              "page of %u entries, at most %d", wanted, PAGE_MAX);
    }
    *ret_size = wanted == 0 ? PAGE_DEFAULT : wanted;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ leave */

/*
 * Announces that a rank is leaving. The answer has the key of the new epoch, as the agent's later
 * ops belong to it.
 */
static void
announce_coordinator(tutti_rpc_call *call, tutti_coordinator *core,
                     const tutti_coordinator_member *member, const char *reason)
{
    Tutti__V1__LeaveResponse response = TUTTI__V1__LEAVE_RESPONSE__INIT;
    Tutti__V1__EpochKey wire = TUTTI__V1__EPOCH_KEY__INIT;
    tutti_coordinator_epoch_key key;
    tutti_error err;

    if (tutti_coordinator_announce_leave(core, member, reason, &key, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    wire.epoch = key.epoch;
    wire.key = bytes_to_wire((tutti_bytes){key.bytes, sizeof(key.bytes)});
    response.key = &wire;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* Either the rank is gone now, or it only says that it is about to leave. */
static void
on_leave(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__LeaveRequest *wire = tutti_rpc_call_request(call);
    const Tutti__V1__LeaveResponse response = TUTTI__V1__LEAVE_RESPONSE__INIT;
    const tutti_coordinator_member member = member_from_wire(wire->member);
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_error err;

    if (wire->announce) {
        announce_coordinator(call, core, &member, wire->reason);
    } else if (tutti_coordinator_leave(core, &member, wire->reason, &err) == TUTTI_OK) {
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ lookup */

/* What an answer to LookupRanks is made of. */
typedef struct rank_page {
    tutti_coordinator_rank ranks[TUTTI_COORDINATOR_LOOKUP_MAX];
    Tutti__V1__RankInfo wires[TUTTI_COORDINATOR_LOOKUP_MAX];
    Tutti__V1__AgentInfo agents[TUTTI_COORDINATOR_LOOKUP_MAX];
    Tutti__V1__RankInfo *pointers[TUTTI_COORDINATOR_LOOKUP_MAX];
} rank_page;

static void
agent_to_wire(const tutti_coordinator_agent *agent, Tutti__V1__AgentInfo *ret_wire)
{
    tutti__v1__agent_info__init(ret_wire);
    ret_wire->host = text_to_wire(agent->host);
    ret_wire->host_id = text_to_wire(agent->host_id);
    ret_wire->pid = agent->pid;
    ret_wire->addresses = (char **)(uintptr_t)agent->addresses;
    ret_wire->n_addresses = agent->address_count;
    ret_wire->device = text_to_wire(agent->device);
    ret_wire->version = text_to_wire(agent->version);
    ret_wire->local_rank = agent->local_rank;
    ret_wire->gpus = text_to_wire(agent->gpus);
    ret_wire->data_address = bytes_to_wire(agent->data_address);
}

static void
rank_to_wire(rank_page *page, size_t i)
{
    const tutti_coordinator_rank *rank = &page->ranks[i];
    Tutti__V1__RankInfo *wire = &page->wires[i];

    tutti__v1__rank_info__init(wire);
    wire->rank = rank->rank;
    wire->state = (Tutti__V1__RankState)rank->state;
    wire->incarnation = rank->incarnation;
    wire->joined_epoch = rank->joined_epoch;
    wire->reason = text_to_wire(rank->reason);
    wire->since_ms = rank->since_ms;
    wire->ops = rank->ops;
    wire->bytes = rank->bytes;
    wire->counted_ms = rank->counted_ms;
    if (rank->agent != NULL) {
        agent_to_wire(rank->agent, &page->agents[i]);
        wire->agent = &page->agents[i];
    }
    page->pointers[i] = wire;
}

/* Where an agent's data plane is, with the key to it, concerns agents only. */
static void
hide_data_addresses(const tutti_rpc_call *call, rank_page *page, size_t count)
{
    size_t i;

    for (i = 0; i < count && !tutti_rpc_call_may(call, "/tutti.v1.CoordinatorService/Join"); i++) {
        if (page->wires[i].agent != NULL) {
            page->wires[i].agent->data_address = bytes_to_wire((tutti_bytes){NULL, 0});
        }
    }
}

/* The page is large, so it is not on the stack. */
static void
on_lookup_ranks(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__LookupRanksRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__LookupRanksResponse response = TUTTI__V1__LOOKUP_RANKS_RESPONSE__INIT;
    rank_page *page = malloc(sizeof(*page));
    tutti_coordinator *core = service_loop_enter(arg);
    size_t count = 0;
    size_t i;
    tutti_error err;
    tutti_code code = page == NULL
                          ? TUTTI_FAIL_MEMORY(&err, "no memory for an answer")
                          : tutti_coordinator_lookup(core, wire->job, wire->ranks, wire->n_ranks,
                                                     page->ranks, &count, &err);

    if (code == TUTTI_OK) {
        for (i = 0; i < count; i++) {
            rank_to_wire(page, i);
        }
        hide_data_addresses(call, page, count);
        response.ranks = page->pointers;
        response.n_ranks = count;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    free(page);
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ jobs */

/* Texts are borrowed from the core until the reply is encoded. */
static void
job_to_wire(const tutti_coordinator_job *job, Tutti__V1__Job *ret_wire)
{
    tutti__v1__job__init(ret_wire);
    ret_wire->name = text_to_wire(job->name);
    ret_wire->id = job->id;
    ret_wire->world_size = job->world_size;
    ret_wire->epoch = job->epoch;
    ret_wire->alive_count = job->alive_count;
    ret_wire->lost_count = job->lost_count;
    ret_wire->group_count = job->group_count;
    ret_wire->since_ms = job->since_ms;
    ret_wire->ops = job->ops;
    ret_wire->bytes = job->bytes;
}

static void
on_get_job(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__GetJobRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__GetJobResponse response = TUTTI__V1__GET_JOB_RESPONSE__INIT;
    tutti_coordinator_job job;
    Tutti__V1__Job found;
    tutti_error err;

    if (tutti_coordinator_job_get(service_loop_enter(arg), wire->job, &job, &err) == TUTTI_OK) {
        job_to_wire(&job, &found);
        response.job = &found;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/*
 * One job more than the page holds is looked for, to know whether there is another page. Its
 * token is the last name: there is no state between pages.
 */
static void
reply_jobs(tutti_rpc_call *call, tutti_coordinator *core, const char *after, size_t size)
{
    Tutti__V1__ListJobsResponse response = TUTTI__V1__LIST_JOBS_RESPONSE__INIT;
    Tutti__V1__Job wires[PAGE_MAX];
    Tutti__V1__Job *pointers[PAGE_MAX];
    tutti_coordinator_job job;
    bool more = tutti_coordinator_job_next(core, after, &job);

    response.jobs = pointers;
    while (more && response.n_jobs < size) {
        job_to_wire(&job, &wires[response.n_jobs]);
        pointers[response.n_jobs] = &wires[response.n_jobs];
        response.n_jobs++;
        more = tutti_coordinator_job_next(core, job.name, &job);
    }
    if (more) {
        response.next_page_token = wires[response.n_jobs - 1].name;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_list_jobs(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__ListJobsRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(arg);
    size_t size = 0;
    tutti_error err;

    if (coord_page_size(wire->page_size, &size, &err) == TUTTI_OK) {
        reply_jobs(call, core, wire->page_token, size);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

static const tutti_rpc_method methods[] = {
    TUTTI_RPC_STREAM("Join", &coord_join_stream),
    TUTTI_RPC_STREAM("Session", &coord_session_stream),
    TUTTI_RPC_STREAM("WatchMembers", &coord_members_stream),
    TUTTI_RPC_STREAM("Backup", &coord_backup_stream),
    TUTTI_RPC_UNARY("Leave", on_leave),
    TUTTI_RPC_UNARY("CreateGroup", coord_on_create_group),
    TUTTI_RPC_UNARY("CreateSubgroups", coord_on_create_subgroups),
    TUTTI_RPC_UNARY("GetGroup", coord_on_get_group),
    TUTTI_RPC_UNARY("ListGroups", coord_on_list_groups),
    TUTTI_RPC_UNARY("AbortGroup", coord_on_abort_group),
    TUTTI_RPC_UNARY("ShrinkGroup", coord_on_shrink_group),
    TUTTI_RPC_UNARY("DeleteGroup", coord_on_delete_group),
    TUTTI_RPC_UNARY("TranslateRanks", coord_on_translate_ranks),
    TUTTI_RPC_UNARY("LookupRanks", on_lookup_ranks),
    TUTTI_RPC_UNARY("DescribeStall", coord_on_describe_stall),
    TUTTI_RPC_UNARY("GetJob", on_get_job),
    TUTTI_RPC_UNARY("ListJobs", on_list_jobs),
};

const tutti_rpc_service coord_coordinator_service = {
    .descriptor = &tutti__v1__coordinator_service__descriptor,
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
};
