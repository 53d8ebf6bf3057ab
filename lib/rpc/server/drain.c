/*
 * The end of a server, in the order in which clients are hurt least:
 *
 * 1. `draining` is set: new calls are refused with DRAINING.
 * 2. Health tells its watchers NOT_SERVING, before the listeners close.
 * 3. gRPC stops listening and sends GOAWAY; calls in flight go on.
 * 4. on_drain ends what is parked, and a task on each loop tells every call (on_cancel).
 * 5. When no call is left and nothing was answered for QUIET_NS, or when the grace is over, gRPC cancels
 *    what is left and closes the connections.
 * 6. The last life is given back (lives.c): on_stopped.
 *
 * All on the server's own loop, except the loops' sweeps. tutti_rpc_server_stop may be called
 * from any thread: it only posts.
 */
#include <assert.h>
#include <inttypes.h>

#include "base/os/clock.h"
#include "base/os/log.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/server.h"
#include "rpc/server/health_pb.h"
#include "rpc/server/probe.h"
#include "rpc/server/server_private.h"
#include "rpc/util/process.h"

#define REMIND_NS (5 * TUTTI_NS_PER_S)
#define LOOK_NS (50 * TUTTI_NS_PER_MS)
#define LOOKS_QUIET 2           /* in a row, without a call */
#define QUIET_NS TUTTI_NS_PER_S /* for slow readers of last answers */

/*
 * gRPC has closed all connections and given the posted requests back. This is the life "for
 * serving at all".
 */
static void
on_closed(tutti_rpc_tag *tag, bool ok)
{
    (void)ok;
    rpc_server_release(tutti_container_of(tag, tutti_rpc_server, closed));
}

/*
 * The grace is over: cancel what is left. It comes back every REMIND_NS to say that calls were
 * still not answered, which is a handler's mistake that nothing here can cure.
 */
static void
on_grace(tutti_timer *timer)
{
    tutti_rpc_server *self = tutti_container_of(timer, tutti_rpc_server, grace);
    const size_t count = atomic_load(&self->call_count);

    if (!self->cancelled_all) {
        self->cancelled_all = true;
        TUTTI_LOG("rpc/server", INFO,
                  "the time for calls in flight (--drain-grace) is over, cancelling %zu calls",
                  count);
        grpc_server_cancel_all_calls(self->grpc);
    } else {
        TUTTI_LOG("rpc/server", WARN, "cannot stop: %zu calls were never answered", count);
    }
    tutti_rpc_loop_timer_start(self->loop, &self->grace,
                               tutti_clock_add(tutti_clock_ns(), REMIND_NS));
}

/*
 * Look whether calls are left. gRPC closes a connection when its client has agreed to the end
 * (GOAWAY and its ping). A client that waits for an answer agrees at once, behind the last byte
 * of it; an idle one may not look at its connection for seconds. gRPC does not say which
 * connections are which, so when no call is left, and no answer has been sent for a second, all of
 * them are cut. What an idle client loses is the status of a stream that we have ended.
 */
static void
on_look(tutti_timer *timer)
{
    tutti_rpc_server *self = tutti_container_of(timer, tutti_rpc_server, look_quiet);

    if (self->cancelled_all) {
        return;
    }
    self->looks_quiet = atomic_load(&self->call_count) == 0 ? self->looks_quiet + 1 : 0;
    if (self->looks_quiet >= LOOKS_QUIET &&
        tutti_clock_ns() - atomic_load(&self->answered_ns) >= QUIET_NS) {
        TUTTI_LOG("rpc/server", DEBUG, "no calls left, cutting idle connections");
        self->cancelled_all = true;
        grpc_server_cancel_all_calls(self->grpc);
        return;
    }
    tutti_rpc_loop_timer_start(self->loop, timer, tutti_clock_add(tutti_clock_ns(), LOOK_NS));
}

static void
on_stop(tutti_rpc_task *task)
{
    tutti_rpc_server *self = tutti_container_of(task, tutti_rpc_server, stop);
    size_t i;

    TUTTI_LOG("rpc/server", DEBUG, "draining %zu calls", atomic_load(&self->call_count));
    atomic_store(&self->draining, true);
    rpc_health_drain(&self->health); /* whoever watches hears it before the door closes */
    rpc_probe_stop(&self->probe);
    self->closed.on_done = on_closed;
    rpc_tag_release(&self->closed);
    grpc_server_shutdown_and_notify(self->grpc, rpc_loop_queue(self->loop), &self->closed);
    if (self->on_drain != NULL) {
        self->on_drain(self->on_drain_arg);
    }
    for (i = 0; i < self->server_loop_count; i++) {
        rpc_server_hold(self);
        tutti_rpc_loop_post(self->server_loops[i].loop, &self->server_loops[i].sweep);
    }
    self->grace.on_expiry = on_grace;
    tutti_rpc_loop_timer_start(self->loop, &self->grace,
                               tutti_clock_add(tutti_clock_ns(), self->options->grace_ns));
    self->look_quiet.on_expiry = on_look;
    tutti_rpc_loop_timer_start(self->loop, &self->look_quiet,
                               tutti_clock_add(tutti_clock_ns(), LOOK_NS));
}

void
tutti_rpc_server_stop(tutti_rpc_server *server, void (*on_stopped)(void *arg), void *arg)
{
    const bool again = atomic_exchange(&server->stopping, true);

    assert(server->started && !again);
    (void)again;
    server->on_stopped = on_stopped;
    server->on_stopped_arg = arg;
    server->stop.on_run = on_stop;
    tutti_rpc_loop_post(server->loop, &server->stop);
}
