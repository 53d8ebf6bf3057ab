/*
 * Ops: collectives, and sends between two ranks, on tensors that live in the agents of a group. The
 * semantics are those of MPI and of NCCL; the caller names tensors by handle instead of by pointer.
 *
 *     tutti_op op;
 *     tutti_op_result result;
 *
 *     tutti_op_init(&op);
 *     op.input = "gradients";                                  // a tensor of this rank's agent
 *     op.output = "gradients";                                 // in place
 *     op.reduce = TUTTI_REDUCE_AVG;
 *     code = tutti_all_reduce(client, &op, &result, &err);     // every rank of the group calls it
 *     if (code == TUTTI_UNAVAILABLE && strcmp(err.reason, "RANK_LOST") == 0) {
 *         ...                                                  // err.rank is gone
 *     }
 *
 * tutti/op_data.h has the same ops on memory of the caller, tutti/list.h several tensors in one op,
 * tutti/pipeline.h many ops in one stream.
 *
 * Matching. The agents number the collectives of one group, barrier included, from 1 in the order
 * in which each agent receives them; calls of the same number are one op. Before data moves, the
 * ranks compare what each has called (dissemination: Hensgen, Finkel, Manber 1988). If the calls
 * differ, all ranks of the group get the same error with the same text, and the group stays usable.
 * A call that its own agent refuses counts as an op too, so that all ranks hear of it at once. Send
 * and recv have no number: they match by (group, source, destination, tag), the oldest first.
 *
 * Results. If `output` is NULL, the result is a new tensor of this rank's agent, which the caller
 * deletes with tutti_tensor_delete. An output that is stated must have the dtype and the number of
 * elements of the result; it keeps its own shape. If `output` is the same tensor as `input`, the op
 * is in place. Inputs are never changed otherwise. If an op was refused, it has written nothing; if
 * it failed later, the bytes of a stated output are undefined and a new tensor is not made.
 *
 * Threads. Any thread may call these functions, several at once too (tutti/client.h). Each blocks
 * until the op has ended on this rank, unless op->async is set. Strings and arrays of a tutti_op
 * are borrowed until the function returns; nothing of it is kept.
 *
 * Caveats
 *
 * - Two threads that call ops of one group race for the order. How it looks: OP_MISMATCH, or data
 *   of the wrong partner. What to do: use one thread for each group, or state tutti_op.sequence.
 * - An answer may be lost although the op succeeded on the other ranks. How it looks: UNAVAILABLE
 *   CONNECTION_LOST on one rank. If that rank calls again, it meets the next op of the others. What
 *   to do: set tutti_op.token (this agent still lives) and tutti_op.step (it was restarted).
 * - In a broadcast, only the root names an `input`. What to do on the other ranks: leave it NULL,
 *   and state `output` where the tensor shall go into an existing one.
 * - An async op that makes a new tensor gives its handle at once, also on a rank that gets no
 *   result (reduce_to_root, gather); there, the tensor is gone when the op has ended.
 */
#ifndef TUTTI_OP_H
#define TUTTI_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/tensor.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As tutti_op.peer of a recv: from whichever rank sends first. Not of a send. */
#define TUTTI_ANY_SOURCE INT32_MIN

/*
 * The arguments of an op. Each op looks at the fields that concern it and ignores the others.
 *
 * Begin with tutti_op_init: its values are the defaults below, and it sets `size`, by which the
 * library tells callers that were compiled with an older or newer struct. Where a function takes
 * `op`, NULL means a struct as tutti_op_init leaves it.
 *
 * "All ranks alike" means: if ranks differ in this field, the op fails on all of them with
 * OP_MISMATCH.
 */
typedef struct tutti_op {
    /* Bytes of this struct. Set by tutti_op_init; do not change it. */
    size_t size;
    /* The group's name, or "mesh:NAME/DIM" (tutti/mesh.h). NULL, the default, = "world". */
    const char *group;
    /*
     * Handle or name of the tensor that this rank gives, 1 to 127 bytes. NULL, the default, = none,
     * which is right for barrier, recv, and the receivers of broadcast and scatter; other ops
     * then fail with NO_INPUT.
     */
    const char *input;
    /*
     * Handle or name of the tensor that the result is written to. NULL, the default, = a new
     * tensor; on the root of a broadcast, the input stands for the result. Not of barrier and send.
     */
    const char *output;
    /*
     * all_reduce, reduce_to_root, reduce_scatter: how elements become one; all ranks alike.
     * Default: SUM. What each dtype allows:
     *
     *   BOOL      SUM, MAX, BOR are "or"; PROD, MIN, BAND are "and"; BXOR; no AVG
     *   integers  all but PREMUL_SUM. They wrap around; AVG is the wrapped sum divided by the
     *             number of ranks, truncated toward zero
     *   floats    SUM PROD MIN MAX AVG PREMUL_SUM. FP16 and BF16 are accumulated in FP32 and
     *             rounded once; in MIN and MAX a number wins over a NaN
     *   complex   SUM AVG PREMUL_SUM
     *   FP8       none: the other ops move it
     */
    tutti_reduce reduce;
    /* Of PREMUL_SUM: by what this rank's elements are multiplied before the sum. Default: 1. */
    double factor;
    /*
     * broadcast, scatter: who gives; reduce_to_root, gather: who gets. A group rank, or a rank of
     * the job if `global` is set; all ranks alike. Default: 0.
     */
    int32_t root;
    /*
     * send: to whom; recv: from whom, or TUTTI_ANY_SOURCE, the default. A group rank, or a rank of
     * the job if `global` is set. Not this rank itself: SELF_PEER.
     */
    int32_t peer;
    /* `root` and `peer` are ranks of the job, not of the group. Default: false. */
    bool global;
    /* send, recv: 0 to 2^31 - 1; a recv takes only sends of its tag. Default: 0. */
    uint32_t tag;
    /*
     * all_gather, gather: along which dimension the inputs are joined; reduce_scatter, scatter:
     * along which one the tensor is cut. Negative counts from the end; all ranks alike. Default: 0.
     * With the form STACK of all_gather and gather it is the place of the new dimension, so that
     * one more value is possible. Not looked at with the form FLAT, or where splits are given.
     */
    int32_t axis;
    /*
     * all_gather, gather, reduce_scatter, scatter; all_to_all takes CONCAT and LIST alone. Default:
     * CONCAT. All ranks alike, but FLAT is CONCAT along dimension 0 to the other ranks.
     *
     *   CONCAT  joined along `axis`; cut there into equal parts, one for each rank
     *   STACK   joined along a new dimension `axis` of the group's size; cut: dimension `axis` must
     *           have that size, and the part does not have it any more
     *   LIST    a tensor for each rank (tutti/list.h)
     *   FLAT    elements in memory order; the result, or the part, gets the shape `out_shape`
     */
    tutti_form form;
    /*
     * recv: dtype and shape that the tensor must have. If the sender's differs, both sides fail
     * with DTYPE_MISMATCH or SHAPE_MISMATCH. NULL, the default, = whatever comes. If `output` is
     * set, its dtype and number of elements count instead.
     */
    const tutti_spec *expect;
    /*
     * The function returns as soon as the agent has the call: ret_result has the work id and the
     * handles of the results, and tutti_wait (tutti/work.h) tells how the op ended. Other calls may
     * name the results at once: they wait for the op by themselves. Default: false.
     */
    bool async;
    /*
     * Milliseconds from the call's arrival at the agent, after which the op fails with TIMEOUT on
     * every rank. 0, the default, = the time of the group (tutti_group_options.timeout_ms), else the
     * agent's --op-timeout (5 min). If it is not 0, the function returns at most 2 s after that,
     * even if the agent does not answer. An async call returns within the client's timeout_ms
     * (tutti_client_options); this is the time of its op.
     */
    uint32_t timeout_ms;
    /*
     * The number that the op must get in its group, from 1. If the next number is another one, the
     * agent refuses the call with OUT_OF_SEQUENCE, and it counts as no op. 0, the default, = the
     * next one. For send and recv leave it 0.
     */
    uint64_t sequence;
    /*
     * Of the form FLAT: the shape of the result here, or of this rank's part; the product must be
     * its number of elements (OUT_SHAPE). Ranks may differ. NULL, the default, = one dimension.
     */
    const int64_t *out_shape;
    /* Dimensions in out_shape: 0, the default, to TUTTI_DIMS_MAX. */
    size_t out_shape_count;
    /* all_to_all: the dimension that is cut into equal parts; negative: from the end. Default: 0 */
    int32_t split_axis;
    /* all_to_all: the dimension along which parts are joined; negative: from the end. Default: 0 */
    int32_t concat_axis;
    /*
     * permute: for each group rank, the group rank that gets its tensor: each exactly once
     * (BAD_PERMUTATION). All ranks alike.
     */
    const int32_t *src_dst;
    /* Numbers in src_dst: the group's size. */
    size_t src_dst_count;
    /*
     * all_to_all: rows of dimension 0 that go to each group rank, 0 or more; their sum is that
     * dimension of the input. NULL, the default, = equal parts along split_axis. With splits,
     * split_axis and concat_axis are not looked at, and the other dimensions are alike on all
     * ranks. All ranks give splits, or none does; a rank gives both lists, or neither.
     */
    const int64_t *input_splits;
    /* Numbers in input_splits: the group's size, or 0. */
    size_t input_split_count;
    /*
     * all_to_all: rows that come from each group rank. Number i must be what group rank i has for
     * this rank in its input_splits, else all ranks get SPLITS_MISMATCH.
     */
    const int64_t *output_splits;
    /* Numbers in output_splits: the group's size, or 0. */
    size_t output_split_count;
    /*
     * barrier: if the time is up, it fails with the reason MISSING_RANKS instead of TIMEOUT, for
     * programs that branch on it. The text names the missing ranks in both cases. Default: false.
     */
    bool monitored;
    /*
     * A list of tensors instead of `input`, by handle or name; at most 1024. See tutti/list.h for
     * what a list means to each op. Setting both `input` and `inputs` is UNEXPECTED_INPUT.
     */
    const char *const *inputs;
    /* Handles in inputs; 0, the default, = no list. */
    size_t input_count;
    /*
     * Where the results of a list go, by handle or name, in the order of the results; none = new
     * tensors. A tensor may be there once (OUTPUT_ALIAS); it may be the input of the same place.
     */
    const char *const *outputs;
    /* Handles in outputs: 0, the default, or the number of results (else LIST_SIZE). */
    size_t output_count;
    /* all_gather, gather, reduce_scatter, scatter: an axis for each input; none = `axis` for all */
    const int32_t *axes;
    /* Numbers in axes: 0, the default, or input_count (else LIST_SIZE). */
    size_t axis_count;
    /*
     * What goes through this op is a list. Needed on the receivers of a broadcast or scatter of a
     * list, which give no `inputs`; elsewhere `inputs` says it. Default: false.
     */
    bool coalesced;
    /*
     * scatter, on the root: rows of dimension 0 for each group rank, 0 or more; their sum is that
     * dimension of the input (else SPLITS_MISMATCH). NULL, the default, = equal parts along `axis`.
     */
    const int64_t *splits;
    /* Numbers in splits: the group's size, or 0. */
    size_t split_count;
    /*
     * broadcast and scatter on the root, send: bytes that travel with the tensor. Each receiver
     * finds them in tutti_op_more.user_meta. NULL, the default, = none.
     */
    const void *user_meta;
    /* Bytes of user_meta: at most 16384 (META_LIMIT). */
    size_t user_meta_size;
    /*
     * Where the op puts the results of a list, and the user_meta that came: emptied when the op is
     * called, filled if it succeeds; the caller frees it with tutti_op_more_free (tutti/list.h).
     * NULL, the default, = not wanted. In pipelines leave it NULL: tutti_pipeline_result has one.
     */
    struct tutti_op_more *more;
    /*
     * Names of tracers (tutti/tracer.h) that record this op whatever tensors it reads: for a rank
     * that receives, or that gives a constant where others give traced tensors. At most 16
     * (TRACER_COUNT). An op that reads a traced tensor is recorded without this.
     */
    const char *const *tracers;
    /* Names in tracers; default: 0. */
    size_t tracer_count;
    /* Record this op on no tracer. Default: false. */
    bool no_grad;
    /*
     * Gradients go back through this rank's part alone, without communication. For all_reduce,
     * all_gather, reduce_scatter and all_to_all; a traced op of another kind fails with
     * BAD_LOCAL_GRAD. Default: false.
     */
    bool local_grad;
    /*
     * The caller's own count, such as the training step, which goes up with each success. All
     * ranks alike: a rank that repeats an op which has already succeeded on the others gets
     * OP_MISMATCH, with all of them, instead of being summed with their next step. 0, the default,
     * = none. Send and recv do not look at it: they have tags.
     */
    uint64_t step;
    /*
     * send, recv: which block of the group the peer is in, counted from this rank's own block; see
     * group_count. If there is no such block, the call fails with NO_NEXT_GROUP, as is to be
     * expected at the ends of a pipeline of stages.
     */
    int32_t group_offset;
    /*
     * send, recv: the group is cut into so many blocks of consecutive group ranks; it must divide
     * the group's size (GROUP_SIZE). The peer is the rank at this rank's place in the block
     * group_offset further; `peer` and `global` are not looked at. 0, the default, = use `peer`.
     */
    uint32_t group_count;
    /*
     * For calling again after a lost answer: a random number, drawn anew for each op. 0, the
     * default, = none. For --retry-window of the agent (30 s) after the op's success, a call of the
     * same op, group and token gets the answer of the first one, and nothing runs twice. While the
     * first one runs, the second is refused with ABORTED TOKEN_IN_FLIGHT. An op that failed runs
     * again. A restarted agent has forgotten all tokens; `step` protects then.
     */
    uint64_t token;
    /*
     * A tutti_gpu_event (tutti/share.h) that the program has recorded in a stream of its own: here,
     * the op's work on the GPU begins when the GPU has come to that record. Ranks may differ. Do not
     * record it again before the op's function has returned. For collectives on tensors of the event's
     * GPU; 0, the default, = none.
     */
    uint64_t after_event;
    /*
     * A tutti_gpu_event that the agent records behind the op's work; another one than after_event.
     * With `async` alone: the function then returns when the event is recorded, which is after all
     * ranks have called the op, so that the program's stream can wait for it. If the op fails before,
     * the function fails; later failures are told by tutti_wait, and the event comes all the same.
     * 0, the default, = none.
     */
    uint64_t done_event;
    /*
     * Of broadcast, scatter and recv: where the new result lies, one of the agent's --device; "cuda" =
     * its first GPU. NULL, the default, = on the GPU of the group's ops, else on the first of --device.
     * NO_DEVICE: the agent has none of that name; DEVICE_MISMATCH: the op's tensors are elsewhere.
     */
    const char *device;
} tutti_op;

/* [out] op  every field as its comment calls default; any thread */
TUTTI_API void tutti_op_init(tutti_op *op);

/*
 * Which op, for functions that take any: tutti_infer, tutti_pipeline_submit. TUTTI_OP_X stands for
 * the function tutti_x.
 */
typedef enum tutti_op_kind {
    TUTTI_OP_ALL_REDUCE = 1,
    TUTTI_OP_REDUCE_TO_ROOT,
    TUTTI_OP_REDUCE_SCATTER,
    TUTTI_OP_BROADCAST,
    TUTTI_OP_ALL_GATHER,
    TUTTI_OP_GATHER,
    TUTTI_OP_SCATTER,
    TUTTI_OP_ALL_TO_ALL,
    TUTTI_OP_PERMUTE,
    TUTTI_OP_BARRIER,
    TUTTI_OP_SEND,
    TUTTI_OP_RECV,
} tutti_op_kind;

/* How many kinds there are: they are 1 to TUTTI_OP_KINDS. */
#define TUTTI_OP_KINDS 12

/* Returns "all_reduce" and so on, static; NULL for a number that is no kind. Any thread. */
TUTTI_API const char *tutti_op_kind_name(tutti_op_kind kind);

/*
 * The kind with a name. Any thread.
 *
 * [in]  name      "all_reduce" or "all-reduce", in lower case; not NULL
 * [out] ret_kind  unchanged when the result is false
 *
 * Returns false if there is no such kind.
 */
TUTTI_API bool tutti_op_kind_parse(const char *name, tutti_op_kind *ret_kind);

/*
 * What an op has made, filled only when its function returns TUTTI_OK. Plain data: there is nothing
 * to free, but a new tensor stays in the agent until somebody deletes it.
 */
typedef struct tutti_op_result {
    /*
     * The result. `text` is "" where this rank gets none (barrier, send, all but the root of
     * reduce_to_root and gather), or gets a list: see tutti_op.more. Of an async op `known` is
     * false if the shape is not known yet.
     */
    tutti_handle output;
    /* The op's number in its group, from 1, alike on all ranks; 0 for send and recv. */
    uint64_t sequence;
    /* Id of an async op, for tutti_wait; else "". */
    char work[TUTTI_HANDLE_MAX + 1];
    /* Microseconds from the call's arrival at the agent to the op's end; 0 for an async op. */
    uint64_t elapsed_us;
    /* recv: the sender's group rank; 0 for an async one, of which tutti_wait tells it. */
    uint32_t source;
    /* recv: the sender's rank in the job; likewise. */
    uint32_t source_global;
} tutti_op_result;

/* ------------------------------------------------------------------ the ops
 *
 * Parameters of all ops:
 *
 * [in]  client      connected to an agent
 * [in]  op          NULL = as tutti_op_init
 * [out] ret_result  written on success only; NULL = not wanted
 * [out] err         written on failure only; NULL = not wanted. err->sequence is the op's number,
 *                   err->rank the rank that caused the failure
 *
 * Statuses of all ops, besides the common statuses (tutti/client.h). Unless the line says "here
 * only", all ranks of the group get the error for this op, and the group goes on with the next one:
 * call again on all ranks, after the cause is mended.
 *
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE: neither a handle nor a name
 *                            here only: BAD_NAME, MESH_DIM: of the group
 *                            NO_INPUT: the op needs an input and got none
 *                            DTYPE_MISMATCH, SHAPE_MISMATCH: ranks gave different dtypes or shapes,
 *                            or the stated output has another dtype than the result
 *                            OUT_SHAPE: the output, or out_shape, has another number of elements
 *                            than the result
 *                            BAD_SHAPE: the result would have more than 16 dimensions, or its size
 *                            does not fit into 63 bits
 *                            DEVICE_MISMATCH: tensors of one op are on different devices, or an
 *                            event is of another GPU
 *                            BAD_EVENT: send, recv or host memory with an event; done_event without
 *                            async
 *                            LIST_SIZE, EMPTY_LIST, OUTPUT_ALIAS, UNEXPECTED_INPUT: tutti/list.h
 *                            TRACER_COUNT, TRACED_LIST, BAD_LOCAL_GRAD, DTYPE_UNSUPPORTED,
 *                            BAD_REDUCE_OP: the op is traced and has no gradient; no_grad helps
 * TUTTI_FAILED_PRECONDITION  OP_MISMATCH: ranks called different ops, or one op with different
 *                            reduce ops, roots, axes, forms or steps: the text says who called what
 *                            FOREIGN_HANDLE: the handle is of another rank's agent
 *                            STALE_HANDLE: it is of a former process of this rank: upload the
 *                            tensor again
 *                            NO_BACKEND: tensors on a GPU, and the agent has no module for it
 *                            DEVICE_MISMATCH: on some ranks tensors are in host memory, on others
 *                            on a GPU
 *                            here only: NOT_IN_GROUP: this rank is no member; NOT_JOINED: the job
 *                            is not complete; OUT_OF_SEQUENCE: see tutti_op.sequence; NO_AGENT: the
 *                            client was connected without an agent
 * TUTTI_NOT_FOUND            NO_TENSOR, NO_TRACER, NO_EVENT: no tensor, tracer or event of that
 *                            name here
 *                            NO_GROUP, NO_MESH: no such group; NO_GROUP also when it was deleted
 *                            before all ranks had called
 * TUTTI_DEADLINE_EXCEEDED    TIMEOUT: the text names the ranks that had not called, and what they
 *                            did last. tutti_stalls_find (tutti/diagnose.h) tells it while the op
 *                            waits
 * TUTTI_UNAVAILABLE          RANK_LOST: a rank is gone: err->rank. Restart its agent, or make a
 *                            group without it
 *                            RANK_LEAVING, STOPPING: an agent was told to stop
 *                            EPOCH_CHANGED: a rank was replaced by a new process: call again
 *                            CUT_OFF: an agent cannot reach the coordinator: call again later
 * TUTTI_CANCELLED            CALLER_GONE: the client of a rank went away while the op ran
 * TUTTI_RESOURCE_EXHAUSTED   MEMORY_LIMIT, HANDLE_LIMIT, DEVICE_MEMORY: no room for a result:
 *                            delete tensors
 *                            here only: OP_LIMIT: too many ops in flight (--ops-max 8192,
 *                            --client-ops-max 4096): wait for some. It counts as no op
 * TUTTI_ABORTED              GROUP_ABORTED: a member has aborted the group (tutti_group_abort)
 *                            here only: TOKEN_IN_FLIGHT: see tutti_op.token: call again in a moment
 * TUTTI_UNIMPLEMENTED        tensors of a GPU, or traced tensors, with an op that has no such form
 * TUTTI_INTERNAL             DEVICE_FAILED, NCCL_FAILED: the GPU or its libraries; the text says it
 *
 * docs/errors.md explains each reason. In the shapes below, n is the group's size and r the group
 * rank of the caller.
 */

/*
 * Every rank gets the reduction of all inputs (MPI_Allreduce, ncclAllReduce). The result has the
 * same bits on every rank.
 *
 * Shapes: [s...] on each rank -> [s...] on each rank. In place is possible.
 * Looks at: input(s), output(s), reduce, factor.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_REDUCE_OP: missing, or not for this dtype; DTYPE_UNSUPPORTED: no
 *                         arithmetic on FP8
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_all_reduce(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);

/*
 * Every rank gets the root's tensor (MPI_Bcast, ncclBroadcast).
 *
 * Root: `input` [s...]; without `output` the input stands for the result, else it is copied there.
 * Others: no `input`; the result has the root's dtype and shape. A stated `output` must have the
 * root's dtype and number of elements, and keeps its shape.
 * Looks at: input(s), output(s), root, global, coalesced, user_meta (root), more. Any dtype.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ROOT: no rank of the group; ROOT_INPUT_MISSING: the root gave no
 *                         tensor; META_LIMIT
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_broadcast(tutti_client *client, const tutti_op *op,
                                     tutti_op_result *ret_result, tutti_error *err);

/*
 * Every rank gets all inputs, in the order of group ranks (MPI_Allgather, ncclAllGather).
 *
 * Shapes, for inputs of one dtype and shape [a, b] and axis 0:
 *   CONCAT  -> [n * a, b]
 *   STACK   -> [n, a, b]
 *   FLAT    -> out_shape, of n * a * b elements; none = [n * a * b]
 *   LIST    -> n tensors, that of group rank i as it gave it; shapes may differ, dtypes may not
 * Scalars give [n] with CONCAT and STACK. In place is possible in a group of one rank alone.
 * Looks at: input(s), output(s), axis or axes, form, out_shape, more. Any dtype.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_AXIS: no dimension of the input; BAD_FORM: unknown form
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_all_gather(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);

/*
 * The root alone gets the reduction of all inputs (MPI_Reduce, ncclReduce).
 *
 * Shapes: [s...] on each rank -> [s...] on the root. The others get no result; an `output` that
 * they state stays as it is. In place is possible.
 * Looks at: input(s), output(s), reduce, factor, root, global.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_REDUCE_OP, DTYPE_UNSUPPORTED: as tutti_all_reduce; BAD_ROOT
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_reduce_to_root(tutti_client *client, const tutti_op *op,
                                          tutti_op_result *ret_result, tutti_error *err);

/*
 * Each rank gets its part of the reduction of all inputs: group rank i gets part i
 * (MPI_Reduce_scatter_block, ncclReduceScatter).
 *
 * Shapes, for inputs of one dtype and shape [a, b] and axis 0:
 *   CONCAT  -> [a / n, b]; n must divide a
 *   STACK   -> [b]; a must be n
 *   FLAT    -> out_shape, of a * b / n elements; none = [a * b / n]
 *   LIST    n `inputs` on each rank, of one dtype -> the reduction of all tensors number r
 * Looks at: input(s), output(s), reduce, factor, axis or axes, form, out_shape.
 *
 * TUTTI_INVALID_ARGUMENT  INDIVISIBLE: it cannot be cut into n equal parts; SCALAR_INPUT: a scalar
 *                         cannot be cut; BAD_AXIS; BAD_FORM; BAD_REDUCE_OP, DTYPE_UNSUPPORTED: as
 *                         tutti_all_reduce
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_reduce_scatter(tutti_client *client, const tutti_op *op,
                                          tutti_op_result *ret_result, tutti_error *err);

/*
 * The root alone gets all inputs, in the order of group ranks (MPI_Gather).
 *
 * Shapes: those of tutti_all_gather, on the root. The others get no result; an `output` that they
 * state stays as it is.
 * Looks at: input(s), output(s), root, global, axis or axes, form, out_shape, more. Any dtype.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ROOT, BAD_AXIS, BAD_FORM
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_gather(tutti_client *client, const tutti_op *op,
                                  tutti_op_result *ret_result, tutti_error *err);

/*
 * Each rank gets its part of the root's tensor: group rank i gets part i (MPI_Scatter, and
 * MPI_Scatterv with `splits`). Dtype and shape come from the root.
 *
 * Root: `input` [a, b], with axis 0; every rank, the root too, gets:
 *   CONCAT  [a / n, b]; n must divide a. With `splits`: [splits[r], b]
 *   STACK   [b]; a must be n
 *   FLAT    out_shape, of a * b / n elements; none = [a * b / n]
 *   LIST    the root gives n `inputs` of one dtype and shape, and rank r gets number r
 * Others: what they give as `input` is ignored; a list of `inputs` is UNEXPECTED_INPUT. They state
 * root, axis and form as the root does. A stated `output` must have the number of elements of the
 * part.
 * Looks at: input(s) (root), output(s), root, global, axis or axes, form, out_shape, splits (root),
 * coalesced, user_meta (root), more. Any dtype.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ROOT; ROOT_INPUT_MISSING; INDIVISIBLE; SCALAR_INPUT; BAD_AXIS;
 *                         BAD_FORM; SPLITS_MISMATCH: not one for each rank, negative, or not the
 *                         input's rows in all; META_LIMIT
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_scatter(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);

/*
 * Each rank cuts its tensor into a part for each rank, and joins what it gets in the order of group
 * ranks (MPI_Alltoall, and MPI_Alltoallv with splits).
 *
 * Shapes, for inputs of one dtype and shape [a, b]:
 *   split_axis 0, concat_axis 1  -> [a / n, n * b]; n must divide a
 *   split_axis 0, concat_axis 0  -> [a, b]
 *   splits                       -> [sum of output_splits, b]; `a` may differ between ranks
 *   LIST    n `inputs` on each rank, of one dtype -> n tensors, number i being what group rank i
 *           has for this rank; shapes may differ
 * In place is possible where the result has as many elements as the input.
 * Looks at: input(s), output(s), split_axis, concat_axis, input_splits, output_splits, form, more.
 * Any dtype.
 *
 * TUTTI_INVALID_ARGUMENT  INDIVISIBLE; SCALAR_INPUT; BAD_AXIS; BAD_FORM: STACK or FLAT;
 *                         SPLITS_MISMATCH: one list without the other, not one number for each
 *                         rank, not the input's rows in all, splits with a list, or not what the
 *                         other side states
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_all_to_all(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);

/*
 * Group rank i gives its tensor to group rank src_dst[i], which may be i (collective-permute of
 * XLA; unlike there, every rank gives to one rank and gets from one).
 *
 * Shapes: [s...] on each rank, of one dtype -> [s...] on each rank. In place is possible.
 * Looks at: input(s), output(s), src_dst. Any dtype.
 *
 * TUTTI_INVALID_ARGUMENT     BAD_PERMUTATION: not n numbers, not a group rank, or a rank twice
 * TUTTI_FAILED_PRECONDITION  OP_MISMATCH: ranks gave different permutations
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_permute(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);

/*
 * Returns when every rank of the group has called it, and the collectives of the group that they
 * called before have ended (MPI_Barrier). No tensors, no result; sends and receives are not waited
 * for. Looks at: monitored.
 *
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT, or MISSING_RANKS if op->monitored: the text names all ranks
 *                          that have not come
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_barrier(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);

/*
 * Give a tensor to one rank; returns when that rank has taken it (MPI_Ssend). Until then the tensor
 * waits at the sender. A failure concerns these two ranks alone.
 *
 * Looks at: input, peer, global, tag, group_offset, group_count, user_meta. `peer` must be set. Any
 * dtype. Lists are not sent.
 *
 * TUTTI_INVALID_ARGUMENT     RANK_NOT_IN_GROUP: no peer, or it is no rank of the group; SELF_PEER:
 *                            this rank itself: use tutti_tensor_copy; BAD_TAG: 2^31 or more;
 *                            GROUP_SIZE: group_count does not divide the group; META_LIMIT;
 *                            DTYPE_MISMATCH, SHAPE_MISMATCH: the receiver wants something else
 * TUTTI_FAILED_PRECONDITION  NO_NEXT_GROUP: no block at group_offset
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_send(tutti_client *client, const tutti_op *op,
                                tutti_op_result *ret_result, tutti_error *err);

/*
 * Take a tensor from one rank, or from whichever sends first (MPI_Recv). The result has the
 * sender's dtype and shape; ret_result->source tells who it was, op->more what came with it.
 *
 * Looks at: output, peer, global, tag, group_offset, group_count, expect, more.
 *
 * TUTTI_INVALID_ARGUMENT     DTYPE_MISMATCH, SHAPE_MISMATCH: it is not what `expect` or `output`
 *                            wants; the sender gets the error too, and the tensor is not delivered.
 *                            RANK_NOT_IN_GROUP, SELF_PEER, BAD_TAG, GROUP_SIZE: as tutti_send
 * TUTTI_FAILED_PRECONDITION  NO_NEXT_GROUP: no block at group_offset
 * and the statuses of all ops
 */
TUTTI_API tutti_code tutti_recv(tutti_client *client, const tutti_op *op,
                                tutti_op_result *ret_result, tutti_error *err);

/* ------------------------------------------------------------------ without running it */

/* Whose view of a group tutti_infer takes. {0} is group rank 0 of the whole job. */
typedef struct tutti_infer_place {
    /* Ranks of the group, 1 to TUTTI_RANKS_MAX; 0 = as many as the job has. */
    uint32_t group_size;
    /* The group rank whose result is asked for: below group_size. */
    uint32_t group_rank;
} tutti_infer_place;

/*
 * Dtype and shape that an op would give on one rank if all ranks of the group called it alike, or
 * what is wrong with its arguments. Nothing is run, no other rank is asked, and no tensor is made.
 * Not of barrier, send and recv. op->group, the outputs, async, times, step and token are not
 * looked at; op->global must be false.
 *
 * [in]  kind        which op
 * [in]  op          its arguments; NULL = as tutti_op_init
 * [in]  input       what each rank gives, or, of broadcast and scatter, the root; no tensor needs
 *                   to exist. NULL = op->input or op->inputs, which must
 * [in]  place       NULL = group rank 0 of as many ranks as the job has
 * [out] ret_result  dtype TUTTI_DTYPE_NONE: this rank gets no result, or a list
 *
 * TUTTI_INVALID_ARGUMENT     NO_OP: no such kind, or barrier, send, recv; RANK_NOT_IN_GROUP:
 *                            group_rank is not below group_size; BAD_ROOT: not a group rank, or
 *                            op->global is set; and those of the op that shapes alone decide
 * TUTTI_FAILED_PRECONDITION  PENDING: an op that still runs makes op->input, so that it has no
 *                            shape yet: wait for it
 * TUTTI_NOT_FOUND            NO_TENSOR
 * and the common statuses (tutti/client.h)
 */
TUTTI_API tutti_code tutti_infer(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                                 const tutti_spec *input, const tutti_infer_place *place,
                                 tutti_spec *ret_result, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
