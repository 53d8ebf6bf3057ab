/* Tensors in an agent. */
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

/* A tensor in the agent: its name on the wire, and what it is. Plain data. */
typedef struct tutti_handle {
    char text[TUTTI_HANDLE_MAX + 1];
    bool known;      /* false: an async op will say what it is */
    tutti_spec spec; /* when known */
} tutti_handle;

/*
 * How far a transfer is, on the thread that called it; return false to give it up with
 * TUTTI_CANCELLED. The last call, with done = total, cannot give it up any more.
 */
typedef bool (*tutti_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

#define TUTTI_STREAMS_MAX 16 /* of one transfer */

/*
 * A big tensor can go over several streams at once, each with a thread and a connection of its own:
 * one connection has one window and keeps one processor busy at each end. Where nothing is said it
 * is two from 64 MiB on over TCP, if this machine has four processors, else one. A stream carries a
 * chunk at least, and an agent that does not know of it gets one.
 *
 * All of it is one transfer: when one stream fails all do, and the error says which it was; a new
 * tensor is not made then, and one that is overwritten keeps the new bytes that have arrived, as
 * with one stream. When the tensor is written while several streams read it, it is read again over
 * one: progress begins again.
 */
typedef struct tutti_transfer {
    size_t size; /* of this struct: set by init */
    tutti_progress_fn on_progress;
    void *arg;
    uint32_t chunk_bytes; /* 4096 to 4 MiB; 0 = 2 MiB */
    uint32_t timeout_ms;  /* without progress, waiting for an op that writes it too; 0 = client's */
    uint32_t streams;     /* at once, each with its connection; 0 = see above */
} tutti_transfer;

TUTTI_API void tutti_transfer_init(tutti_transfer *transfer);

/* Elements and bytes of a spec. TUTTI_INVALID_ARGUMENT  BAD_DTYPE, BAD_SHAPE */
TUTTI_API tutti_code tutti_spec_size(const tutti_spec *spec, uint64_t *ret_count,
                                     uint64_t *ret_bytes, tutti_error *err);

/*
 * Wherever a handle is wanted, its text or the tensor's name serves.
 *
 * TUTTI_NOT_FOUND            NO_TENSOR
 * TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE: of another agent; STALE_HANDLE: of a dead one
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE, BAD_NAME, BAD_DTYPE, BAD_SHAPE, SIZE_MISMATCH,
 *                            DTYPE_MISMATCH, SHAPE_MISMATCH
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN
 * TUTTI_RESOURCE_EXHAUSTED   MEMORY_LIMIT, HANDLE_LIMIT
 * TUTTI_DEADLINE_EXCEEDED    STALLED: a transfer that did not move for its timeout_ms
 * TUTTI_CANCELLED            on_progress said so
 *
 * When put or write ends, nothing looks at `data` any more, failed or not.
 */

/*
 * Where tensors that this client makes live from now on: "cpu", "cuda:0"; "cuda" = the agent's
 * first GPU, whatever its number; NULL = its first device, and of a copy, where the original is.
 * Not while other threads use the client. Calls that make tensors then fail with
 * FAILED_PRECONDITION NO_DEVICE where the agent has no such device.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DEVICE: longer than 31 characters
 */
TUTTI_API tutti_code tutti_set_device(tutti_client *client, const char *device, tutti_error *err);

/* New, filled with zeros. [in] name  NULL = none */
TUTTI_API tutti_code tutti_tensor_create(tutti_client *client, const tutti_spec *spec,
                                         const char *name, tutti_handle *ret_handle,
                                         tutti_error *err);

/* New, from `data`; any size. [in] transfer  NULL = defaults */
TUTTI_API tutti_code tutti_tensor_put(tutti_client *client, const tutti_spec *spec,
                                      const void *data, const char *name,
                                      const tutti_transfer *transfer, tutti_handle *ret_handle,
                                      tutti_error *err);

/* Overwrite all of an existing one. `spec` says what `data` is: same dtype and element count. */
TUTTI_API tutti_code tutti_tensor_write(tutti_client *client, const char *handle,
                                        const tutti_spec *spec, const void *data,
                                        const tutti_transfer *transfer, tutti_error *err);

/* All of its bytes; SIZE_MISMATCH unless `bytes` is exactly its size. */
TUTTI_API tutti_code tutti_tensor_read(tutti_client *client, const char *handle, void *data,
                                       uint64_t bytes, const tutti_transfer *transfer,
                                       tutti_error *err);

/* [in] into  NULL = a new one; [in] name  of the new one, NULL = none */
TUTTI_API tutti_code tutti_tensor_copy(tutti_client *client, const char *handle, const char *into,
                                       const char *name, tutti_handle *ret_handle,
                                       tutti_error *err);

TUTTI_API tutti_code tutti_tensor_delete(tutti_client *client, const char *handle,
                                         tutti_error *err);

typedef struct tutti_tensor_info {
    tutti_handle handle;
    char name[TUTTI_NAME_MAX + 1];
    uint64_t bytes;
    bool pending; /* an op still writes it */
    bool failed;  /* the op that was to write it failed: `error` */
    tutti_error error;
    char device[32]; /* "cpu", "cuda:0"; "" while nobody knows its shape */
    char owner[64];  /* who made it: an identity, else an address; "" = nobody in particular */
    bool ephemeral;  /* it is deleted when whoever made it ends */
} tutti_tensor_info;

/* Without waiting for it. */
TUTTI_API tutti_code tutti_tensor_stat(tutti_client *client, const char *handle,
                                       tutti_tensor_info *ret_info, tutti_error *err);

/* All, in the order they were made. [out, owned] ret_infos  tutti_free it */
TUTTI_API tutti_code tutti_tensor_list(tutti_client *client, tutti_tensor_info **ret_infos,
                                       size_t *ret_count, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
