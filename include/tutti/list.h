/*
 * Lists: several tensors in one op, and what an op gives besides one result.
 *
 *     const char *grads[] = {"layer1", "layer2", "bias"};
 *     tutti_op_more more;
 *     tutti_op op;
 *
 *     tutti_op_init(&op);
 *     op.inputs = op.outputs = grads;                // in place
 *     op.input_count = op.output_count = 3;
 *     op.more = &more;
 *     code = tutti_all_reduce(client, &op, NULL, &err);
 *     tutti_op_more_free(&more);
 *
 * Coalesced: `inputs` of any shapes and dtypes, as many ops in one. By rank (op.form = LIST): a
 * tensor for each group rank in scatter, reduce_scatter and all_to_all, a tensor from each in
 * all_gather, gather and all_to_all; those from others may have any shape, of the same dtype.
 */
#ifndef TUTTI_LIST_H
#define TUTTI_LIST_H

#include <stddef.h>

#include "tutti/op.h"
#include "tutti/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What an op gives besides its result, tutti/list.h: filled by one that succeeds, through op.more;
 * free it with tutti_op_more_free.
 */
typedef struct tutti_op_more {
    tutti_handle *outputs; /* [owned] the results of a list, in order; NULL = none */
    size_t output_count;
    void *user_meta; /* [owned] what came with the tensor; NULL = nothing */
    size_t user_meta_size;
} tutti_op_more;

TUTTI_API void tutti_op_more_free(tutti_op_more *more); /* empties it; may be empty */

/*
 * Wait for one work, and hear what it made of a list: for ops whose results others decide, their
 * handles are known only now.
 *
 * Codes as tutti_wait; a work that failed is ret_status->error, or the code when that is NULL.
 */
TUTTI_API tutti_code tutti_wait_more(tutti_client *client, const char *work, uint32_t timeout_ms,
                                     tutti_work_status *ret_status, tutti_op_more *ret_more,
                                     tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
