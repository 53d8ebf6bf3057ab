/*
 * The channel to the coordinator.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_COORDINATOR_CHANNEL_H
#define TUTTI_SERVER_AGENT_STATE_COORDINATOR_CHANNEL_H

#include "server/agent/agent.h"

/* Open it. */
tutti_code agent_open_channel(tutti_agent *agent, tutti_error *err);

#endif
