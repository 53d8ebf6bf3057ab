/*
 * Questions to the coordinator that are asked again when it is away: groups (group_lookup_pb.c) and
 * addresses of ranks (member/coordinator_pb.c). Control loop. Each is in
 * agent->coordinator_requests from its beginning to its end, so that an agent that stops can wait
 * for the list to be empty.
 */
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

/*
 * 200 ms to 400 ms: the random part keeps thousands of agents from asking a coordinator that has
 * just come back at the same moment.
 */
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

/*
 * A request that is under way is cancelled and ends by its callback, which asks no more once the
 * agent leaves. One that waits for its timer has no callback to come, so it ends here.
 */
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
