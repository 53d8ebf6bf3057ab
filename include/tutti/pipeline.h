/*
 * Pipeline: many calls through one stream to the agent, without waiting for each. A small op costs
 * a fraction of a call of its own, and ops of one group overlap.
 *
 *     tutti_pipeline *pipeline;
 *     tutti_pipeline_result done;
 *     uint64_t id;
 *
 *     code = tutti_pipeline_open(client, NULL, &pipeline, &err);
 *     for (i = 0; i < 1000 && code == TUTTI_OK; i++) {
 *         code = tutti_pipeline_submit(pipeline, TUTTI_OP_ALL_REDUCE, &op, &id, &err);
 *     }
 *     while (code == TUTTI_OK &&
 *            (code = tutti_pipeline_next(pipeline, &done, &err)) == TUTTI_OK) {
 *         if (done.error.code != TUTTI_OK) {
 *             fprintf(stderr, "call %d: %s\n", (int)done.id, done.error.text);
 *         }
 *         tutti_op_more_free(&done.more);
 *     }                                            // TUTTI_NOT_FOUND: all have been answered
 *     tutti_pipeline_close(pipeline, &err);
 *
 * A submitted call passes through three states: it waits in the agent, it runs, and it is answered.
 * The agent begins the calls in exactly the order in which they were submitted and answers each as
 * it ends, so that answers may come in another order. A call may name the result of an earlier one
 * only if it knows the name: give put a name, or state op->output. A call that fails does not end
 * the pipeline. Every rank that takes part in an op calls it, by a pipeline or not.
 *
 * Threads. One thread at a time may use a pipeline, tutti_pipeline_cancel too; a client may have
 * several pipelines, also while it makes other calls. No thread runs in the background: answers are
 * read when a function here waits.
 *
 * Time. The stream has no deadline. An op has op->timeout_ms, its group's time, or the agent's
 * --op-timeout; so tutti_pipeline_next and take return when the agent lives or its connection
 * breaks.
 *
 * Caveats
 *
 * - The last submitted call may wait in this process until something is waited for. How it looks:
 *   the other ranks wait for this one, whose program does something else. What to do: if another
 *   rank depends on the op, call tutti_pipeline_flush, or wait for one of the calls.
 * - At most `in_flight_max` calls, and 16 MiB of their data, are unanswered: beyond that, a submit
 *   waits for answers first. Results that nobody takes stay in memory until the pipeline is closed.
 * - If the stream breaks, the calls that were not answered may have been done or not. How it looks:
 *   each function returns the same error from then on. What to do: close, open again, and repeat
 *   ops with tutti_op.step or token.
 */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/list.h"
#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_pipeline tutti_pipeline;

/* Begin with tutti_pipeline_options_init. */
typedef struct tutti_pipeline_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /*
     * Most calls that are unanswered at one time. 0, the default, and more than the agent's
     * --commands-max (256) mean that number.
     */
    uint32_t in_flight_max;
    /*
     * The agent begins each call when the one before it has ended well. If a call fails, those
     * behind it are not begun and are answered with FAILED_PRECONDITION SKIPPED; other ranks then
     * wait for the ops that were skipped. Default: false.
     */
    bool stop_on_error;
} tutti_pipeline_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_pipeline_options_init(tutti_pipeline_options *options);

/*
 * Open a stream to the client's agent. Whether the agent can be reached shows when the first call
 * is submitted or waited for.
 *
 * [in]          client        with an agent; outlives the pipeline
 * [in]          options       NULL = defaults; copied
 * [out, owned]  ret_pipeline  tutti_pipeline_close it
 *
 * TUTTI_INVALID_ARGUMENT     BAD_STRUCT: options that were not initialised
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: the client was connected without an agent
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 * and the common statuses (tutti/client.h)
 */
TUTTI_API tutti_code tutti_pipeline_open(tutti_client *client,
                                         const tutti_pipeline_options *options,
                                         tutti_pipeline **ret_pipeline, tutti_error *err);

/*
 * Waits until all submitted calls have ended, forgets the results that were not taken, and ends the
 * stream. The pipeline is freed in any case. Tensors that calls have made stay in the agent.
 *
 * [in, moved] pipeline  NULL is fine
 *
 * TUTTI_CANCELLED         tutti_pipeline_cancel was called before
 * TUTTI_UNAVAILABLE, ...  the stream broke, and how. What was not answered may have been done or
 *                         not
 *
 * Errors of single calls are not told here: take their results before.
 */
TUTTI_API tutti_code tutti_pipeline_close(tutti_pipeline *pipeline, tutti_error *err);

/*
 * Give up: calls that have not begun never will, those that run are cancelled, as if their caller
 * had gone away (CALLER_GONE on all ranks of their groups); async ops go on. It returns at once.
 * Functions that wait for an answer then return TUTTI_CANCELLED; close the pipeline still.
 *
 * [in] pipeline  not NULL
 */
TUTTI_API void tutti_pipeline_cancel(tutti_pipeline *pipeline);

/* ------------------------------------------------------------------ calls
 *
 * The functions of this section return when the call is on its way, or about to be; how it ended is
 * told by tutti_pipeline_next and take. What they are given is copied, but for memory that a result
 * is written to, which must live until the result is taken or the pipeline is closed.
 *
 * [out] ret_id  1, 2, 3, ... in the order of the calls; NULL = not wanted
 *
 * If one of them fails, the call was not submitted and has no id:
 *
 * TUTTI_INVALID_ARGUMENT    what is wrong with the call alone, as each function says
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 * TUTTI_UNAVAILABLE, ...    the stream has ended, and how: every function says so from then on
 */

/*
 * An op of tutti/op.h on tensors in the agent. An async op is answered when the agent has it, with
 * the id of its work in tutti_pipeline_result.op.
 *
 * [in] kind  which op; all are possible
 * [in] op    its arguments; NULL = as tutti_op_init. `more` should be NULL: it is emptied and not
 *            filled, see tutti_pipeline_result
 *
 * TUTTI_INVALID_ARGUMENT  NO_OP: no such kind; BAD_STRUCT: a struct that was not initialised
 * and what all calls say
 */
TUTTI_API tutti_code tutti_pipeline_submit(tutti_pipeline *pipeline, tutti_op_kind kind,
                                           const tutti_op *op, uint64_t *ret_id, tutti_error *err);

/* Memory of the caller's for an op. */
typedef struct tutti_pipeline_data {
    /*
     * Dtype and shape of `data`. On a rank that only takes, the dtype is that of the result, and a
     * result of another dtype fails the call with DTYPE_MISMATCH; TUTTI_DTYPE_NONE = any.
     */
    tutti_spec spec;
    /* What this rank gives, copied by the submit; NULL = it gives nothing. At most 3 MiB. */
    const void *data;
    /*
     * Where the result goes. It is written when the result is taken, not before, and must live till
     * then. NULL = this rank gets no result, or it is not wanted. May be `data`.
     */
    void *result;
    /*
     * Bytes of `result`: exactly those of the op's result, at most 3 MiB. Another size fails the
     * op on all ranks with OUT_SHAPE. Not looked at where result is NULL.
     */
    uint64_t result_bytes;
} tutti_pipeline_data;

/*
 * An op of tutti/op.h on memory, as tutti/op_data.h has it, but in small pieces only: the data
 * travels inside the stream.
 *
 * [in] kind  which op
 * [in] op    as above; input and output are not looked at, `async` must be false (ASYNC_INLINE)
 * [in] data  NULL, or both of its pointers NULL: for a barrier, and where this rank neither gives
 *            nor takes
 *
 * TUTTI_INVALID_ARGUMENT  INLINE_LIMIT: data of more than 3 MiB: put it into a tensor;
 *                         BAD_DTYPE, BAD_SHAPE: of the spec; NO_OP: no such kind; BAD_STRUCT: a
 *                         struct that was not initialised
 * and what all calls say. A result of more than 3 MiB fails the call itself: INLINE_LIMIT on all
 * ranks
 */
TUTTI_API tutti_code tutti_pipeline_submit_data(tutti_pipeline *pipeline, tutti_op_kind kind,
                                                const tutti_op *op, const tutti_pipeline_data *data,
                                                uint64_t *ret_id, tutti_error *err);

/*
 * Make a tensor from memory, or overwrite one, as tutti_tensor_put and tutti_tensor_write. Its
 * handle is in tutti_pipeline_result.op.output.
 *
 * [in] spec  of data: at most 3 MiB
 * [in] data  copied before this returns
 * [in] name  of a new tensor; NULL = none
 * [in] into  handle or name of a tensor of the same dtype and number of elements that is to be
 *            overwritten; NULL = a new tensor, where tutti_set_device says
 *
 * TUTTI_INVALID_ARGUMENT  INLINE_LIMIT: more than 3 MiB: use tutti_tensor_put; BAD_DTYPE, BAD_SHAPE
 * and what all calls say
 */
TUTTI_API tutti_code tutti_pipeline_put(tutti_pipeline *pipeline, const tutti_spec *spec,
                                        const void *data, const char *name, const char *into,
                                        uint64_t *ret_id, tutti_error *err);

/*
 * Read all bytes of a tensor of at most 3 MiB, when the ops before it that write it have ended.
 *
 * [in]  handle        handle or name
 * [out] result        written when the result is taken; must live till then
 * [in]  result_bytes  exactly those of the tensor: else the call fails with SIZE_MISMATCH
 */
TUTTI_API tutti_code tutti_pipeline_get(tutti_pipeline *pipeline, const char *handle, void *result,
                                        uint64_t result_bytes, uint64_t *ret_id, tutti_error *err);

/*
 * Delete a tensor. Ops that were submitted before and use it still work on its memory.
 *
 * [in] handle  handle or name. If there is none, the call fails with NOT_FOUND NO_TENSOR
 */
TUTTI_API tutti_code tutti_pipeline_delete(tutti_pipeline *pipeline, const char *handle,
                                           uint64_t *ret_id, tutti_error *err);

/*
 * A call that is answered when all ops that the agent had before have ended, whoever asked for
 * them, as tutti_sync. It fails with the first error of theirs.
 *
 * [in] group       only its ops; NULL = all
 * [in] timeout_ms  after which the call fails with DEADLINE_EXCEEDED TIMEOUT, while the ops go on;
 *                  0 = the agent's --op-timeout
 */
TUTTI_API tutti_code tutti_pipeline_sync(tutti_pipeline *pipeline, const char *group,
                                         uint32_t timeout_ms, uint64_t *ret_id, tutti_error *err);

/* ------------------------------------------------------------------ how they ended */

/* How one call ended. Nothing but `more` has to be freed. */
typedef struct tutti_pipeline_result {
    /* As the submitting function gave it. */
    uint64_t id;
    /*
     * Code TUTTI_OK = it succeeded; else what the function of the same name outside of a pipeline
     * would return, or one of
     *
     *   FAILED_PRECONDITION  SKIPPED: an earlier call failed, and stop_on_error is set
     *   INVALID_ARGUMENT     OUT_SHAPE, DTYPE_MISMATCH: the result is not what the caller's memory is
     *                        for: the op has failed on all ranks; SIZE_MISMATCH, of a get
     */
    tutti_error error;
    /* Of an op that succeeded (tutti_op_result); of put and get `output` alone; else zeros. */
    tutti_op_result op;
    /* [owned] Handles of a list, and what came with a tensor; tutti_op_more_free. Often empty. */
    tutti_op_more more;
} tutti_pipeline_result;

/*
 * Wait for the next call that ends, in whichever order they do, and take its result. This is where
 * the memory of submit_data and get is written.
 *
 * [out, owned] ret_result  written on success only; tutti_op_more_free(&ret_result->more)
 *
 * Returns TUTTI_OK also for a call that failed: ret_result->error says so.
 *
 * TUTTI_NOT_FOUND         NOTHING_SUBMITTED: all results have been taken
 * TUTTI_UNAVAILABLE, ...  the stream has ended before a call was answered, and how
 * TUTTI_DATA_LOSS         what answers is no agent; the stream is ended
 */
TUTTI_API tutti_code tutti_pipeline_next(tutti_pipeline *pipeline,
                                         tutti_pipeline_result *ret_result, tutti_error *err);

/*
 * Wait for one call, and take its result. Results of other calls that come meanwhile are kept.
 *
 * [in]         id          as the submitting function gave it
 * [out, owned] ret_result  as tutti_pipeline_next
 *
 * TUTTI_NOT_FOUND  NOTHING_SUBMITTED: no call of that id, or its result was taken
 * and what tutti_pipeline_next says of the stream
 */
TUTTI_API tutti_code tutti_pipeline_take(tutti_pipeline *pipeline, uint64_t id,
                                         tutti_pipeline_result *ret_result, tutti_error *err);

/* Returns how many submitted calls there are whose results have not been taken. Never blocks. */
TUTTI_API size_t tutti_pipeline_count(const tutti_pipeline *pipeline);

/*
 * Send what was submitted, without waiting for an answer.
 *
 * TUTTI_UNAVAILABLE, ...  the stream has ended, and how
 */
TUTTI_API tutti_code tutti_pipeline_flush(tutti_pipeline *pipeline, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
