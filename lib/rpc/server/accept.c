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
waiting_of(rpc_lane *lane, rpc_route *route)
{
    return route == NULL ? &lane->waiting : &route->waiting;
}

static grpc_call_error
request(rpc_lane *lane, rpc_route *route, tutti_rpc_call *call)
{
    grpc_completion_queue *queue = rpc_loop_queue(lane->loop);
    grpc_completion_queue *told = /* nobody looks into the queue of a loop that dozes */
        rpc_loop_dozes(lane->loop) ? rpc_loop_queue(lane->server->loop) : queue;
    grpc_server *server = lane->server->grpc;

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
post(rpc_lane *lane, rpc_route *route)
{
    tutti_rpc_call *call = rpc_call_new(lane, route);
    grpc_call_error refused;

    if (call == NULL) {
        return false;
    }
    call->arrived.on_done = on_arrived;
    refused = request(lane, route, call);
    assert(refused == GRPC_CALL_OK);
    (void)refused;
    (*waiting_of(lane, route))++;
    return true;
}

/* Without memory what is missing is posted later: with none waiting, calls would hang. */
static void
fill(rpc_lane *lane, rpc_route *route)
{
    const unsigned *waiting = waiting_of(lane, route);

    while (*waiting < WAITING_WANTED && !atomic_load(&lane->server->draining)) {
        if (!post(lane, route)) {
            tutti_rpc_loop_timer_start(lane->loop, &lane->again,
                                       tutti_clock_add(tutti_clock_ns(), AGAIN_NS));
            return;
        }
    }
}

void
rpc_lane_fill(rpc_lane *lane)
{
    tutti_rpc_server *server = lane->server;
    size_t i;

    fill(lane, NULL);
    for (i = 0; i < server->route_count; i++) {
        if (server->routes[i].lane == lane) {
            fill(lane, &server->routes[i]);
        }
    }
}

/* On the lane's thread. */
static void
arrive(tutti_rpc_call *call)
{
    (*waiting_of(call->lane, call->route))--;
    if (!call->came) { /* the server shuts down */
        rpc_loop_drop(call->lane->loop);
        rpc_call_discard(call);
        return;
    }
    if (call->route == NULL) {
        call->deadline = call->details.deadline;
    }
    fill(call->lane, call->route); /* first, so that the next one need not wait for this one */
    rpc_call_begin(call);
}

static void
on_enter(tutti_rpc_task *task)
{
    arrive(tutti_container_of(task, tutti_rpc_call, enter));
}

static void
on_arrived(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_call *call = tutti_container_of(tag, tutti_rpc_call, arrived);
    tutti_rpc_loop *loop = call->lane->loop;

    call->came = ok;
    rpc_loop_hold(loop); /* until the call ends */
    if (tutti_rpc_loop_is_current(loop)) {
        arrive(call);
    } else {
        call->enter.on_run = on_enter;
        tutti_rpc_loop_post(loop, &call->enter);
    }
}

static void
on_again(tutti_timer *timer)
{
    rpc_lane_fill(tutti_container_of(timer, rpc_lane, again));
}

static void
on_fill(tutti_rpc_task *task)
{
    rpc_lane *lane = tutti_container_of(task, rpc_lane, fill);

    rpc_lane_fill(lane);
    rpc_server_release(lane->server);
}

/* Draining: whoever is parked shall know. The list does not change meanwhile: calls end by events.
 */
static void
on_sweep(tutti_rpc_task *task)
{
    rpc_lane *lane = tutti_container_of(task, rpc_lane, sweep);
    tutti_link *link;
    tutti_link *spare;

    tutti_rpc_loop_timer_stop(lane->loop, &lane->again);
    tutti_list_each(link, spare, &lane->calls)
    {
        rpc_call_tell(tutti_container_of(link, tutti_rpc_call, link));
    }
    rpc_server_release(lane->server);
}

void
rpc_lane_init(rpc_lane *lane, tutti_rpc_server *server, tutti_rpc_loop *loop)
{
    *lane = (rpc_lane){.server = server, .loop = loop};
    tutti_list_init(&lane->calls);
    lane->fill.on_run = on_fill;
    lane->sweep.on_run = on_sweep;
    lane->again.on_expiry = on_again;
}
