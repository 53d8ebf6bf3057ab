/*
 * Private to server/agent: questions to the coordinator that are asked again when it is away.
 * Control loop.
 */
#ifndef TUTTI_SERVER_AGENT_OP_COORDINATOR_REQUEST_H
#define TUTTI_SERVER_AGENT_OP_COORDINATOR_REQUEST_H

#include "server/agent/agent.h"

/* A question to the coordinator that is under way, or waits to be asked again. */
typedef struct agent_coordinator_request {
    tutti_list_node link; /* in agent->coordinator_requests */
    tutti_agent *agent;
    tutti_rpc_request *request; /* NULL while it waits */
    tutti_timer again;
} agent_coordinator_request;

/*
 * The struct is the first member of a larger one, which the caller has allocated and
 * agent_coordinator_request_end frees. begin puts it into the agent's list. later has `on_again`
 * run after 200 to 400 ms; `request` is NULL then. end also stops the timer.
 *
 */
void agent_coordinator_request_begin(agent_coordinator_request *coord_request, tutti_agent *agent);
void agent_coordinator_request_later(agent_coordinator_request *coord_request,
                                     void (*on_again)(tutti_timer *timer));
void agent_coordinator_request_end(agent_coordinator_request *coord_request);

/*
 * End all of them: agent->coordinator_requests is empty once the callbacks of cancelled requests
 * have run.
 */
void agent_coordinator_requests_cancel(tutti_agent *agent);

#endif
