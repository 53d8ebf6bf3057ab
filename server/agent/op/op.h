/*
 * Ops: from a request to its answer. Control loop, where nothing else is said.
 */
#ifndef TUTTI_SERVER_AGENT_OP_OP_H
#define TUTTI_SERVER_AGENT_OP_OP_H

#include "server/agent/agent.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

void agent_op_start(tutti_agent *agent, tutti_rpc_call *call, agent_request *request,
                    agent_answer_fn answer);

/* NULL: no memory. claim.on_ready is the caller's to set. */
agent_op *agent_op_new(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
                       agent_answer_fn answer);
tutti_code agent_op_take(agent_op *op, agent_request *request, tutti_error *err);
void agent_op_launch(agent_op *op); /* its turn has come */
void agent_op_finish(agent_op *op); /* control loop: it is over in every sense */
void agent_op_end_early(agent_op *op, const tutti_error *err); /* it never becomes an op */
void agent_op_answer_async(agent_op *op); /* it has its place: handles and work id are good */

/* Callbacks of the engine: on the thread that runs it, which may be the control loop inside
 * tutti_coll_post (coll/coll.h). */
void agent_op_on_done(tutti_coll_op *engine_op, const tutti_error *err);
void agent_op_on_released(tutti_coll_op *engine_op);

#endif
