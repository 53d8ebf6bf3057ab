/* Sessions: the stream by which an agent says that it lives. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_SESSION_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_SESSION_H

#include <stddef.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/types.h"

void coord_sessions_init(coord_job *job);
void coord_sessions_fini(coord_job *job);

/* Let all sessions look for what they have to be told. */
void coord_sessions_wake(coord_job *job);

/* All that came has been handed over: end sessions that are silent still, at most so many. */
void coord_sessions_judge(tutti_coordinator *self, size_t budget);

/* Wait for the (next) session of an agent that is alive. */
void coord_agent_await_session(coord_agent *agent);

/*
 * The rank is lost: a new epoch, an event, and the end of what needs it. A session that it still
 * has ends with `err` (NULL = OK). The job lingers when it was the last.
 */
void coord_agent_lose(coord_agent *agent, const char *reason, const tutti_error *err);

#endif
