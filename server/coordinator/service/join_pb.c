/*
 * CoordinatorService.Join: progress while the world is not complete, then the seat.
 *
 * Progress is sent only while the agent reads; a message that it has no room for is left out. The
 * seat must not be left out: it waits until the message before it has left.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/coordinator_service.pb-c.h"

typedef struct join_call {
    tutti_coordinator_join join;
    tutti_rpc_call *call;
    tutti_coordinator_seat seat;
    bool seated;   /* `seat` is to be sent as soon as the last progress message has left */
    bool finished; /* the last word has been said */
} join_call;

static join_call *
get_join_call(tutti_coordinator_join *join)
{
    return tutti_container_of(join, join_call, join);
}

static void
finish_join(join_call *self, const tutti_error *err)
{
    self->finished = true;
    tutti_rpc_call_finish(self->call, err);
}

static void
on_progress(tutti_coordinator_join *join, const tutti_coordinator_progress *progress)
{
    join_call *self = get_join_call(join);
    Tutti__V1__JoinResponse response = TUTTI__V1__JOIN_RESPONSE__INIT;
    Tutti__V1__JoinProgress waiting = TUTTI__V1__JOIN_PROGRESS__INIT;

    if (!tutti_rpc_call_writable(self->call)) {
        return; /* it does not read: the next one will do */
    }
    waiting.joined_count = progress->joined_count;
    waiting.world_size = progress->world_size;
    waiting.missing_ranks = (uint32_t *)(uintptr_t)progress->missing_ranks;
    waiting.n_missing_ranks = progress->missing_count;
    response.answer_case = TUTTI__V1__JOIN_RESPONSE__ANSWER_WAITING;
    response.waiting = &waiting;
    tutti_rpc_call_write(self->call, &response.base, NULL);
}

static void
send_seat(join_call *self)
{
    Tutti__V1__JoinResponse response = TUTTI__V1__JOIN_RESPONSE__INIT;
    Tutti__V1__JoinResult joined = TUTTI__V1__JOIN_RESULT__INIT;
    Tutti__V1__EpochKey key = TUTTI__V1__EPOCH_KEY__INIT;

    joined.rank = self->seat.rank;
    joined.world_size = self->seat.world_size;
    joined.min_world_size = self->seat.min_world_size;
    joined.epoch = self->seat.epoch;
    joined.joined_epoch = self->seat.joined_epoch;
    joined.job_id = self->seat.job_id;
    joined.heartbeat_interval_ms = self->seat.heartbeat_interval_ms;
    joined.heartbeat_timeout_ms = self->seat.heartbeat_timeout_ms;
    joined.answers_heartbeats = true;
    key.epoch = self->seat.key.epoch;
    key.key = bytes_to_wire((tutti_bytes){self->seat.key.bytes, sizeof(self->seat.key.bytes)});
    joined.key = &key;
    response.answer_case = TUTTI__V1__JOIN_RESPONSE__ANSWER_JOINED;
    response.joined = &joined;
    tutti_rpc_call_write(self->call, &response.base, NULL);
    finish_join(self, NULL);
}

/* The seat is copied, as it may have to wait, and the core's own is only lent during this call. */
static void
on_answer(tutti_coordinator_join *join, const tutti_coordinator_seat *seat, const tutti_error *err)
{
    join_call *self = get_join_call(join);

    if (err != NULL) {
        finish_join(self, err);
        return;
    }
    self->seat = *seat;
    self->seated = true;
    if (tutti_rpc_call_writable(self->call)) {
        send_seat(self);
    } /* else on_written sends it, or on_cancel ends it */
}

/* Borrows from the message. */
static void
request_from_wire(const Tutti__V1__JoinRequest *wire, tutti_coordinator_join_request *ret_request)
{
    const Tutti__V1__AgentInfo *agent = wire->agent;

    *ret_request = (tutti_coordinator_join_request){
        .job = wire->job,
        .world_size = wire->world_size,
        .min_world_size = wire->min_world_size,
        .has_rank = wire->opt_rank_case == TUTTI__V1__JOIN_REQUEST__OPT_RANK_RANK,
        .incarnation = wire->incarnation,
        .former = {.job_id = wire->former_job_id,
                   .epoch = wire->former_epoch,
                   .joined_epoch = wire->former_joined_epoch},
    };
    if (ret_request->has_rank) {
        ret_request->rank = wire->rank;
    }
    if (agent != NULL) {
        ret_request->agent = (tutti_coordinator_agent){
            .host = agent->host,
            .host_id = agent->host_id,
            .device = agent->device,
            .version = agent->version,
            .gpus = agent->gpus,
            .allow_shared_gpu = agent->allow_shared_gpu != 0,
            .addresses = (const char *const *)agent->addresses,
            .address_count = agent->n_addresses,
            .data_address = bytes_from_wire(agent->data_address),
            .pid = agent->pid,
            .local_rank = agent->local_rank,
        };
    }
}

/* The struct lives as long as the call: on_end frees it, whatever happens before. */
static void
on_open(tutti_rpc_call *call, void *arg)
{
    tutti_coordinator_join_request request;
    join_call *self = calloc(1, sizeof(*self));
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_error err;

    tutti_rpc_call_set_user(call, self);
    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a call");
        tutti_rpc_call_finish(call, &err);
        service_loop_leave(arg);
        return;
    }
    self->call = call;
    self->join.on_progress = on_progress;
    self->join.on_answer = on_answer;
    request_from_wire(tutti_rpc_call_request(call), &request);
    request.deadline_ns = service_loop_deadline(arg, call, 0);
    if (tutti_coordinator_join_start(core, &request, &self->join, &err) != TUTTI_OK) {
        finish_join(self, &err);
    }
    service_loop_leave(arg);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    join_call *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self->seated && !self->finished) {
        send_seat(self);
    }
}

/*
 * The agent went away, or the server is drained. The core is told, unless the call has ended
 * already.
 */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    join_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self == NULL || self->finished) {
        return;
    }
    (void)service_loop_enter(arg);
    tutti_coordinator_join_withdraw(&self->join);
    finish_join(self, service_loop_say_gone(call, &err));
    service_loop_leave(arg);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    free(tutti_rpc_call_user(call));
}

const tutti_rpc_stream_ops coord_join_stream = {
    .on_open = on_open,
    .on_written = on_written,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
