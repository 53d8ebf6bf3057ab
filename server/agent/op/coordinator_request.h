/* Private to server/agent: questions to the coordinator that are asked again when it is away. */
#ifndef TUTTI_SERVER_AGENT_OP_COORDINATOR_REQUEST_H
#define TUTTI_SERVER_AGENT_OP_COORDINATOR_REQUEST_H

#include "server/agent/agent.h"

/* A question to the coordinator that is under way, or waits to be asked again. */
typedef struct agent_ask {
    tutti_link link; /* in agent->asks */
    tutti_agent *agent;
    tutti_rpc_request *request; /* NULL while it waits */
    tutti_timer again;
} agent_ask;

/* An ask is the first member of what ends with it, which is freed by agent_ask_end. */
void agent_ask_begin(agent_ask *ask, tutti_agent *agent);
void agent_ask_later(agent_ask *ask, void (*on_again)(tutti_timer *timer));
void agent_ask_end(agent_ask *ask);

/* All uses of the coordinator end; `asks` is empty once their callbacks have run. */
void agent_asks_cancel(tutti_agent *agent);

#endif
