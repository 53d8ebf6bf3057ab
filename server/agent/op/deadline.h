/*
 * Ops whose time is up while they wait in line.
 */
#ifndef TUTTI_SERVER_AGENT_OP_DEADLINE_H
#define TUTTI_SERVER_AGENT_OP_DEADLINE_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* One that may have to wait in line; its caller hears in time, its place stays. */
void agent_op_watch(agent_op *op);
void agent_op_unwatch(agent_op *op);

/* All that live fail with that; those in line keep their places. */
void agent_ops_give_up(tutti_agent *agent, const tutti_error *err);

#endif
