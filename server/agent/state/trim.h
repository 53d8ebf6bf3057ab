/* Trim: memory that nobody uses goes back to the system after --memory-keep. Control loop. */
#ifndef TUTTI_SERVER_AGENT_STATE_TRIM_H
#define TUTTI_SERVER_AGENT_STATE_TRIM_H

#include "server/agent/agent.h"

/* The first look comes after --memory-keep; never when that is 0. */
void agent_trim_start(tutti_agent *agent);
void agent_trim_stop(tutti_agent *agent);

#endif
