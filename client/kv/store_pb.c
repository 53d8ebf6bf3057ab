/* StoreService. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/coordinator.h"
#include "client/conn/types_pb.h"
#include "client/kv/store_stream.h"
#include "rpc/follow.h"
#include "tutti/store.h"
#include "tutti/v1/store_service.pb-c.h"

#define SERVICE (&tutti__v1__store_service__descriptor)
#define PAGE_SIZE 1000
#define KEY_MAX 1024
#define WAIT_KEYS_MAX 1024
#define WATCH_AGAIN_NS (30 * TUTTI_NS_PER_S) /* the coordinator's --retry-window */

static const tutti_rpc_stub stub_get = {SERVICE, "Get"};
static const tutti_rpc_stub stub_set = {SERVICE, "Set"};
static const tutti_rpc_stub stub_compare_and_set = {SERVICE, "CompareAndSet"};
static const tutti_rpc_stub stub_add = {SERVICE, "Add"};
static const tutti_rpc_stub stub_delete = {SERVICE, "Delete"};
static const tutti_rpc_stub stub_list = {SERVICE, "List"};
static const tutti_rpc_stub stub_wait = {SERVICE, "Wait"};
static const tutti_rpc_stub stub_watch = {SERVICE, "Watch"};

/* A 0 stands behind the bytes, so a value that is text can be used as text. */
tutti_code
client_read_value(ProtobufCBinaryData value, void **ret_value, size_t *ret_size, tutti_error *err)
{
    char *copy = malloc(value.len + 1);

    if (copy == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a value of %zu bytes", value.len);
    }
    if (value.len > 0) {
        memcpy(copy, value.data, value.len);
    }
    copy[value.len] = '\0';
    *ret_value = copy;
    if (ret_size != NULL) {
        *ret_size = value.len;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ at once */

tutti_code
tutti_kv_get(tutti_client *client, const void *key, size_t key_size, void **ret_value,
             size_t *ret_size, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED(ret_value, err);

    Tutti__V1__StoreServiceGetRequest request = TUTTI__V1__STORE_SERVICE_GET_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_get);
    const Tutti__V1__StoreServiceGetResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_value(response->value, ret_value, ret_size, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

tutti_code
tutti_kv_set(tutti_client *client, const void *key, size_t key_size, const void *value,
             size_t value_size, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED_LIST(value, value_size, err);

    return tutti_kv_set_with_lease(client, key, key_size, value, value_size, 0, err);
}

tutti_code
tutti_kv_set_with_lease(tutti_client *client, const void *key, size_t key_size, const void *value,
                        size_t value_size, uint64_t lease, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED_LIST(value, value_size, err);

    Tutti__V1__StoreServiceSetRequest request = TUTTI__V1__STORE_SERVICE_SET_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_set);

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.value = client_write_bytes(value, value_size);
    request.lease = lease;
    return client_invoke(client, &call, &request.base, NULL, err);
}

/* What is there now; no key is no value. */
static tutti_code
read_swap(const Tutti__V1__StoreServiceCompareAndSetResponse *response, bool *ret_swapped,
          void **ret_value, size_t *ret_size, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (ret_value != NULL && response->exists) {
        code = client_read_value(response->value, ret_value, ret_size, err);
    } else if (ret_value != NULL) {
        *ret_value = NULL;
        if (ret_size != NULL) {
            *ret_size = 0;
        }
    }
    if (code == TUTTI_OK && ret_swapped != NULL) {
        *ret_swapped = response->swapped;
    }
    return code;
}

/*
 * Sent once only: had the first one been done, the second would see its own value and say that it
 * failed.
 */
tutti_code
tutti_kv_compare_and_set(tutti_client *client, const void *key, size_t key_size,
                         const void *expected, size_t expected_size, const void *value,
                         size_t value_size, bool *ret_swapped, void **ret_value, size_t *ret_size,
                         tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED_LIST(value, value_size, err);

    Tutti__V1__StoreServiceCompareAndSetRequest request =
        TUTTI__V1__STORE_SERVICE_COMPARE_AND_SET_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_compare_and_set);
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.value = client_write_bytes(value, value_size);
    if (expected != NULL) {
        request.opt_expected_case =
            TUTTI__V1__STORE_SERVICE_COMPARE_AND_SET_REQUEST__OPT_EXPECTED_EXPECTED;
        request.expected = client_write_bytes(expected, expected_size);
    }
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        code = read_swap(tutti_rpc_message_get(message), ret_swapped, ret_value, ret_size, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

tutti_code
tutti_kv_add(tutti_client *client, const void *key, size_t key_size, int64_t delta,
             int64_t *ret_value, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);

    Tutti__V1__StoreServiceAddRequest request = TUTTI__V1__STORE_SERVICE_ADD_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_add);
    const Tutti__V1__StoreServiceAddResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.delta = delta;
    request.token = tutti_id_draw();
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    if (ret_value != NULL) {
        *ret_value = response->value;
    }
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
tutti_kv_delete(tutti_client *client, const void *key, size_t key_size, bool *ret_existed,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);

    Tutti__V1__StoreServiceDeleteRequest request = TUTTI__V1__STORE_SERVICE_DELETE_REQUEST__INIT;
    const client_call call = client_ask_store(client, &stub_delete);
    const Tutti__V1__StoreServiceDeleteResponse *response;
    tutti_rpc_message *message = NULL;

    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    if (ret_existed != NULL) {
        *ret_existed = response->existed;
    }
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ list */

static tutti_kv_entry
read_store_entry(const Tutti__V1__Entry *message)
{
    return (tutti_kv_entry){.key = message->key.data,
                            .key_size = message->key.len,
                            .value = message->value.data,
                            .value_size = message->value.len,
                            .version = message->version};
}

/* The token of the next page: key bytes, of our own. */
typedef struct page_token {
    unsigned char bytes[4 * KEY_MAX];
    size_t size;
} page_token;

static tutti_code
keep_token(const Tutti__V1__StoreServiceListResponse *page, page_token *ret, tutti_error *err)
{
    if (page->next_page_token.len > sizeof(ret->bytes)) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the coordinator answered a page token of %zu bytes",
                              page->next_page_token.len);
    }
    ret->size =
        page->n_entries == 0 ? 0 : page->next_page_token.len; /* no progress, no next page */
    if (ret->size > 0) {
        memcpy(ret->bytes, page->next_page_token.data, ret->size);
    }
    return TUTTI_OK;
}

/* One page; *ret_more is false at the end, or when the caller has enough. */
static tutti_code
list_store_page(tutti_client *client, Tutti__V1__StoreServiceListRequest *request,
                page_token *token, tutti_kv_fn on_entry, void *arg, bool *ret_more,
                tutti_error *err)
{
    const client_call call = client_ask_coordinator(client, &stub_list);
    const Tutti__V1__StoreServiceListResponse *page;
    tutti_rpc_message *message = NULL;
    bool enough = false;
    tutti_code code;
    size_t i;

    request->page_token = client_write_bytes(token->bytes, token->size);
    TUTTI_TRY(client_invoke_again(client, &call, &request->base, &message, err));
    page = tutti_rpc_message_get(message);
    for (i = 0; i < page->n_entries && !enough; i++) {
        const tutti_kv_entry entry = read_store_entry(page->entries[i]);

        enough = !on_entry(arg, &entry);
    }
    code = keep_token(page, token, err);
    *ret_more = !enough && token->size > 0;
    tutti_rpc_message_free(message);
    return code;
}

/*
 * Page after page. Entries are lent to the function, and only during its call. What is changed
 * meanwhile may be seen or not.
 */
tutti_code
tutti_kv_list(tutti_client *client, const void *prefix, size_t prefix_size, tutti_kv_fn on_entry,
              void *arg, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(prefix, prefix_size, err);
    TUTTI_NEED(on_entry, err);

    Tutti__V1__StoreServiceListRequest request = TUTTI__V1__STORE_SERVICE_LIST_REQUEST__INIT;
    page_token token = {.size = 0};
    bool more = true;
    tutti_code code = TUTTI_OK;

    request.job = client_write_text(client_job(client));
    request.prefix = client_write_bytes(prefix, prefix_size);
    request.page_size = PAGE_SIZE;
    while (code == TUTTI_OK && more) {
        code = list_store_page(client, &request, &token, on_entry, arg, &more, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ wait, watch */

/*
 * The coordinator gives up at `timeout_ms`; the call's own deadline is a little later, so that
 * its answer can arrive.
 */
tutti_code
tutti_kv_wait(tutti_client *client, const void *const *keys, const size_t *key_sizes, size_t count,
              uint32_t timeout_ms, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(keys, count, err);
    TUTTI_NEED_LIST(key_sizes, count, err);

    Tutti__V1__StoreServiceWaitRequest request = TUTTI__V1__STORE_SERVICE_WAIT_REQUEST__INIT;
    const uint32_t wait_ms = timeout_ms != 0 ? timeout_ms : client->settings.timeout_ms;
    client_call call = client_ask_coordinator(client, &stub_wait);
    ProtobufCBinaryData wire[WAIT_KEYS_MAX];
    size_t i;

    if (count == 0 || count > WAIT_KEYS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WAIT_LIMIT",
                              "%zu keys to wait for, need 1 to %d", count, WAIT_KEYS_MAX);
    }
    for (i = 0; i < count; i++) {
        wire[i] = client_write_bytes(keys[i], key_sizes[i]);
    }
    request.job = client_write_text(client_job(client));
    request.n_keys = count;
    request.keys = wire;
    request.timeout_ms = wait_ms;
    call.deadline_ns = client_op_deadline(wait_ms);
    return client_invoke_again(client, &call, &request.base, NULL, err);
}

/* A watch under way. It goes on over the end of its stream: `history`, `from` and `skip` say where. */
typedef struct watching {
    tutti_client *client;
    client_conn *conn;
    tutti_rpc_stream *stream;
    tutti_kv_fn on_entry;
    void *arg;
    uint64_t until_ns; /* the time is up; 0 = never */
    uint64_t begin_until_ns;
    uint64_t lost_ns; /* since then nobody has answered */
    uint64_t pause_ns;
    bool stands;      /* the function was told so */
    bool heard;       /* a message has come of this stream */
    uint64_t history; /* 0 = that coordinator keeps none */
    uint64_t from;    /* the version of the next change, or of the last ... */
    uint32_t skip;    /* ... of which so many were told */
} watching;

static void
keep_place(watching *self, uint64_t version)
{
    self->skip = version == self->from ? self->skip + 1 : 1;
    self->from = version;
}

/*
 * The first message says that the watch stands, and at which version; changes of later versions
 * are not missed. It comes to the function as an entry without a key, once.
 */
static bool
notify_watcher(void *arg, const void *message)
{
    const Tutti__V1__StoreServiceWatchResponse *response = message;
    const bool begun = response->kind == TUTTI__V1__WATCH_KIND__WATCH_KIND_BEGUN;
    tutti_kv_entry entry = {0};
    watching *self = arg;

    self->heard = true;
    if (begun && self->stands) {
        return true;
    }
    if (begun) {
        self->stands = true;
        entry.version = response->entry == NULL ? 0 : response->entry->version;
        self->history = response->history;
        self->from = entry.version + 1;
    } else if (response->entry != NULL) {
        entry = read_store_entry(response->entry);
        entry.deleted = response->kind == TUTTI__V1__WATCH_KIND__WATCH_KIND_DELETED;
        keep_place(self, entry.version);
    } else {
        return true;
    }
    return self->on_entry(self->arg, &entry);
}

/*
 * How a stream of a watch ends: the caller has enough, or its time is up (both are fine once it stands), or
 * it broke.
 */
static tutti_code
watch_once(watching *self, Tutti__V1__StoreServiceWatchRequest *request, tutti_error *err)
{
    const tutti_rpc_call_options options = {.deadline_ns = self->until_ns};
    bool enough = false;
    tutti_code code;

    request->history = self->history;
    request->from_version = self->history == 0 ? 0 : self->from;
    request->skip = self->history == 0 ? 0 : self->skip;
    self->heard = false;
    TUTTI_TRY(
        tutti_rpc_stream_open(self->conn->channel, &stub_watch, &options, &self->stream, err));
    code = client_stream_hear(self->stream, &request->base, notify_watcher, self, &enough, err);
    if (enough || (self->stands && code == TUTTI_DEADLINE_EXCEEDED)) {
        return TUTTI_OK;
    }
    return code == TUTTI_OK ? TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                                             "the coordinator ended the watch")
                            : code;
}

/* When attempts to go on end: as long as a coordinator knows by default where a watch was. */
static uint64_t
give_up_ns(const watching *self)
{
    const uint64_t until_ns = self->lost_ns + WATCH_AGAIN_NS;

    return self->until_ns != 0 && self->until_ns < until_ns ? self->until_ns : until_ns;
}

/* The stream has ended with `err`: may there be another one? Until it stands a watch is as any call. */
static bool
may_watch_again(watching *self, const tutti_error *err)
{
    if (!self->stands) {
        return client_stream_again(self->client, self->conn, err, &self->begin_until_ns,
                                   &self->pause_ns);
    }
    if (self->heard) {
        self->lost_ns = tutti_clock_ns();
        self->pause_ns = 0;
    }
    if (self->history == 0 || !client_stream_resumes(err, give_up_ns(self), &self->pause_ns)) {
        return false;
    }
    /* gRPC waits longer from attempt to attempt, up to seconds: so much may be changed meanwhile that it is
     * not all kept. Of several coordinators the channel has gone on to the next one already. */
    if (!tutti_rpc_channel_has_others(self->conn->channel) && !self->heard) {
        tutti_rpc_channel_try_now(self->conn->channel);
    }
    return true;
}

tutti_code
tutti_kv_watch(tutti_client *client, const void *prefix, size_t prefix_size, uint32_t timeout_ms,
               tutti_kv_fn on_entry, void *arg, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(prefix, prefix_size, err);
    TUTTI_NEED(on_entry, err);

    Tutti__V1__StoreServiceWatchRequest request = TUTTI__V1__STORE_SERVICE_WATCH_REQUEST__INIT;
    watching self = {.client = client,
                     .on_entry = on_entry,
                     .arg = arg,
                     .until_ns = timeout_ms == 0 ? 0 : client_deadline(client, timeout_ms)};
    tutti_error why = {0};
    tutti_code code;

    TUTTI_TRY(client_conn_take(client, CLIENT_COORDINATOR, &self.conn, err));
    request.job = client_write_text(client_job(client));
    request.prefix = client_write_bytes(prefix, prefix_size);
    self.begin_until_ns = self.until_ns;
    do {
        code = watch_once(&self, &request, &why);
    } while (code != TUTTI_OK && may_watch_again(&self, &why));
    client_conn_give(client, self.conn);
    return code == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &why);
}
