/*
 * Waits that their program may end: Ctrl-C in an interpreter, which can look at its signals on its
 * own thread alone.
 *
 * The hook is the process's, because it stands for the process's signals. While there is none, a
 * wait is one pluck. With one, a wait is cut into slices, and the hook is asked between them; a
 * slice costs a system call each 50 ms, and nothing for a call that is answered sooner.
 */
#include <stdatomic.h>

#include "base/os/clock.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop/loop_private.h"
#include "rpc/util/process.h"

#define SLICE_NS (50 * TUTTI_NS_PER_MS) /* people do not notice it */

static _Atomic(tutti_rpc_interrupt_fn) interrupt_hook;

void
tutti_rpc_set_interrupt(tutti_rpc_interrupt_fn hook)
{
    atomic_store(&interrupt_hook, hook);
}

bool
tutti_rpc_interrupted(void)
{
    const tutti_rpc_interrupt_fn hook = atomic_load(&interrupt_hook);

    return hook != NULL && hook();
}

static uint64_t
slice_until(uint64_t deadline_ns)
{
    const uint64_t slice = tutti_clock_add(tutti_clock_ns(), SLICE_NS);

    return slice < deadline_ns ? slice : deadline_ns;
}

grpc_event
rpc_channel_pluck_until(grpc_completion_queue *queue, void *tag, rpc_outcome *outcome,
                        grpc_call *call, uint64_t deadline_ns)
{
    const tutti_rpc_interrupt_fn hook = atomic_load(&interrupt_hook);
    bool asks = hook != NULL;
    uint64_t until;
    grpc_event event;

    do {
        until = asks ? slice_until(deadline_ns) : deadline_ns;
        event = grpc_completion_queue_pluck(queue, tag, rpc_time_to(until), NULL);
        if (event.type != GRPC_OP_COMPLETE && asks && hook()) {
            rpc_outcome_cancel(outcome, call); /* the batch ends by that */
            asks = false;
        }
    } while (event.type != GRPC_OP_COMPLETE && until < deadline_ns);
    return event;
}
