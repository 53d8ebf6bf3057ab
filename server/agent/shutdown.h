/* The end of an agent. Control loop. */
#ifndef TUTTI_SERVER_AGENT_SHUTDOWN_H
#define TUTTI_SERVER_AGENT_SHUTDOWN_H

#include "server/agent/agent.h"

/* The agent ends because of this; on_end is told. Again is fine. */
void agent_give_up(tutti_agent *agent, const tutti_error *err);

/* An op has ended: perhaps the last one that we waited for. */
void agent_stop_look(tutti_agent *agent);

/* One way of telling the others that the agent leaves is through: once for each that was counted in
 * announcements_pending. */
void agent_announced(tutti_agent *agent);

#endif
