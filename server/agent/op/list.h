/*
 * Private to server/agent: ops that take or make lists of tensors (agent_list in state/op.h).
 * Control loop, but for agent_list_outputs, _pack and _mark, which are the engine's thread at the
 * op's end.
 */
#ifndef TUTTI_SERVER_AGENT_OP_LIST_H
#define TUTTI_SERVER_AGENT_OP_LIST_H

#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

/*
 * The call has come: make op->list, copy or lock its inputs, lock or make its outputs. On failure
 * agent_list_free follows. LIST_SIZE, SIZE_MISMATCH, UNEXPECTED_INPUT, OUTPUT_ALIAS, INLINE_LIMIT,
 * and those of the table.
 */
tutti_code agent_list_take(agent_op *op, agent_request *request, tutti_error *err);
/* Its turn has come: args.list and args.spec of the tensors that are there now. The error of the op
 * that was to write an input; UNEXPECTED_INPUT. Fine for an op without a list. */
tutti_code agent_list_inputs(agent_op *op, tutti_error *err);
/* Where results go, for an op that makes a list. Results whose number or shape another rank decides
 * are placed by the engine's on_list. */
tutti_code agent_list_results(agent_op *op, tutti_error *err);
/* What it made: *ret_count of them, to be freed; NULL: none, or no memory. */
agent_output *agent_list_outputs(const agent_op *op, uint32_t *ret_count);
/* One piece of memory for tensors of these specs: their `data` are set. INLINE_LIMIT */
tutti_code agent_list_share(const agent_op *op, tutti_coll_tensor *tensors, uint32_t count,
                            tutti_tensor **ret, tutti_error *err);
uint64_t agent_list_pack(agent_list *list); /* inline results one behind the other; their bytes */
/* tutti_table_mark of all that the op wrote, or was to write; NULL = well. */
void agent_list_mark(agent_op *op, const tutti_error *err);
/* Take results that the op made out of the table; those that the caller named stay. */
void agent_list_drop_new(agent_op *op);
/* Release late locks and free op->list; NULL is fine. */
void agent_list_free(agent_op *op);

#endif
