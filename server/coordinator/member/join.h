/*
 * Join calls, which wait until the job is complete. A call is in one of its job's lists (joins,
 * due, answers) and in its agent's list; several calls of one incarnation wait for the same seat.
 */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_JOIN_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_JOIN_H

#include "server/coordinator/core/types.h"
#include "tutti/error.h"

void coord_joins_init(coord_job *job);
void coord_joins_fini(coord_job *job);

/* Answer all Join calls of an agent with an error. */
void coord_joins_fail(coord_agent *agent, const tutti_error *err);

#endif
