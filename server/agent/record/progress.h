/*
 * Private to server/agent: what people are told of ops, while they run and afterwards. Control
 * loop, where nothing else is said.
 */
#ifndef TUTTI_SERVER_AGENT_RECORD_PROGRESS_H
#define TUTTI_SERVER_AGENT_RECORD_PROGRESS_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* ------------------------------------------------------------------ flight_op.c: what an op writes
 */

void agent_op_record_enqueued(agent_op *op); /* control loop: it has its group */
void agent_op_record_started(agent_op *op);  /* control loop: about to be posted */
void agent_op_record_posted(agent_op *op);   /* control loop: it has its number */
void agent_op_record_ended(agent_op *op);    /* any thread: before the caller is told */
/* Nothing of it is left in the agent. Fine for an op that was never recorded. */
void agent_op_record_retired(const agent_op *op);

/* ------------------------------------------------------------------ flight_dump.c: into a file */

/*
 * Also makes agent->flight. Fails when --flight-dir cannot be written to, or without memory; close
 * is fine behind a failure.
 */
tutti_code agent_dump_open(tutti_agent *agent, tutti_error *err);
void agent_dump_soon(tutti_agent *agent);  /* an op has failed. Control loop */
void agent_dump_flush(tutti_agent *agent); /* what is due is written before the groups go */
void agent_dump_close(tutti_agent *agent);

/* ------------------------------------------------------------------ progress.c */

/* Something that heartbeats tell has changed: the next one tells of this group. */
void agent_group_changed(agent_group *group);
void agent_group_note_end(agent_group *group, const agent_op *op); /* it has just ended */
void agent_op_note_over(agent_op *op);                             /* in every sense */
void agent_progress_again(tutti_agent *agent); /* a new session has been told nothing */

/* ------------------------------------------------------------------ flight_pb.c */

void agent_on_flight(tutti_rpc_call *call, void *agent);

/* ------------------------------------------------------------------ examine_pb.c */

void agent_on_examine(tutti_rpc_call *call, void *agent);

/* ------------------------------------------------------------------ explain_pb.c */

void agent_on_explain(tutti_rpc_call *call, void *agent);
void agent_on_set_algorithms(tutti_rpc_call *call, void *agent);

#endif
