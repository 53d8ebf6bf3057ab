/* StoreService: queues, and taking. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/queue.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "server/coordinator/service/store_pb.h"

/* ------------------------------------------------------------------------------ take, pop */

typedef struct take_call {
    tutti_coordinator_take take;
    tutti_rpc_call *call;
    bool from_queue;
} take_call;

static void
reply_taken(tutti_rpc_call *call, const tutti_store_entry *entry)
{
    Tutti__V1__StoreServiceTakeResponse response = TUTTI__V1__STORE_SERVICE_TAKE_RESPONSE__INIT;

    response.value = bytes_to_wire(entry->value);
    response.version = entry->version;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
reply_popped(tutti_rpc_call *call, const tutti_store_entry *entry)
{
    Tutti__V1__StoreServiceQueuePopResponse response =
        TUTTI__V1__STORE_SERVICE_QUEUE_POP_RESPONSE__INIT;

    response.value = bytes_to_wire(entry->value);
    response.version = entry->version;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* The value is lent until this returns, so it is answered at once. */
static void
on_taken(tutti_coordinator_take *take, const tutti_store_entry *entry, const tutti_error *err)
{
    take_call *self = tutti_container_of(take, take_call, take);

    if (err != NULL) {
        tutti_rpc_call_fail(self->call, err);
    } else if (self->from_queue) {
        reply_popped(self->call, entry);
    } else {
        reply_taken(self->call, entry);
    }
    free(self);
}

static void
on_take_cancel(tutti_rpc_call *call, void *arg)
{
    take_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_take_withdraw(&self->take);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

/* The call can be cancelled only when the core has it. */
static void
start_take(tutti_coordinator *core, tutti_rpc_call *call,
           const tutti_coordinator_take_request *request)
{
    take_call *self = calloc(1, sizeof(*self));
    tutti_error err;
    tutti_code code;

    if (self == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a call");
    } else {
        self->call = call;
        self->from_queue = request->from_queue;
        self->take.on_answer = on_taken;
        code = tutti_coordinator_take_start(core, request, &self->take, &err);
    }
    if (code == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_take_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
}

void
coord_on_take(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceTakeRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(arg);
    const tutti_coordinator_take_request request = {
        .key = key_from_wire(wire->job, wire->key),
        .at_once = wire->at_once,
        .token = wire->token,
        .deadline_ns = service_loop_deadline(arg, call, wire->timeout_ms),
    };

    start_take(core, call, &request);
    service_loop_leave(arg);
}

void
coord_on_queue_pop(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceQueuePopRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(arg);
    const tutti_coordinator_take_request request = {
        .key = key_from_wire(wire->job, wire->key),
        .from_queue = true,
        .at_once = wire->at_once,
        .token = wire->token,
        .deadline_ns = service_loop_deadline(arg, call, wire->timeout_ms),
    };

    start_take(core, call, &request);
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ at once */

void
coord_on_queue_push(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceQueuePushRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceQueuePushResponse response =
        TUTTI__V1__STORE_SERVICE_QUEUE_PUSH_RESPONSE__INIT;
    const tutti_coordinator_change change = {key_from_wire(wire->job, wire->key), wire->token};
    tutti_coordinator_changed changed = {0};
    tutti_error err;
    const tutti_code code = tutti_coordinator_queue_push(
        service_loop_enter(arg), &change, bytes_from_wire(wire->value), &changed, &err);

    response.length = (uint64_t)changed.number;
    response.version = changed.version;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

void
coord_on_queue_len(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceQueueLenRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceQueueLenResponse response =
        TUTTI__V1__STORE_SERVICE_QUEUE_LEN_RESPONSE__INIT;
    const tutti_coordinator_key key = key_from_wire(wire->job, wire->key);
    tutti_error err;
    const tutti_code code =
        tutti_coordinator_queue_length(service_loop_enter(arg), &key, &response.length, &err);

    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}
