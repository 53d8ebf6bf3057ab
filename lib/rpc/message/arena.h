/*
 * Arena: memory for unpacking one message, with its limit given at birth. A message of two bytes
 * per field grows a hundredfold in protobuf-c; here it meets the limit. One thread.
 */
#ifndef TUTTI_RPC_MESSAGE_ARENA_H
#define TUTTI_RPC_MESSAGE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#define TUTTI_RPC_ARENA_BASE (64u << 10) /* bytes any message may take, and ... */
#define TUTTI_RPC_ARENA_FACTOR 16        /* ... as many times its wire length beside them, ... */
#define TUTTI_RPC_ARENA_MAX (16u << 20)  /* ... but never more than this */

typedef struct rpc_arena_block rpc_arena_block;

typedef struct rpc_arena {
    unsigned char *at; /* the next free byte of the current block */
    size_t room;       /* behind it */
    size_t left;       /* bytes that may still be taken */
    size_t next_bytes; /* of the next block */
    rpc_arena_block *blocks;
    bool refused; /* something was not given: the limit, or no memory */
} rpc_arena;

/* [in] first  memory to begin with, aligned for any type; borrowed as long as the arena */
void rpc_arena_init(rpc_arena *arena, size_t wire_bytes, void *first, size_t first_bytes);
void rpc_arena_fini(rpc_arena *arena);

/* Aligned for any type; NULL when the limit is reached or memory is gone. */
void *rpc_arena_take(rpc_arena *arena, size_t size);

#endif
