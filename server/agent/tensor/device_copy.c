/*
 * A copy whose end is told on a loop. The space reports on a thread of its own, which must not
 * wait; the error is copied there, since the space's own is gone when its callback returns.
 */
#include "server/agent/tensor/device_copy.h"

#include "base/error/fail.h"

static void
run_done(tutti_rpc_task *task)
{
    agent_posted_move *self = tutti_container_of(task, agent_posted_move, task);

    self->on_done(self, self->code == TUTTI_OK ? NULL : &self->err);
}

/* A thread of the space. */
static void
on_move(tutti_move *move, const tutti_error *err)
{
    agent_posted_move *self = tutti_container_of(move, agent_posted_move, move);

    self->code = err == NULL ? TUTTI_OK : tutti_error_pass(&self->err, err);
    self->task.on_run = run_done;
    tutti_rpc_loop_post(self->loop, &self->task);
}

tutti_move *
agent_posted_move_of(agent_posted_move *posted, tutti_rpc_loop *loop, agent_posted_move_fn on_done)
{
    posted->on_done = on_done;
    posted->loop = loop;
    posted->move.on_done = on_move;
    return &posted->move;
}
