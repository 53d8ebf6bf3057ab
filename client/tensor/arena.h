/*
 * Private to client: where memory of the arena lies, and staging for memory that does not. Any thread.
 */
#ifndef TUTTI_CLIENT_TENSOR_ARENA_H
#define TUTTI_CLIENT_TENSOR_ARENA_H

#include <stdbool.h>

#include "tutti/share.h"
#include "tutti/types.h"

/* A range as text: "tutti.arena/7f3a...@64:FP32[16,16,...]" with 16 dimensions at most. */
#define CLIENT_RANGE_SIZE 480

/* Made at first use; tutti_close ends it. */
typedef struct client_arena client_arena;

/*
 * Is [data, data + bytes of spec) in memory that is handed out?
 *
 * [in]  spec      checked; of at least one byte
 * [out] ret_text  the range of the tensor, for an op
 */
bool client_arena_find(tutti_client *client, const void *data, const tutti_spec *spec,
                       char ret_text[CLIENT_RANGE_SIZE]);

/*
 * May arrays of the caller's be staged here: is there an arena, and do tensors of this client lie in
 * host memory? If the agent has refused once to lend memory, it is not asked again.
 */
bool client_arena_stages(tutti_client *client);

void client_arena_count_copy(tutti_client *client, uint64_t bytes);

#endif
