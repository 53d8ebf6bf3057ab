/* Questions to the coordinator that are asked again when it is away. */
#include "server/agent/op/coordinator_request.h"

#include <stdlib.h>

#include "base/data/id.h"
#include "base/os/clock.h"
#include "server/agent/state/state.h"

#define AGAIN_NS (200 * TUTTI_NS_PER_MS)

void
agent_ask_begin(agent_ask *ask, tutti_agent *agent)
{
    ask->agent = agent;
    tutti_list_init(&ask->link);
    tutti_list_add(&agent->asks, &ask->link);
}

/* A random half keeps thousands of agents from coming at once. */
void
agent_ask_later(agent_ask *ask, void (*on_again)(tutti_timer *timer))
{
    ask->again.on_expiry = on_again;
    tutti_rpc_loop_timer_start(ask->agent->control, &ask->again,
                               tutti_clock_ns() + AGAIN_NS + tutti_id_draw() % AGAIN_NS);
}

void
agent_ask_end(agent_ask *ask)
{
    tutti_rpc_loop_timer_stop(ask->agent->control, &ask->again);
    tutti_list_remove(&ask->link);
    free(ask);
}

void
agent_asks_cancel(tutti_agent *agent)
{
    tutti_link *link;
    tutti_link *spare;

    tutti_list_each(link, spare, &agent->asks)
    {
        agent_ask *ask = tutti_container_of(link, agent_ask, link);

        if (ask->request != NULL) {
            tutti_rpc_request_cancel(ask->request);
        } else {
            agent_ask_end(ask);
        }
    }
}
