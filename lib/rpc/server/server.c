/*
 * A server: made, started and freed on the thread of its owner; between start and stop its loops
 * run it (call.c, accept.c), and drain.c ends it.
 *
 * Before tutti_rpc_server_start the struct belongs to one thread, and add, authorize, guard and
 * the on_ functions write it without a lock. Start makes the routes, binds, and only then lets
 * gRPC serve; from then on all of it is read only, except what server_private.h marks as atomic
 * or as a loop's. If start fails halfway, the server can only be freed: gRPC's server exists then
 * and has to be shut down first (abandon_server).
 */
#include <assert.h>
#include <grpc/grpc.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/log.h"
#include "base/os/process.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/loop/token.h"
#include "rpc/message/descriptors_pb.h"
#include "rpc/message/service.h"
#include "rpc/server.h"
#include "rpc/server/health_pb.h"
#include "rpc/server/listen.h"
#include "rpc/server/probe.h"
#include "rpc/server/reflection_pb.h"
#include "rpc/server/server_private.h"
#include "rpc/util/process.h"

#define METADATA_BYTES_MAX 16384
#define ARGS_MAX 16

tutti_code
tutti_rpc_server_new(const tutti_rpc_server_options *options, tutti_bytes descriptor_set,
                     tutti_rpc_loop *loop, tutti_rpc_server **ret_server, tutti_error *err)
{
    tutti_rpc_server *self;
    tutti_code code;

    TUTTI_TRY(rpc_check_process(err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a server");
    }
    self->options = options;
    self->loop = loop;
    atomic_init(&self->lives, 1);
    rpc_health_init(&self->health, loop);
    code = rpc_listen_check(options, self->listeners, &self->listener_count, err);
    if (code == TUTTI_OK) {
        code = rpc_descriptors_open(descriptor_set, &self->descriptors, err);
    }
    if (code == TUTTI_OK) {
        code = rpc_reflection_init(&self->reflection, self->descriptors, self->services,
                                   &self->service_count, err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_server_free(self);
        return code;
    }
    *ret_server = self;
    return TUTTI_OK;
}

static void
add_server_arg(tutti_rpc_server *self, const tutti_rpc_service *service)
{
    assert(!self->started && self->service_count < TUTTI_RPC_SERVICES_MAX);
    assert(service->descriptor != NULL && service->loop != NULL);
    self->services[self->service_count++] = *service;
}

void
tutti_rpc_server_add(tutti_rpc_server *server, const tutti_rpc_service *service)
{
    add_server_arg(server, service);
    rpc_health_set(&server->health, rpc_service_name(service->descriptor), false);
}

void
tutti_rpc_server_authorize(tutti_rpc_server *server, tutti_rpc_authorize_fn authorize, void *arg)
{
    assert(!server->started);
    server->authorize = authorize;
    server->authorize_arg = arg;
}

void
tutti_rpc_server_guard(tutti_rpc_server *server, const tutti_rpc_guard *guard, bool asks, void *arg)
{
    assert(!server->started);
    server->guard = guard;
    server->guard_arg = arg;
    server->guard_asks = asks;
}

void
tutti_rpc_server_on_drain(tutti_rpc_server *server, void (*on_drain)(void *arg), void *arg)
{
    assert(!server->started);
    server->on_drain = on_drain;
    server->on_drain_arg = arg;
}

void
tutti_rpc_server_on_deaf(tutti_rpc_server *server, void (*on_deaf)(void *arg), void *arg)
{
    assert(!server->started);
    server->probe.on_deaf = on_deaf;
    server->probe.arg = arg;
}

/*
 * gRPC takes milliseconds in an int. At least 1, since 0 means "never" or "default" in some of
 * its options.
 */
static int
set_server_milliseconds(uint64_t ns)
{
    const uint64_t ms = ns / TUTTI_NS_PER_MS;

    return ms == 0 ? 1 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static void
put_server_arg(grpc_arg *args, size_t *count, const char *key, int value)
{
    assert(*count < ARGS_MAX);
    args[(*count)++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

/*
 * What the limits are for stands in docs/security.md. SO_REUSEPORT is off so that a second server
 * on the port is an error and not a silent sharer; compression is off (bit 0, identity, alone)
 * because tensors do not shrink and a small message could unpack to a huge one. The size of
 * metadata is kept at METADATA_BYTES_MAX, which has room for a token of 8000 bytes.
 */
static size_t
fill_args(const tutti_rpc_server *self, grpc_arg args[ARGS_MAX])
{
    const tutti_rpc_server_options *options = self->options;
    size_t n = 0;

    put_server_arg(args, &n, GRPC_ARG_ALLOW_REUSEPORT, 0);
    put_server_arg(args, &n, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);
    put_server_arg(args, &n, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                   options->receive_bytes_max > INT_MAX ? INT_MAX
                                                        : (int)options->receive_bytes_max);
    put_server_arg(args, &n, GRPC_ARG_MAX_CONCURRENT_STREAMS,
                   options->streams_max > INT_MAX ? INT_MAX : (int)options->streams_max);
    put_server_arg(args, &n, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                   set_server_milliseconds(options->handshake_ns));
    put_server_arg(args, &n, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                   set_server_milliseconds(options->ping_interval_min_ns));
    put_server_arg(args, &n, GRPC_ARG_KEEPALIVE_TIME_MS,
                   options->keepalive_ns == 0 ? INT_MAX
                                              : set_server_milliseconds(options->keepalive_ns));
    put_server_arg(args, &n, GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   set_server_milliseconds(options->keepalive_timeout_ns));
    put_server_arg(args, &n, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    put_server_arg(args, &n, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    put_server_arg(args, &n, GRPC_ARG_MAX_METADATA_SIZE, METADATA_BYTES_MAX);
    args[n++] = (grpc_arg){.type = GRPC_ARG_POINTER,
                           .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                           .value.pointer = {self->quota, grpc_resource_quota_arg_vtable()}};
    assert(n <= ARGS_MAX);
    return n;
}

static void
make_grpc(tutti_rpc_server *self)
{
    const uint64_t wanted = self->options->memory_quota;
    const uint64_t quota = wanted == 0 ? tutti_process_memory() / 4 : wanted;
    grpc_arg args[ARGS_MAX];
    grpc_channel_args all;
    size_t i;

    self->quota = grpc_resource_quota_create("server");
    self->quota_bytes = quota > SIZE_MAX ? SIZE_MAX : (size_t)quota;
    grpc_resource_quota_resize(self->quota, self->quota_bytes);
    all = (grpc_channel_args){.num_args = fill_args(self, args), .args = args};
    self->grpc = grpc_server_create(&all, NULL);
    for (i = 0; i < self->server_loop_count; i++) {
        grpc_server_register_completion_queue(self->grpc,
                                              rpc_loop_queue(self->server_loops[i].loop), NULL);
    }
    for (i = 0; i < self->route_count; i++) {
        /*
         * A method whose client streams gets its messages by reads; the others get the one
         * request together with the call.
         */
        rpc_route *route = &self->routes[i];

        route->handle = grpc_server_register_method(self->grpc, route->path, NULL,
                                                    route->client_streams
                                                        ? GRPC_SRM_PAYLOAD_NONE
                                                        : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER,
                                                    0);
        assert(route->handle != NULL); /* no method twice */
    }
}

/*
 * Bind every address. The first that fails ends the start; those bound before are closed when the
 * server is freed. `strangers` is kept for authorize.c.
 */
static tutti_code
bind_all(tutti_rpc_server *self, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < self->listener_count && code == TUTTI_OK; i++) {
        code = rpc_listen_bind(&self->listeners[i], self->grpc, self->options, err);
        self->addresses[i] = self->listeners[i].address;
        self->strangers = self->strangers || (self->listeners[i].tls == NULL &&
                                              !tutti_address_is_local(&self->addresses[i]));
    }
    return code;
}

/* To a descriptor that the process was given by the one that has started it, which reads until its
 * end; so it is closed, and no file is left, however both die. */
static tutti_code
write_port_descriptor(const char *number, const char *text, size_t size, tutti_error *err)
{
    uint64_t descriptor = 0;
    ssize_t sent;

    TUTTI_TRY(tutti_parse_uint(number, INT_MAX, &descriptor, err));
    sent = write((int)descriptor, text, size);
    if (sent != (ssize_t)size) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_FAILED_PRECONDITION, "BAD_OPTION",
            "option --port-file: the address could not be written to descriptor %s", number);
    }
    (void)close((int)descriptor);
    return TUTTI_OK;
}

static tutti_code
write_port_file(const tutti_rpc_server *self, tutti_error *err)
{
    char text[TUTTI_ADDRESSES_MAX * (TUTTI_ADDRESS_MAX + 1)];
    tutti_text lines = tutti_text_in(text, sizeof(text));
    size_t i;

    if (self->options->port_file[0] == '\0') {
        return TUTTI_OK;
    }
    for (i = 0; i < self->listener_count; i++) {
        tutti_text_add(&lines, "%s\n", self->addresses[i].text);
    }
    if (strncmp(self->options->port_file, "fd:", 3) == 0) {
        return write_port_descriptor(self->options->port_file + 3, text, lines.used, err);
    }
    return tutti_file_write(self->options->port_file, text, lines.used, 0644, err);
}

/*
 * Add the services that every server has. They come last, so that reflection lists the program's
 * own first.
 */
static void
add_own(tutti_rpc_server *self)
{
    const tutti_rpc_service health = rpc_health_service(&self->health);
    const tutti_rpc_service v1 = rpc_reflection_service_v1(&self->reflection, self->loop);
    const tutti_rpc_service v1alpha = rpc_reflection_service_v1alpha(&self->reflection, self->loop);

    add_server_arg(self, &health);
    if (self->options->reflection) {
        add_server_arg(self, &v1);
        add_server_arg(self, &v1alpha);
    }
}

/*
 * Everything that can fail, in the order in which it costs least: refusals of an open server and
 * a bad token file before a port is taken. The port file is written last, because its readers
 * connect at once.
 */
static tutti_code
prepare_server(tutti_rpc_server *self, tutti_error *err)
{
    const bool asks =
        self->authorize != NULL || self->guard_asks || self->options->token_file[0] != '\0';

    add_own(self);
    TUTTI_TRY(
        rpc_listen_check_open(self->listeners, self->listener_count, self->options, asks, err));
    if (self->options->token_file[0] != '\0') {
        TUTTI_TRY(rpc_token_open(self->options->token_file, &self->token, err));
    }
    TUTTI_TRY(rpc_routes_make(self, err));
    make_grpc(self);
    TUTTI_TRY(bind_all(self, err));
    return write_port_file(self, err);
}

/*
 * gRPC asserts that a server was shut down before it is destroyed, also if it never started. A
 * queue of its own takes the event, since the loops may not run.
 */
static void
abandon_server(tutti_rpc_server *self)
{
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    grpc_event event;

    grpc_server_shutdown_and_notify(self->grpc, queue, self);
    grpc_completion_queue_shutdown(queue);
    do {
        event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    } while (event.type != GRPC_QUEUE_SHUTDOWN);
    grpc_completion_queue_destroy(queue);
}

/*
 * Start the probe on the loop, to which its timer belongs. A server that drains already gets
 * none: rpc_probe_stop has run.
 */
static void
on_probe(tutti_rpc_task *task)
{
    tutti_rpc_server *self = tutti_container_of(task, tutti_rpc_server, look);

    if (!atomic_load(&self->draining)) {
        rpc_probe_start(&self->probe, self->options->self_check_ns);
    }
    rpc_server_release(self);
}

tutti_code
tutti_rpc_server_start(tutti_rpc_server *server, tutti_error *err)
{
    size_t i;

    assert(!server->started && server->grpc == NULL);
    TUTTI_TRY(prepare_server(server, err));
    server->started = true;
    /* Before any call can come: tutti_rpc_server_expose may read the routes from here on. */
    atomic_store(&server->routed, true);
    rpc_health_start(&server->health);
    grpc_server_start(server->grpc);
    for (i = 0; i < server->server_loop_count; i++) {
        rpc_server_hold(server);
        tutti_rpc_loop_post(server->server_loops[i].loop, &server->server_loops[i].fill);
    }
    rpc_probe_init(&server->probe, server->loop, server->addresses, server->listener_count);
    rpc_server_hold(server);
    server->look.on_run = on_probe;
    tutti_rpc_loop_post(server->loop, &server->look);
    return TUTTI_OK;
}

const tutti_address *
tutti_rpc_server_addresses(const tutti_rpc_server *server, size_t *ret_count)
{
    *ret_count = server->listener_count;
    return server->addresses;
}

void
tutti_rpc_server_set_health(tutti_rpc_server *server, const char *service, bool serving)
{
    rpc_health_set(&server->health, service, serving);
}

size_t
tutti_rpc_server_call_count(const tutti_rpc_server *server)
{
    return atomic_load(&server->call_count);
}

void
tutti_rpc_server_free(tutti_rpc_server *server)
{
    size_t i;

    if (server == NULL) {
        return;
    }
    assert(!server->started || server->stopped);
    if (server->grpc != NULL) {
        if (!server->started) {
            abandon_server(server);
        }
        grpc_server_destroy(server->grpc);
        grpc_resource_quota_unref(server->quota);
    }
    for (i = 0; i < server->listener_count; i++) {
        rpc_listen_close(&server->listeners[i]);
    }
    rpc_routes_free(server);
    rpc_descriptors_close(server->descriptors);
    rpc_token_close(server->token);
    rpc_health_fini(&server->health);
    rpc_reflection_fini(&server->reflection);
    free(server);
}
