/* Requests posted to gRPC, so that a call always finds one waiting. What finds none waits inside
 * gRPC, in a queue without a limit. */
#include <assert.h>
#include <stdlib.h>

#include "base/os/clock.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/server/call.h"
#include "rpc/server/server_private.h"
#include "rpc/util/process.h"

#define WAITING_WANTED 4
#define AGAIN_NS (100 * TUTTI_NS_PER_MS)

static void on_arrived(tutti_rpc_tag *tag, bool ok);

/* NULL is the method nobody knows. */
static unsigned *
waiting_of(rpc_server_loop *server_loop, rpc_route *route)
{
    return route == NULL ? &server_loop->waiting : &route->waiting;
}

static grpc_call_error
request_accepted(rpc_server_loop *server_loop, rpc_route *route, tutti_rpc_call *call)
{
    grpc_completion_queue *queue = rpc_loop_queue(server_loop->loop);
    grpc_completion_queue *told = /* nobody looks into the queue of a loop that dozes */
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

/* Without memory what is missing is posted later: with none waiting, calls would hang. */
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

/* On the lane's thread. */
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

/* Draining: whoever is parked shall know. The list does not change meanwhile: calls end by events.
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
