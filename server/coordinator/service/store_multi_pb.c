/* StoreService: several keys in one call, and Append. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/multi.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "server/coordinator/service/store_pb.h"

/* ------------------------------------------------------------------------------ multi get */

typedef struct get_call {
    tutti_coordinator_key_wait wait;
    tutti_rpc_call *call;
} get_call;

static void
reply_values(tutti_rpc_call *call, const tutti_coordinator_page *page)
{
    Tutti__V1__StoreServiceMultiGetResponse response =
        TUTTI__V1__STORE_SERVICE_MULTI_GET_RESPONSE__INIT;
    ProtobufCBinaryData *values = calloc(page->count + 1, sizeof(*values));
    uint64_t *versions = calloc(page->count + 1, sizeof(*versions));
    tutti_error err;
    size_t i;

    if (values == NULL || versions == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a page of values");
        tutti_rpc_call_fail(call, &err);
    } else {
        for (i = 0; i < page->count; i++) {
            values[i] = bytes_to_wire(page->entries[i].value);
            versions[i] = page->entries[i].version;
        }
        response.n_values = page->count;
        response.values = values;
        response.n_versions = page->count;
        response.versions = versions;
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
    free(values);
    free(versions);
}

/* The values belong to the wait and are lent until this returns. */
static void
on_get_answer(tutti_coordinator_key_wait *wait, uint64_t version, const tutti_error *err)
{
    get_call *self = tutti_container_of(wait, get_call, wait);

    (void)version;
    if (err == NULL) {
        reply_values(self->call, wait->values);
    } else {
        tutti_rpc_call_fail(self->call, err);
    }
    free(self);
}

static void
on_get_cancel(tutti_rpc_call *call, void *arg)
{
    get_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_key_wait_withdraw(&self->wait);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

/* Without waiting there is nothing to park, so the answer is given here. */
static void
get_at_once(tutti_service_loop *service_loop, tutti_rpc_call *call)
{
    const Tutti__V1__StoreServiceMultiGetRequest *wire = tutti_rpc_call_request(call);
    tutti_bytes keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    const tutti_coordinator_keys request = {wire->job, keys, wire->n_keys};
    tutti_coordinator_page page = {0};
    tutti_error err;

    keys_from_wire(wire->keys, wire->n_keys, keys);
    if (tutti_coordinator_keys_get(service_loop_enter(service_loop), &request, &page, &err) ==
        TUTTI_OK) {
        reply_values(call, &page);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    tutti_coordinator_page_fini(&page);
    service_loop_leave(service_loop);
}

/* The keys' bytes stay in the message, which lives until the call is answered. */
static tutti_code
start_get(tutti_service_loop *service_loop, tutti_rpc_call *call, get_call *self, tutti_error *err)
{
    const Tutti__V1__StoreServiceMultiGetRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(service_loop);
    tutti_bytes keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    const tutti_coordinator_wait_request request = {
        .job = wire->job,
        .keys = keys,
        .count = wire->n_keys,
        .with_values = true,
        .deadline_ns = service_loop_deadline(service_loop, call, wire->timeout_ms),
    };

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    self->call = call;
    self->wait.on_answer = on_get_answer;
    keys_from_wire(wire->keys, wire->n_keys, keys);
    return tutti_coordinator_key_wait_start(core, &request, &self->wait, err);
}

void
coord_on_multi_get(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceMultiGetRequest *wire = tutti_rpc_call_request(call);
    get_call *self;
    tutti_error err;

    if (wire->at_once) {
        get_at_once(arg, call);
        return;
    }
    self = calloc(1, sizeof(*self));
    if (start_get(arg, call, self, &err) == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_get_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ at once */

void
coord_on_check(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceCheckRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceCheckResponse response = TUTTI__V1__STORE_SERVICE_CHECK_RESPONSE__INIT;
    tutti_bytes keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    bool exist[TUTTI_COORDINATOR_WAIT_KEYS_MAX] = {false};
    protobuf_c_boolean answers[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    const tutti_coordinator_keys request = {wire->job, keys, wire->n_keys};
    bool all = false;
    tutti_error err;
    tutti_code code;
    size_t i;

    keys_from_wire(wire->keys, wire->n_keys, keys);
    code = tutti_coordinator_keys_check(service_loop_enter(arg), &request, exist, &all, &err);
    for (i = 0; i < wire->n_keys && code == TUTTI_OK; i++) {
        answers[i] = exist[i];
    }
    response.all_exist = all;
    response.n_exist = wire->n_keys;
    response.exist = answers;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

static void
entries_from_wire(Tutti__V1__Entry *const *entries, size_t count, tutti_bytes *ret_keys,
                  tutti_bytes *ret_values)
{
    size_t i;

    for (i = 0; i < count && i < TUTTI_COORDINATOR_WAIT_KEYS_MAX; i++) {
        ret_keys[i] = bytes_from_wire(entries[i]->key);
        ret_values[i] = bytes_from_wire(entries[i]->value);
    }
}

void
coord_on_multi_set(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceMultiSetRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceMultiSetResponse response =
        TUTTI__V1__STORE_SERVICE_MULTI_SET_RESPONSE__INIT;
    tutti_bytes keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    tutti_bytes values[TUTTI_COORDINATOR_WAIT_KEYS_MAX];
    const tutti_coordinator_keys request = {wire->job, keys, wire->n_entries};
    tutti_error err;
    tutti_code code;

    entries_from_wire(wire->entries, wire->n_entries, keys, values);
    code = tutti_coordinator_keys_set_leased(service_loop_enter(arg), &request, values, wire->lease,
                                             &response.version, &err);
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}

void
coord_on_append(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceAppendRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceAppendResponse response = TUTTI__V1__STORE_SERVICE_APPEND_RESPONSE__INIT;
    const tutti_coordinator_change change = {key_from_wire(wire->job, wire->key), wire->token};
    tutti_coordinator_changed changed = {0};
    tutti_error err;
    const tutti_code code = tutti_coordinator_key_append(
        service_loop_enter(arg), &change, bytes_from_wire(wire->value), &changed, &err);

    response.size = (uint64_t)changed.number;
    response.version = changed.version;
    coord_store_answer(call, code, &response.base, &err);
    service_loop_leave(arg);
}
