/*
 * MetadataService: Broadcast and AllGather of small values through the coordinator. A call is
 * parked in the core until its exchange round is complete; then all its calls are answered
 * together.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/metadata/metadata.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/metadata_service.pb-c.h"

/* A parked call. */
typedef struct meet_call {
    tutti_coordinator_meet meet;
    tutti_rpc_call *call;
} meet_call;

static meet_call *
get_metadata_call(tutti_coordinator_meet *meet)
{
    return tutti_container_of(meet, meet_call, meet);
}

static void
reply_broadcast(tutti_rpc_call *call, const tutti_bytes *value)
{
    Tutti__V1__MetadataServiceBroadcastResponse response =
        TUTTI__V1__METADATA_SERVICE_BROADCAST_RESPONSE__INIT;

    response.payload = bytes_to_wire(*value);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/*
 * The values are borrowed from the exchange round, which lives until all its calls have their
 * answer.
 */
static void
reply_all_gather(tutti_rpc_call *call, const tutti_bytes *values, size_t count)
{
    Tutti__V1__MetadataServiceAllGatherResponse response =
        TUTTI__V1__METADATA_SERVICE_ALL_GATHER_RESPONSE__INIT;
    tutti_error err;
    size_t i;

    response.values = calloc(count, sizeof(ProtobufCBinaryData));
    if (response.values == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for %zu values", count);
        tutti_rpc_call_fail(call, &err);
        return;
    }
    response.n_values = count;
    for (i = 0; i < count; i++) {
        response.values[i] = bytes_to_wire(values[i]);
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
    free(response.values);
}

static void
on_broadcast_answer(tutti_coordinator_meet *meet, const tutti_bytes *values, size_t count,
                    const tutti_error *err)
{
    meet_call *self = get_metadata_call(meet);

    (void)count; /* one */
    if (err != NULL) {
        tutti_rpc_call_fail(self->call, err);
    } else {
        reply_broadcast(self->call, values);
    }
    free(self);
}

static void
on_all_gather_answer(tutti_coordinator_meet *meet, const tutti_bytes *values, size_t count,
                     const tutti_error *err)
{
    meet_call *self = get_metadata_call(meet);

    if (err != NULL) {
        tutti_rpc_call_fail(self->call, err);
    } else {
        reply_all_gather(self->call, values, count);
    }
    free(self);
}

/*
 * The caller went away, or the server is drained. After this the core does not answer the call
 * any more.
 */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    meet_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_meet_withdraw(&self->meet);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

/* Take the payload out of the message, unless it is refused for its size anyway. */
static tutti_code
take_value(tutti_rpc_call *call, tutti_coordinator_meet_request *request, tutti_error *err)
{
    tutti_rpc_message *message = tutti_rpc_call_message(call);

    request->value_size = tutti_rpc_message_payload_bytes(message);
    if (request->value_size == 0 || request->value_size > TUTTI_COORDINATOR_MEET_VALUE_MAX) {
        return TUTTI_OK;
    }
    request->value = malloc(request->value_size);
    if (request->value == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu bytes", request->value_size);
    }
    tutti_rpc_message_read(message, request->value, request->value_size);
    return TUTTI_OK;
}

static tutti_code
add_pending(tutti_service_loop *service_loop, tutti_rpc_call *call,
            tutti_coordinator_meet_request *request, meet_call *self, tutti_error *err)
{
    TUTTI_TRY(take_value(call, request, err));

    TUTTI_TRY(
        tutti_coordinator_meet_start(service_loop_enter(service_loop), request, &self->meet, err));
    tutti_rpc_call_set_user(call, self);
    tutti_rpc_call_on_cancel(call, on_cancel);
    return TUTTI_OK;
}

/* The call has a user and can be cancelled only from here on, when the core has it. */
static void
start_metadata(tutti_service_loop *service_loop, tutti_rpc_call *call,
               tutti_coordinator_meet_request *request)
{
    meet_call *self = calloc(1, sizeof(*self));
    tutti_error err;
    tutti_code code;

    if (self == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a call");
    } else {
        self->call = call;
        self->meet.on_answer = request->kind == TUTTI_COORDINATOR_BROADCAST ? on_broadcast_answer
                                                                            : on_all_gather_answer;
        code = add_pending(service_loop, call, request, self, &err);
    }
    if (code != TUTTI_OK) {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
}

static void
on_broadcast(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__MetadataServiceBroadcastRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator_meet_request request;

    (void)service_loop_enter(arg);
    request = (tutti_coordinator_meet_request){
        .kind = TUTTI_COORDINATOR_BROADCAST,
        .member = member_from_wire(wire->member),
        .group = wire->group,
        .key = tutti_bytes_of(wire->key),
        .root = wire->root,
        .token = wire->token,
        .deadline_ns = service_loop_deadline(arg, call, wire->timeout_ms),
    };
    start_metadata(arg, call, &request);
    service_loop_leave(arg);
}

static void
on_all_gather(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__MetadataServiceAllGatherRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator_meet_request request;

    (void)service_loop_enter(arg);
    request = (tutti_coordinator_meet_request){
        .kind = TUTTI_COORDINATOR_ALL_GATHER,
        .member = member_from_wire(wire->member),
        .group = wire->group,
        .key = tutti_bytes_of(wire->key),
        .token = wire->token,
        .deadline_ns = service_loop_deadline(arg, call, wire->timeout_ms),
    };
    start_metadata(arg, call, &request);
    service_loop_leave(arg);
}

static const tutti_rpc_method methods[] = {
    TUTTI_RPC_UNARY("Broadcast", on_broadcast),
    TUTTI_RPC_UNARY("AllGather", on_all_gather),
};

const tutti_rpc_service coord_metadata_service = {
    .descriptor = &tutti__v1__metadata_service__descriptor,
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
};
