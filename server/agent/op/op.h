/*
 * Ops: from a request to its answer. Control loop, where nothing else is said.
 *
 * agent_op_start makes an op of a call. A Backward makes ops of its own with agent_op_new, without
 * a call, and sets on_end (state/op.h). The states and their moves are in state/op.h.
 */
#ifndef TUTTI_SERVER_AGENT_OP_OP_H
#define TUTTI_SERVER_AGENT_OP_OP_H

#include "server/agent/agent.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

/*
 * Begin an op for a call, or refuse it. The call is answered exactly once in any case: at once when
 * the agent refuses it before it has a place in the group's order (NOT_JOINED, STOPPING, CUT_OFF,
 * OP_LIMIT, OUT_OF_SEQUENCE, a bad group name), when the op has its place if it is async, else when
 * the op ends.
 *
 * [in] request  borrowed until it returns, its payload too; all that the op needs is copied [in]
 * answer   called at most once, from any thread, unless the call fails
 */
void agent_op_start(tutti_agent *agent, tutti_rpc_call *call, agent_request *request,
                    agent_answer_fn answer);

/* NULL: no memory. claim.on_ready is the caller's to set. */
agent_op *agent_op_new(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
                       agent_answer_fn answer);
/*
 * Resolve what the request names: copy inline bytes, find tensors, make entries for new results,
 * find tracers, and make the work of an async op. The lock set is filled and not asked for. On
 * failure the caller releases the lock set and agent_list_free()s; the op itself lives on as
 * refused.
 *
 * Codes and reasons: those of tutti_table_lock_by_name and tutti_table_create_locked;
 * SIZE_MISMATCH, INLINE_LIMIT, MEMORY_LIMIT, ASYNC_INLINE, LIST_SIZE, OUTPUT_ALIAS,
 * UNEXPECTED_INPUT; BAD_EVENT, NO_EVENT; of tracers TRACER_COUNT, TRACED_INLINE and those of tutti_tape_find; or what
 * the wire file has refused.
 */
tutti_code agent_op_take(agent_op *op, agent_request *request, tutti_error *err);
/*
 * Its turn has come and it is in no list: check it, and post or refuse it. It may have ended, and
 * be freed, when this returns.
 */
void agent_op_launch(agent_op *op);
/* It is over in every sense: tell works, Syncs and Backwards, release its locks, free it when its
 * call is over too. Once, behind agent_op_on_released or instead of it. */
void agent_op_finish(agent_op *op);
/* It ends with `err` without having been given to the engine; it is in no queue any more. Answers
 * the call unless that is answered, then as agent_op_finish. */
void agent_op_end_early(agent_op *op, const tutti_error *err);
/* Fail an op that is not over, on all ranks: now, or when its turn comes. An agent_cancel_fn. */
void agent_op_cancel(void *op, const tutti_error *err);
/* Answer the call of an async op that has its place, or whose `done` is recorded: handles and work id are valid from now on. The
 * op has no call afterwards. */
void agent_op_answer_async(agent_op *op);

/* Callbacks of the engine: on the thread that runs it, which may be the control loop inside
 * tutti_coll_post (coll/coll.h). */
void agent_op_on_launched(tutti_coll_op *engine_op);
void agent_op_on_done(tutti_coll_op *engine_op, const tutti_error *err);
void agent_op_on_released(tutti_coll_op *engine_op);

#endif
