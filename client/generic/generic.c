/*
 * Connections of generic calls: their life, and who is told of what has come.
 *
 * One lock for a connection and all its calls: they are cold, and few. The loop is started with the first call that
 * is started, so a program that only blocks has no thread for it.
 */
#include "client/generic/generic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/local.h"
#include "base/os/thread.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"

#define RECEIVE_BYTES_DEFAULT ((uint64_t)16 << 20)
#define METHOD_BYTES_MAX 256

void
tutti_generic_options_init(tutti_generic_options *options)
{
    *options = (tutti_generic_options){.size = sizeof(*options)};
}

void
tutti_generic_call_options_init(tutti_generic_call_options *options)
{
    *options = (tutti_generic_call_options){.size = sizeof(*options)};
}

/* ------------------------------------------------------------------------------ its life */

static tutti_code
open_channel(const char *address, const tutti_generic_options *given, tutti_rpc_channel **ret,
             tutti_error *err)
{
    const tutti_rpc_channel_options options = {
        .tls_ca = given->tls_ca,
        .tls_cert = given->tls_cert,
        .tls_key = given->tls_key,
        .tls_name = given->tls_name,
        .token = given->token,
        .token_file = given->token_file,
        .keepalive_ns = given->keepalive_ms * TUTTI_NS_PER_MS,
        .keepalive_timeout_ns = given->keepalive_timeout_ms * TUTTI_NS_PER_MS,
        .receive_bytes_max =
            given->receive_bytes_max == 0 ? RECEIVE_BYTES_DEFAULT : given->receive_bytes_max,
    };

    return tutti_rpc_channel_open(address, &options, ret, err);
}

static void
init_generic(tutti_generic *self)
{
    self->owner = getpid();
    self->fd = -1;
    tutti_list_init(&self->live);
    tutti_list_init(&self->ready);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
}

tutti_code
tutti_generic_open(const char *address, const tutti_generic_options *options,
                   tutti_generic **ret_generic, tutti_error *err)
{
    TUTTI_NEED(ret_generic, err);
    TUTTI_NEED(address, err);

    tutti_generic_options own;
    tutti_generic *self;
    tutti_code code;

    tutti_generic_options_init(&own);
    if (options != NULL) {
        TUTTI_TRY(client_take_struct(&own, sizeof(own), options, options->size,
                                     "options of a connection", err));
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    code = client_library_enter(err);
    if (code == TUTTI_OK) {
        code = open_channel(address, &own, &self->channel, err);
        if (code != TUTTI_OK) {
            client_library_leave();
        }
    }
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    init_generic(self);
    *ret_generic = self;
    return TUTTI_OK;
}

/* With nobody in it any more. */
static void
free_generic(tutti_generic *self)
{
    size_t i;

    for (i = 0; i < self->method_count; i++) {
        free(self->methods[i]);
    }
    if (self->fd >= 0) {
        (void)close(self->fd);
    }
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

/* With the lock: cancel what runs, and wait for its end. */
static void
end_calls(tutti_generic *self)
{
    tutti_list_node *at;

    for (at = self->live.next; at != &self->live; at = at->next) {
        tutti_generic_call *call = tutti_container_of(at, tutti_generic_call, live);

        call->cancelled = true;
        generic_post(call);
    }
    while (!tutti_list_empty(&self->live)) {
        (void)tutti_cond_wait_until(&self->changed, &self->lock, TUTTI_THREAD_FOR_EVER);
    }
}

void
tutti_generic_close(tutti_generic *generic)
{
    bool last;

    if (generic == NULL || client_check_owner(generic->owner, NULL) != TUTTI_OK) {
        return; /* a child of fork has no threads for it, and its locks may be held for ever */
    }
    (void)pthread_mutex_lock(&generic->lock);
    generic->closed = true;
    end_calls(generic);
    (void)pthread_mutex_unlock(&generic->lock);
    if (generic->loop != NULL) {
        tutti_rpc_loop_stop(generic->loop);
        tutti_rpc_loop_free(generic->loop);
    }
    tutti_rpc_channel_close(generic->channel);
    client_library_leave();
    (void)pthread_mutex_lock(&generic->lock);
    generic->loop = NULL;
    last = generic->call_count == 0;
    (void)pthread_mutex_unlock(&generic->lock);
    if (last) {
        free_generic(generic);
    }
}

/* ------------------------------------------------------------------------------ what a call is given */

static tutti_code
check_method(const char *method, tutti_error *err)
{
    const char *second = method[0] != '/' ? NULL : strchr(method + 1, '/');
    bool fine = second != NULL && second > method + 1 && second[1] != '\0' &&
                strlen(method) < METHOD_BYTES_MAX;
    size_t i;

    for (i = 0; fine && method[i] != '\0'; i++) {
        fine = method[i] > ' ' && method[i] < 0x7f;
    }
    if (!fine) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_METHOD",
                              "\"%.64s\" is not the path of a method, as in "
                              "/tutti.v1.StoreService/Get, of less than %d bytes",
                              method, METHOD_BYTES_MAX);
    }
    return TUTTI_OK;
}

static bool
is_key(const char *key)
{
    const size_t length = strlen(key);
    const bool binary = length >= 4 && strcmp(key + length - 4, "-bin") == 0;

    return length > 0 && !binary && strncmp(key, "grpc-", 5) != 0 &&
           strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == length;
}

static bool
is_value(const char *value)
{
    while (*value >= ' ' && *value < 0x7f) {
        value++;
    }
    return *value == '\0';
}

static tutti_code
check_metadata(const tutti_generic_call_options *options, tutti_error *err)
{
    size_t i;

    if (options->metadata_count > TUTTI_GENERIC_METADATA_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_METADATA",
                              "%zu pieces of metadata, at most %d", options->metadata_count,
                              TUTTI_GENERIC_METADATA_MAX);
    }
    for (i = 0; i < options->metadata_count; i++) {
        if (!is_key(options->metadata[2 * i]) || !is_value(options->metadata[2 * i + 1])) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_METADATA",
                                  "metadata \"%.32s\": a key is lower case and does not begin with "
                                  "grpc- or end with -bin, a value is printable ASCII",
                                  options->metadata[2 * i]);
        }
    }
    return TUTTI_OK;
}

tutti_code
generic_read_options(const char *method, const tutti_generic_call_options *given,
                     tutti_generic_call_options *ret_options, tutti_rpc_call_options *ret_rpc,
                     tutti_error *err)
{
    size_t i;

    tutti_generic_call_options_init(ret_options);
    *ret_rpc = (tutti_rpc_call_options){0};
    TUTTI_TRY(check_method(method, err));
    if (given == NULL) {
        return TUTTI_OK;
    }
    TUTTI_TRY(client_take_struct(ret_options, sizeof(*ret_options), given, given->size,
                                 "options of a call", err));
    TUTTI_TRY(check_metadata(ret_options, err));
    if (ret_options->timeout_ms != 0) {
        ret_rpc->deadline_ns =
            tutti_clock_add(tutti_clock_ns(), ret_options->timeout_ms * TUTTI_NS_PER_MS);
    }
    ret_rpc->wait_for_ready = ret_options->wait;
    ret_rpc->extra_count = ret_options->metadata_count;
    for (i = 0; i < ret_options->metadata_count; i++) {
        ret_rpc->extra[i] =
            (tutti_rpc_pair){ret_options->metadata[2 * i], ret_options->metadata[2 * i + 1]};
    }
    return TUTTI_OK;
}

/* With the lock. */
static tutti_code
add_method(tutti_generic *generic, const char *path, generic_method **ret_method, tutti_error *err)
{
    const size_t bytes = strlen(path) + 1;
    generic_method *method;

    if (generic->method_count == GENERIC_METHODS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "METHOD_LIMIT",
                              "more than %d methods on one connection: open another one",
                              GENERIC_METHODS_MAX);
    }
    method = malloc(sizeof(*method) + bytes);
    if (method == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a method");
    }
    memcpy(method->path, path, bytes);
    method->stub = (tutti_rpc_stub){NULL, method->path};
    generic->methods[generic->method_count++] = method;
    *ret_method = method;
    return TUTTI_OK;
}

tutti_code
generic_find_stub(tutti_generic *generic, const char *path, const tutti_rpc_stub **ret_stub,
                  tutti_error *err)
{
    generic_method *method = NULL;
    tutti_code code = TUTTI_OK;
    size_t i;

    TUTTI_TRY(client_check_owner(generic->owner, err));
    (void)pthread_mutex_lock(&generic->lock);
    for (i = 0; i < generic->method_count && method == NULL; i++) {
        method = strcmp(generic->methods[i]->path, path) == 0 ? generic->methods[i] : NULL;
    }
    if (method == NULL) {
        code = add_method(generic, path, &method, err);
    }
    (void)pthread_mutex_unlock(&generic->lock);
    if (code == TUTTI_OK) {
        *ret_stub = &method->stub;
    }
    return code;
}

void
generic_give_details(const tutti_buf *details, tutti_generic_details *ret_details)
{
    if (ret_details != NULL) {
        ret_details->size = details->size;
        if (details->size > 0) {
            memcpy(ret_details->data, details->data, details->size);
        }
    }
}

tutti_code
tutti_generic_unary(tutti_generic *generic, const char *method, const void *request,
                    size_t request_bytes, const tutti_generic_call_options *options,
                    tutti_generic_message **ret_message, tutti_generic_details *ret_details,
                    tutti_error *err)
{
    TUTTI_NEED(generic, err);
    TUTTI_NEED(ret_message, err);
    TUTTI_NEED(method, err);
    TUTTI_NEED_LIST(request, request_bytes, err);

    const tutti_rpc_stub *stub = NULL;
    tutti_generic_call_options own;
    tutti_rpc_call_options rpc;
    tutti_buf details;
    tutti_code code;

    tutti_buf_init(&details, TUTTI_GENERIC_DETAILS_MAX);
    generic_give_details(&details, ret_details);
    TUTTI_TRY(generic_read_options(method, options, &own, &rpc, err));
    TUTTI_TRY(generic_find_stub(generic, method, &stub, err));
    TUTTI_TRY(tutti_rpc_pack_bytes((tutti_bytes){request, request_bytes}, &rpc.packed, err));
    rpc.details = &details;
    code = tutti_rpc_invoke(generic->channel, stub, NULL, NULL, &rpc, ret_message, err);
    generic_give_details(&details, ret_details);
    tutti_buf_fini(&details);
    return code;
}

/* ------------------------------------------------------------------------------ who is told */

/* With the lock: the descriptor as it should be. [in] before  whether something was ready */
static void
show_fd(const tutti_generic *self, bool before)
{
    tutti_local_show(self->fd, before, !tutti_list_empty(&self->ready));
}

void
generic_tell(tutti_generic_call *call)
{
    tutti_generic *generic = call->generic;
    const bool before = !tutti_list_empty(&generic->ready);

    if (call->user != NULL && !call->freed && tutti_list_empty(&call->ready)) {
        tutti_list_add(&generic->ready, &call->ready);
        show_fd(generic, before);
    }
    (void)pthread_cond_broadcast(&generic->changed);
}

void
generic_hush(tutti_generic_call *call)
{
    const bool before = !tutti_list_empty(&call->generic->ready);

    tutti_list_remove(&call->ready);
    show_fd(call->generic, before);
}

tutti_code
tutti_generic_fd(tutti_generic *generic, int *ret_fd, tutti_error *err)
{
    TUTTI_NEED(generic, err);
    TUTTI_NEED(ret_fd, err);

    int fd;

    (void)pthread_mutex_lock(&generic->lock);
    if (generic->fd < 0) {
        generic->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        show_fd(generic, false);
    }
    fd = generic->fd;
    (void)pthread_mutex_unlock(&generic->lock);
    if (fd < 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no descriptor for a connection: %s", strerror(errno));
    }
    *ret_fd = fd;
    return TUTTI_OK;
}

bool
tutti_generic_ready(tutti_generic *generic, void **ret_user)
{
    tutti_list_node *first;

    (void)pthread_mutex_lock(&generic->lock);
    first = tutti_list_pop(&generic->ready);
    if (first != NULL) {
        show_fd(generic, true);
        *ret_user = tutti_container_of(first, tutti_generic_call, ready)->user;
    }
    (void)pthread_mutex_unlock(&generic->lock);
    return first != NULL;
}

void
generic_leave(tutti_generic *generic)
{
    const bool last = --generic->call_count == 0 && generic->closed && generic->loop == NULL;

    (void)pthread_mutex_unlock(&generic->lock);
    if (last) {
        free_generic(generic);
    }
}

/* [in, out] the loop of the connection, made with its first call. With the lock. */
static tutti_code
start_loop(tutti_generic *generic, tutti_error *err)
{
    tutti_rpc_loop *loop = NULL;
    tutti_code code;

    TUTTI_TRY(tutti_rpc_loop_new("tutti-generic", &loop, err));
    code = tutti_rpc_loop_start(loop, err);
    if (code != TUTTI_OK) {
        tutti_rpc_loop_stop(loop);
        tutti_rpc_loop_free(loop);
        return code;
    }
    generic->loop = loop;
    return TUTTI_OK;
}

tutti_code
generic_enter(tutti_generic *generic, tutti_generic_call *call, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    (void)pthread_mutex_lock(&generic->lock);
    if (generic->loop == NULL) {
        code = start_loop(generic, err);
    }
    if (code == TUTTI_OK) {
        generic->call_count++;
        tutti_list_add(&generic->live, &call->live);
    }
    (void)pthread_mutex_unlock(&generic->lock);
    return code;
}

/* ------------------------------------------------------------------------------ messages */

size_t
tutti_generic_message_bytes(const tutti_generic_message *message)
{
    return tutti_rpc_message_payload_bytes(message);
}

void
tutti_generic_message_take(tutti_generic_message *message, void *ret_bytes)
{
    tutti_rpc_message_read(message, ret_bytes, tutti_rpc_message_payload_bytes(message));
    tutti_rpc_message_free(message);
}

void
tutti_generic_message_free(tutti_generic_message *message)
{
    tutti_rpc_message_free(message);
}
