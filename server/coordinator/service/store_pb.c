/*
 * StoreService: one key. Calls that can wait (Count, Wait, and those of the other store files)
 * are parked in the core. Each has a struct here that ties it to its gRPC call; the core's
 * answer, or a cancel, frees it.
 */
#include "server/coordinator/service/store_pb.h"

#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"

/* One place for the usual end of a call. */
void
coord_store_answer(tutti_rpc_call *call, tutti_code code, const ProtobufCMessage *response,
                   const tutti_error *err)
{
    if (code == TUTTI_OK) {
        tutti_rpc_call_reply(call, response, NULL);
    } else {
        tutti_rpc_call_fail(call, err);
    }
}

/* ------------------------------------------------------------------------------ at once */

static void
on_get(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceGetRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceGetResponse response = TUTTI__V1__STORE_SERVICE_GET_RESPONSE__INIT;
    const tutti_coordinator_key key = key_from_wire(wire->job, wire->key);
    tutti_store_entry entry = {0};
    tutti_error err;
    const tutti_code code = tutti_coordinator_key_get(service_loop_enter(arg), &key, &entry, &err);

    response.value = bytes_to_wire(entry.value);
    response.version = entry.version;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

static void
on_set(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceSetRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceSetResponse response = TUTTI__V1__STORE_SERVICE_SET_RESPONSE__INIT;
    const tutti_coordinator_key key = key_from_wire(wire->job, wire->key);
    tutti_error err;
    const tutti_code code = tutti_coordinator_key_set_leased(service_loop_enter(arg), &key,
                                                             bytes_from_wire(wire->value),
                                                             wire->lease, &response.version, &err);

    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

static void
on_compare_and_set(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceCompareAndSetRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceCompareAndSetResponse response =
        TUTTI__V1__STORE_SERVICE_COMPARE_AND_SET_RESPONSE__INIT;
    const bool expects = wire->opt_expected_case ==
                         TUTTI__V1__STORE_SERVICE_COMPARE_AND_SET_REQUEST__OPT_EXPECTED_EXPECTED;
    const tutti_bytes expected = expects ? bytes_from_wire(wire->expected) : (tutti_bytes){0};
    const tutti_coordinator_swap_request request = {
        .key = key_from_wire(wire->job, wire->key),
        .expected = expects ? &expected : NULL,
        .missing_is_empty = wire->missing_is_empty,
        .value = bytes_from_wire(wire->value),
        .lease = wire->lease,
    };
    tutti_coordinator_swap swap = {0};
    tutti_error err;
    const tutti_code code =
        tutti_coordinator_key_swap(service_loop_enter(arg), &request, &swap, &err);

    response.swapped = swap.swapped;
    response.exists = swap.exists;
    response.value = bytes_to_wire(swap.entry.value);
    response.version = swap.entry.version;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

static void
on_add(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceAddRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceAddResponse response = TUTTI__V1__STORE_SERVICE_ADD_RESPONSE__INIT;
    const tutti_coordinator_change change = {key_from_wire(wire->job, wire->key), wire->token};
    tutti_coordinator_changed changed = {0};
    tutti_error err;
    const tutti_code code =
        tutti_coordinator_key_add(service_loop_enter(arg), &change, wire->delta, &changed, &err);

    response.value = changed.number;
    response.version = changed.version;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

static void
on_delete(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceDeleteRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceDeleteResponse response = TUTTI__V1__STORE_SERVICE_DELETE_RESPONSE__INIT;
    const tutti_coordinator_key key = key_from_wire(wire->job, wire->key);
    bool existed = false;
    tutti_error err;
    const tutti_code code =
        tutti_coordinator_key_delete(service_loop_enter(arg), &key, &existed, &err);

    response.existed = existed;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

/* The token of the next page is the last key of this one. */
static void
reply_page(tutti_rpc_call *call, const tutti_coordinator_page *page)
{
    Tutti__V1__StoreServiceListResponse response = TUTTI__V1__STORE_SERVICE_LIST_RESPONSE__INIT;
    Tutti__V1__Entry *entries = calloc(page->count + 1, sizeof(*entries));
    Tutti__V1__Entry **pointers = calloc(page->count + 1, sizeof(*pointers));
    tutti_error err;
    size_t i;

    if (entries == NULL || pointers == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a page of keys");
        tutti_rpc_call_fail(call, &err);
    } else {
        for (i = 0; i < page->count; i++) {
            entry_to_wire(&page->entries[i], &entries[i]);
            pointers[i] = &entries[i];
        }
        response.n_entries = page->count;
        response.entries = pointers;
        if (page->more) {
            response.next_page_token = entries[page->count - 1].key;
        }
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
    free(entries);
    free(pointers);
}

static void
on_list(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceListRequest *wire = tutti_rpc_call_request(call);
    const tutti_coordinator_list_request request = {
        .prefix = key_from_wire(wire->job, wire->prefix),
        .after = bytes_from_wire(wire->page_token),
        .page_size = wire->page_size,
        .keys_only = wire->keys_only,
    };
    tutti_coordinator_page page = {0};
    tutti_error err;

    if (tutti_coordinator_key_list(service_loop_enter(arg), &request, &page, &err) == TUTTI_OK) {
        reply_page(call, &page);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    tutti_coordinator_page_fini(&page);
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ count */

typedef struct count_call {
    tutti_coordinator_count count;
    tutti_rpc_call *call;
} count_call;

static void
on_count_answer(tutti_coordinator_count *count, uint64_t number, const tutti_error *err)
{
    count_call *self = tutti_container_of(count, count_call, count);
    Tutti__V1__StoreServiceCountResponse response = TUTTI__V1__STORE_SERVICE_COUNT_RESPONSE__INIT;

    response.count = number;
    coord_store_answer(self->call, err == NULL ? TUTTI_OK : err->code, &response.base, err);
    free(self);
}

/*
 * Called when the caller goes away or the server is drained. After this the core does not answer
 * any more.
 */
static void
on_count_cancel(tutti_rpc_call *call, void *arg)
{
    count_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_count_withdraw(&self->count);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

/* Counting a long prefix takes several slices of the loop, so it is parked too. */
static void
on_count(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceCountRequest *wire = tutti_rpc_call_request(call);
    const tutti_coordinator_key prefix = key_from_wire(wire->job, wire->prefix);
    count_call *self = calloc(1, sizeof(*self));
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_error err;
    tutti_code code;

    if (self == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a call");
    } else {
        self->call = call;
        self->count.on_answer = on_count_answer;
        code = tutti_coordinator_count_start(core, &prefix, &self->count, &err);
    }
    if (code == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_count_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ wait */

typedef struct wait_call {
    tutti_coordinator_key_wait wait;
    tutti_rpc_call *call;
} wait_call;

static void
on_wait_answer(tutti_coordinator_key_wait *wait, uint64_t version, const tutti_error *err)
{
    wait_call *self = tutti_container_of(wait, wait_call, wait);
    Tutti__V1__StoreServiceWaitResponse response = TUTTI__V1__STORE_SERVICE_WAIT_RESPONSE__INIT;

    response.version = version;
    coord_store_answer(self->call, err == NULL ? TUTTI_OK : err->code, &response.base, err);
    free(self);
}

static void
on_wait_cancel(tutti_rpc_call *call, void *arg)
{
    wait_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_key_wait_withdraw(&self->wait);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

/* The keys' bytes stay in the message, which lives until the call is answered. */
static tutti_code
start_wait(tutti_service_loop *service_loop, tutti_rpc_call *call, wait_call *self,
           tutti_error *err)
{
    const Tutti__V1__StoreServiceWaitRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(service_loop);
    tutti_bytes keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    const tutti_coordinator_wait_request request = {
        .job = wire->job,
        .keys = keys,
        .count = wire->n_keys,
        .deadline_ns = service_loop_deadline(service_loop, call, wire->timeout_ms),
    };

    keys_from_wire(wire->keys, wire->n_keys, keys);
    return tutti_coordinator_key_wait_start(core, &request, &self->wait, err);
}

static void
on_wait(tutti_rpc_call *call, void *arg)
{
    wait_call *self = calloc(1, sizeof(*self));
    tutti_error err;
    tutti_code code;

    if (self == NULL) {
        (void)service_loop_enter(arg);
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a call");
    } else {
        self->call = call;
        self->wait.on_answer = on_wait_answer;
        code = start_wait(arg, call, self, &err);
    }
    if (code == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_wait_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ the service */

static const tutti_rpc_method methods[] = {
    TUTTI_RPC_UNARY("Get", on_get),
    TUTTI_RPC_UNARY("MultiGet", coord_on_multi_get),
    TUTTI_RPC_UNARY("Check", coord_on_check),
    TUTTI_RPC_UNARY("Set", on_set),
    TUTTI_RPC_UNARY("MultiSet", coord_on_multi_set),
    TUTTI_RPC_UNARY("Append", coord_on_append),
    TUTTI_RPC_UNARY("CompareAndSet", on_compare_and_set),
    TUTTI_RPC_UNARY("Add", on_add),
    TUTTI_RPC_UNARY("Delete", on_delete),
    TUTTI_RPC_UNARY("Take", coord_on_take),
    TUTTI_RPC_UNARY("QueuePush", coord_on_queue_push),
    TUTTI_RPC_UNARY("QueuePop", coord_on_queue_pop),
    TUTTI_RPC_UNARY("QueueLen", coord_on_queue_len),
    TUTTI_RPC_UNARY("List", on_list),
    TUTTI_RPC_UNARY("Count", on_count),
    TUTTI_RPC_UNARY("Wait", on_wait),
    TUTTI_RPC_STREAM("Watch", &coord_watch_stream),
    TUTTI_RPC_UNARY("Grant", coord_on_grant),
    TUTTI_RPC_UNARY("KeepAlive", coord_on_keep_alive),
    TUTTI_RPC_UNARY("Revoke", coord_on_revoke),
    TUTTI_RPC_UNARY("Leases", coord_on_leases),
    TUTTI_RPC_STREAM("Run", &coord_store_stream),
    TUTTI_RPC_UNARY("OpenLane", coord_on_open_lane),
};

const tutti_rpc_service coord_store_service = {
    .descriptor = &tutti__v1__store_service__descriptor,
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
};
