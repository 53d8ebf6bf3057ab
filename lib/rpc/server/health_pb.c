/*
 * grpc.health.v1.Health: the states are behind `lock` and are set from any thread; the watchers
 * belong to the loop's thread. A change posts `changed`, which tells all watchers on the loop.
 * One post is enough for many changes: each watcher is told the newest state when its last
 * message has left, so a slow watcher costs no memory.
 *
 * `live` guards the post: a server that is never started may be freed at any time, and one that
 * drains may be gone before a task runs, so nothing is posted before start and after the drain.
 */
#include "rpc/server/health_pb.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "grpc/health/v1/health.pb-c.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "rpc/server/call.h"

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

/* A client that watches. It is told the newest state when its last message has left. */
typedef struct watch {
    tutti_list_node link;
    tutti_rpc_call *call;
    int told; /* the status that was sent last; -1 = none */
} watch;

static size_t
find_health(const rpc_health *self, const char *service)
{
    size_t i;

    for (i = 0; i < self->count; i++) {
        if (strcmp(self->services[i].name, service) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static serving_status
look_up_health(rpc_health *self, const char *service)
{
    serving_status status = SERVICE_UNKNOWN;
    size_t found;

    (void)pthread_mutex_lock(&self->lock);
    found = find_health(self, service);
    if (found != SIZE_MAX) {
        status = self->services[found].serving && !self->draining ? SERVING : NOT_SERVING;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

bool
rpc_health_serves(rpc_health *health, const char *service)
{
    return look_up_health(health, service) == SERVING;
}

static void
on_check(tutti_rpc_call *call, void *arg)
{
    const Grpc__Health__V1__HealthCheckRequest *request = tutti_rpc_call_request(call);
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    tutti_error err;

    response.status = look_up_health(arg, request->service);
    if (response.status == SERVICE_UNKNOWN) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_SERVICE",
                             "there is no service \"%.128s\" here", request->service);
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/*
 * Send the newest state if the watcher has not been sent it and its last write has left;
 * otherwise on_written comes back here.
 */
static void
send_health(rpc_health *self, watch *one)
{
    const Grpc__Health__V1__HealthCheckRequest *request = tutti_rpc_call_request(one->call);
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    response.status = look_up_health(self, request->service);
    if ((int)response.status != one->told && tutti_rpc_call_writable(one->call)) {
        one->told = (int)response.status;
        tutti_rpc_call_write(one->call, &response.base, NULL);
    }
}

static void
refuse_health(tutti_rpc_call *call)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_RESOURCE_EXHAUSTED, "WATCH_LIMIT",
                         "%d clients watch already, the limit: end one of these calls",
                         TUTTI_RPC_WATCHES_MAX);
    tutti_rpc_call_finish(call, &err);
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    rpc_health *self = arg;
    watch *one = NULL;

    if (self->watch_count < TUTTI_RPC_WATCHES_MAX) {
        one = calloc(1, sizeof(*one));
    }
    if (one == NULL) {
        refuse_health(call);
        return;
    }
    one->call = call;
    one->told = -1;
    tutti_list_add(&self->watches, &one->link);
    self->watch_count++;
    tutti_rpc_call_set_user(call, one);
    send_health(self, one);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    send_health(arg, tutti_rpc_call_user(call));
}

/* The client has gone, or the server drains: it has been told NOT_SERVING before. */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    (void)arg;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "DRAINING", "the server is shutting down");
    tutti_rpc_call_finish(call, &err);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    rpc_health *self = arg;
    watch *one = tutti_rpc_call_user(call);

    if (one != NULL) {
        tutti_list_remove(&one->link);
        self->watch_count--;
        free(one);
    }
}

static void
on_changed(tutti_rpc_task *task)
{
    rpc_health *self = tutti_container_of(task, rpc_health, changed);
    tutti_list_node *link;
    tutti_list_node *spare;

    (void)pthread_mutex_lock(&self->lock);
    self->posted = false;
    (void)pthread_mutex_unlock(&self->lock);
    tutti_list_each(link, spare, &self->watches)
    {
        send_health(self, tutti_container_of(link, watch, link));
    }
}

void
rpc_health_init(rpc_health *health, tutti_rpc_loop *loop)
{
    health->loop = loop;
    health->changed.on_run = on_changed;
    tutti_list_init(&health->watches);
    (void)pthread_mutex_init(&health->lock, NULL);
    rpc_health_set(health, "", false);
}

void
rpc_health_fini(rpc_health *health)
{
    (void)pthread_mutex_destroy(&health->lock);
}

void
rpc_health_set(rpc_health *health, const char *service, bool serving)
{
    size_t found;
    bool post;

    assert(strlen(service) < TUTTI_RPC_HEALTH_NAME_MAX);
    (void)pthread_mutex_lock(&health->lock);
    found = find_health(health, service);
    if (found == SIZE_MAX) {
        assert(health->count < TUTTI_RPC_HEALTH_MAX);
        found = health->count++;
        (void)snprintf(health->services[found].name, TUTTI_RPC_HEALTH_NAME_MAX, "%s", service);
    }
    health->services[found].serving = serving;
    /*
     * Posted under the lock, so that a drain on another thread cannot come between the look at
     * `live` and the post.
     */
    post = health->live && !health->posted;
    health->posted = health->posted || post;
    if (post) {
        tutti_rpc_loop_post(health->loop, &health->changed);
    }
    (void)pthread_mutex_unlock(&health->lock);
}

void
rpc_health_start(rpc_health *health)
{
    (void)pthread_mutex_lock(&health->lock);
    health->live = true;
    (void)pthread_mutex_unlock(&health->lock);
}

/*
 * The watchers are told at once, not by a post, so that NOT_SERVING is written before the
 * listeners close.
 */
void
rpc_health_drain(rpc_health *health)
{
    (void)pthread_mutex_lock(&health->lock);
    health->draining = true;
    health->live = false;
    (void)pthread_mutex_unlock(&health->lock);
    on_changed(&health->changed);
}

tutti_rpc_service
rpc_health_service(rpc_health *health)
{
    static const tutti_rpc_stream_ops watch_ops = {
        .on_open = on_open, .on_written = on_written, .on_cancel = on_cancel, .on_end = on_end};
    /* Open: whoever asks for health (a load balancer, a kubelet) has no credentials. */
    static const tutti_rpc_method methods[] = {
        {.name = "Check", .on_call = on_check, .open = true},
        {.name = "Watch", .stream = &watch_ops, .open = true},
    };

    return (tutti_rpc_service){.descriptor = &grpc__health__v1__health__descriptor,
                               .methods = methods,
                               .method_count = sizeof(methods) / sizeof(methods[0]),
                               .self = health,
                               .loop = health->loop};
}
