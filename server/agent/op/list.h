/* Private to server/agent: ops that take or make lists of tensors. */
#ifndef TUTTI_SERVER_AGENT_OP_LIST_H
#define TUTTI_SERVER_AGENT_OP_LIST_H

#include "server/agent/state/state.h"

/* The tensors of an op that takes or makes a list. */
struct agent_list {
    uint32_t in_count;
    tutti_coll_tensor *in;
    tutti_use **in_uses;     /* NULL: inline */
    int32_t *axes;           /* as given */
    tutti_tensor *in_memory; /* of the inline ones */
    uint32_t out_count;
    tutti_coll_tensor *out;
    tutti_use **out_uses; /* NULL: inline, or the input stands for it */
    tutti_tensor *out_memory;
    uint32_t given_count; /* outputs that the caller named: the first uses of out_uses */
    bool out_is_new;
    tutti_claim made; /* results that came to be when their number was known */
};

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
