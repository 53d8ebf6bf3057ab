#include "sim/etcd/etcd_server.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "etcd_descriptor_set.h"
#include "rpc/loop.h"
#include "rpc/server.h"

struct sim_etcd_server {
    sim_etcd *etcd;
    tutti_rpc_loop *loop;
    tutti_rpc_server *server;
    tutti_rpc_server_options options;
    tutti_timer timer;
    tutti_list_node watches;
    sem_t stopped;
};

/* A stream of watches; store/etcd opens one for each. */
typedef struct watch_call {
    tutti_list_node link;
    tutti_rpc_call *call;
    sim_etcd_watch *watch; /* NULL = it has not said which */
    bool writing;
    bool finished;
} watch_call;

/* ------------------------------------------------------------------------------ watches */

static void
finish_watch(watch_call *self, const char *text)
{
    tutti_error err;

    if (!self->finished) {
        self->finished = true;
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "", "%s", text);
        tutti_rpc_call_finish(self->call, &err);
    }
}

static void
tell_next(watch_call *self)
{
    Etcdserverpb__WatchResponse *told;

    if (self->watch == NULL || self->writing || self->finished) {
        return;
    }
    if (sim_etcd_watch_is_broken(self->watch)) {
        finish_watch(self, "etcdserver: the member has begun anew");
        return;
    }
    told = sim_etcd_watch_next(self->watch);
    if (told != NULL) {
        self->writing = true;
        tutti_rpc_call_write(self->call, &told->base, NULL);
        protobuf_c_message_free_unpacked(&told->base, NULL);
    }
}

/* Something may have changed: tell of it, and wait for the next lease that may end. */
static void
settle(sim_etcd_server *self)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &self->watches)
    {
        tell_next(tutti_container_of(link, watch_call, link));
    }
    tutti_rpc_loop_timer_start(self->loop, &self->timer, sim_etcd_next(self->etcd));
}

static void
on_timer(tutti_timer *timer)
{
    sim_etcd_server *self = tutti_container_of(timer, sim_etcd_server, timer);

    sim_etcd_tick(self->etcd, tutti_clock_ns());
    settle(self);
}

static void
on_watch_open(tutti_rpc_call *call, void *arg)
{
    sim_etcd_server *self = arg;
    watch_call *watch = calloc(1, sizeof(*watch));

    if (watch == NULL) {
        tutti_rpc_call_finish(call, NULL);
        return;
    }
    watch->call = call;
    tutti_list_add(&self->watches, &watch->link);
    tutti_rpc_call_set_user(call, watch);
    tutti_rpc_call_read(call);
}

static void
on_watch_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const Etcdserverpb__WatchRequest *request = tutti_rpc_message_get(message);
    watch_call *watch = tutti_rpc_call_user(call);
    sim_etcd_server *self = arg;

    if (request->create_request != NULL && watch->watch == NULL) {
        watch->watch = sim_etcd_watch_open(self->etcd, request->create_request);
    }
    tell_next(watch);
}

static void
on_watch_written(tutti_rpc_call *call, void *arg)
{
    watch_call *watch = tutti_rpc_call_user(call);

    (void)arg;
    watch->writing = false;
    tell_next(watch);
}

static void
on_watch_cancel(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    finish_watch(tutti_rpc_call_user(call), "etcdserver: the watch is canceled");
}

static void
on_watch_end(tutti_rpc_call *call, void *arg)
{
    watch_call *watch = tutti_rpc_call_user(call);

    (void)arg;
    if (watch != NULL) {
        if (watch->watch != NULL) {
            sim_etcd_watch_close(watch->watch);
        }
        tutti_list_remove(&watch->link);
        free(watch);
    }
}

static const tutti_rpc_stream_ops watch_ops = {.on_open = on_watch_open,
                                               .on_message = on_watch_message,
                                               .on_written = on_watch_written,
                                               .on_cancel = on_watch_cancel,
                                               .on_end = on_watch_end};

/* ------------------------------------------------------------------------------ other calls */

static void
on_unary(tutti_rpc_call *call, void *arg)
{
    const char *method = strrchr(tutti_rpc_call_method(call), '/') + 1;
    sim_etcd_server *self = arg;
    ProtobufCMessage *response = NULL;
    tutti_error err;

    if (sim_etcd_handle(self->etcd, method, tutti_rpc_call_request(call), tutti_clock_ns(),
                        &response, &err) == TUTTI_OK) {
        tutti_rpc_call_reply(call, response, NULL);
        protobuf_c_message_free_unpacked(response, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    settle(self);
}

static void
on_keep_open(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    tutti_rpc_call_read(call);
}

static void
on_keep_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    sim_etcd_server *self = arg;
    ProtobufCMessage *response = NULL;
    tutti_error err;

    if (sim_etcd_handle(self->etcd, "LeaseKeepAlive", tutti_rpc_message_get(message),
                        tutti_clock_ns(), &response, &err) == TUTTI_OK) {
        tutti_rpc_call_write(call, response, NULL);
        protobuf_c_message_free_unpacked(response, NULL);
    } else {
        tutti_rpc_call_finish(call, &err);
    }
    settle(self);
}

static void
on_keep_written(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    tutti_rpc_call_read(call);
}

static void
on_keep_end(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    tutti_rpc_call_finish(call, NULL);
}

static const tutti_rpc_stream_ops keep_ops = {.on_open = on_keep_open,
                                              .on_message = on_keep_message,
                                              .on_written = on_keep_written,
                                              .on_half_close = on_keep_end,
                                              .on_cancel = on_keep_end};

static const tutti_rpc_method kv_methods[] = {TUTTI_RPC_UNARY("Range", on_unary),
                                              TUTTI_RPC_UNARY("Txn", on_unary)};
static const tutti_rpc_method lease_methods[] = {TUTTI_RPC_UNARY("LeaseGrant", on_unary),
                                                 TUTTI_RPC_UNARY("LeaseRevoke", on_unary),
                                                 TUTTI_RPC_STREAM("LeaseKeepAlive", &keep_ops)};
static const tutti_rpc_method watch_methods[] = {TUTTI_RPC_STREAM("Watch", &watch_ops)};
static const tutti_rpc_method auth_methods[] = {TUTTI_RPC_UNARY("Authenticate", on_unary)};

/* ------------------------------------------------------------------------------ door */

static void
add_services(sim_etcd_server *self)
{
    const tutti_rpc_service services[] = {
        {&etcdserverpb__kv__descriptor, kv_methods, 2, .self = self, .loop = self->loop},
        {&etcdserverpb__lease__descriptor, lease_methods, 3, .self = self, .loop = self->loop},
        {&etcdserverpb__watch__descriptor, watch_methods, 1, .self = self, .loop = self->loop},
        {&etcdserverpb__auth__descriptor, auth_methods, 1, .self = self, .loop = self->loop},
    };
    size_t i;

    for (i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        tutti_rpc_server_add(self->server, &services[i]);
    }
}

static tutti_code
start(sim_etcd_server *self, const char *listen, tutti_error *err)
{
    const tutti_bytes descriptors = {etcd_descriptor_set, etcd_descriptor_set_size};

    TUTTI_TRY(tutti_rpc_loop_new("etcd", &self->loop, err));
    tutti_rpc_server_options_init(&self->options, listen);
    self->options.self_check_ns = 0;
    TUTTI_TRY(tutti_rpc_server_new(&self->options, descriptors, self->loop, &self->server, err));
    add_services(self);
    TUTTI_TRY(tutti_rpc_server_start(self->server, err));
    return tutti_rpc_loop_start(self->loop, err);
}

tutti_code
sim_etcd_server_start(sim_etcd *etcd, const char *listen, sim_etcd_server **ret_server,
                      tutti_error *err)
{
    sim_etcd_server *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for an etcd");
    }
    self->etcd = etcd;
    self->timer.on_expiry = on_timer;
    tutti_list_init(&self->watches);
    (void)sem_init(&self->stopped, 0, 0);
    *ret_server = self;
    return start(self, listen, err);
}

const char *
sim_etcd_server_address(const sim_etcd_server *self)
{
    size_t count = 0;

    return tutti_rpc_server_addresses(self->server, &count)[0].text;
}

void
sim_etcd_server_enter(sim_etcd_server *self)
{
    tutti_rpc_loop_enter(self->loop);
}

void
sim_etcd_server_leave(sim_etcd_server *self)
{
    settle(self);
    tutti_rpc_loop_leave(self->loop);
}

static void
on_stopped(void *arg)
{
    (void)sem_post(arg);
}

void
sim_etcd_server_stop(sim_etcd_server *self)
{
    tutti_rpc_server_stop(self->server, on_stopped, &self->stopped);
    (void)sem_wait(&self->stopped);
    tutti_rpc_server_free(self->server);
    tutti_rpc_loop_stop(self->loop);
    tutti_rpc_loop_free(self->loop);
    (void)sem_destroy(&self->stopped);
    free(self);
}
