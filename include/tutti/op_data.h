/*
 * Ops on memory: the collectives of tutti/op.h on arrays of the caller instead of tensors that live
 * in agents. One call uploads, runs the op and downloads.
 *
 *     float x[1000] = {...};
 *     const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {1000}};
 *     float all[4 * 1000];                                      // in a group of 4 ranks
 *     tutti_op op;
 *
 *     tutti_op_init(&op);
 *     code = tutti_all_reduce_data(client, &op, &spec, x, x, &err);
 *     code = tutti_all_gather_data(client, &op, &spec, x, all, sizeof(all), &err);
 *
 * How. Memory of an arena (tutti/share.h) is not copied: the op runs on it. Other arrays of more than
 * 8 KiB are copied to the arena and back where there is one: agent and program on one host. Else, if
 * what this rank gives and what it takes are at most TUTTI_INLINE_BYTES_MAX (3 MiB) each, they travel
 * inside the call and the agent keeps nothing. Else the function makes temporary tensors named
 * "tutti.tmp/" and 16 hex digits, uploads, runs the op on them, downloads, and deletes them. The
 * choice is each rank's own: ranks that differ in it are in one op all the same, and so are ranks that
 * call the function of tutti/op.h on tensors.
 *
 * Threads. As tutti/op.h: any thread, several at once; a call blocks until it has the result.
 *
 * Caveats
 *
 * - Arrays that are not in an arena are copied with every call, between hosts over a socket. How it
 *   looks: the call takes much longer than tutti_op_result.elapsed_us of the same op on tensors. What
 *   to do: allocate what is used again in the arena (tutti_alloc), or keep it in the agent.
 * - op->timeout_ms is the time of the op alone. The upload and the download each may stand still
 *   for the client's timeout_ms before they fail with STALLED.
 * - If this process dies, or the agent cannot be reached any more, in the middle of a large call,
 *   its "tutti.tmp/..." tensors stay in the agent. What to do: tutti_tensor_list shows them,
 *   tutti_tensor_delete removes them.
 * - Gradients do not go through these calls. Leave tutti_op.tracers unset: with small data it fails
 *   with TRACED_INLINE.
 */
#ifndef TUTTI_OP_DATA_H
#define TUTTI_OP_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Parameters of all functions here:
 *
 * [in]  client        connected to an agent
 * [in]  op            the arguments of the op, as the function of tutti/op.h looks at them; NULL =
 *                     as tutti_op_init. `input` and `output` must be NULL and `async` false: the
 *                     library asserts that. No lists
 * [in]  spec          dtype and shape of `data`; on ranks that only take, at least the dtype must
 *                     be that of the result
 * [in]  data          as many bytes as `spec` says; not looked at after the call
 * [out] result        as many bytes as the function says, or result_bytes; row-major and
 *                     little-endian. It may be `data` itself where the function says so, and must
 *                     not overlap with it otherwise. Undefined if the function fails
 * [in]  result_bytes  bytes of `result`: exactly those of the result
 * [out] err           NULL = not wanted
 *
 * Statuses of all functions here: those of the op (tutti/op.h), those of an upload and a download
 * (tutti/tensor.h) if data is large, and:
 *
 * TUTTI_INVALID_ARGUMENT     BAD_DTYPE, BAD_SHAPE: of `spec`. SIZE_MISMATCH: result_bytes is no
 *                            multiple of the dtype's bytes
 *                            OUT_SHAPE, SHAPE_MISMATCH, DTYPE_MISMATCH, INLINE_LIMIT: the result is
 *                            not what `spec` and result_bytes say: all ranks fail, before data moves
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: the client was connected without an agent
 *
 * If an argument is bad or an upload fails, the function still calls the op, with a tensor that is
 * not there, which the agent refuses: so the other ranks hear of it at once instead of waiting until
 * their time is over. Only a tutti_op that was not initialised is refused without that.
 *
 * In the lines below n is the group's size.
 */

/*
 * Every rank gets the reduction of `data` over all ranks.
 *
 * [in]  data    as `spec`, alike on all ranks
 * [out] result  as `spec`; may be `data`
 */
TUTTI_API tutti_code tutti_all_reduce_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           tutti_error *err);

/*
 * Every rank gets the root's data.
 *
 * [in]      spec  alike on all ranks: dtype and size; the shape is the root's business
 * [in, out] data  on the root: what is sent, unchanged afterwards. Elsewhere: what came
 *
 * If the group is not "world" and op->global is false, the function asks the coordinator first who
 * op->root is; that takes one more call, and adds the statuses of tutti_group_get. The other
 * functions with a root below do so too.
 */
TUTTI_API tutti_code tutti_broadcast_data(tutti_client *client, const tutti_op *op,
                                          const tutti_spec *spec, void *data, tutti_error *err);

/*
 * Every rank gets the data of all ranks, in the order of group ranks.
 *
 * [in]  data          as `spec`, alike on all ranks
 * [out] result        n times as many bytes; op->axis and op->form say in which order. Not `data`
 * [in]  result_bytes  n times the bytes of `spec`
 */
TUTTI_API tutti_code tutti_all_gather_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           uint64_t result_bytes, tutti_error *err);

/*
 * The root gets the reduction of `data` over all ranks. The root is found as in
 * tutti_broadcast_data.
 *
 * [in]  data    as `spec`, alike on all ranks
 * [out] result  on the root: as `spec`; may be `data`. Elsewhere not looked at, may be NULL
 */
TUTTI_API tutti_code tutti_reduce_to_root_data(tutti_client *client, const tutti_op *op,
                                               const tutti_spec *spec, const void *data,
                                               void *result, tutti_error *err);

/*
 * Each rank gets its part of the reduction of `data` over all ranks.
 *
 * [in]  data          as `spec`, alike on all ranks; op->axis and op->form say how it is cut
 * [out] result        this rank's part. Not `data`
 * [in]  result_bytes  the bytes of `spec` divided by n
 */
TUTTI_API tutti_code tutti_reduce_scatter_data(tutti_client *client, const tutti_op *op,
                                               const tutti_spec *spec, const void *data,
                                               void *result, uint64_t result_bytes,
                                               tutti_error *err);

/*
 * The root gets the data of all ranks, in the order of group ranks. The root is found as in
 * tutti_broadcast_data.
 *
 * [in]  data          as `spec`, alike on all ranks
 * [out] result        on the root: n times as many bytes; not `data`. Elsewhere not looked at, may
 *                     be NULL
 * [in]  result_bytes  on the root: n times the bytes of `spec`. Elsewhere not looked at
 */
TUTTI_API tutti_code tutti_gather_data(tutti_client *client, const tutti_op *op,
                                       const tutti_spec *spec, const void *data, void *result,
                                       uint64_t result_bytes, tutti_error *err);

/*
 * Each rank gets its part of the root's data. The root is found as in tutti_broadcast_data.
 *
 * [in]  spec          on the root: of `data`. Elsewhere: the dtype counts, but it must be a valid
 *                     spec
 * [in]  data          on the root: what is cut. Elsewhere not looked at, may be NULL
 * [out] result        this rank's part, on the root too. Not `data`
 * [in]  result_bytes  the bytes of the root's data divided by n; with op->splits on the root: those
 *                     of this rank's rows
 */
TUTTI_API tutti_code tutti_scatter_data(tutti_client *client, const tutti_op *op,
                                        const tutti_spec *spec, const void *data, void *result,
                                        uint64_t result_bytes, tutti_error *err);

/*
 * Each rank gives a part to each rank, and gets one from each.
 *
 * [in]  data    as `spec`
 * [out] result  as many bytes as `spec` has; may be `data`. So with op->input_splits the
 *               output_splits must have the same sum: else use tutti_all_to_allv_data
 */
TUTTI_API tutti_code tutti_all_to_all_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           tutti_error *err);

/*
 * The same with a result of another size: for op->input_splits and output_splits whose sums differ.
 *
 * [in]  data          as `spec`
 * [out] result        the rows that come, in the order of group ranks. Not `data`
 * [in]  result_bytes  the rows of op->output_splits, in bytes
 */
TUTTI_API tutti_code tutti_all_to_allv_data(tutti_client *client, const tutti_op *op,
                                            const tutti_spec *spec, const void *data, void *result,
                                            uint64_t result_bytes, tutti_error *err);

/*
 * Send `data` to op->peer with op->tag. It returns when the receiver has it, or the agent has it on
 * its way, as tutti_send.
 *
 * [in] data  as `spec`
 */
TUTTI_API tutti_code tutti_send_data(tutti_client *client, const tutti_op *op,
                                     const tutti_spec *spec, const void *data, tutti_error *err);

/*
 * Receive from op->peer, or from whoever sends first, with op->tag.
 *
 * [in]  spec        dtype and size of what comes. The shape is the sender's business, unless
 *                   op->expect says it: then both sides fail if it differs
 * [out] result      as many bytes as `spec` says
 * [out] ret_result  who sent: `source`, `source_global`; `output` is empty. Written on success only;
 *                   NULL = not wanted
 */
TUTTI_API tutti_code tutti_recv_data(tutti_client *client, const tutti_op *op,
                                     const tutti_spec *spec, void *result,
                                     tutti_op_result *ret_result, tutti_error *err);

/*
 * Group rank i gives its data to group rank op->src_dst[i].
 *
 * [in]  data    as `spec`, alike on all ranks
 * [out] result  as `spec`; may be `data`
 */
TUTTI_API tutti_code tutti_permute_data(tutti_client *client, const tutti_op *op,
                                        const tutti_spec *spec, const void *data, void *result,
                                        tutti_error *err);

/* ------------------------------------------------------------------ lists */

/* Memory of the caller's for an op. A later version may have more members: zero all of it first. */
typedef struct tutti_op_data {
    /*
     * Dtype and shape of `data`. On a rank that only takes, the dtype is that of the result. In
     * tutti_queue_submit_data TUTTI_DTYPE_NONE is any there, up to TUTTI_INLINE_BYTES_MAX.
     */
    tutti_spec spec;
    /* What this rank gives; NULL = it gives nothing. */
    const void *data;
    /*
     * Where the result goes. NULL = this rank gets no result, or it is not wanted. May be `data`
     * where the function for one array says so.
     */
    void *result;
    /* Bytes of `result`: exactly those of the op's result. Not looked at where result is NULL. */
    uint64_t result_bytes;
} tutti_op_data;

/*
 * Several arrays in one op, with one agreement of the ranks for all of them: the coalesced lists of
 * tutti/list.h on memory of the caller's. Each array is treated as if it were in an op of its own.
 *
 *     const tutti_op_data grads[2] = {
 *         {.spec = {TUTTI_DTYPE_FP32, 2, {64, 64}}, .data = w, .result = w, .result_bytes = sizeof(w)},
 *         {.spec = {TUTTI_DTYPE_FP32, 1, {64}}, .data = b, .result = b, .result_bytes = sizeof(b)}};
 *
 *     code = tutti_list_data(client, TUTTI_OP_ALL_REDUCE, NULL, grads, 2, &err);
 *
 * Where there is an arena (tutti/share.h), arrays in it are not copied, and the others are copied to it and back, unless
 * there are few bytes: up to 16 KiB, or 512 for each array. Else the arrays are packed: if all that is given, and all that is
 * taken, are at most TUTTI_INLINE_BYTES_MAX, they travel in one call; else they are ranges of one temporary tensor for
 * each direction, which is uploaded and downloaded once. Packing needs as much memory again.
 * Ranks may differ in it, and may call the op on tensors (tutti/list.h).
 *
 * [in] kind    all but ALL_TO_ALL, BARRIER, SEND and RECV
 * [in] op      as above; `form` not LIST. `coalesced` is taken as true, `more` is not filled
 * [in] arrays  1 to 1024; all ranks that give have as many, of the same dtypes and shapes. Who
 *              gives and who takes is said by NULL, alike for all arrays: the root of a broadcast
 *              gives and takes nothing, the others take
 * [in] count   of arrays
 *
 * TUTTI_INVALID_ARGUMENT  NO_OP: a kind without lists; nothing was called
 *                         BAD_LIST: some arrays have data, or a result, and others have none
 *                         EMPTY_LIST, LIST_SIZE: 0 or more than 1024 arrays; LIST_SIZE: another number of
 *                         results. BAD_FORM: LIST
 *                         OUT_SHAPE, DTYPE_MISMATCH: a result does not fit; on all ranks, and no data moved
 * and what is said above, and in tutti/list.h. If it fails, no result was written.
 */
TUTTI_API tutti_code tutti_list_data(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                                     const tutti_op_data *arrays, size_t count, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
