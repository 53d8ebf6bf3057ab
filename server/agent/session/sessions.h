/*
 * Sessions of controllers, for who puts the agent together. Control loop.
 */
#ifndef TUTTI_SERVER_AGENT_SESSION_SESSIONS_H
#define TUTTI_SERVER_AGENT_SESSION_SESSIONS_H

#include "server/agent/agent.h"

/* Add SessionService to agent->server, before the server starts. */
void agent_add_sessions(tutti_agent *agent);

/* The coordinator says that a rank is gone: the sessions that have it as worker lose it. */
void agent_sessions_lose_rank(tutti_agent *agent, uint32_t rank, const char *reason);

/* The coordinator has given this rank's seat up: the sessions that it leads end with RANK_LOST. */
void agent_sessions_lose_seat(tutti_agent *agent, const tutti_error *err);

/* Commands of the sessions that it leads, which are not answered yet. */
uint64_t agent_sessions_command_count(const tutti_agent *agent);

#endif
