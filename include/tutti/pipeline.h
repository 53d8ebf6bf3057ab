/*
 * Pipeline: many calls through one stream to the agent, without waiting for each.
 *
 *     tutti_pipeline *pipeline;
 *     tutti_pipeline_result done;
 *     uint64_t id;
 *
 *     tutti_pipeline_open(client, NULL, &pipeline, &err);
 *     for (i = 0; i < 1000; i++) {
 *         tutti_pipeline_submit(pipeline, TUTTI_OP_ALL_REDUCE, &op, &id, &err);
 *     }
 *     while (tutti_pipeline_next(pipeline, &done, &err) == TUTTI_OK) {
 *         ...                                      // done.id, done.error, done.output
 *     }                                            // TUTTI_NOT_FOUND: all have been answered
 *     tutti_pipeline_close(pipeline, &err);
 *
 * The agent begins the calls in exactly the order in which they were submitted and answers as they
 * end. A call that fails does not end the pipeline. One thread at a time may use a pipeline; a
 * client may have several. Every rank that takes part in an op calls it, by a pipeline or not.
 *
 * Caveats
 *
 * - What was submitted may wait in the caller's process until something is waited for: submit ops
 *   of which another rank's progress depends, then tutti_pipeline_flush or wait for one of them.
 * - At most `in_flight_max` calls are unanswered: beyond that a submit waits for an answer first.
 *   Results that nobody takes stay in memory until the pipeline is closed.
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
    size_t size;            /* of this struct: set by init */
    uint32_t in_flight_max; /* unanswered calls; 0 or more than the agent's --commands-max = that */
    bool stop_on_error;     /* begin each call when the one before it has ended well; when one fails
                               those behind it are answered with SKIPPED */
} tutti_pipeline_options;

TUTTI_API void tutti_pipeline_options_init(tutti_pipeline_options *options);

/*
 * [in]          client        outlives the pipeline
 * [in]          options       NULL = defaults
 * [out, owned]  ret_pipeline  tutti_pipeline_close it
 */
TUTTI_API tutti_code tutti_pipeline_open(tutti_client *client,
                                         const tutti_pipeline_options *options,
                                         tutti_pipeline **ret_pipeline, tutti_error *err);

/*
 * Let what was submitted end, forget its results, and end the stream. NULL is fine.
 *
 * TUTTI_UNAVAILABLE, ...  the stream broke: how. What was not answered may have happened or not
 */
TUTTI_API tutti_code tutti_pipeline_close(tutti_pipeline *pipeline, tutti_error *err);

/* Give up: what has not begun never will, what runs is cancelled. Close it still. */
TUTTI_API void tutti_pipeline_cancel(tutti_pipeline *pipeline);

/* ------------------------------------------------------------------ calls */

/*
 * All of these return when the call is on its way, or about to be; its end is what
 * tutti_pipeline_next and take tell. What they are given is copied.
 *
 * [out] ret_id  1, 2, 3, ... in the order of the calls; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT    no such kind; structs that were not initialised; more than 3 MiB
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 * TUTTI_UNAVAILABLE, ...    the stream has ended, and how: every call says so from then on
 */

/* An op on tensors in the agent. */
TUTTI_API tutti_code tutti_pipeline_submit(tutti_pipeline *pipeline, tutti_op_kind kind,
                                           const tutti_op *op, uint64_t *ret_id, tutti_error *err);

/* Memory of the caller's for an op. */
typedef struct tutti_pipeline_data {
    tutti_spec spec;  /* of what this rank gives; in any case the dtype */
    const void *data; /* NULL = this rank gives none */
    void *result; /* written when the result is taken, which comes first; NULL = none is wanted */
    uint64_t result_bytes; /* exactly */
} tutti_pipeline_data;

/* An op on memory: op->input and output are not looked at. At most 3 MiB each way. */
TUTTI_API tutti_code tutti_pipeline_submit_data(tutti_pipeline *pipeline, tutti_op_kind kind,
                                                const tutti_op *op, const tutti_pipeline_data *data,
                                                uint64_t *ret_id, tutti_error *err);

/* A tensor of at most 3 MiB. [in] name  of a new one, NULL = none; [in] into  NULL = a new one */
TUTTI_API tutti_code tutti_pipeline_put(tutti_pipeline *pipeline, const tutti_spec *spec,
                                        const void *data, const char *name, const char *into,
                                        uint64_t *ret_id, tutti_error *err);

/* All of a tensor's bytes; `result` is written when the result is taken. */
TUTTI_API tutti_code tutti_pipeline_get(tutti_pipeline *pipeline, const char *handle, void *result,
                                        uint64_t result_bytes, uint64_t *ret_id, tutti_error *err);

TUTTI_API tutti_code tutti_pipeline_delete(tutti_pipeline *pipeline, const char *handle,
                                           uint64_t *ret_id, tutti_error *err);

/* As tutti_sync: it is answered when all ops submitted before it have ended. It fails with the
 * first error of theirs. */
TUTTI_API tutti_code tutti_pipeline_sync(tutti_pipeline *pipeline, const char *group,
                                         uint32_t timeout_ms, uint64_t *ret_id, tutti_error *err);

/* ------------------------------------------------------------------ their ends */

typedef struct tutti_pipeline_result {
    uint64_t id;
    tutti_error error;  /* code TUTTI_OK = it went well */
    tutti_op_result op; /* of an op that did; `output` also of put and get */
    tutti_op_more more; /* results of a list, what came with a tensor: tutti_op_more_free, if any */
} tutti_pipeline_result;

/*
 * Wait for the next call that ends, in whichever order they do.
 *
 * TUTTI_NOT_FOUND         NOTHING_SUBMITTED: all results have been taken
 * TUTTI_UNAVAILABLE, ...  the stream has ended before it was answered, and how
 */
TUTTI_API tutti_code tutti_pipeline_next(tutti_pipeline *pipeline,
                                         tutti_pipeline_result *ret_result, tutti_error *err);

/*
 * Wait for one call.
 * TUTTI_NOT_FOUND  NOTHING_SUBMITTED: none of that id, or its result was taken
 */
TUTTI_API tutti_code tutti_pipeline_take(tutti_pipeline *pipeline, uint64_t id,
                                         tutti_pipeline_result *ret_result, tutti_error *err);

/* Calls whose results have not been taken. */
TUTTI_API size_t tutti_pipeline_count(const tutti_pipeline *pipeline);

/* Send what was submitted, without waiting for anything. */
TUTTI_API tutti_code tutti_pipeline_flush(tutti_pipeline *pipeline, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
