/*
 * RendezvousService. A call is parked in the core until all callers of its rendezvous are there.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/rendezvous/rendezvous.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/rendezvous_service.pb-c.h"

typedef struct meet_call {
    tutti_coordinator_caller caller;
    tutti_rpc_call *call;
} meet_call;

static void
on_meet_answer(tutti_coordinator_caller *caller, const tutti_coordinator_met *met,
               const tutti_error *err)
{
    meet_call *self = tutti_container_of(caller, meet_call, caller);
    Tutti__V1__RendezvousServiceMeetResponse response =
        TUTTI__V1__RENDEZVOUS_SERVICE_MEET_RESPONSE__INIT;

    if (err != NULL) {
        tutti_rpc_call_fail(self->call, err);
    } else {
        response.group_rank = met->rank;
        response.group_hash = met->hash;
        if (met->root_rank != TUTTI_COORDINATOR_NO_CALLER) {
            response.opt_root_rank_case =
                TUTTI__V1__RENDEZVOUS_SERVICE_MEET_RESPONSE__OPT_ROOT_RANK_ROOT_RANK;
            response.root_rank = met->root_rank;
        }
        tutti_rpc_call_reply(self->call, &response.base, NULL);
    }
    free(self);
}

/* The caller went away, or the server is drained: its place is free for another one. */
static void
on_meet_cancel(tutti_rpc_call *call, void *arg)
{
    meet_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_caller_withdraw(&self->caller);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

/* The name stays in the message, which lives until the call is answered. */
static tutti_code
start_meet(tutti_service_loop *service_loop, tutti_rpc_call *call, meet_call *self,
           tutti_error *err)
{
    const Tutti__V1__RendezvousServiceMeetRequest *wire = tutti_rpc_call_request(call);
    const bool stated = wire->opt_group_rank_case ==
                        TUTTI__V1__RENDEZVOUS_SERVICE_MEET_REQUEST__OPT_GROUP_RANK_GROUP_RANK;
    tutti_coordinator *core = service_loop_enter(service_loop);
    const tutti_coordinator_caller_request request = {
        .key = {.job = wire->job, .key = bytes_from_wire(wire->key)},
        .count = wire->count,
        .rank = stated ? wire->group_rank : TUTTI_COORDINATOR_NO_CALLER,
        .is_root = wire->is_root,
        .name = bytes_from_wire(wire->name),
        .token = wire->token,
        .deadline_ns = service_loop_deadline(service_loop, call, wire->timeout_ms),
    };

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    self->call = call;
    self->caller.on_answer = on_meet_answer;
    return tutti_coordinator_caller_start(core, &request, &self->caller, err);
}

static void
on_meet(tutti_rpc_call *call, void *arg)
{
    meet_call *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (start_meet(arg, call, self, &err) == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_meet_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

static const tutti_rpc_method methods[] = {
    TUTTI_RPC_UNARY("Meet", on_meet),
};

const tutti_rpc_service coord_rendezvous_service = {
    .descriptor = &tutti__v1__rendezvous_service__descriptor,
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
};
