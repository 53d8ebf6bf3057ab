/*
 * Blocks: which bytes of the memory are taken, and which are holes. Bookkeeping alone: offsets, no
 * bytes, so it lies where no other process can write. The owner's lock guards it.
 */
#ifndef TUTTI_TENSOR_HOST_BLOCKS_H
#define TUTTI_TENSOR_HOST_BLOCKS_H

#include <bsd/sys/tree.h>

#include "base/data/list.h"
#include "tensor/space.h"

#define TUTTI_BLOCK_ALIGN 64U          /* of every offset and size */
#define TUTTI_BLOCK_PAGE 4096U         /* where blocks of 64 KiB and more begin, if there is room */
#define TUTTI_BLOCK_HUGE (2048U << 10) /* likewise multiples of 2 MiB, and from 32 MiB all */

typedef struct tutti_block {
    tutti_list_node links;         /* all blocks, by offset, without gaps */
    RB_ENTRY(tutti_block) by_size; /* the holes, by size, then offset */
    uint64_t offset;
    uint64_t size;
    bool taken;
} tutti_block;

typedef struct tutti_blocks {
    tutti_list_node all;
    RB_HEAD(tutti_block_holes, tutti_block) holes;
    uint64_t used_bytes;
    uint64_t limit_bytes;
} tutti_blocks;

/* From `offset` to `end`, which is not in it. */
typedef struct tutti_range {
    uint64_t offset;
    uint64_t end;
} tutti_range;

/*
 * One hole of `bytes`, a multiple of the alignment and at least that.
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory; nothing is owed
 */
tutti_code tutti_blocks_init(tutti_blocks *blocks, uint64_t bytes, tutti_error *err);

/* Every block was given back. */
void tutti_blocks_fini(tutti_blocks *blocks);

/*
 * Take `bytes` (>= 1) from the smallest hole that has room for them, at its beginning.
 *
 * [out, borrowed]  ret_block  until it is given back
 * [out]            ret_hole   the hole it was cut from
 *
 * TUTTI_RESOURCE_EXHAUSTED  MEMORY_LIMIT; or no memory for the bookkeeping
 */
tutti_code tutti_blocks_take(tutti_blocks *blocks, uint64_t bytes, tutti_block **ret_block,
                             tutti_range *ret_hole, tutti_error *err);

/* Give a block back: it becomes one hole with those beside it. Returns that hole. */
tutti_range tutti_blocks_give(tutti_blocks *blocks, tutti_block *block);

/* used_bytes, limit_bytes and hole_bytes_max. */
void tutti_blocks_stat(const tutti_blocks *blocks, tutti_space_stats *ret_stats);

#endif
