/* Ops whose time is up while they wait in line. Control loop. */
#ifndef TUTTI_SERVER_AGENT_OP_DEADLINE_H
#define TUTTI_SERVER_AGENT_OP_DEADLINE_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* Set until when the op may take: its call's limits, else its group's, else --op-timeout. */
void agent_op_limit(agent_op *op);
/* The coordinator has said what limit the group has: it is that of ops in line, too. */
void agent_group_limit(agent_group *group);

/*
 * Start the timer of an op in line. When the deadline has passed by 5 ms and the op is not posted,
 * its sync caller gets TIMEOUT with what the op waited for; the op keeps its place and fails at its
 * turn. agent_op_unwatch stops the timer, and is fine for an op without one.
 */
void agent_op_watch(agent_op *op);
void agent_op_unwatch(agent_op *op);

/*
 * Fail all live ops with `err`: posted ones through the engine, on all ranks; those in line here,
 * in their places. Backwards are the caller's (agent_backward_fail).
 */
void agent_ops_give_up(tutti_agent *agent, const tutti_error *err);

#endif
