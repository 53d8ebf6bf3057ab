/* Progress in heartbeats, and CoordinatorService.DescribeStall. */
#include "server/coordinator/service/progress_pb.h"

#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/shrink.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "server/coordinator/stall/progress.h"

#define TEXT_SIZE 2048

/* ------------------------------------------------------------------------------ heartbeats */

/* More pending ops than the core takes are left out. */
static void
take_group(tutti_coordinator_session *session, const Tutti__V1__GroupProgress *wire)
{
    tutti_coordinator_pending pending[TUTTI_COORDINATOR_PENDING_MAX];
    tutti_coordinator_progress_report told = {.group = wire->group,
                                              .id = wire->id,
                                              .epoch = wire->epoch,
                                              .came = wire->came,
                                              .entered = wire->entered,
                                              .left = wire->left,
                                              .last_op = wire->last_op,
                                              .last_ms = wire->last_ms,
                                              .last_sequence = wire->last_sequence,
                                              .pending = pending};
    size_t i;

    for (i = 0; i < wire->n_pending && i < TUTTI_COORDINATOR_PENDING_MAX; i++) {
        const Tutti__V1__PendingOp *one = wire->pending[i];
        const bool peer = one->opt_peer_case == TUTTI__V1__PENDING_OP__OPT_PEER_PEER;

        pending[i] = (tutti_coordinator_pending){.sequence = one->sequence,
                                                 .op = one->op,
                                                 .queued = one->queued,
                                                 .waited_ms = one->waited_ms,
                                                 .peer = peer ? (int64_t)one->peer : -1};
    }
    told.pending_count = i;
    tutti_coordinator_session_report(session, &told);
    coord_session_tell_orphan(session, wire->group, wire->id, wire->gone_program[0] != '\0');
}

/* `answers` is the number of the question that this heartbeat answers; 0 = it came by itself. */
void
coord_take_progress(tutti_coordinator_session *session, const Tutti__V1__Heartbeat *wire)
{
    size_t i;

    for (i = 0; i < wire->n_progress && i < TUTTI_COORDINATOR_GROUPS_REPORTED_MAX; i++) {
        take_group(session, wire->progress[i]);
    }
    tutti_coordinator_session_count(session, wire->ops, wire->bytes);
    if (wire->answers != 0) {
        tutti_coordinator_session_answered(session, wire->answers);
    }
}

/* ------------------------------------------------------------------------------ stalls */

typedef struct stall_call {
    tutti_coordinator_stall_query query;
    tutti_rpc_call *call;
} stall_call;

/* One stall out, with the memory that it points to. */
typedef struct wire_stall {
    Tutti__V1__Stall message;
    Tutti__V1__StalledRank ranks[TUTTI_COORDINATOR_OTHERS_MAX];
    Tutti__V1__StalledRank *pointers[TUTTI_COORDINATOR_OTHERS_MAX];
    char text[TEXT_SIZE];
} wire_stall;

static size_t
ranks_to_wire(const tutti_coordinator_stalled_rank *ranks, uint32_t count,
              Tutti__V1__StalledRank *wires, Tutti__V1__StalledRank **pointers)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        tutti__v1__stalled_rank__init(&wires[i]);
        wires[i].rank = ranks[i].rank;
        wires[i].standing = (Tutti__V1__Standing)ranks[i].standing;
        wires[i].arrived = ranks[i].arrived;
        wires[i].last_sequence = ranks[i].last_sequence;
        wires[i].last_op = text_to_wire(ranks[i].last_op);
        wires[i].last_ms = ranks[i].last_ms;
        wires[i].silent_ms = ranks[i].silent_ms;
        wires[i].reason = text_to_wire(ranks[i].reason);
        pointers[i] = &wires[i];
    }
    return count;
}

/* The sentence is made here, from the same numbers that are sent. */
static void
stall_to_wire(tutti_coordinator_stall *stall, wire_stall *wire)
{
    Tutti__V1__Stall *message = &wire->message;
    tutti_text text = tutti_text_in(wire->text, sizeof(wire->text));

    tutti__v1__stall__init(message);
    tutti_coordinator_stall_describe(stall, &text);
    message->group = text_to_wire(stall->group);
    message->group_id = stall->group_id;
    message->epoch = stall->epoch;
    message->sequence = stall->sequence;
    message->op = text_to_wire(stall->op);
    message->waited_ms = stall->waited_ms;
    message->group_size = stall->group_size;
    message->arrived = stall->arrived;
    message->n_arrived = stall->arrived_count < TUTTI_COORDINATOR_ARRIVED_MAX
                             ? stall->arrived_count
                             : TUTTI_COORDINATOR_ARRIVED_MAX;
    message->arrived_count = stall->arrived_count;
    message->missing_count = stall->missing_count;
    message->ranks = wire->pointers;
    message->n_ranks =
        ranks_to_wire(stall->others, stall->other_count, wire->ranks, wire->pointers);
    message->text = wire->text;
}

/* A group out, with the memory that it points to. */
typedef struct wire_uneven {
    Tutti__V1__UnevenGroup message;
    Tutti__V1__CountedRank ahead;
    Tutti__V1__CountedRank behind[TUTTI_COORDINATOR_OTHERS_MAX];
    Tutti__V1__CountedRank *pointers[TUTTI_COORDINATOR_OTHERS_MAX];
    char text[TEXT_SIZE];
} wire_uneven;

static void
counted_to_wire(const tutti_coordinator_counted_rank *one, Tutti__V1__CountedRank *wire)
{
    tutti__v1__counted_rank__init(wire);
    wire->rank = one->rank;
    wire->sequence = one->sequence;
    wire->last_op = text_to_wire(one->last_op);
    wire->last_ms = one->last_ms;
}

static void
uneven_to_wire(const tutti_coordinator_uneven *uneven, wire_uneven *wire)
{
    Tutti__V1__UnevenGroup *message = &wire->message;
    tutti_text text = tutti_text_in(wire->text, sizeof(wire->text));
    size_t i;

    tutti__v1__uneven_group__init(message);
    tutti_coordinator_uneven_describe(uneven, &text);
    message->group = text_to_wire(uneven->group);
    message->group_id = uneven->group_id;
    message->epoch = uneven->epoch;
    counted_to_wire(&uneven->ahead, &wire->ahead);
    message->ahead = &wire->ahead;
    message->behind_count = uneven->behind_count;
    for (i = 0; i < uneven->behind_count && i < TUTTI_COORDINATOR_OTHERS_MAX; i++) {
        counted_to_wire(&uneven->behind[i], &wire->behind[i]);
        wire->pointers[i] = &wire->behind[i];
    }
    message->n_behind = i;
    message->behind = wire->pointers;
    message->text = wire->text;
}

static void
reply_progress(tutti_rpc_call *call, const tutti_coordinator_stalls *stalls)
{
    Tutti__V1__DescribeStallResponse response = TUTTI__V1__DESCRIBE_STALL_RESPONSE__INIT;
    Tutti__V1__StalledRank ranks[TUTTI_COORDINATOR_OTHERS_MAX];
    Tutti__V1__StalledRank *rank_pointers[TUTTI_COORDINATOR_OTHERS_MAX];
    Tutti__V1__Stall *pointers[TUTTI_COORDINATOR_STALLS_MAX];
    Tutti__V1__UnevenGroup *uneven_pointers[TUTTI_COORDINATOR_UNEVEN_MAX];
    wire_stall *wires = calloc(stalls->count + 1, sizeof(*wires));
    wire_uneven *uneven = calloc(stalls->uneven_count + 1, sizeof(*uneven));
    tutti_error err;
    size_t i;

    if (wires == NULL || uneven == NULL) {
        free(wires);
        free(uneven);
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for an answer");
        tutti_rpc_call_fail(call, &err);
        return;
    }
    for (i = 0; i < stalls->count; i++) {
        stall_to_wire(&stalls->stalls[i], &wires[i]);
        pointers[i] = &wires[i].message;
    }
    for (i = 0; i < stalls->uneven_count; i++) {
        uneven_to_wire(&stalls->uneven[i], &uneven[i]);
        uneven_pointers[i] = &uneven[i].message;
    }
    response.uneven_groups = uneven_pointers;
    response.n_uneven_groups = stalls->uneven_count;
    response.job = text_to_wire(stalls->job);
    response.epoch = stalls->epoch;
    response.world_size = stalls->world_size;
    response.stalls = pointers;
    response.n_stalls = stalls->count;
    response.ranks = rank_pointers;
    response.n_ranks = ranks_to_wire(stalls->others, stalls->other_count, ranks, rank_pointers);
    response.silent_count = stalls->silent_count;
    response.lost_count = stalls->lost_count;
    tutti_rpc_call_reply(call, &response.base, NULL);
    free(wires);
    free(uneven);
}

static void
on_answer(tutti_coordinator_stall_query *query, const tutti_coordinator_stalls *stalls,
          const tutti_error *err)
{
    stall_call *self = tutti_container_of(query, stall_call, query);

    if (err != NULL) {
        tutti_rpc_call_fail(self->call, err);
    } else {
        reply_progress(self->call, stalls);
    }
    free(self);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    stall_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_stall_query_withdraw(&self->query);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

static tutti_code
start_progress(tutti_coordinator *core, tutti_rpc_call *call, stall_call *self, tutti_error *err)
{
    const Tutti__V1__DescribeStallRequest *wire = tutti_rpc_call_request(call);
    const tutti_coordinator_stall_query_request request = {.job = wire->job,
                                                           .group = wire->group,
                                                           .older_than_ms = wire->older_than_ms,
                                                           .wait_ms = wire->wait_ms};

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    self->call = call;
    self->query.on_answer = on_answer;
    return tutti_coordinator_stall_query_start(core, &request, &self->query, err);
}

void
coord_on_describe_stall(tutti_rpc_call *call, void *arg)
{
    stall_call *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (start_progress(service_loop_enter(arg), call, self, &err) == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}
