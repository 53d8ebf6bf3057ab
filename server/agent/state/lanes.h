/*
 * Lanes: shared memory by which clients of this machine send commands (lane_offer/lane_offer.h).
 * Private to server/agent.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_LANES_H
#define TUTTI_SERVER_AGENT_STATE_LANES_H

#include "server/agent/agent.h"

/* As the options say. Before the server starts; tutti_lane_offers_close(agent->lanes) behind its end. */
void agent_lanes_open(tutti_agent *agent);

#endif
