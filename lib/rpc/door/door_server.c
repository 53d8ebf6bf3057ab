/*
 * A public server: a server, its loops, and what the inside borrows from its caller, which here is
 * kept (the descriptor set, the tables of methods).
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/door/door.h"
#include "rpc/server.h"
#include "tutti-rpc/server.h"
#include "tutti_rpc_descriptor_set.h"

/* One service's methods, as the inside wants them. */
typedef struct door_methods {
    struct door_methods *next;
    tutti_rpc_stream_ops *ops; /* as many as methods */
    tutti_rpc_method rows[];
} door_methods;

struct tuttirpc_server {
    tutti_rpc_server_options options;
    unsigned char *set;
    tutti_rpc_loop *loops[TUTTIRPC_THREADS_MAX];
    size_t loop_count;
    size_t service_count;
    door_methods *methods;
    tutti_rpc_server *inside;
    bool started;
    pthread_mutex_t lock; /* of ended */
    pthread_cond_t changed;
    bool ended;
};

static const char *
text_or_none(const char *text)
{
    return text == NULL ? "" : text;
}

static void
take_options(tutti_rpc_server_options *inside, const tuttirpc_server_options *options)
{
    tutti_rpc_server_options_init(inside, options->listen);
    inside->insecure = options->insecure;
    inside->tls_cert = text_or_none(options->tls_cert);
    inside->tls_key = text_or_none(options->tls_key);
    inside->tls_client_ca = text_or_none(options->tls_client_ca);
    inside->token_file = text_or_none(options->token_file);
    inside->reflection = !options->no_reflection;
    if (options->receive_bytes_max != 0) {
        inside->receive_bytes_max = options->receive_bytes_max;
    }
    if (options->grace_ms != 0) {
        inside->grace_ns = rpc_door_ns(options->grace_ms);
    }
    /* It would end the process (on_deaf), which is not for a library to do. */
    inside->self_check_ns = 0;
}

/* The caller's set and ours behind each other are one set: the files are a repeated field. */
static tutti_code
join_sets(tuttirpc_server *self, const void *set, size_t set_bytes, tutti_error *err)
{
    self->set = malloc(set_bytes + tutti_rpc_descriptor_set_size);
    if (self->set == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no memory for a descriptor set");
    }
    memcpy(self->set, set, set_bytes);
    memcpy(self->set + set_bytes, tutti_rpc_descriptor_set, tutti_rpc_descriptor_set_size);
    return TUTTI_OK;
}

static tutti_code
make_loops(tuttirpc_server *self, size_t count, tutti_error *err)
{
    if (count > TUTTIRPC_THREADS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "%zu threads for a server: give at most %d", count,
                              TUTTIRPC_THREADS_MAX);
    }
    while (self->loop_count < count) {
        TUTTI_TRY(tutti_rpc_loop_new("tutti-rpc", &self->loops[self->loop_count], err));
        self->loop_count++;
    }
    return TUTTI_OK;
}

static tutti_code
set_up_server(tuttirpc_server *self, const tuttirpc_server_options *options, const void *set,
              size_t set_bytes, tutti_error *err)
{
    take_options(&self->options, options);
    TUTTI_TRY(join_sets(self, set, set_bytes, err));
    TUTTI_TRY(make_loops(self, options->threads == 0 ? 1 : options->threads, err));
    return tutti_rpc_server_new(&self->options,
                                (tutti_bytes){self->set, set_bytes + tutti_rpc_descriptor_set_size},
                                self->loops[0], &self->inside, err);
}

tuttirpc_code
tuttirpc_server_new(const tuttirpc_server_options *options, const void *set, size_t set_bytes,
                    tuttirpc_server **ret_server, tuttirpc_status *status)
{
    tuttirpc_server *self = calloc(1, sizeof(*self));
    tutti_error err;
    tutti_code code;

    rpc_door_begin();
    if (self == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a server");
        return rpc_door_status(code, &err, status);
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
    code = options->listen == NULL
               ? TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                "no address to listen on: give one, 127.0.0.1:50051 say")
               : set_up_server(self, options, set, set_bytes, &err);
    if (code != TUTTI_OK) {
        tuttirpc_server_free(self);
        return rpc_door_status(code, &err, status);
    }
    *ret_server = self;
    return TUTTIRPC_OK;
}

/* ------------------------------------------------------------------------------ services */

static void
copy_method(tutti_rpc_method *row, tutti_rpc_stream_ops *ops, const tuttirpc_method *from)
{
    *row = (tutti_rpc_method){.name = from->name, .on_call = from->on_call, .open = from->open};
    if (from->stream != NULL) {
        *ops = (tutti_rpc_stream_ops){.on_open = from->stream->on_open,
                                      .on_message = from->stream->on_message,
                                      .on_half_close = from->stream->on_half_close,
                                      .on_written = from->stream->on_written,
                                      .on_cancel = from->stream->on_cancel,
                                      .on_end = from->stream->on_end};
        row->stream = ops;
    }
}

/* NULL = no memory. The server frees it. */
static door_methods *
keep_methods(tuttirpc_server *self, const tuttirpc_method *methods, size_t count)
{
    door_methods *kept = calloc(1, sizeof(*kept) + count * sizeof(kept->rows[0]));
    size_t i;

    if (kept == NULL) {
        return NULL;
    }
    kept->next = self->methods;
    self->methods = kept;
    kept->ops = calloc(count + 1, sizeof(*kept->ops));
    for (i = 0; kept->ops != NULL && i < count; i++) {
        copy_method(&kept->rows[i], &kept->ops[i], &methods[i]);
    }
    return kept->ops == NULL ? NULL : kept;
}

tuttirpc_code
tuttirpc_server_add(tuttirpc_server *server, const struct ProtobufCServiceDescriptor *service,
                    const tuttirpc_method *methods, size_t method_count, void *self,
                    tuttirpc_status *status)
{
    const door_methods *kept = NULL;
    tutti_error err;

    if (server->service_count == TUTTIRPC_SERVICES_MAX) {
        return rpc_door_status(TUTTI_FAIL_FOR(&err, TUTTI_RESOURCE_EXHAUSTED, "METHOD_LIMIT",
                                              "a server has at most %d services",
                                              TUTTIRPC_SERVICES_MAX),
                               &err, status);
    }
    kept = keep_methods(server, methods, method_count);
    if (kept == NULL) {
        return rpc_door_status(TUTTI_FAIL_MEMORY(&err, "no memory for a service"), &err, status);
    }
    tutti_rpc_server_add(
        server->inside,
        &(tutti_rpc_service){.descriptor = service,
                             .methods = kept->rows,
                             .method_count = method_count,
                             .self = self,
                             .loop = server->loops[server->service_count % server->loop_count]});
    server->service_count++;
    return TUTTIRPC_OK;
}

/* ------------------------------------------------------------------------------ life */

static void
on_server_stopped(void *arg)
{
    tuttirpc_server *self = arg;

    (void)pthread_mutex_lock(&self->lock);
    self->ended = true;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
await_end(tuttirpc_server *self)
{
    (void)pthread_mutex_lock(&self->lock);
    while (!self->ended) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

tuttirpc_code
tuttirpc_server_start(tuttirpc_server *server, tuttirpc_status *status)
{
    tutti_error err;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < server->loop_count && code == TUTTI_OK; i++) {
        code = tutti_rpc_loop_start(server->loops[i], &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_rpc_server_start(server->inside, &err);
    }
    if (code == TUTTI_OK) {
        server->started = true;
        tutti_rpc_server_set_health(server->inside, "", true);
    }
    return rpc_door_status(code, &err, status);
}

const char *
tuttirpc_server_address(const tuttirpc_server *server, size_t index)
{
    const tutti_address *addresses = NULL;
    size_t count = 0;

    if (server->started) {
        addresses = tutti_rpc_server_addresses(server->inside, &count);
    }
    return index < count ? addresses[index].text : NULL;
}

static void
stop_loops(tuttirpc_server *self)
{
    size_t i;

    for (i = 0; i < self->loop_count; i++) {
        tutti_rpc_loop_stop(self->loops[i]);
    }
}

static void
free_loops(tuttirpc_server *self)
{
    while (self->loop_count > 0) {
        tutti_rpc_loop_free(self->loops[--self->loop_count]);
    }
}

/* A server that has served is freed behind its loops; one that has not needs them to end. */
void
tuttirpc_server_stop(tuttirpc_server *server)
{
    if (server->started) {
        tutti_rpc_server_stop(server->inside, on_server_stopped, server);
        await_end(server);
        stop_loops(server);
        tutti_rpc_server_free(server->inside);
        server->started = false;
    } else {
        tutti_rpc_server_free(server->inside);
        stop_loops(server);
    }
    server->inside = NULL;
    free_loops(server);
}

void
tuttirpc_server_free(tuttirpc_server *server)
{
    if (server == NULL) {
        return;
    }
    tuttirpc_server_stop(server);
    while (server->methods != NULL) {
        door_methods *kept = server->methods;

        server->methods = kept->next;
        free(kept->ops);
        free(kept);
    }
    (void)pthread_cond_destroy(&server->changed);
    (void)pthread_mutex_destroy(&server->lock);
    free(server->set);
    free(server);
}
