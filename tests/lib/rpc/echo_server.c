#include "echo_server.h"

#include <string.h>

#include "base/os/clock.h"
#include "echo_service.h"

#define METHODS(CHAT)                                                                              \
    {                                                                                              \
        TUTTI_RPC_UNARY("Unary", echo_on_unary), TUTTI_RPC_UNARY("Park", echo_on_park),            \
            TUTTI_RPC_STREAM("Upload", &echo_upload_ops),                                          \
            TUTTI_RPC_STREAM("Download", &echo_download_ops), CHAT("Chat", &echo_chat_ops),        \
    }

static const tutti_rpc_method methods[] = METHODS(TUTTI_RPC_STREAM);
static const tutti_rpc_method quiet_methods[] = METHODS(TUTTI_RPC_QUIET_STREAM);

static void
on_run_release(tutti_rpc_task *task)
{
    echo_server *self = tutti_container_of(task, echo_server, release);

    echo_release_parked(self);
    echo_release_slow(self);
}

void
echo_server_init(echo_server *self, const char *listen)
{
    memset(self, 0, sizeof(*self));
    tutti_rpc_server_options_init(&self->options, listen);
    self->options.reflection = false; /* a service that is not there: echo_stranger */
    self->options.grace_ns = 2 * TUTTI_NS_PER_S;
    self->options.self_check_ns = 0;
    self->options.memory_quota = 1ULL << 30;
    tutti_list_init(&self->parked);
    tutti_list_init(&self->slow);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
    self->release.on_run = on_run_release;
}

static void
on_drain(void *arg)
{
    (void)atomic_fetch_add(&((echo_server *)arg)->drain_count, 1);
}

static tutti_code
start_loops(echo_server *self, size_t loop_count, tutti_error *err)
{
    static const char *const names[ECHO_LOOPS_MAX] = {"rpc-main", "rpc-echo"};
    tutti_code code = TUTTI_OK;

    while (self->loop_count < loop_count && code == TUTTI_OK) {
        code = tutti_rpc_loop_new(names[self->loop_count], &self->loops[self->loop_count], err);
        if (code == TUTTI_OK) {
            if (self->loop_count > 0) {
                tutti_rpc_loop_idle(self->loops[self->loop_count]);
            }
            code = tutti_rpc_loop_start(self->loops[self->loop_count++], err);
        }
    }
    return code;
}

tutti_code
echo_server_start(echo_server *self, size_t loop_count, tutti_error *err)
{
    tutti_rpc_service service = {.descriptor = echo_service(),
                                 .methods = self->quiet_chat ? quiet_methods : methods,
                                 .method_count = sizeof(methods) / sizeof(methods[0]),
                                 .self = self,
                                 .gate = self->gate,
                                 .open_enums = self->open_enums};
    tutti_code code = start_loops(self, loop_count, err);

    if (code == TUTTI_OK) {
        code = tutti_rpc_server_new(&self->options, echo_descriptor_set(), self->loops[0],
                                    &self->server, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    service.loop = self->loops[loop_count - 1];
    service.quiet_loop = self->loops[0];
    tutti_rpc_server_add(self->server, &service);
    tutti_rpc_server_on_drain(self->server, on_drain, self);
    if (self->has_lanes) {
        code = tutti_rpc_lanes_open(service.loop, self->busy_ns, &self->lanes, err);
        tutti_rpc_server_lanes(self->server, self->lanes);
    }
    if (self->authorize != NULL) {
        tutti_rpc_server_authorize(self->server, self->authorize, self);
    }
    if (self->on_deaf != NULL) {
        tutti_rpc_server_on_deaf(self->server, self->on_deaf, self);
    }
    code = code == TUTTI_OK ? tutti_rpc_server_start(self->server, err) : code;
    if (code != TUTTI_OK) {
        tutti_rpc_server_free(self->server);
        self->server = NULL;
    }
    return code;
}

const char *
echo_server_address(const echo_server *self)
{
    size_t count = 0;

    return tutti_rpc_server_addresses(self->server, &count)->text;
}

void
echo_server_release(echo_server *self)
{
    tutti_rpc_loop_post(self->loops[self->loop_count - 1], &self->release);
}

static void
on_stopped(void *arg)
{
    echo_server *self = arg;

    (void)pthread_mutex_lock(&self->lock);
    self->stopped = true;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

void
echo_server_drain_begin(echo_server *self)
{
    self->draining = true;
    tutti_rpc_server_stop(self->server, on_stopped, self);
}

void
echo_server_drain_end(echo_server *self)
{
    (void)pthread_mutex_lock(&self->lock);
    while (!self->stopped) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

void
echo_server_drain(echo_server *self)
{
    echo_server_drain_begin(self);
    echo_server_drain_end(self);
}

void
echo_server_fini(echo_server *self)
{
    size_t i;

    if (self->server != NULL && !self->draining) {
        echo_server_drain(self);
    }
    for (i = 0; i < self->loop_count; i++) {
        tutti_rpc_loop_stop(self->loops[i]);
    }
    tutti_rpc_server_free(self->server);
    tutti_rpc_lanes_close(self->lanes);
    for (i = 0; i < self->loop_count; i++) {
        tutti_rpc_loop_free(self->loops[i]);
    }
    (void)pthread_mutex_destroy(&self->lock);
    (void)pthread_cond_destroy(&self->changed);
}
