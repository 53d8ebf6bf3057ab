/* Questions to the coordinator that are asked again when it is away. */
#include "server/agent/op/coordinator_request.h"

#include <stdlib.h>

#include "base/data/id.h"
#include "base/os/clock.h"
#include "server/agent/state/state.h"

#define AGAIN_NS (200 * TUTTI_NS_PER_MS)

void
agent_coordinator_request_begin(agent_coordinator_request *coord_request, tutti_agent *agent)
{
    coord_request->agent = agent;
    tutti_list_init(&coord_request->link);
    tutti_list_add(&agent->coordinator_requests, &coord_request->link);
}

/* A random half keeps thousands of agents from coming at once. */
void
agent_coordinator_request_later(agent_coordinator_request *coord_request,
                                void (*on_again)(tutti_timer *timer))
{
    coord_request->again.on_expiry = on_again;
    tutti_rpc_loop_timer_start(coord_request->agent->control, &coord_request->again,
                               tutti_clock_ns() + AGAIN_NS + tutti_id_draw() % AGAIN_NS);
}

void
agent_coordinator_request_end(agent_coordinator_request *coord_request)
{
    tutti_rpc_loop_timer_stop(coord_request->agent->control, &coord_request->again);
    tutti_list_remove(&coord_request->link);
    free(coord_request);
}

void
agent_coordinator_requests_cancel(tutti_agent *agent)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &agent->coordinator_requests)
    {
        agent_coordinator_request *coord_request =
            tutti_container_of(link, agent_coordinator_request, link);

        if (coord_request->request != NULL) {
            tutti_rpc_request_cancel(coord_request->request);
        } else {
            agent_coordinator_request_end(coord_request);
        }
    }
}
