/*
 * Lists: several tensors in one op, as many ops in one (coalesced, as in PyTorch's c10d) or one
 * tensor for each rank; and what an op gives besides one result.
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
 * Coalesced: `inputs` of any shapes and dtypes, each treated as if it were an op of its own, with
 * one agreement for all of them. All ranks that give tensors give as many, of the same dtypes and
 * shapes in the same order (with op.form = LIST shapes may differ). For all ops of tutti/op.h but
 * barrier, send, recv and all_to_all.
 *
 *   all_reduce, permute, reduce_scatter   -> one result for each input
 *   broadcast, scatter   the root gives `inputs`, the others set `coalesced` -> likewise
 *   all_gather, gather   -> one result for each input; with op.form = LIST one for each input and
 *                        rank, in the order [input][group rank]
 *   reduce_to_root       -> one result for each input, on the root
 *
 * By rank (op.form = LIST): one tensor for each of the n ranks of the group, in their order.
 *
 *   scatter          the root gives n `inputs` of one dtype and shape -> one result
 *   reduce_scatter   each rank gives n `inputs` of one dtype, alike on all ranks -> one result
 *   all_to_all       each rank gives n `inputs` of one dtype and any shapes -> n results
 *   all_gather       each rank gives `input`; one dtype, any shapes -> n results
 *   gather           likewise, the results on the root
 *
 * A list has at most 1024 tensors. Results go to `outputs` if there are any, which must be one for
 * each result, else to new tensors of the agent, which the caller deletes. In the output of a
 * failed op bytes are undefined; new tensors are not made. Threads: as tutti/op.h.
 *
 * Statuses that lists add to those of the op; all ranks get them:
 *
 * TUTTI_INVALID_ARGUMENT  LIST_SIZE: more than 1024 tensors, not one for each rank, another number
 *                         of outputs than of results, of axes than of inputs, or ranks differ in
 *                         length
 *                         EMPTY_LIST: `coalesced`, and no inputs
 *                         UNEXPECTED_INPUT: `input` and `inputs` are both set, or a rank that is
 *                         not the root gave a list to a broadcast or scatter
 *                         OUTPUT_ALIAS: a tensor is twice among the outputs, or is an output and
 *                         the input of another place
 *                         DTYPE_MISMATCH, SHAPE_MISMATCH: within the list by rank, or between ranks
 *                         BAD_FORM: a list by rank where `coalesced` is set
 *                         SPLITS_MISMATCH: splits together with a list
 *                         TRACED_LIST: a traced tensor in a list by rank, or in one from a root
 *
 * Caveats
 *
 * - A receiver of a coalesced broadcast or scatter has no `inputs` by which the agent could tell
 *   that a list comes. How it looks: OP_MISMATCH on all ranks. What to do: set op.coalesced there.
 * - The number and the shapes of the results that come from other ranks are not known before the op
 *   has ended. How it looks: an async op gives no handles in op.more. What to do: tutti_wait_more.
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
 * What an op gives besides its result. A function that has such an output empties it first and
 * fills it if it succeeds, so that the caller may free it in either case. If the function returns
 * TUTTI_INVALID_ARGUMENT because the tutti_op was not initialised, it leaves it as it was.
 */
typedef struct tutti_op_more {
    /*
     * [owned] The results of a list, in order; freed by tutti_op_more_free, while the tensors stay
     * in the agent. NULL = no list, or this rank gets none.
     */
    tutti_handle *outputs;
    /* Handles in outputs. */
    size_t output_count;
    /*
     * [owned] The bytes that the root, or the sender, gave as tutti_op.user_meta, and a NUL behind
     * them; freed by tutti_op_more_free. NULL = none came.
     */
    void *user_meta;
    /* Bytes of user_meta without that NUL: 0 to 16384. */
    size_t user_meta_size;
} tutti_op_more;

/*
 * Frees what `more` points to, and empties it. The tensors stay. Any thread.
 *
 * [in] more  NULL is fine, and an empty one
 */
TUTTI_API void tutti_op_more_free(tutti_op_more *more);

/*
 * Wait for one async op, and hear the handles of its list and what came with its tensor. It blocks
 * as tutti_wait does; waiting twice is fine, and a wait that ends early leaves the op running.
 *
 * [in]         work        tutti_op_result.work
 * [in]         timeout_ms  0 = the agent's --op-timeout
 * [out]        ret_status  how the op ended: a failed op is in ret_status->error, and the function
 *                          returns TUTTI_OK. NULL = not wanted: then the op's error is returned
 * [out, owned] ret_more    not NULL; emptied at once, filled if the op succeeded;
 *                          tutti_op_more_free it
 *
 * TUTTI_NOT_FOUND          NO_WORK: no such op, or it ended so long ago that the agent has
 *                          forgotten it (--works-max, 4096). The op may have succeeded
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: it still runs: wait again
 * TUTTI_DATA_LOSS          what answers is no agent
 * and the common statuses (tutti/client.h)
 */
TUTTI_API tutti_code tutti_wait_more(tutti_client *client, const char *work, uint32_t timeout_ms,
                                     tutti_work_status *ret_status, tutti_op_more *ret_more,
                                     tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
