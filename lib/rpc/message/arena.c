#include "rpc/message/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT (alignof(max_align_t))
#define BLOCK_BYTES_FIRST 4096
#define BLOCK_BYTES_MAX (256u << 10)

struct rpc_arena_block {
    rpc_arena_block *next;
    max_align_t bytes[];
};

void
rpc_arena_init(rpc_arena *arena, size_t wire_bytes, void *first, size_t first_bytes)
{
    size_t limit = TUTTI_RPC_ARENA_MAX;

    if (wire_bytes < (TUTTI_RPC_ARENA_MAX - TUTTI_RPC_ARENA_BASE) / TUTTI_RPC_ARENA_FACTOR) {
        limit = TUTTI_RPC_ARENA_BASE + TUTTI_RPC_ARENA_FACTOR * wire_bytes;
    }
    *arena = (rpc_arena){
        .at = first, .room = first_bytes, .left = limit, .next_bytes = BLOCK_BYTES_FIRST};
}

void
rpc_arena_fini(rpc_arena *arena)
{
    while (arena->blocks != NULL) {
        rpc_arena_block *block = arena->blocks;

        arena->blocks = block->next;
        free(block);
    }
}

/* Make a new block the current one, unless `size` bytes leave hardly anything of it. */
static void *
take_block(rpc_arena *arena, size_t size)
{
    const bool alone = size > arena->next_bytes / 2;
    const size_t bytes = alone ? size : arena->next_bytes;
    rpc_arena_block *block = malloc(sizeof(*block) + bytes);

    if (block == NULL) {
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    if (!alone) {
        arena->at = (unsigned char *)block->bytes + size;
        arena->room = bytes - size;
        arena->next_bytes = bytes < BLOCK_BYTES_MAX ? bytes * 2 : bytes;
    }
    return block->bytes;
}

void *
rpc_arena_take(rpc_arena *arena, size_t size)
{
    const size_t bytes = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    void *taken;

    if (size > arena->left || bytes > arena->left) {
        arena->refused = true;
        return NULL;
    }
    if (bytes <= arena->room) {
        taken = arena->at;
        arena->at += bytes;
        arena->room -= bytes;
    } else {
        taken = take_block(arena, bytes);
        arena->refused = arena->refused || taken == NULL;
    }
    if (taken != NULL) {
        arena->left -= bytes;
    }
    return taken;
}
