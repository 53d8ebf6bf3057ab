/*
 * Channels: a connection that is made with the first call, made again with a backoff, and shared by
 * calls up to the server's limit.
 */
#include <assert.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/util/process.h"
#include "sim/core/core_private.h"

#define CONNECT_NS (5 * TUTTI_NS_PER_S) /* GRPC_ARG_MIN_RECONNECT_BACKOFF_MS of lib/rpc */
#define LOOK_NS (10 * TUTTI_NS_PER_MS)  /* while a connection is being made */

struct grpc_channel {
    tutti_list_node link;
    int process;
    bool lame;
    bool destroyed;
    char address[96];
    grpc_connectivity_state state;
    core_conn *conn;
    tutti_list_node waiting; /* calls without a connection */
    uint64_t began_ns;       /* to connect */
    uint64_t backoff_ns;     /* of the next attempt that fails */
    uint64_t first_ns;
    uint64_t most_ns;
    uint64_t keepalive_ns;
    uint64_t patience_ns;
    bool trying;
    char why[240];
};

static struct {
    tutti_list_node channels;
    char methods[512][96];
    size_t method_count;
} ours;

static void try_now(grpc_channel *self);

static uint64_t
milliseconds(const grpc_channel_args *args, const char *key, int otherwise)
{
    const int ms = core_arg(args, key, otherwise);

    return ms <= 0 ? 0 : (uint64_t)(unsigned)ms * TUTTI_NS_PER_MS;
}

static grpc_channel *
new_channel(void)
{
    grpc_channel *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->process = sim_process();
    tutti_list_init(&self->waiting);
    tutti_list_add(&ours.channels, &self->link);
    return self;
}

grpc_channel *
grpc_lame_client_channel_create(const char *target, grpc_status_code code, const char *message)
{
    grpc_channel *self = new_channel();

    (void)target;
    (void)code;
    (void)message;
    self->lame = true;
    return self;
}

grpc_channel *
grpc_channel_create(const char *target, grpc_channel_credentials *creds,
                    const grpc_channel_args *args)
{
    grpc_channel *self = new_channel();

    (void)creds;
    (void)snprintf(self->address, sizeof(self->address), "%s", target);
    self->first_ns = milliseconds(args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 1000);
    self->most_ns = milliseconds(args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 120000);
    self->keepalive_ns = core_arg(args, GRPC_ARG_KEEPALIVE_TIME_MS, INT32_MAX) == INT32_MAX
                             ? 0
                             : milliseconds(args, GRPC_ARG_KEEPALIVE_TIME_MS, 0);
    self->patience_ns = milliseconds(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
    self->backoff_ns = self->first_ns;
    return self;
}

void
core_channel_keepalive(const grpc_channel *channel, uint64_t *ret_time_ns,
                       uint64_t *ret_patience_ns)
{
    *ret_time_ns = channel->keepalive_ns;
    *ret_patience_ns = channel->patience_ns;
}

static void
close_if_unused(core_conn *conn, bool unused)
{
    if (conn->calls == 0 && (unused || conn->goaway)) {
        core_conn_end(conn, CORE_CLIENT, "closed");
    }
}

void
grpc_channel_destroy(grpc_channel *channel)
{
    channel->destroyed = true;
    if (channel->conn != NULL) {
        close_if_unused(channel->conn, true);
    }
}

grpc_connectivity_state
grpc_channel_check_connectivity_state(grpc_channel *channel, int try_to_connect)
{
    (void)try_to_connect;
    return channel->state;
}

void *
grpc_channel_register_call(grpc_channel *channel, const char *method, const char *host,
                           void *reserved)
{
    size_t i;

    (void)channel;
    (void)host;
    (void)reserved;
    for (i = 0; i < ours.method_count && strcmp(ours.methods[i], method) != 0; i++) {
    }
    if (i == ours.method_count) {
        assert(i < sizeof(ours.methods) / sizeof(ours.methods[0]));
        (void)snprintf(ours.methods[i], sizeof(ours.methods[i]), "%s", method);
        ours.method_count++;
    }
    return ours.methods[i];
}

static grpc_call *
new_call(grpc_channel *channel, grpc_completion_queue *queue, const char *method, size_t size,
         gpr_timespec deadline)
{
    grpc_call *call =
        core_call_new(CORE_CLIENT, channel->process, queue, method, size, rpc_time_from(deadline));

    call->channel = channel;
    return call;
}

grpc_call *
grpc_channel_create_call(grpc_channel *channel, grpc_call *parent_call, uint32_t propagation_mask,
                         grpc_completion_queue *completion_queue, grpc_slice method,
                         const grpc_slice *host, gpr_timespec deadline, void *reserved)
{
    (void)parent_call;
    (void)propagation_mask;
    (void)host;
    (void)reserved;
    return new_call(channel, completion_queue, (const char *)GRPC_SLICE_START_PTR(method),
                    GRPC_SLICE_LENGTH(method), deadline);
}

grpc_call *
grpc_channel_create_registered_call(grpc_channel *channel, grpc_call *parent_call,
                                    uint32_t propagation_mask,
                                    grpc_completion_queue *completion_queue,
                                    void *registered_call_handle, gpr_timespec deadline,
                                    void *reserved)
{
    const char *method = registered_call_handle;

    (void)parent_call;
    (void)propagation_mask;
    (void)reserved;
    return new_call(channel, completion_queue, method, strlen(method), deadline);
}

/* ------------------------------------------------------------------------------ connecting */

static bool
has_room(const grpc_channel *self)
{
    return self->conn != NULL && !self->conn->goaway && !self->conn->over[CORE_CLIENT] &&
           self->conn->calls < core_server_streams_max(self->conn->server);
}

static void
give_calls(grpc_channel *self)
{
    while (!tutti_list_empty(&self->waiting) && has_room(self)) {
        core_call_connect(tutti_container_of(tutti_list_pop(&self->waiting), grpc_call, link),
                          self->conn);
    }
}

static void
fail_calls(grpc_channel *self)
{
    tutti_list_node *at;
    tutti_list_node *next;

    for (at = self->waiting.next; at != &self->waiting; at = next) {
        grpc_call *call = tutti_container_of(at, grpc_call, link);

        next = at->next;
        if (!call->waits_for_ready) {
            tutti_list_remove(at);
            core_call_end(call, GRPC_STATUS_UNAVAILABLE, self->why);
        }
    }
}

static void
on_backoff(void *arg, uint64_t number)
{
    grpc_channel *self = arg;

    (void)number;
    self->trying = false;
    if (!self->destroyed) {
        try_now(self);
    }
}

static void
fail_attempt(grpc_channel *self, const char *why)
{
    const uint64_t jitter_ns = sim_draw(self->backoff_ns / 5 + 1);

    (void)snprintf(self->why, sizeof(self->why),
                   "failed to connect to all addresses; last error: UNKNOWN: ipv4:%s: %s",
                   self->address, why);
    self->state = GRPC_CHANNEL_TRANSIENT_FAILURE;
    fail_calls(self);
    sim_at(sim_now_ns() + self->backoff_ns + jitter_ns, on_backoff, self, 0);
    self->backoff_ns =
        self->backoff_ns * 8 / 5 < self->most_ns ? self->backoff_ns * 8 / 5 : self->most_ns;
}

/* The server's kernel accepts, its process has to speak first; a dead host says nothing. */
static void
on_attempt(void *arg, uint64_t number)
{
    grpc_channel *self = arg;
    grpc_server *server = core_server_find(self->address);
    const int there = server == NULL ? SIM_DRIVER : core_server_process(server);
    const bool silent =
        server != NULL && !core_is_closed(there) && !core_hears(self->process, there);

    (void)number;
    if (sim_frozen(self->process) && !self->destroyed) {
        sim_at(sim_now_ns() + LOOK_NS, on_attempt, self, 0);
    } else if (self->destroyed) {
        self->trying = false;
    } else if (silent && sim_now_ns() - self->began_ns < CONNECT_NS) {
        sim_at(sim_now_ns() + LOOK_NS, on_attempt, self, 0);
    } else if (silent) {
        fail_attempt(self, "connect() timed out");
    } else if (server == NULL || core_is_closed(there) || !core_server_listens(server)) {
        fail_attempt(self, "Failed to connect to remote host: Connection refused");
    } else {
        self->trying = false;
        self->state = GRPC_CHANNEL_READY;
        self->backoff_ns = self->first_ns;
        self->conn = core_conn_new(self, self->process, server);
        give_calls(self);
    }
}

static void
try_now(grpc_channel *self)
{
    if (self->trying || self->conn != NULL) {
        return;
    }
    self->trying = true;
    self->began_ns = sim_now_ns();
    if (self->state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
        self->state = GRPC_CHANNEL_CONNECTING;
    }
    sim_at(sim_now_ns() + 2 * core_latency(), on_attempt, self, 0);
}

void
core_channel_start(grpc_call *call)
{
    grpc_channel *self = call->channel;

    if (self->lame) {
        core_call_end(call, GRPC_STATUS_UNAVAILABLE, "lame client channel");
    } else if (self->state == GRPC_CHANNEL_TRANSIENT_FAILURE && !call->waits_for_ready) {
        core_call_end(call, GRPC_STATUS_UNAVAILABLE, self->why);
    } else {
        tutti_list_add(&self->waiting, &call->link);
        try_now(self);
        give_calls(self);
    }
}

/* The connection is not the channel's any more; calls that wait have another one made. */
static void
leave_conn(grpc_channel *self)
{
    self->conn = NULL;
    self->state = GRPC_CHANNEL_IDLE;
    if (!tutti_list_empty(&self->waiting)) {
        try_now(self);
    }
}

void
core_channel_conn_over(core_conn *conn)
{
    if (conn->channel != NULL && conn->channel->conn == conn) {
        leave_conn(conn->channel);
    }
}

void
core_channel_call_over(core_conn *conn)
{
    grpc_channel *self = conn->channel;

    if (conn->goaway && self->conn == conn) {
        leave_conn(self);
    }
    close_if_unused(conn, self->destroyed);
    give_calls(self);
}

/* ------------------------------------------------------------------------------ all of them */

void
core_channels_open(void)
{
    tutti_list_init(&ours.channels);
}

void
core_channels_close(void)
{
    tutti_list_node *node;

    while ((node = tutti_list_pop(&ours.channels)) != NULL) {
        grpc_channel *self = tutti_container_of(node, grpc_channel, link);

        if (!self->destroyed) {
            sim_fail("a channel to %s is left", self->lame ? "nobody" : self->address);
        }
        free(self);
    }
}

grpc_channel_credentials *
grpc_insecure_credentials_create(void)
{
    static char plain;

    return (grpc_channel_credentials *)&plain;
}

void
grpc_channel_credentials_release(grpc_channel_credentials *creds)
{
    (void)creds;
}
