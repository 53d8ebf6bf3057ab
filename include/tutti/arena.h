/*
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
 * How. The arena takes tensors of bytes from the agent ("tutti.arena/" and 16 hex digits), 64 MiB or
 * as large as asked, maps them (tutti/share.h), and hands out parts. The functions of
 * tutti/op_data.h find out whether what they are given is in the arena; then the op runs on ranges
 * of these tensors. It may begin anywhere in a part that was handed out.
 *
 * Other arrays of more than 64 KiB go through the arena by themselves, where there is one: the
 * functions of tutti/op_data.h copy them to and from it instead of sending them in messages.
 *
 * There is an arena where tutti_tensor_map works, and where the agent's tensors are in host memory
 * (tutti-agent --device cpu, the default).
 *
 * Threads: any thread, several at once.
 *
 * Caveats
 *
 * - The memory goes with the client: tutti_close unmaps it. Touching it then ends the program with
 *   SIGSEGV. Likewise in a child of fork the memory is there, but no function of libtutti works.
 * - If the agent dies the memory stays, and its bytes with it, but ops fail: connect anew, allocate
 *   there, and copy.
 * - Do not free memory of an op that runs: another part of the program may get it, and the op then
 *   writes there.
 * - The agent counts all tensors of the arena towards its --memory-limit, used or not. If the process
 *   dies, they stay until they are deleted: tutti_tensor_list shows them.
 */
#ifndef TUTTI_ARENA_H
#define TUTTI_ARENA_H

#include <stdint.h>

#include "tutti/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Memory of at least `bytes` bytes, aligned to 64 bytes. Its content is undefined.
 *
 * [in]         bytes       0 gives memory that must not be touched, and can be freed
 * [out, owned] ret_memory  tutti_free_memory it; not NULL
 *
 * TUTTI_FAILED_PRECONDITION  SHARE_OFF, OTHER_HOST, CANNOT_SHARE: as tutti_tensor_map; NO_AGENT; FORKED
 * TUTTI_UNAVAILABLE          NO_SHARE_SOCKET
 * TUTTI_PERMISSION_DENIED    OTHER_USER
 * TUTTI_RESOURCE_EXHAUSTED   MEMORY_LIMIT: of the agent; SHARE_LIMIT; no memory in this process
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
     * Bytes that functions of tutti/op_data.h have copied since the client was connected: to and from
     * the arena, into messages and out of them. Ops whose memory is in the arena add nothing.
     */
    uint64_t copied_bytes;
} tutti_arena_stats;

/* [out] ret_stats  as of this moment */
TUTTI_API void tutti_arena_stat(tutti_client *client, tutti_arena_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
