/* Private to client: where the bytes of an op on the caller's memory are in the arena. */
#ifndef TUTTI_CLIENT_OP_PLACE_H
#define TUTTI_CLIENT_OP_PLACE_H

#include "client/op/collectives.h"
#include "tutti/tensor.h"

/* Blocks of the arena that stand in for memory of the caller's. */
typedef struct client_blocks {
    void *give; /* [owned] NULL = what is given was in the arena already, or nothing is */
    void *take; /* [owned] the same as `give`: the op works in place there */
} client_blocks;

/* Ranges that the op is to name. */
typedef struct client_place {
    char give[TUTTI_RANGE_MAX + 1]; /* if this rank gives */
    char take[TUTTI_RANGE_MAX + 1]; /* if it takes */
    client_blocks blocks;
} client_place;

#define CLIENT_STAGE_BYTES_MIN                                                                     \
    (8U << 10) /* larger arrays are copied to the arena rather than sent */

/*
 * Find what is in the arena, and copy the rest of what is given to blocks of it. False: this op goes by messages, or by
 * tensors of its own; nothing is held. It asks the agent for memory where the arena has no room.
 *
 * [in]         least     arrays that are not in the arena and have no more bytes than this are not copied there
 * [in]         in_place  the result may overwrite what is given, and has as many bytes
 * [out, owned] ret_place  client_blocks_free
 */
bool client_place_find(tutti_client *client, const client_inline *memory, uint64_t least,
                       bool in_place, client_place *ret_place);

/* The op has succeeded: its result to the caller's memory, if it is not there. */
void client_blocks_take(tutti_client *client, const client_blocks *self, void *result,
                        uint64_t bytes);

/* doubt: the op has failed, so another rank may write there still (client_arena_doubt). Again is fine. */
void client_blocks_free(tutti_client *client, client_blocks *self, bool doubt);

#endif
