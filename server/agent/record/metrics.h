/*
 * Counters of ops that have ended.
 */
#ifndef TUTTI_SERVER_AGENT_RECORD_METRICS_H
#define TUTTI_SERVER_AGENT_RECORD_METRICS_H

#include "server/agent/state/types.h"

/* An op is over; its lists are still there. Control loop. */
void agent_note_op(agent_op *op);

#endif
