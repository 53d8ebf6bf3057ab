/*
 * Connections, and what travels on them. A frame is an event of the kernel; frames to one side of a
 * connection arrive in the order in which they were sent. What a cut holds back arrives behind it;
 * what is on the way to a side that is over is lost.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/core/core_private.h"

#define LATENCY_NS (60 * TUTTI_NS_PER_US)
#define AGAIN_NS (5 * TUTTI_NS_PER_MS) /* a look at a process that is stopped */

static struct {
    tutti_list_node conns;
    tutti_list_node frames; /* on their way */
    uint64_t cut_ns[CORE_PROCESSES][CORE_PROCESSES];
    bool dead[CORE_PROCESSES];
    bool silent[CORE_PROCESSES];
    uint64_t slow_ns;
    unsigned count;
    uint64_t numbers;
} net;

uint64_t
core_latency(void)
{
    return TUTTI_NS_PER_US + sim_draw(LATENCY_NS) + sim_draw(net.slow_ns);
}

void
core_slow(uint64_t most_ns)
{
    net.slow_ns = most_ns;
}

void
core_cut(int from, int to, uint64_t until_ns)
{
    net.cut_ns[from][to] = until_ns;
}

static uint64_t
cut_until(int from, int to)
{
    return from < 0 || to < 0 ? 0 : net.cut_ns[from][to];
}

static bool
is_dead(int process)
{
    return process >= 0 && net.dead[process];
}

bool
core_is_closed(int process)
{
    return is_dead(process) && !net.silent[process];
}

bool
core_hears(int from, int to)
{
    return !is_dead(from) && !is_dead(to) && !sim_frozen(to) &&
           cut_until(from, to) <= sim_now_ns() && cut_until(to, from) <= sim_now_ns();
}

/* ------------------------------------------------------------------------------ frames */

core_frame *
core_frame_new(core_frame_kind kind)
{
    core_frame *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->kind = kind;
    tutti_list_init(&self->link);
    self->text = grpc_empty_slice();
    grpc_metadata_array_init(&self->metadata);
    return self;
}

void
core_frame_free(core_frame *frame)
{
    tutti_list_remove(&frame->link);
    if (frame->message != NULL) {
        grpc_byte_buffer_destroy(frame->message);
    }
    core_free_metadata(&frame->metadata);
    grpc_slice_unref(frame->text);
    free(frame);
}

static void
hand_over(core_frame *frame)
{
    core_conn *conn = frame->conn;

    if (frame->kind == CORE_FIN) {
        core_conn_end(conn, frame->to, "Socket closed");
        core_frame_free(frame);
    } else if (conn->over[frame->to]) {
        core_frame_free(frame);
    } else if (frame->kind == CORE_GOAWAY) {
        conn->goaway = true;
        core_channel_call_over(conn);
        core_frame_free(frame);
    } else if (frame->kind == CORE_HEADERS) {
        core_server_take(conn, frame);
    } else {
        core_call_arrive(frame->from->peer, frame);
    }
}

static void on_frame(void *arg, uint64_t number);

/*
 * A dead process answers nothing. One that dies aloud has its connections closed by its kernel
 * (core_kill); of a silent one, as of one that is cut off, nothing is heard.
 */
static void
on_frame(void *arg, uint64_t number)
{
    core_frame *frame = arg;
    core_conn *conn = frame->conn;
    const int to = conn->process[frame->to];
    const int from = conn->process[1 - frame->to];
    const uint64_t until_ns = cut_until(from, to);

    (void)number;
    if (is_dead(to) || (is_dead(from) && net.silent[from] && frame->kind != CORE_FIN)) {
        core_frame_free(frame);
    } else if (until_ns > sim_now_ns()) {
        sim_at(until_ns, on_frame, frame, 0);
    } else if ((frame->kind == CORE_GOAWAY || frame->kind == CORE_FIN) && sim_frozen(to)) {
        sim_at(sim_now_ns() + AGAIN_NS, on_frame, frame, 0);
    } else {
        hand_over(frame);
    }
}

void
core_send(core_conn *conn, core_side to, core_frame *frame)
{
    uint64_t at_ns = sim_now_ns() + core_latency();

    if (conn->over[1 - to]) {
        core_frame_free(frame);
        return;
    }
    if (at_ns < conn->last_ns[to]) {
        at_ns = conn->last_ns[to];
    }
    conn->last_ns[to] = at_ns;
    frame->conn = conn;
    frame->to = to;
    frame->number = ++net.numbers;
    tutti_list_add(&net.frames, &frame->link);
    sim_at(at_ns, on_frame, frame, 0);
}

/* ------------------------------------------------------------------------------ the end */

/* The calls of a side end; the other one hears of it, if anything can. */
void
core_conn_end(core_conn *conn, core_side side, const char *why)
{
    tutti_list_node *node;

    if (conn->over[side]) {
        return;
    }
    core_send(conn, 1 - side, core_frame_new(CORE_FIN));
    conn->over[side] = true;
    while ((node = tutti_list_pop(&conn->all[side])) != NULL) {
        core_call_end(tutti_container_of(node, grpc_call, link), GRPC_STATUS_UNAVAILABLE, why);
    }
    if (side == CORE_CLIENT) {
        core_channel_conn_over(conn);
    } else {
        core_server_conn_over(conn);
    }
}

static void
on_break(void *arg, uint64_t side)
{
    core_conn_end(arg, (core_side)side, "Socket closed");
}

/* A process that is killed: what is left of its own side ends with it. */
void
core_kill(int process, bool silent)
{
    tutti_list_node *at;

    net.dead[process] = true;
    net.silent[process] = silent;
    for (at = net.conns.next; at != &net.conns; at = at->next) {
        core_conn *conn = tutti_container_of(at, core_conn, link);
        unsigned side;

        for (side = 0; side < 2; side++) {
            if (conn->process[side] == process) {
                sim_at(sim_now_ns(), on_break, conn, side);
                if (!silent) {
                    sim_at(sim_now_ns() + core_latency(), on_break, conn, 1 - side);
                }
            }
        }
    }
}

/* ------------------------------------------------------------------------------ keepalive */

static void on_ping(void *arg, uint64_t side);

/* No answer came to the ping. */
static void
on_silence(void *arg, uint64_t side)
{
    core_conn *conn = arg;
    const int own = conn->process[side];

    if (conn->over[side]) {
        return;
    }
    if (sim_frozen(own) || core_hears(own, conn->process[1 - side])) {
        sim_at(sim_now_ns() + conn->keepalive_ns[side], on_ping, conn, side);
        return;
    }
    core_conn_end(conn, (core_side)side, "keepalive watchdog timeout");
}

static void
on_ping(void *arg, uint64_t side)
{
    core_conn *conn = arg;
    const int own = conn->process[side];

    if (conn->over[side]) {
        return;
    }
    if (sim_frozen(own) || core_hears(own, conn->process[1 - side])) {
        sim_at(sim_now_ns() + conn->keepalive_ns[side], on_ping, conn, side);
    } else {
        sim_at(sim_now_ns() + conn->patience_ns[side], on_silence, conn, side);
    }
}

static void
begin_keepalive(core_conn *self, core_side side)
{
    if (self->keepalive_ns[side] > 0) {
        sim_at(sim_now_ns() + self->keepalive_ns[side], on_ping, self, side);
    }
}

core_conn *
core_conn_new(grpc_channel *channel, int client, grpc_server *server)
{
    core_conn *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->channel = channel;
    self->server = server;
    self->process[CORE_CLIENT] = client;
    self->process[CORE_SERVER] = core_server_process(server);
    self->number = ++net.count;
    tutti_list_init(&self->all[0]);
    tutti_list_init(&self->all[1]);
    tutti_list_add(&net.conns, &self->link);
    core_channel_keepalive(channel, &self->keepalive_ns[CORE_CLIENT],
                           &self->patience_ns[CORE_CLIENT]);
    core_server_keepalive(server, &self->keepalive_ns[CORE_SERVER],
                          &self->patience_ns[CORE_SERVER]);
    begin_keepalive(self, CORE_CLIENT);
    begin_keepalive(self, CORE_SERVER);
    return self;
}

/* ------------------------------------------------------------------------------ servers' ways */

bool
core_conns_left(const grpc_server *server)
{
    tutti_list_node *at;

    for (at = net.conns.next; at != &net.conns; at = at->next) {
        const core_conn *conn = tutti_container_of(at, core_conn, link);

        if (conn->server == server && !conn->over[CORE_SERVER]) {
            return true;
        }
    }
    return false;
}

void
core_conns_each(const grpc_server *server, void (*visit)(core_conn *conn))
{
    tutti_list_node *at;

    for (at = net.conns.next; at != &net.conns; at = at->next) {
        core_conn *conn = tutti_container_of(at, core_conn, link);

        if (conn->server == server && !conn->over[CORE_SERVER]) {
            visit(conn);
        }
    }
}

/* ------------------------------------------------------------------------------ all of it */

void
core_open(void)
{
    memset(&net, 0, sizeof(net));
    tutti_list_init(&net.conns);
    tutti_list_init(&net.frames);
    core_calls_open();
    core_channels_open();
    core_servers_open();
}

void
core_close(void)
{
    tutti_list_node *node;

    while (!tutti_list_empty(&net.frames)) {
        core_frame_free(tutti_container_of(net.frames.next, core_frame, link));
    }
    core_calls_close();
    core_channels_close();
    core_servers_close();
    while ((node = tutti_list_pop(&net.conns)) != NULL) {
        free(tutti_container_of(node, core_conn, link));
    }
}

int
core_arg(const grpc_channel_args *args, const char *key, int otherwise)
{
    size_t i;

    for (i = 0; i < args->num_args; i++) {
        if (strcmp(args->args[i].key, key) == 0 && args->args[i].type == GRPC_ARG_INTEGER) {
            return args->args[i].value.integer;
        }
    }
    return otherwise;
}
