/* Private to server/agent: questions to the coordinator that are asked again when it is away. */
#ifndef TUTTI_SERVER_AGENT_OP_COORDINATOR_REQUEST_H
#define TUTTI_SERVER_AGENT_OP_COORDINATOR_REQUEST_H

#include "server/agent/agent.h"

/* A question to the coordinator that is under way, or waits to be asked again. */
typedef struct agent_coordinator_request {
    tutti_list_node link; /* in agent->asks */
    tutti_agent *agent;
    tutti_rpc_request *request; /* NULL while it waits */
    tutti_timer again;
} agent_coordinator_request;

/* An ask is the first member of what ends with it, which is freed by agent_coordinator_request_end.
 */
void agent_coordinator_request_begin(agent_coordinator_request *coord_request, tutti_agent *agent);
void agent_coordinator_request_later(agent_coordinator_request *coord_request,
                                     void (*on_again)(tutti_timer *timer));
void agent_coordinator_request_end(agent_coordinator_request *coord_request);

/* All uses of the coordinator end; `asks` is empty once their callbacks have run. */
void agent_coordinator_requests_cancel(tutti_agent *agent);

#endif
