/*
 * Tracers: gradients of collectives, as autograd has them for other operations.
 *
 *     const char *weights[] = {x};                                  // x, dy: handles or names
 *     const char *results[1], *given[] = {dy};
 *     tutti_backward_options backward;
 *     tutti_op_result y;
 *     tutti_gradient *found;
 *     size_t count;
 *
 *     code = tutti_tracer_create(client, "step", &err);
 *     code = tutti_tracer_attach(client, "step", weights, 1, &err);
 *     op.input = x;
 *     code = tutti_all_reduce(client, &op, &y, &err);               // recorded; y is attached too
 *     ...                                                          // the caller computes dy from y
 *     results[0] = y.output.text;
 *     tutti_backward_options_init(&backward);
 *     backward.tensors = results, backward.gradients = given, backward.given_count = 1;
 *     code = tutti_backward(client, "step", &backward, &found, &count, NULL, &err);
 *     if (code == TUTTI_OK) {
 *         use(found[0].gradient.text);                             // dx: a new tensor
 *         tutti_free(found);
 *     }
 *
 * A tracer is a name under which the agent of one rank records ops; what it has recorded is its
 * tape. Ops on tensors that are attached to a tracer are recorded, and their results are attached
 * as well. tutti_backward goes through the tape from its end and runs the dual of each op, together
 * with the other ranks of the op's group:
 *
 *   all_reduce SUM, AVG, PREMUL_SUM  all_reduce SUM (AVG) of the gradients; times the factor
 *   all_reduce MIN, MAX              all_reduce SUM, kept where the input is the result
 *   reduce_to_root SUM, AVG, PREMUL_SUM
 *                                    broadcast of the root's gradient
 *   broadcast                        reduce_to_root SUM, to the root
 *   all_gather, reduce_scatter       reduce_scatter SUM, all_gather
 *   gather, scatter                  scatter, gather
 *   all_to_all                       all_to_all with axes, or splits, exchanged
 *   permute                          permute by the inverse permutation
 *   send, recv                       recv, send, with the tag plus 2^31
 *
 * An op without a dual (PROD and the bitwise reduce ops; MIN and MAX of reduce_to_root and
 * reduce_scatter) is refused on attached tensors with BAD_REDUCE_OP; so are lists by rank or from a
 * root, and scatters of uneven parts, with TRACED_LIST. tutti_op.no_grad runs them unrecorded.
 *
 * Every rank of a group records the same ops of that group, and calls tutti_backward. A rank that
 * has no gradient gives none: the ranks agree before each dual op, zeros stand for what a rank does
 * not have, and the dual op is left out if no rank has a gradient. Dual ops and agreements count as
 * ops of the group. Other ops on the groups of a tape wait until its backward is over.
 *
 * The duals are those of torch.distributed.nn.functional in PyTorch, in its convention: each rank
 * has a loss of its own, and gradients are of the sum of all losses. proto/tutti/v1/
 * tracers_service.proto and docs/decisions/0011-tapes.md have the rules.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h. TUTTI_INVALID_ARGUMENT
 * BAD_HANDLE, TUTTI_FAILED_PRECONDITION FOREIGN_HANDLE and STALE_HANDLE mean what they mean in
 * tutti/tensor.h.
 *
 * Caveats
 *
 * - The tape grows with each op until a tutti_backward without `keep`, or tutti_tracer_clear. How
 *   it looks: TAPE_LIMIT. What to do: one tutti_backward, or one clear, for each step.
 * - Ops on inline memory (tutti_..._data) are on no tape. With tutti_op.tracers they are refused
 *   (TRACED_INLINE).
 * - The trap: a rank attaches a tensor and another one does not. How it looks: TAPE_MISMATCH, or an
 *   op that waits until its time is over. What to do: attach and call alike on all ranks; a rank
 *   that only receives, or gives a constant, names the tracer in tutti_op.tracers.
 * - A tape keeps no tensors. A program may delete them before tutti_backward; only of MIN and MAX
 *   the agent keeps a mask of a byte for each element.
 */
#ifndef TUTTI_TRACER_H
#define TUTTI_TRACER_H

#include <stddef.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Make a tracer with an empty tape, in the agent of this rank. It stays until it is deleted.
 *
 * [in] name  1 to TUTTI_NAME_MAX bytes, of no other tracer of the agent
 *
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN: there is one of that name. Use it, or delete it first
 * TUTTI_INVALID_ARGUMENT    BAD_NAME: empty, too long, or of other characters than
 *                           tutti/types.h permits
 * TUTTI_RESOURCE_EXHAUSTED  TRACER_LIMIT: --tracers-max tracers (1024). Delete one
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_tracer_create(tutti_client *client, const char *name, tutti_error *err);

/*
 * From now on record ops on these tensors, and give their gradients. Ops that the agent was given
 * before are not recorded. Attaching a tensor again changes nothing. A tensor may be attached to
 * several tracers.
 *
 * [in] name     of the tracer
 * [in] tensors  `count` handles or names of float or complex tensors
 * [in] count    1 to 1024
 *
 * TUTTI_NOT_FOUND            NO_TRACER: create it first; NO_TENSOR
 * TUTTI_INVALID_ARGUMENT     DTYPE_UNSUPPORTED: a tensor of integers, BOOL or FP8 has no gradients.
 *                            TENSOR_COUNT: count is 0 or above 1024. Attach in several calls.
 *                            BAD_HANDLE
 * TUTTI_FAILED_PRECONDITION  PENDING: the shape of a tensor is not known, for the op that makes it
 *                            still runs. Wait for that op; FOREIGN_HANDLE, STALE_HANDLE
 * TUTTI_RESOURCE_EXHAUSTED   TAPE_LIMIT: the tapes of the agent hold --tape-max ops and attached
 *                            tensors (100000). Run tutti_backward, or clear a tracer
 * any other                  what the op that was to write a tensor failed with (tutti/op.h)
 * and the statuses common to all calls (tutti/client.h)
 *
 * On failure no tensor is attached.
 */
TUTTI_API tutti_code tutti_tracer_attach(tutti_client *client, const char *name,
                                         const char *const *tensors, size_t count,
                                         tutti_error *err);

/*
 * Forget all recorded ops that have ended, and the loss of ops that found no room (TAPE_LIMIT). The
 * tensors that tutti_tracer_attach has attached still are.
 *
 * [in] name  of the tracer
 *
 * TUTTI_NOT_FOUND            NO_TRACER
 * TUTTI_FAILED_PRECONDITION  TRACER_BUSY: a tutti_backward uses it, or waits to. Wait for that one;
 *                            the tracer is unchanged
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_tracer_clear(tutti_client *client, const char *name, tutti_error *err);

/*
 * Delete a tracer with its tape. Tensors stay. A tutti_backward under way goes on to its end.
 *
 * [in] name  of the tracer
 *
 * TUTTI_NOT_FOUND  NO_TRACER
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_tracer_delete(tutti_client *client, const char *name, tutti_error *err);

/* A tracer of the agent, as it is at this moment. Plain data. */
typedef struct tutti_tracer_info {
    char name[TUTTI_NAME_MAX + 1];
    /* Ops on its tape, also those that still run; a coalesced op counts once for each tensor. */
    uint32_t op_count;
    /* Tensors that tutti_tracer_attach has attached. */
    uint32_t attached_count;
    /* A tutti_backward goes through it, or waits to. */
    bool walking;
} tutti_tracer_info;

/*
 * All tracers of the agent, whoever made them, in the order of their names.
 *
 * [out, owned] ret_infos  an array of `ret_count`; tutti_free it, also when it is empty
 * [out]        ret_count
 *
 * Statuses are those common to all calls (tutti/client.h).
 */
TUTTI_API tutti_code tutti_tracer_list(tutti_client *client, tutti_tracer_info **ret_infos,
                                       size_t *ret_count, tutti_error *err);

/* What a tutti_backward is given and shall find. Begin with tutti_backward_options_init. */
typedef struct tutti_backward_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /*
     * Handles or names of tensors whose gradients the caller has, `given_count` of them: each is
     * attached, or was made by a recorded op. Several entries for one tensor are added.
     */
    const char *const *tensors;
    /*
     * For each of these, at the same place, the handle or name of the tensor that holds its
     * gradient: of the same dtype and shape, on the same device. They are read, not changed.
     */
    const char *const *gradients;
    /* 0 to 1024; 0 (default) = this rank gives nothing and takes part in the others' dual ops. */
    size_t given_count;
    /* Handles or names of tensors whose gradients are wanted, `wanted_count` of them. */
    const char *const *wanted;
    /* 0 to 1024; 0 (default) = of all tensors that tutti_tracer_attach has attached. */
    size_t wanted_count;
    /* Leave the tape as it is, for another tutti_backward. false (default) = it is empty then. */
    bool keep;
    /* Return at once; tutti_wait (tutti/work.h) for the work. Default: false. */
    bool async;
    /*
     * Milliseconds after which it fails with DEADLINE_EXCEEDED on all ranks, counted from its
     * arrival at the agent; 0 (default) = the agent's --op-timeout (5 minutes).
     */
    uint32_t timeout_ms;
} tutti_backward_options;

/* Set `size`, and all else to NULL, 0 and false. [out] options */
TUTTI_API void tutti_backward_options_init(tutti_backward_options *options);

/* A gradient that was wanted. Plain data. */
typedef struct tutti_gradient {
    /* The handle of the tensor that it is the gradient of. */
    char tensor[TUTTI_HANDLE_MAX + 1];
    /*
     * A new tensor without a name, of that tensor's dtype, shape and device; the caller deletes it.
     * `text` is "" if there is no gradient: nothing that was given depends on the tensor. Of an
     * async call the handle is always there, and after the end it is NO_TENSOR if there is none.
     */
    tutti_handle gradient;
} tutti_gradient;

/*
 * Find gradients: go through the tape from its end and run the dual ops, together with the other
 * ranks. Every rank of the recorded groups has to call it, with `given_count` = 0 where it has
 * nothing to give. Afterwards the tape is empty (without `keep`), and what tutti_tracer_attach has
 * attached still is.
 *
 * [in]         name       of the tracer
 * [in]         options    NULL = as init: nothing given, gradients of all attached tensors wanted
 * [out, owned] ret_found  an array of `ret_count`, one for each wanted tensor, in the order of
 *                         options->wanted, or of attaching; tutti_free it
 * [out]        ret_count
 * [out]        ret_work   TUTTI_HANDLE_MAX + 1 bytes: the id of the work of an async call, else "";
 *                         NULL = not wanted
 *
 * TUTTI_NOT_FOUND            NO_TRACER; NO_TENSOR: of a given or wanted tensor or of a gradient
 * TUTTI_FAILED_PRECONDITION  NOT_ON_TAPE: of a given or wanted tensor the tape knows nothing.
 *                            Attach it before the ops that use it.
 *                            TAPE_MISMATCH: the ranks of a group have recorded different ops. Clear
 *                            the tracers on all ranks and begin again.
 *                            TAPE_STALE: a rank was restarted, or a group deleted and made again,
 *                            since the op was recorded. Clear, and repeat the forward ops.
 *                            NOT_JOINED: the agent takes part in no job yet
 * TUTTI_INVALID_ARGUMENT     DTYPE_MISMATCH, SHAPE_MISMATCH, DEVICE_MISMATCH: a gradient is not
 *                            like its tensor. Convert or copy it.
 *                            GRADIENT_COUNT: more than 1024 given, or named as wanted
 * TUTTI_RESOURCE_EXHAUSTED   TAPE_LIMIT: ops were not recorded, for the tape had no room. Clear the
 *                            tracer and begin again; raise --tape-max.
 *                            OP_LIMIT: --ops-max or --client-ops-max ops are in flight.
 *                            MEMORY_LIMIT, HANDLE_LIMIT: no room for the gradients
 * TUTTI_DEADLINE_EXCEEDED    TIMEOUT: a rank did not come; the text names it
 * TUTTI_CANCELLED            CALLER_GONE: the caller of some rank went away
 * any other                  what its dual ops fail with (tutti/op.h): RANK_LOST, EPOCH_CHANGED ...
 * and the statuses common to all calls (tutti/client.h)
 *
 * On failure no gradients are made, and the tape is as it was: the call may be made again, on all
 * ranks. The ranks that go through the same groups hear of the failure and fail, too. Of an async
 * call a failure that comes later is in the status of the work.
 */
TUTTI_API tutti_code tutti_backward(tutti_client *client, const char *name,
                                    const tutti_backward_options *options,
                                    tutti_gradient **ret_found, size_t *ret_count, char *ret_work,
                                    tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
