/*
 * Memory of deleted tensors goes back to the system some time after it was freed. Control loop.
 *
 * Freed memory is kept for --memory-keep, because giving it back and faulting it in again costs
 * more than most ops. Each look gives back what has been free since the look before, so memory
 * waits between once and twice that time.
 */
#include "server/agent/state/trim.h"

#include <malloc.h>

#include "base/os/clock.h"
#include "server/agent/state/state.h"
#include "tensor/host/host.h"

/*
 * Giving back 256 MiB takes the kernel some milliseconds; between two turns the control loop
 * answers heartbeats.
 */
#define TURN_BYTES (256ULL << 20)
#define TURN_NS (20 * TUTTI_NS_PER_MS)

static void
on_trim(tutti_timer *timer)
{
    tutti_agent *agent = tutti_container_of(timer, tutti_agent, trim_timer);
    const bool more = tutti_space_host_trim(agent->space, TURN_BYTES);

    if (!more) {
        (void)malloc_trim(0); /* messages and what gRPC has let go */
    }
    tutti_rpc_loop_timer_start(agent->control, &agent->trim_timer,
                               tutti_clock_ns() +
                                   (more ? TURN_NS : agent->options->memory_keep_ns));
}

void
agent_trim_start(tutti_agent *agent)
{
    agent->trim_timer.on_expiry = on_trim;
    if (agent->options->memory_keep_ns > 0) {
        tutti_rpc_loop_timer_start(agent->control, &agent->trim_timer,
                                   tutti_clock_ns() + agent->options->memory_keep_ns);
    }
}

void
agent_trim_stop(tutti_agent *agent)
{
    tutti_rpc_loop_timer_stop(agent->control, &agent->trim_timer);
}
