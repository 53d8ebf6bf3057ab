#include "server/agent/state/trim.h"

#include <malloc.h>

#include "base/os/clock.h"
#include "server/agent/state/state.h"
#include "tensor/host/host.h"

/* The control loop answers heartbeats in between. */
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
