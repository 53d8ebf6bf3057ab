/*
 * Share: a tensor's memory mapped into this process, where agent and program are on one host.
 *
 *     tutti_view *view;
 *     float *x;
 *
 *     code = tutti_tensor_map(client, "weights", TUTTI_MAP_WRITE | TUTTI_MAP_OR_COPY, &view, &err);
 *     if (code == TUTTI_OK) {
 *         x = (float *)tutti_view_data(view);
 *         x[0] = 1;
 *         code = tutti_view_push(view, &err);               // of a copy: to the agent
 *         op.input = op.output = "weights";
 *         code = tutti_all_reduce(client, &op, NULL, &err);  // in place
 *         code = tutti_view_pull(view, &err);               // of a copy: from the agent
 *         tutti_tensor_unmap(view);
 *     }
 *
 * Nothing is uploaded or downloaded: the program and the ops work on the same bytes. Where that is
 * not possible (on another host, in another network namespace, at an agent with --no-share, for a
 * tensor on a GPU), mapping fails and says why. With TUTTI_MAP_OR_COPY it gives a copy instead and
 * logs a warning once in the life of the process. A program that calls push and pull is right in
 * both cases: of a shared view they do nothing.
 *
 * One host means: the same boot id and IPC namespace (or TUTTI_HOST_ID alike at both), and one
 * network namespace. The agent must run as the same user, unless it was started with
 * --share-any-user.
 *
 * Threads: tutti_tensor_map is as any call of tutti/client.h. Any thread may use a view, but one at
 * a time. Errors, outputs and common statuses are those of tutti/client.h.
 *
 * Caveats
 *
 * - Nobody keeps the program's reads and writes apart from ops. The trap: the program touches the
 *   memory while an op runs. How it looks: numbers of before, of after, or a mixture, on other
 *   ranks, too. What to do: touch the memory between ops.
 * - Without TUTTI_MAP_WRITE a shared view is read-only, and writing to it ends the program with
 *   SIGSEGV. A copy can be written, but push refuses it (READ_ONLY).
 * - After tutti_tensor_delete, or when the agent has ended, the memory stays mapped, but no op sees
 *   it any more. How it looks: results do not change. What to do: ask tutti_view_is_revoked. The
 *   agent counts the memory towards --memory-limit until it is unmapped.
 * - A child of fork has the memory too, and so keeps it from the agent until it ends or execs.
 * - The memory is left out of core dumps.
 */
#ifndef TUTTI_SHARE_H
#define TUTTI_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor's memory in this process, or a copy of it. */
typedef struct tutti_view tutti_view;

/* Flag of tutti_tensor_map: the program will write, too. Without it a shared view is read-only. */
#define TUTTI_MAP_WRITE 1u
/* Flag of tutti_tensor_map: where the memory cannot be mapped give a copy, instead of an error. */
#define TUTTI_MAP_OR_COPY 2u

/*
 * Map all of a tensor. It waits for the ops and calls before it that use the tensor, for the
 * client's timeout_ms at most. The first time that a tensor is mapped the agent may move its bytes
 * to memory of their own; a later mapping does not.
 *
 * [in]          client    has to be closed after the view was unmapped
 * [in]          handle    or name
 * [in]          flags     0, or TUTTI_MAP_WRITE, TUTTI_MAP_OR_COPY, or both by |
 * [out, owned]  ret_view  tutti_tensor_unmap it
 *
 * With TUTTI_MAP_OR_COPY the statuses marked with * lead to a copy; tutti_view_why tells them.
 *
 * TUTTI_FAILED_PRECONDITION  *SHARE_OFF: the agent was started with --no-share, or could not open
 *                            its socket: see its log.
 *                            *OTHER_HOST: the agent is on another host; the text has both ids.
 *                            *CANNOT_SHARE: the tensor has no bytes, or is on a GPU.
 *                            FOREIGN_HANDLE, STALE_HANDLE: as in tutti/tensor.h
 * TUTTI_UNAVAILABLE          *NO_SHARE_SOCKET: nobody answers at the agent's socket for memory: it
 *                            has ended, or is in another network namespace
 * TUTTI_PERMISSION_DENIED    *OTHER_USER: the agent runs as another user, without --share-any-user.
 *                            SHARE_TOKEN: the time between asking and mapping was longer than half
 *                            a minute, or the tensor was deleted meanwhile. Call again
 * TUTTI_RESOURCE_EXHAUSTED   *SHARE_LIMIT: --shares-max tensors (1024) are mapped, or were and are
 *                            not deleted yet. Delete some.
 *                            NO_MEMORY, SYSTEM_LIMIT: no memory or descriptor in this process
 * TUTTI_UNIMPLEMENTED        *the agent is older than this call
 * TUTTI_NOT_FOUND            NO_TENSOR
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE; BAD_FLAGS: a flag that is none
 * TUTTI_DEADLINE_EXCEEDED    an op that uses the tensor did not end in time
 * any other                  what the op that was to write the tensor failed with (tutti/op.h); of
 *                            a copy also what tutti_tensor_read fails with
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_tensor_map(tutti_client *client, const char *handle, uint32_t flags,
                                      tutti_view **ret_view, tutti_error *err);

/*
 * Unmap it, or free the copy. What was written to a copy and not pushed is lost. Pointers into the
 * memory are invalid afterwards. The tensor stays.
 *
 * [in, moved]  view  NULL is fine
 */
TUTTI_API void tutti_tensor_unmap(tutti_view *view);

/*
 * The tensor's bytes, row-major; aligned to 64 bytes at least.
 *
 * Returns [out, borrowed] memory, of tutti_view_bytes bytes, that stays until tutti_tensor_unmap;
 * never NULL, also for a tensor without bytes.
 */
TUTTI_API void *tutti_view_data(const tutti_view *view);

/* Bytes of the tensor: of its elements, without padding. 0 for a tensor without elements. */
TUTTI_API uint64_t tutti_view_bytes(const tutti_view *view);

/*
 * Which tensor it is, with its dtype and shape (`known` is true), also if it was mapped by name.
 *
 * Returns [out, borrowed] memory that stays until tutti_tensor_unmap.
 */
TUTTI_API const tutti_handle *tutti_view_handle(const tutti_view *view);

/* true = the view is the tensor's memory; false = it is a copy, and push and pull move bytes. */
TUTTI_API bool tutti_view_is_shared(const tutti_view *view);

/*
 * Of a copy: the error with which mapping has failed.
 *
 * Returns [out, borrowed] memory that stays until tutti_tensor_unmap; NULL if the view is shared.
 */
TUTTI_API const tutti_error *tutti_view_why(const tutti_view *view);

/*
 * Of a shared view: true = the tensor was deleted and no op uses it any more, or the agent has
 * ended, so nobody else sees these bytes. It does not become false again. Of a copy: false always;
 * push and pull then fail with NO_TENSOR, or with UNREACHABLE.
 *
 * It does not block, and asks the kernel each time.
 */
TUTTI_API bool tutti_view_is_revoked(const tutti_view *view);

/*
 * Write all bytes of a copy to the tensor, as tutti_tensor_write with the default transfer does. Of
 * a shared view nothing is to do.
 *
 * TUTTI_FAILED_PRECONDITION  READ_ONLY: the view was made without TUTTI_MAP_WRITE, shared or not.
 *                            Map it with that flag. Nothing was written
 * others                     as tutti_tensor_write, if it is a copy
 */
TUTTI_API tutti_code tutti_view_push(tutti_view *view, tutti_error *err);

/*
 * Read all bytes of the tensor into a copy, as tutti_tensor_read with the default transfer does; it
 * waits for the op that still writes the tensor, and what was written to the copy and not pushed is
 * lost. Of a shared view nothing is to do, and so it waits for nothing.
 *
 * Statuses are those of tutti_tensor_read, if it is a copy. On failure a copy of more than
 * TUTTI_INLINE_BYTES_MAX bytes may have changed in part.
 */
TUTTI_API tutti_code tutti_view_pull(tutti_view *view, tutti_error *err);

/* ------------------------------------------------------------------ memory of a GPU */

/* Memory of a GPU that an agent lends to this process. */
typedef struct tutti_gpu_share tutti_gpu_share;

/* What there is to open. Plain data. */
typedef struct tutti_gpu_share_info {
    /* Which tensor it is, with its dtype and shape. */
    tutti_handle handle;
    /* A cudaIpcMemHandle_t: cudaIpcOpenMemHandle gives the address of the tensor's first byte. */
    unsigned char ipc_handle[64];
    /* Of the GPU that the tensor is on, "GPU-" and 36 characters: make it the current device before,
     * whatever its number is in this process. */
    char gpu_uuid[64];
    /* Of the tensor. */
    uint64_t bytes;
    /* Of the agent: processes of other hosts cannot open the handle. */
    char host_id[256];
} tutti_gpu_share_info;

/*
 * Borrow the memory of a tensor on a GPU. It waits for the ops and calls before it that use the
 * tensor, for the client's timeout_ms at most. The agent keeps the memory until tutti_gpu_share_end,
 * also if the tensor is deleted meanwhile; nobody keeps ops and the program apart.
 *
 * libtutti does not call CUDA: the program opens the handle, and closes it (cudaIpcCloseMemHandle)
 * before it calls tutti_gpu_share_end.
 *
 * [in]         handle     or name
 * [out, owned] ret_share  tutti_gpu_share_end it
 *
 * TUTTI_FAILED_PRECONDITION  CANNOT_SHARE: the tensor is in host memory (tutti_tensor_map), or has no
 *                            bytes; SHARE_OFF: the agent was started with --no-share
 * TUTTI_RESOURCE_EXHAUSTED   SHARE_LIMIT
 * TUTTI_DEADLINE_EXCEEDED    an op that uses the tensor did not end in time
 * and what tutti_tensor_map says of handles
 */
TUTTI_API tutti_code tutti_tensor_share_gpu(tutti_client *client, const char *handle,
                                            tutti_gpu_share **ret_share, tutti_error *err);

/* Returns [borrowed] what was lent, until tutti_gpu_share_end. */
TUTTI_API const tutti_gpu_share_info *tutti_gpu_share_describe(const tutti_gpu_share *share);

/* Give it back; the program has closed the handle. [in, moved] share  NULL is fine */
TUTTI_API void tutti_gpu_share_end(tutti_gpu_share *share);

/* ------------------------------------------------------------------ events of a GPU
 *
 * Events: how ops take their place between the work of the program's own streams, without waiting
 * for a stream in the program. A program copies its numbers to memory that it has borrowed
 * (tutti_tensor_share_gpu), and calls an op behind that copy and before the next kernel:
 *
 *     cudaMemcpyAsync(lent, numbers, bytes, cudaMemcpyDeviceToDevice, stream);
 *     cudaEventRecord(ready, stream);                // opened of events[0]
 *     op.async = true;
 *     op.after_event = events[0].id;
 *     op.done_event = events[1].id;
 *     code = tutti_all_reduce(client, &op, &result, &err);   // returns when all ranks have called
 *     cudaStreamWaitEvent(stream, done, 0);          // opened of events[1]
 *     next<<<grid, block, 0, stream>>>(lent);        // begins when the op is over on the GPU
 *     ...
 *     code = tutti_wait(client, &work, 1, ...);      // at any time: did the op succeed?
 *
 * Caveats
 *
 * - After a failure the event comes too, and what is behind it runs on an undefined result. How it
 *   looks: tutti_wait says that the op failed. What to do: ask it before results leave the program.
 * - An agent that dies leaves the program's stream waiting: CUDA does not say for how long. How it
 *   looks: calls fail with CONNECTION_LOST, and cudaStreamSynchronize does not return. What to do: end
 *   the process.
 * - A program that dies between the call and its record leaves the agent's GPU waiting. The op fails
 *   with CALLER_GONE on all ranks; if the driver does not end the wait, the agent refuses ops on this GPU
 *   with DEVICE_FAILED after 10 s and has to be restarted. So events are for agents that one program
 *   uses, or whose programs may be restarted together.
 */

/* Events that an agent has made for this program. */
typedef struct tutti_gpu_events tutti_gpu_events;

/* One of them. Plain data. */
typedef struct tutti_gpu_event {
    /* For tutti_op.after_event and done_event; not 0. */
    uint64_t id;
    /*
     * A cudaIpcEventHandle_t: cudaIpcOpenEventHandle gives an event that can be recorded, waited for
     * and queried. It counts as complete until it is recorded for the first time.
     */
    unsigned char ipc_handle[64];
} tutti_gpu_event;

/*
 * Have events made. They live until tutti_gpu_events_end, or until the agent ends; then what was
 * opened must not be used any more. libtutti does not call CUDA. Any thread.
 *
 * [in]         device      "cuda:0", as the agent counts; NULL = its first GPU
 * [in]         count       1 to 256
 * [out, owned] ret_events  tutti_gpu_events_end it
 *
 * TUTTI_UNIMPLEMENTED        the agent is older than events, or its GPU has none: wait for the stream before an op
 *                            (cudaStreamSynchronize), and for the op's end behind it
 * TUTTI_INVALID_ARGUMENT     BAD_EVENT: the count
 * TUTTI_FAILED_PRECONDITION  NO_DEVICE: it has no such GPU; NO_BACKEND: it runs no ops there
 * TUTTI_RESOURCE_EXHAUSTED   EVENT_LIMIT: the agent has 4096 events; DEVICE_MEMORY
 * TUTTI_INTERNAL             DEVICE_FAILED
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_gpu_events_open(tutti_client *client, const char *device, uint32_t count,
                                           tutti_gpu_events **ret_events, tutti_error *err);

/* Returns [borrowed] all of them, as many as were asked for, until tutti_gpu_events_end. */
TUTTI_API const tutti_gpu_event *tutti_gpu_events_list(const tutti_gpu_events *events);

/* Returns [borrowed] the GPU, "GPU-" and 36 characters: make it the current device before events are
 * opened and used, whatever its number is in this process. */
TUTTI_API const char *tutti_gpu_events_uuid(const tutti_gpu_events *events);

/*
 * Give them back, when the ops that name them have ended and what was opened is destroyed
 * (cudaEventDestroy). An op whose after_event has not come by then fails with CALLER_GONE.
 *
 * [in, moved] events  NULL is fine
 */
TUTTI_API void tutti_gpu_events_end(tutti_gpu_events *events);

/* ------------------------------------------------------------------ the arena
 *
 * Arena: memory of the program that is born in the agent, and mapped here. Ops on it copy nothing.
 *
 *     void *memory;
 *     const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {1000}};
 *
 *     code = tutti_alloc(client, 1000 * sizeof(float), &memory, &err);
 *     ...                                                     // the program writes its numbers
 *     code = tutti_all_reduce_data(client, NULL, &spec, memory, memory, &err);   // in place
 *     tutti_free_memory(client, memory);
 *
 * How. The arena takes tensors of bytes from the agent ("tutti.arena/" and 16 hex digits), the first
 * of 4 MiB, the others of 64 MiB, or as large as asked, maps them (tutti/share.h), and hands out
 * parts. The functions of tutti/op_data.h and queues find out whether what they are given is in the arena; then
 * the op runs on ranges of these tensors. It may begin anywhere in a part that was handed out.
 *
 * Other arrays of more than 8 KiB go through the arena by themselves, where there is one: the
 * functions of tutti/op_data.h copy them to and from it instead of sending them in messages. If such
 * an op fails, its part of the arena is used again when nothing writes the arena's tensor any more. If
 * the agent or the lease has ended meanwhile, that part is unmapped when tutti_alloc finds no room the
 * next time.
 *
 * There is an arena where tutti_tensor_map works, and where the agent's tensors are in host memory
 * (tutti-agent --device cpu, the default), or this client's are: tutti_set_device to "cpu".
 *
 * Threads: any thread, several at once.
 *
 * Caveats
 *
 * - The memory goes with the client: tutti_close unmaps it. Touching it then ends the program with
 *   SIGSEGV. Likewise in a child of fork the memory is there, but no function of libtutti works.
 * - If the agent dies the memory stays, and its bytes with it, but it is memory like any other: ops on
 *   it copy. They fail (CONNECTION_LOST, UNREACHABLE) until an agent is at the client's address again.
 *   What to do: allocate anew, and copy once.
 * - Do not free memory of an op that runs: another part of the program may get it, and the op then
 *   writes there.
 * - Tensors of the arena that are made while the client has a lease (tutti_lease_open) end with it.
 *   How it looks: after tutti_lease_close ops on memory that was allocated under the lease copy.
 *   What to do: allocate before the lease is opened, or keep it open.
 * - Without such a lease the arena opens one of its own, so its tensors end with the process in any case.
 *   It counts for the agent's --leases-max. If the connection to the agent breaks, it ends, too: the memory
 *   stays, as after the agent's death, and ops on it copy.
 * - The agent counts all tensors of the arena towards its --memory-limit, used or not.
 */

/*
 * Memory of at least `bytes` bytes, aligned to 64 bytes. Its content is undefined.
 *
 * [in]         bytes       0 gives memory that must not be touched, and can be freed
 * [out, owned] ret_memory  tutti_free_memory it; not NULL
 *
 * TUTTI_FAILED_PRECONDITION  SHARE_OFF, OTHER_HOST, CANNOT_SHARE: as tutti_tensor_map; NO_AGENT; FORKED
 * TUTTI_UNAVAILABLE          NO_SHARE_SOCKET
 * TUTTI_PERMISSION_DENIED    OTHER_USER
 * TUTTI_RESOURCE_EXHAUSTED   MEMORY_LIMIT: of the agent; SHARE_LIMIT; LEASE_LIMIT; no memory in this process
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_alloc(tutti_client *client, uint64_t bytes, void **ret_memory,
                                 tutti_error *err);

/*
 * Give memory back. It does not wait. Tensors of the arena in which nothing is used any more go back
 * to the agent when together they have more than 256 MiB.
 *
 * [in] memory  exactly as tutti_alloc gave it (asserted); NULL is fine
 */
TUTTI_API void tutti_free_memory(tutti_client *client, void *memory);

/* What the arena holds, and what was copied because it does not hold everything. */
typedef struct tutti_arena_stats {
    /* Bytes of all tensors of the arena. */
    uint64_t mapped_bytes;
    /* Bytes that are handed out, with what alignment costs. */
    uint64_t used_bytes;
    /*
     * Bytes that functions of tutti/op_data.h have copied since the client was connected, to and from
     * the arena, into messages and out of them; and queues and lists to and from the arena. Ops whose memory is in
     * the arena add nothing.
     */
    uint64_t copied_bytes;
} tutti_arena_stats;

/* [out] ret_stats  as of this moment */
TUTTI_API void tutti_arena_stat(tutti_client *client, tutti_arena_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
