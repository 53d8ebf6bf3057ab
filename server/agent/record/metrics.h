/*
 * Counters of ops that have ended.
 */
#ifndef TUTTI_SERVER_AGENT_RECORD_METRICS_H
#define TUTTI_SERVER_AGENT_RECORD_METRICS_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* An op is over; its lists are still there. Control loop. */
void agent_note_op(agent_op *op);

/* A call of a function, or a command of a session, is answered. */
void agent_note_call(tutti_agent *agent, tutti_code code, uint64_t duration_ns);
void agent_note_command(tutti_agent *agent, tutti_code code);

#endif
