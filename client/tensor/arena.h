/*
 * Private to client: where memory of the arena lies, and staging for memory that does not. Any thread.
 */
#ifndef TUTTI_CLIENT_TENSOR_ARENA_H
#define TUTTI_CLIENT_TENSOR_ARENA_H

#include <stdbool.h>

#include "tutti/share.h"
#include "tutti/tensor.h"
#include "tutti/types.h"

/* Made at first use; tutti_close ends it. */
typedef struct client_arena client_arena;

/*
 * Is [data, data + bytes of spec) in memory that is handed out?
 *
 * [in]  spec      checked; of at least one byte
 * [out] ret_text  the range of the tensor, for an op
 */
bool client_arena_find(tutti_client *client, const void *data, const tutti_spec *spec,
                       char ret_text[TUTTI_RANGE_MAX + 1]);

/*
 * A block for an array of the caller's that is not in the arena. False: there is no arena, tensors of
 * this client do not lie in host memory, or there is no room; *ret_block may have been allocated.
 *
 * [in]         bytes      of spec, at least one
 * [out, owned] ret_block  tutti_free_memory it, also if the result is false; initialise it to NULL
 * [out]        ret_text   its range, for an op
 */
bool client_arena_stage(tutti_client *client, uint64_t bytes, const tutti_spec *spec,
                        void **ret_block, char ret_text[TUTTI_RANGE_MAX + 1]);

/*
 * Instead of tutti_free_memory: an op on this block has failed, and may still be written by another rank. It is
 * handed out again when the agent says that nothing writes there. NULL is fine.
 */
void client_arena_doubt(tutti_client *client, void *block);

void client_arena_count_copy(tutti_client *client, uint64_t bytes);

#endif
