/*
 * Requests posted to gRPC, and the table of routes.
 *
 * gRPC hands a call out only to a request that was posted for its method, so WAITING_WANTED of
 * them wait for each method, on the loop of its service. Each is a whole tutti_rpc_call, made
 * before its call arrives. A call that finds no posted request waits inside gRPC, in a queue
 * without a limit; therefore the next request is posted before the call that has arrived is
 * worked on.
 *
 * Only the loop's thread touches the counts `waiting`, but `arrived` of a loop that dozes is told
 * on the server's own loop, whose task (`enter`) goes to the loop.
 *
 * When the server shuts down, gRPC gives all posted requests back with `ok` false; they are
 * discarded, each with its life of the server.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message/descriptors_pb.h"
#include "rpc/message/service.h"
#include "rpc/server.h"
#include "rpc/server/call.h"
#include "rpc/server/server_private.h"
#include "rpc/util/process.h"

/*
 * Enough for a burst while the loop's thread works on one call; each costs a struct for each
 * method.
 */
#define WAITING_WANTED 4
#define AGAIN_NS (100 * TUTTI_NS_PER_MS) /* behind a failed allocation */

static void on_arrived(tutti_rpc_tag *tag, bool ok);

/* [in] route  NULL stands for all methods without a handler */
static unsigned *
waiting_of(rpc_server_loop *server_loop, rpc_route *route)
{
    return route == NULL ? &server_loop->waiting : &route->waiting;
}

static grpc_call_error
request_accepted(rpc_server_loop *server_loop, rpc_route *route, tutti_rpc_call *call)
{
    grpc_completion_queue *queue = rpc_loop_queue(server_loop->loop);
    grpc_completion_queue *told = /* a loop that dozes does not look into its queue */
        rpc_loop_dozes(server_loop->loop) ? rpc_loop_queue(server_loop->server->loop) : queue;
    grpc_server *server = server_loop->server->grpc;

    rpc_tag_release(&call->arrived);
    if (route == NULL) {
        return grpc_server_request_call(server, &call->call, &call->details, &call->metadata, queue,
                                        told, &call->arrived);
    }
    return grpc_server_request_registered_call(
        server, route->handle, &call->call, &call->deadline, &call->metadata,
        route->client_streams ? NULL : &call->first, queue, told, &call->arrived);
}

static bool
post_accepted(rpc_server_loop *server_loop, rpc_route *route)
{
    tutti_rpc_call *call = rpc_call_new(server_loop, route);
    grpc_call_error refused;

    if (call == NULL) {
        return false;
    }
    call->arrived.on_done = on_arrived;
    refused = request_accepted(server_loop, route, call);
    assert(refused == GRPC_CALL_OK);
    (void)refused;
    (*waiting_of(server_loop, route))++;
    return true;
}

/*
 * Post until WAITING_WANTED wait. Without memory the rest is posted by a timer: if none were
 * waiting and none were posted later, calls of this method would hang for ever. Nothing is posted
 * while draining, since each posted request keeps the server alive until gRPC gives it back.
 */
static void
fill_accepted(rpc_server_loop *server_loop, rpc_route *route)
{
    const unsigned *waiting = waiting_of(server_loop, route);

    while (*waiting < WAITING_WANTED && !atomic_load(&server_loop->server->draining)) {
        if (!post_accepted(server_loop, route)) {
            tutti_rpc_loop_timer_start(server_loop->loop, &server_loop->again,
                                       tutti_clock_add(tutti_clock_ns(), AGAIN_NS));
            return;
        }
    }
}

void
rpc_server_loop_fill(rpc_server_loop *server_loop)
{
    tutti_rpc_server *server = server_loop->server;
    size_t i;

    fill_accepted(server_loop, NULL);
    for (i = 0; i < server->route_count; i++) {
        if (server->routes[i].server_loop == server_loop) {
            fill_accepted(server_loop, &server->routes[i]);
        }
    }
}

/*
 * A posted request has come back: with a call, or in vain at the end of the server. Loop's
 * thread.
 */
static void
start_accepted_call(tutti_rpc_call *call)
{
    (*waiting_of(call->server_loop, call->route))--;
    if (!call->came) { /* the server shuts down */
        rpc_loop_drop(call->server_loop->loop);
        rpc_call_discard(call);
        return;
    }
    if (call->route == NULL) {
        call->deadline = call->details.deadline;
    }
    fill_accepted(call->server_loop,
                  call->route); /* first, so that the next one need not wait for this one */
    rpc_call_begin(call);
}

static void
on_enter(tutti_rpc_task *task)
{
    start_accepted_call(tutti_container_of(task, tutti_rpc_call, enter));
}

/*
 * On the loop, or, for a loop that dozes, on the server's loop. The hold keeps the loop in gRPC
 * from here until the call has ended (end_call drops it).
 */
static void
on_arrived(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_call *call = tutti_container_of(tag, tutti_rpc_call, arrived);
    tutti_rpc_loop *loop = call->server_loop->loop;

    call->came = ok;
    rpc_loop_hold(loop); /* until the call ends */
    if (tutti_rpc_loop_is_current(loop)) {
        start_accepted_call(call);
    } else {
        call->enter.on_run = on_enter;
        tutti_rpc_loop_post(loop, &call->enter);
    }
}

static void
on_again(tutti_timer *timer)
{
    rpc_server_loop_fill(tutti_container_of(timer, rpc_server_loop, again));
}

static void
on_fill(tutti_rpc_task *task)
{
    rpc_server_loop *server_loop = tutti_container_of(task, rpc_server_loop, fill);

    rpc_server_loop_fill(server_loop);
    rpc_server_release(server_loop->server);
}

/*
 * Draining: tell every call of the loop that it shall finish soon. The list does not change under
 * the walk, though handlers answer in it: a call leaves the list only when it ends, and it ends
 * in an event or task of its own.
 */
static void
on_sweep(tutti_rpc_task *task)
{
    rpc_server_loop *server_loop = tutti_container_of(task, rpc_server_loop, sweep);
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_rpc_loop_timer_stop(server_loop->loop, &server_loop->again);
    tutti_list_each(link, spare, &server_loop->calls)
    {
        rpc_call_tell(tutti_container_of(link, tutti_rpc_call, link));
    }
    rpc_server_release(server_loop->server);
}

void
rpc_server_loop_init(rpc_server_loop *server_loop, tutti_rpc_server *server, tutti_rpc_loop *loop)
{
    *server_loop = (rpc_server_loop){.server = server, .loop = loop};
    tutti_list_init(&server_loop->calls);
    server_loop->fill.on_run = on_fill;
    server_loop->sweep.on_run = on_sweep;
    server_loop->again.on_expiry = on_again;
}

/* ------------------------------------------------------------------------------ route */

/* What serves on a loop; services on the same loop share it. */
static rpc_server_loop *
find_server_loop(tutti_rpc_server *server, tutti_rpc_loop *loop)
{
    size_t i;

    for (i = 0; i < server->server_loop_count; i++) {
        if (server->server_loops[i].loop == loop) {
            return &server->server_loops[i];
        }
    }
    assert(server->server_loop_count < TUTTI_RPC_LOOPS_MAX);
    rpc_server_loop_init(&server->server_loops[server->server_loop_count], server, loop);
    return &server->server_loops[server->server_loop_count++];
}

/* A streaming method needs stream operations, any other a function: the .proto decides. */
static tutti_code
check_kind(const rpc_route *route, tutti_error *err)
{
    const bool streams = route->client_streams || route->server_streams;

    if (streams ? route->method->stream == NULL || route->method->on_call != NULL
                : route->method->on_call == NULL || route->method->stream != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_METHOD",
                              "%s is %s in its .proto, its handler is not", route->path,
                              streams ? "streaming" : "unary");
    }
    return TUTTI_OK;
}

static tutti_code
make_route(tutti_rpc_server *server, const tutti_rpc_service *service,
           const tutti_rpc_method *method, rpc_route *route, tutti_error *err)
{
    const char *name = rpc_service_name(service->descriptor);
    const size_t number = rpc_service_find(service->descriptor, method->name);

    route->server_loop =
        find_server_loop(server, method->quiet ? service->quiet_loop : service->loop);
    route->method = method;
    route->self = service->self;
    route->gate = service->gate;
    route->admit = service->admit;
    route->path = rpc_service_path(service->descriptor, method->name);
    if (route->path == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a method");
    }
    if (number == SIZE_MAX ||
        !rpc_descriptors_method(server->descriptors, name, method->name, &route->client_streams,
                                &route->server_streams)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MALFORMED_MESSAGE",
                              "%s is in no .proto of the descriptor set", route->path);
    }
    route->input = rpc_service_input(service->descriptor, number);
    route->open_enums = service->open_enums;
    return check_kind(route, err);
}

tutti_code
rpc_routes_make(tutti_rpc_server *server, tutti_error *err)
{
    size_t total = 0;
    size_t s;
    size_t m;
    tutti_code code = TUTTI_OK;

    for (s = 0; s < server->service_count; s++) {
        total += server->services[s].method_count;
    }
    server->routes = calloc(total, sizeof(*server->routes));
    if (server->routes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu methods", total);
    }
    /* The server serves on its own loop in any case: unknown methods and health need one. */
    (void)find_server_loop(server, server->loop);
    for (s = 0; s < server->service_count; s++) {
        const tutti_rpc_service *service = &server->services[s];

        for (m = 0; m < service->method_count && code == TUTTI_OK; m++) {
            code = make_route(server, service, &service->methods[m],
                              &server->routes[server->route_count++], err);
        }
    }
    return code;
}

void
rpc_routes_free(tutti_rpc_server *server)
{
    size_t i;

    for (i = 0; i < server->route_count; i++) {
        free(server->routes[i].path);
    }
    free(server->routes);
    server->routes = NULL;
    server->route_count = 0;
}
