/*
 * The end of a server's end: see `lives` in server_private.h. The last life may be given back on
 * any loop, or on a thread that unrefs a call; the rest is done on the server's own loop, in a
 * task, so that on_stopped may free the server.
 */
#include "base/os/log.h"
#include "rpc/loop.h"
#include "rpc/server/listen.h"
#include "rpc/server/server_private.h"

static void
on_last(tutti_rpc_task *task)
{
    tutti_rpc_server *self = tutti_container_of(task, tutti_rpc_server, last);
    size_t i;

    tutti_rpc_loop_timer_stop(self->loop, &self->grace);
    tutti_rpc_loop_timer_stop(self->loop, &self->look_quiet);
    /* gRPC has closed its sockets by now, so another server may take the Unix paths. */
    for (i = 0; i < self->listener_count; i++) {
        rpc_listen_leave(&self->listeners[i]);
    }
    self->stopped = true;
    TUTTI_LOG("rpc/server", DEBUG, "stopped");
    if (self->on_stopped != NULL) {
        self->on_stopped(self->on_stopped_arg);
    }
}

void
rpc_server_release(tutti_rpc_server *server)
{
    if (atomic_fetch_sub(&server->lives, 1) == 1) {
        server->last.on_run = on_last;
        tutti_rpc_loop_post(server->loop, &server->last);
    }
}
