/*
 * The channel to the coordinator.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_COORDINATOR_CHANNEL_H
#define TUTTI_SERVER_AGENT_STATE_COORDINATOR_CHANNEL_H

#include "server/agent/agent.h"

/*
 * Open agent->coordinator. Nothing is sent yet: an address where nobody is shows with the first
 * call. Codes of tutti_rpc_channel_open.
 */
tutti_code agent_open_channel(tutti_agent *agent, tutti_error *err);

#endif
