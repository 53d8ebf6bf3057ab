/* Private to server/agent: ops that take or make lists of tensors. */
#ifndef TUTTI_SERVER_AGENT_OP_LIST_H
#define TUTTI_SERVER_AGENT_OP_LIST_H

#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

tutti_code agent_list_take(agent_op *op, agent_request *request, tutti_error *err);
/* Its turn has come: what is in the tensors. */
tutti_code agent_list_inputs(agent_op *op, tutti_error *err);
/* Where results go, if they are a list; those that others decide follow later. */
tutti_code agent_list_results(agent_op *op, tutti_error *err);
/* What it made: *ret_count of them, to be freed; NULL: none, or no memory. */
agent_output *agent_list_outputs(const agent_op *op, uint32_t *ret_count);
/* One piece of memory for tensors of these specs: their `data` are set. INLINE_LIMIT */
tutti_code agent_list_share(const agent_op *op, tutti_coll_tensor *tensors, uint32_t count,
                            tutti_tensor **ret, tutti_error *err);
uint64_t agent_list_pack(agent_list *list); /* inline results one behind the other; their bytes */
void agent_list_mark(agent_op *op, const tutti_error *err); /* of all that it wrote, or was to */
void agent_list_drop_new(agent_op *op);
void agent_list_free(agent_op *op);

#endif
