/*
 * Tensors in an agent: made, written, read, copied, listed and deleted.
 *
 *     tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {4}};
 *     float x[4] = {1, 2, 3, 4};
 *     tutti_handle handle;
 *
 *     code = tutti_tensor_put(client, &spec, x, "weights", NULL, &handle, &err);
 *     op.input = op.output = handle.text;                           // or "weights"
 *     code = tutti_all_reduce(client, &op, NULL, &err);              // in place
 *     code = tutti_tensor_read(client, "weights", x, sizeof(x), NULL, &err);
 *     code = tutti_tensor_delete(client, "weights", &err);
 *
 * A tensor belongs to the agent of one rank. It is known by its handle,
 * "tensor:RANK.INCARNATION.NUMBER", and by a name if it was given one; wherever libtutti wants a
 * handle, the text of the handle or the name serves. It stays until it is deleted, also when the
 * client that made it has gone. All clients of the agent see the same tensors.
 *
 * Order: a call that reads a tensor waits for the ops and calls before it that write it, and one
 * that writes waits for all before it. So a call may name the result of an op that still runs. If
 * that op fails, the call fails with the op's error.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h. All calls here go to
 * the agent alone; no other rank takes part.
 *
 * Statuses common to the functions of this header
 *
 *   TUTTI_NOT_FOUND            NO_TENSOR: it was deleted, or never was. tutti_tensor_list shows
 *                              what there is
 *   TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE: a handle of another rank's agent; the text names the
 *                              rank. Call that agent, or move the tensor by an op.
 *                              STALE_HANDLE: a handle of a former process of this agent. The tensor
 *                              is gone: upload it again.
 *                              NO_DEVICE: the agent does not have what tutti_set_device named
 *   TUTTI_INVALID_ARGUMENT     BAD_HANDLE: NULL, empty, above 127 bytes, or neither a handle nor a
 *                              name. BAD_NAME: a name has other characters than tutti/types.h
 *                              permits. BAD_DTYPE, BAD_SHAPE: tutti_spec says what is permitted
 *   TUTTI_ALREADY_EXISTS       NAME_TAKEN: a tensor of the agent has that name. Delete it, or
 *                              overwrite it with tutti_tensor_write
 *   TUTTI_RESOURCE_EXHAUSTED   MEMORY_LIMIT: --memory-limit, or --device-memory-limit of a GPU; the
 *                              text says how much is free. Delete tensors. DEVICE_MEMORY: other
 *                              processes use the GPU. HANDLE_LIMIT: --handles-max tensors (100000)
 *   TUTTI_INTERNAL             DEVICE_FAILED: a call of CUDA failed. Start the agent again
 *   TUTTI_UNAVAILABLE          STOPPING: the agent stops
 *   any other                  what the op that was to write the tensor failed with (tutti/op.h)
 *
 * A function that makes a tensor and fails leaves none behind, unless the answer was lost
 * (CONNECTION_LOST, NO_ANSWER): then nobody knows.
 *
 * Caveats
 *
 * - A lost answer can leave a tensor whose handle the program never got. How it looks: the agent's
 *   memory fills. What to do: give names, and delete by name; what is not there is NO_TENSOR.
 * - A result of an async op has no spec yet (tutti_handle.known is false). tutti_tensor_stat does
 *   not wait for it; tutti_tensor_read and tutti_wait do.
 * - Deleting a tensor that an op uses does not disturb the op: the handle is gone at once, and the
 *   memory when the op has ended.
 */
#ifndef TUTTI_TENSOR_H
#define TUTTI_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor in an agent: its handle, and what it is. Plain data: a copy names the same tensor. */
typedef struct tutti_handle {
    /* The handle. "" = there is no tensor. */
    char text[TUTTI_HANDLE_MAX + 1];
    /* false: an op that still runs will say what the tensor is, and `spec` is zero. */
    bool known;
    tutti_spec spec;
} tutti_handle;

/* ------------------------------------------------------------------ how a transfer goes */

/*
 * Called while a transfer runs, on the thread that called put, write or read: after each chunk of
 * the first stream, and once when all bytes have arrived.
 *
 * [in] arg          tutti_transfer.arg
 * [in] done_bytes   moved so far, over all streams
 * [in] total_bytes  of the tensor
 *
 * Returns false to give the transfer up, which then fails with TUTTI_CANCELLED; what the last call
 * (done_bytes = total_bytes) returns is not looked at. It must not make calls that end only when
 * this transfer ends. For a tensor of TUTTI_INLINE_BYTES_MAX or less there is that last call alone.
 */
typedef bool (*tutti_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

/* Streams of one transfer, at most: more is STREAM_LIMIT. */
#define TUTTI_STREAMS_MAX 16

/*
 * How bytes go to an agent and back. Begin with tutti_transfer_init.
 *
 * A tensor of TUTTI_INLINE_BYTES_MAX (3 MiB) or less goes in one message, a larger one in chunks
 * through a stream. A large tensor can go through several streams at once, each with a thread and a
 * connection of its own: one connection has one window of TCP, and keeps one processor busy at each
 * end.
 *
 * All streams are one transfer. If one of them fails, all do, and the error's text says which it
 * was. Then a new tensor is not made, and one that is overwritten keeps the new bytes that have
 * arrived, as it does with one stream. If the tensor is written while several streams read it,
 * libtutti reads it again through one, and progress begins again: a read never mixes two writes.
 */
typedef struct tutti_transfer {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* NULL (default) = nobody wants to know. */
    tutti_progress_fn on_progress;
    /* Passed to on_progress as it is. */
    void *arg;
    /* Bytes of a chunk: 4096 to TUTTI_CHUNK_BYTES_MAX; 0 = 2 MiB. Others are CHUNK_LIMIT. */
    uint32_t chunk_bytes;
    /*
     * Milliseconds; 0 = the client's timeout_ms. Of a transfer in chunks: how long it may stand
     * still, and waiting for an op that uses the tensor counts as that. Of one message: how long
     * the whole call may take.
     */
    uint32_t timeout_ms;
    /*
     * Streams at once, 1 to TUTTI_STREAMS_MAX. 0 = two, for a tensor of 64 MiB or more over TCP on
     * a machine of at least four processors; else one. Each carries at least one chunk, so a small
     * tensor has fewer, and an agent that knows one stream alone gets one.
     */
    uint32_t streams;
} tutti_transfer;

/* Set `size`, and all else to NULL and 0: everything by default. [out] transfer */
TUTTI_API void tutti_transfer_init(tutti_transfer *transfer);

/* ------------------------------------------------------------------ making and moving */

/*
 * Elements and bytes of a spec. It asks nobody, needs no client, and may run on any thread.
 *
 * [in]  spec       not NULL
 * [out] ret_count  elements: the product of the dimensions, 1 for a scalar; NULL = not wanted
 * [out] ret_bytes  that times the bytes of an element; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DTYPE: TUTTI_DTYPE_NONE, or a number that is no dtype; BAD_SHAPE: a
 *                         negative dimension, more than 16 of them, or more than 2^63 - 1 bytes
 */
TUTTI_API tutti_code tutti_spec_size(const tutti_spec *spec, uint64_t *ret_count,
                                     uint64_t *ret_bytes, tutti_error *err);

/* Bytes of the text of a range, without the NUL: of the longest name, and 16 dimensions. */
#define TUTTI_RANGE_MAX 511

/*
 * The text of a part of a tensor, for tutti_op: wherever an op takes a handle, it takes this, too. Ops on parts
 * without common bytes run side by side (docs/clients.md). It asks nobody, needs no client, and may run
 * on any thread.
 *
 *     tutti_range_format("weights", 256, &spec, text, &err);   // "weights@256:FP32[2,8]"
 *     op.input = op.output = text;                             // in place
 *
 * [in]  handle    or name, of the whole tensor
 * [in]  offset    bytes before the part; a multiple of the size of an element
 * [in]  spec      the part's dtype and shape; the tensor's own do not matter
 * [out] ret_text  not written on failure
 *
 * TUTTI_INVALID_ARGUMENT  BAD_HANDLE: NULL, empty, above TUTTI_NAME_MAX bytes, or with an '@';
 *                         BAD_DTYPE, BAD_SHAPE: as tutti_spec_size; RANGE_ALIGN
 *
 * Whether the part is inside of the tensor the agent says, when an op names it: RANGE_OUTSIDE.
 */
TUTTI_API tutti_code tutti_range_format(const char *handle, uint64_t offset, const tutti_spec *spec,
                                        char ret_text[TUTTI_RANGE_MAX + 1], tutti_error *err);

/*
 * Where the tensors that this client makes from now on live. The client keeps the text and sends it
 * with tutti_tensor_create, put and copy (without `into`). Results of ops live where their inputs
 * do.
 *
 * [in] device  "cpu", "cuda:0"; "cuda" = the agent's first GPU, whatever its number; NULL or "" =
 *              the agent's first device, and of a copy where the original is
 *
 * No other thread may be inside a call on the client. The agent is not asked: if it has no such
 * device, the calls that make tensors fail with FAILED_PRECONDITION NO_DEVICE.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DEVICE: longer than 31 characters. What was set before stays
 */
TUTTI_API tutti_code tutti_set_device(tutti_client *client, const char *device, tutti_error *err);

/*
 * Make a tensor that is filled with zeros.
 *
 * [in]  spec        dtype and shape; 0 elements are fine
 * [in]  name        1 to TUTTI_NAME_MAX bytes, of no other tensor of the agent; NULL or "" = none
 * [out] ret_handle  with its spec
 *
 * TUTTI_ALREADY_EXISTS  NAME_TAKEN
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_tensor_create(tutti_client *client, const tutti_spec *spec,
                                         const char *name, tutti_handle *ret_handle,
                                         tutti_error *err);

/*
 * Make a tensor of the caller's bytes; of any size.
 *
 * [in]  spec        what `data` is
 * [in]  data        as many bytes as tutti_spec_size says, row-major; libtutti reads them without a
 *                   copy, and no longer looks at them when the function returns, failed or not.
 *                   They must not be changed meanwhile. May be NULL for 0 bytes
 * [in]  name        as in tutti_tensor_create
 * [in]  transfer    NULL = the defaults
 * [out] ret_handle  with its spec
 *
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN
 * TUTTI_INVALID_ARGUMENT    CHUNK_LIMIT, STREAM_LIMIT: of `transfer`
 * TUTTI_RESOURCE_EXHAUSTED  MEMORY_LIMIT, HANDLE_LIMIT: as above; uploads that wait for their turn
 *                           have a limit of their own, a sixteenth of --memory-limit
 * TUTTI_DEADLINE_EXCEEDED   STALLED: nothing has moved for transfer->timeout_ms. Look at the agent
 *                           and the network, or give a longer time. TIMEOUT: the agent has seen
 *                           nothing for its --op-timeout
 * TUTTI_ABORTED             PART_FAILED: another stream of the transfer has ended, and its error is
 *                           not known. Upload again
 * TUTTI_CANCELLED           on_progress returned false
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_tensor_put(tutti_client *client, const tutti_spec *spec,
                                      const void *data, const char *name,
                                      const tutti_transfer *transfer, tutti_handle *ret_handle,
                                      tutti_error *err);

/*
 * Overwrite all of a tensor that is there. It waits for the ops and calls before it that use the
 * tensor. The tensor keeps its handle, name, shape and device.
 *
 * [in] handle    or name
 * [in] spec      what `data` is: the tensor's dtype, and as many elements; the shape may differ
 * [in] data      as in tutti_tensor_put
 * [in] transfer  NULL = the defaults
 *
 * TUTTI_INVALID_ARGUMENT  DTYPE_MISMATCH: the tensor has another dtype. Convert the data.
 *                         SHAPE_MISMATCH: it has another number of elements
 * and the statuses of tutti_tensor_put, without NAME_TAKEN
 *
 * On failure a tensor of TUTTI_INLINE_BYTES_MAX or less is as it was, unless the answer was lost; a
 * larger one keeps the new bytes that have arrived, so it may hold a mixture. Write it again.
 */
TUTTI_API tutti_code tutti_tensor_write(tutti_client *client, const char *handle,
                                        const tutti_spec *spec, const void *data,
                                        const tutti_transfer *transfer, tutti_error *err);

/*
 * Read all bytes of a tensor. It waits for the op that still writes it.
 *
 * [in]  handle    or name
 * [out] data      `bytes` bytes of the caller. On failure they are as they were if `bytes` is at
 *                 most TUTTI_INLINE_BYTES_MAX; else some may have been written
 * [in]  bytes     exactly the tensor's size
 * [in]  transfer  NULL = the defaults
 *
 * TUTTI_INVALID_ARGUMENT   SIZE_MISMATCH: the tensor has another number of bytes; the text has
 *                          both. Ask tutti_tensor_stat. CHUNK_LIMIT, STREAM_LIMIT: of `transfer`
 * TUTTI_DEADLINE_EXCEEDED  STALLED: nothing has moved for transfer->timeout_ms, also because the op
 *                          that writes the tensor takes that long. Wait for the op first
 * TUTTI_CANCELLED          on_progress returned false
 * any other                what the op that was to write the tensor failed with (tutti/op.h)
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_tensor_read(tutti_client *client, const char *handle, void *data,
                                       uint64_t bytes, const tutti_transfer *transfer,
                                       tutti_error *err);

/*
 * Copy a tensor inside of the agent, also from host memory to a GPU and back. It waits for the ops
 * and calls before it that use the two tensors.
 *
 * [in]  handle      the original, or its name
 * [in]  into        handle or name of a tensor of the same dtype and number of elements, which is
 *                   overwritten and keeps its shape and device; NULL or "" = a new one, of the
 *                   original's shape. The original itself is fine: nothing happens
 * [in]  name        of the new one, as in tutti_tensor_create; not with `into`
 * [out] ret_handle  where it went
 *
 * TUTTI_INVALID_ARGUMENT  DTYPE_MISMATCH, SHAPE_MISMATCH: `into` is of another dtype or number of
 *                         elements. BAD_NAME: `name` together with `into`
 * TUTTI_ALREADY_EXISTS    NAME_TAKEN
 * and the statuses common to this header
 *
 * The call is limited by the client's timeout_ms, waiting included.
 */
TUTTI_API tutti_code tutti_tensor_copy(tutti_client *client, const char *handle, const char *into,
                                       const char *name, tutti_handle *ret_handle,
                                       tutti_error *err);

/*
 * Delete a tensor. Its handle and name are gone at once, without waiting; ops and transfers that
 * use it go on, and its memory is freed when they have ended. A tape that has recorded it goes on,
 * too (tutti/tracer.h).
 *
 * [in] handle  or name
 *
 * TUTTI_NOT_FOUND            NO_TENSOR: it is gone already
 * TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE, STALE_HANDLE
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_tensor_delete(tutti_client *client, const char *handle,
                                         tutti_error *err);

/* ------------------------------------------------------------------ looking */

/* What an agent knows of a tensor. Plain data. */
typedef struct tutti_tensor_info {
    tutti_handle handle;
    /* "" = it was given none. */
    char name[TUTTI_NAME_MAX + 1];
    /* Of its elements; 0 also while its spec is not known. */
    uint64_t bytes;
    /* An op or a call writes it, or waits to write it. */
    bool pending;
    /* The op that was to write it last failed, and `error` says why. */
    bool failed;
    /* Code TUTTI_OK unless `failed`. */
    tutti_error error;
    /* "cpu", "cuda:0"; "" while its spec is not known. */
    char device[32];
    /*
     * Who made it: the subject of the caller's token, or the name of its certificate; without
     * these the address that it called from. "" = no caller asked for it by itself.
     */
    char owner[64];
    /* It is deleted when the lease ends under which it was made (tutti_lease_open). */
    bool ephemeral;
    /* How long ago it was made; 0 also of an agent of an older version. */
    uint64_t age_ms;
} tutti_tensor_info;

/*
 * What the agent knows of one tensor, without waiting for the ops that use it.
 *
 * [in]  handle    or name
 * [out] ret_info
 *
 * TUTTI_OK is returned also for a tensor whose op failed: look at ret_info->failed.
 *
 * TUTTI_NOT_FOUND            NO_TENSOR
 * TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE, STALE_HANDLE
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_tensor_stat(tutti_client *client, const char *handle,
                                       tutti_tensor_info *ret_info, tutti_error *err);

/*
 * All tensors of the agent, whoever made them, in the order in which they were made. libtutti asks
 * page by page, so of tensors that are made or deleted meanwhile some are in the list.
 *
 * [out, owned] ret_infos  an array of `ret_count`; tutti_free it, also when it is empty
 * [out]        ret_count
 *
 * Statuses are those common to all calls (tutti/client.h). Each page is limited by the client's
 * timeout_ms.
 */
TUTTI_API tutti_code tutti_tensor_list(tutti_client *client, tutti_tensor_info **ret_infos,
                                       size_t *ret_count, tutti_error *err);

/* ------------------------------------------------------------------ tensors that end with their maker */

/*
 * A lease: tensors that the client makes while it is open are deleted when it ends, also those
 * that are results of ops. It ends when it is closed, when the program ends in any way, and when
 * the connection breaks. An op that uses such a tensor at that time goes on with its memory.
 *
 * If it ends without tutti_lease_close, the agent takes the program for dead: ops of other ranks that
 * wait for its next op, sends to it and receives from it fail with CALLER_GONE, until some client calls
 * an op there.
 *
 *     code = tutti_lease_open(client, &lease, &err);
 *     if (code == TUTTI_OK) {
 *         code = tutti_tensor_put(client, &spec, x, NULL, NULL, &handle, &err);
 *         tutti_lease_close(lease);                         // and the tensor is deleted
 *     }
 *
 * It is the client's: calls from all threads are under it. Pipelines, queues and sessions: the first two are
 * under the lease that was open when they were opened; a session has a lease of its own. What is to
 * stay is made by another client, or before.
 *
 * After the agent has ended the lease, calls that make tensors fail with TUTTI_FAILED_PRECONDITION,
 * LEASE_OVER, until it is closed.
 */
typedef struct tutti_lease tutti_lease;

/*
 * Open a lease at the client's agent.
 *
 * [in]         client     connected to an agent; has to be closed after the lease
 * [out, owned] ret_lease  tutti_lease_close it
 *
 * TUTTI_FAILED_PRECONDITION  LEASE_OPEN: the client has one already
 * TUTTI_RESOURCE_EXHAUSTED   LEASE_LIMIT: --leases-max are open; no memory
 * TUTTI_UNAVAILABLE          STOPPING: the agent stops
 * TUTTI_DEADLINE_EXCEEDED    the agent has not answered within the client's timeout_ms
 */
TUTTI_API tutti_code tutti_lease_open(tutti_client *client, tutti_lease **ret_lease,
                                      tutti_error *err);

/*
 * Delete what was made under the lease, soon: the agent hears of it without an answer. Calls of the client
 * that run meanwhile, and make tensors, may fail with LEASE_OVER. NULL is fine.
 */
TUTTI_API void tutti_lease_close(tutti_lease *lease);

#ifdef __cplusplus
}
#endif

#endif
