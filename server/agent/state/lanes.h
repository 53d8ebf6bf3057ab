/*
 * Lanes: shared memory by which clients of this machine send commands (rpc/lane.h). Private to
 * server/agent.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_LANES_H
#define TUTTI_SERVER_AGENT_STATE_LANES_H

#include "server/agent/agent.h"
#include "server/agent/state/share.h"

/*
 * Open the thread that serves lanes, and the socket at which clients get them. If that fails the
 * log says so, agent->lanes is NULL, and OpenLane is refused. Before the server starts.
 */
void agent_lanes_open(tutti_agent *agent);
void agent_lanes_close(tutti_agent *agent); /* behind the server's end */

/*
 * A lane that waits for its client. Any thread.
 *
 * [in] identity  of the caller
 * [in] polls     the client waits in its own event loop: it gets an eventfd that wakes it
 *
 * TUTTI_RESOURCE_EXHAUSTED  LANE_LIMIT; no memory, no descriptors
 */
tutti_code agent_lanes_offer(tutti_agent *agent, const char *identity, bool polls,
                             agent_shared *ret_shared, tutti_error *err);

#endif
