/*
 * StoreService: several keys in one call, queues, taking.
 *
 * Calls that change something and may be sent again (append, push, take, pop) have a random
 * token. If the coordinator has done such a call already, it knows the token and gives the same
 * answer, instead of pushing or taking twice.
 */
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/coordinator.h"
#include "client/conn/types_pb.h"
#include "client/kv/store_stream.h"
#include "tutti/store.h"
#include "tutti/v1/store_service.pb-c.h"

#define SERVICE (&tutti__v1__store_service__descriptor)
#define KEYS_MAX 1024

static const tutti_rpc_stub stub_append = {SERVICE, "Append"};
static const tutti_rpc_stub stub_multi_get = {SERVICE, "MultiGet"};
static const tutti_rpc_stub stub_multi_set = {SERVICE, "MultiSet"};
static const tutti_rpc_stub stub_check = {SERVICE, "Check"};
static const tutti_rpc_stub stub_count = {SERVICE, "Count"};
static const tutti_rpc_stub stub_take = {SERVICE, "Take"};
static const tutti_rpc_stub stub_push = {SERVICE, "QueuePush"};
static const tutti_rpc_stub stub_pop = {SERVICE, "QueuePop"};
static const tutti_rpc_stub stub_len = {SERVICE, "QueueLen"};

/* A call that waits, unless it is to be at once; *ret_wait_ms is what the coordinator is told. */
static client_call
ask_and_wait(const tutti_client *client, const tutti_rpc_stub *stub, uint32_t timeout_ms,
             uint32_t *ret_wait_ms)
{
    client_call call = client_ask_store(client, stub);

    *ret_wait_ms = 0;
    if (timeout_ms != TUTTI_KV_AT_ONCE) {
        call.streams = NULL;
        *ret_wait_ms = timeout_ms != 0 ? timeout_ms : client->settings.timeout_ms;
        call.deadline_ns = client_op_deadline(*ret_wait_ms);
    }
    return call;
}

/* ------------------------------------------------------------------------------ many keys */

/* Keys are borrowed by the request, which is encoded before the call returns. */
static tutti_code
write_keys(const tutti_kv_bytes *keys, size_t count, ProtobufCBinaryData ret_wire[KEYS_MAX],
           tutti_error *err)
{
    size_t i;

    if (count == 0 || count > KEYS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "KEYS_LIMIT",
                              "%zu keys in one call, need 1 to %d", count, KEYS_MAX);
    }
    for (i = 0; i < count; i++) {
        ret_wire[i] = client_write_bytes(keys[i].data, keys[i].size);
    }
    return TUTTI_OK;
}

/* All or none. */
static tutti_code
read_values(const Tutti__V1__StoreServiceMultiGetResponse *response, size_t count,
            void **ret_values, size_t *ret_sizes, tutti_error *err)
{
    void *values[KEYS_MAX];
    size_t sizes[KEYS_MAX];
    tutti_code code = TUTTI_OK;
    size_t i = 0;

    if (response->n_values != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "%zu values came for %zu keys",
                              response->n_values, count);
    }
    while (code == TUTTI_OK && i < count) {
        code = client_read_value(response->values[i], &values[i], &sizes[i], err);
        i += code == TUTTI_OK ? 1 : 0;
    }
    while (code != TUTTI_OK && i > 0) {
        tutti_free(values[--i]);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    memcpy(ret_values, values, count * sizeof(*values));
    if (ret_sizes != NULL) {
        memcpy(ret_sizes, sizes, count * sizeof(*sizes));
    }
    return TUTTI_OK;
}

/*
 * Keys are mostly there already, and then a stream has them soonest. So a call that may wait asks at
 * once first, and waits by itself only if a key is missing.
 */
static tutti_code
ask_for_values(tutti_client *client, const client_call *call,
               Tutti__V1__StoreServiceMultiGetRequest *request, bool at_once,
               tutti_rpc_message **ret_message, tutti_error *err)
{
    client_call soon = client_ask_store(client, &stub_multi_get);
    tutti_code code;

    soon.deadline_ns = call->deadline_ns;
    if (at_once || client_store_has_streams(client)) {
        request->at_once = true;
        code = client_invoke_again(client, &soon, &request->base, ret_message, err);
        if (at_once || code == TUTTI_OK || strcmp(err->reason, "NO_KEY") != 0) {
            return code;
        }
    }
    request->at_once = false;
    return client_invoke_again(client, call, &request->base, ret_message, err);
}

tutti_code
tutti_kv_multi_get(tutti_client *client, const tutti_kv_bytes *keys, size_t count,
                   uint32_t timeout_ms, void **ret_values, size_t *ret_sizes, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_values, err);
    TUTTI_NEED_LIST(keys, count, err);

    Tutti__V1__StoreServiceMultiGetRequest request =
        TUTTI__V1__STORE_SERVICE_MULTI_GET_REQUEST__INIT;
    const client_call call = ask_and_wait(client, &stub_multi_get, timeout_ms, &request.timeout_ms);
    ProtobufCBinaryData wire[KEYS_MAX];
    tutti_rpc_message *message = NULL;
    tutti_error failed = {0};
    tutti_code code;

    TUTTI_TRY(write_keys(keys, count, wire, err));
    request.job = client_write_text(client_job(client));
    request.n_keys = count;
    request.keys = wire;
    code =
        ask_for_values(client, &call, &request, timeout_ms == TUTTI_KV_AT_ONCE, &message, &failed);
    if (code != TUTTI_OK) {
        return tutti_error_pass(err, &failed);
    }
    code = read_values(tutti_rpc_message_get(message), count, ret_values, ret_sizes, err);
    tutti_rpc_message_free(message);
    return code;
}

/*
 * Sent once only, as it has no token: after a lost answer the caller must look, since others may
 * have written meanwhile.
 */
tutti_code
tutti_kv_multi_set(tutti_client *client, const tutti_kv_bytes *keys, const tutti_kv_bytes *values,
                   size_t count, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(keys, count, err);
    TUTTI_NEED_LIST(values, count, err);

    Tutti__V1__StoreServiceMultiSetRequest request =
        TUTTI__V1__STORE_SERVICE_MULTI_SET_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_multi_set);
    ProtobufCBinaryData wire[KEYS_MAX];
    Tutti__V1__Entry entries[KEYS_MAX];
    Tutti__V1__Entry *pointers[KEYS_MAX];
    size_t i;

    TUTTI_TRY(write_keys(keys, count, wire, err));
    for (i = 0; i < count; i++) {
        tutti__v1__entry__init(&entries[i]);
        entries[i].key = wire[i];
        entries[i].value = client_write_bytes(values[i].data, values[i].size);
        pointers[i] = &entries[i];
    }
    request.job = client_write_text(client_job(client));
    request.n_entries = count;
    request.entries = pointers;
    return client_invoke(client, &call, &request.base, NULL, err);
}

static tutti_code
read_check(const Tutti__V1__StoreServiceCheckResponse *response, size_t count, bool *ret_exist,
           bool *ret_all, tutti_error *err)
{
    size_t i;

    if (response->n_exist != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "%zu answers came for %zu keys",
                              response->n_exist, count);
    }
    for (i = 0; i < count && ret_exist != NULL; i++) {
        ret_exist[i] = response->exist[i];
    }
    if (ret_all != NULL) {
        *ret_all = response->all_exist;
    }
    return TUTTI_OK;
}

tutti_code
tutti_kv_check(tutti_client *client, const tutti_kv_bytes *keys, size_t count, bool *ret_exist,
               bool *ret_all, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(keys, count, err);

    Tutti__V1__StoreServiceCheckRequest request = TUTTI__V1__STORE_SERVICE_CHECK_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_check);
    ProtobufCBinaryData wire[KEYS_MAX];
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(write_keys(keys, count, wire, err));
    request.job = client_write_text(client_job(client));
    request.n_keys = count;
    request.keys = wire;
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        code = read_check(tutti_rpc_message_get(message), count, ret_exist, ret_all, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

/* ------------------------------------------------------------------------------ numbers */

/* What the four calls below answer: a number in a message of its own. */
static void
put_number(uint64_t *ret_number, uint64_t number, tutti_rpc_message *message)
{
    if (ret_number != NULL) {
        *ret_number = number;
    }
    tutti_rpc_message_free(message);
}

tutti_code
tutti_kv_count(tutti_client *client, const void *prefix, size_t prefix_size, uint64_t *ret_count,
               tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(prefix, prefix_size, err);

    Tutti__V1__StoreServiceCountRequest request = TUTTI__V1__STORE_SERVICE_COUNT_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_count);
    const Tutti__V1__StoreServiceCountResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.prefix = client_write_bytes(prefix, prefix_size);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    put_number(ret_count, response->count, message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_append(tutti_client *client, const void *key, size_t key_size, const void *value,
                size_t value_size, uint64_t *ret_size, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED_LIST(value, value_size, err);

    Tutti__V1__StoreServiceAppendRequest request = TUTTI__V1__STORE_SERVICE_APPEND_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_append);
    const Tutti__V1__StoreServiceAppendResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.value = client_write_bytes(value, value_size);
    request.token = tutti_id_draw();
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    put_number(ret_size, response->size, message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_push(tutti_client *client, const void *key, size_t key_size, const void *value,
              size_t value_size, uint64_t *ret_length, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED_LIST(value, value_size, err);

    Tutti__V1__StoreServiceQueuePushRequest request =
        TUTTI__V1__STORE_SERVICE_QUEUE_PUSH_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_push);
    const Tutti__V1__StoreServiceQueuePushResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.value = client_write_bytes(value, value_size);
    request.token = tutti_id_draw();
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    put_number(ret_length, response->length, message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_length(tutti_client *client, const void *key, size_t key_size, uint64_t *ret_length,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);

    Tutti__V1__StoreServiceQueueLenRequest request =
        TUTTI__V1__STORE_SERVICE_QUEUE_LEN_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_len);
    const Tutti__V1__StoreServiceQueueLenResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    put_number(ret_length, response->length, message);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ taking */

tutti_code
tutti_kv_take(tutti_client *client, const void *key, size_t key_size, uint32_t timeout_ms,
              void **ret_value, size_t *ret_size, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED(ret_value, err);

    Tutti__V1__StoreServiceTakeRequest request = TUTTI__V1__STORE_SERVICE_TAKE_REQUEST__INIT;
    const client_call call = ask_and_wait(client, &stub_take, timeout_ms, &request.timeout_ms);
    const Tutti__V1__StoreServiceTakeResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.at_once = timeout_ms == TUTTI_KV_AT_ONCE;
    request.token = tutti_id_draw();
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_value(response->value, ret_value, ret_size, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

tutti_code
tutti_kv_pop(tutti_client *client, const void *key, size_t key_size, uint32_t timeout_ms,
             void **ret_value, size_t *ret_size, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED(ret_value, err);

    Tutti__V1__StoreServiceQueuePopRequest request =
        TUTTI__V1__STORE_SERVICE_QUEUE_POP_REQUEST__INIT;
    const client_call call = ask_and_wait(client, &stub_pop, timeout_ms, &request.timeout_ms);
    const Tutti__V1__StoreServiceQueuePopResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.at_once = timeout_ms == TUTTI_KV_AT_ONCE;
    request.token = tutti_id_draw();
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_value(response->value, ret_value, ret_size, err);
        tutti_rpc_message_free(message);
    }
    return code;
}
