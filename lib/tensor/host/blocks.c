/*
 * Blocks and holes: best fit, with neighbouring holes joined at once. The space's lock guards all
 * of it.
 *
 * Two structures over the same records: a list of all blocks by offset, without gaps, and a
 * red-black tree of the holes by size and then offset. Invariants: no two neighbours are both
 * holes; a block is in the tree if and only if it is a hole; offsets and sizes are multiples of
 * TUTTI_BLOCK_ALIGN. Records are on the heap, not in the memory itself, which other processes can
 * write.
 *
 * Best fit with the lowest offset of equals keeps large holes whole for large tensors.
 */
#include "tensor/host/blocks.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"

/* Holes looked at for one that happens to be aligned, before taking one that is large enough. */
#define TRIES_MAX 16

static int
compare_block(const tutti_block *left, const tutti_block *right)
{
    if (left->size != right->size) {
        return left->size < right->size ? -1 : 1;
    }
    if (left->offset != right->offset) {
        return left->offset < right->offset ? -1 : 1;
    }
    return 0;
}

/* The macros generate more than is used, and cast away const. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(tutti_block_holes, tutti_block, by_size, compare_block, static)
#pragma GCC diagnostic pop

static uint64_t
round_up(uint64_t number, uint64_t align)
{
    return (number + align - 1) / align * align;
}

static tutti_block *
block_of(tutti_list_node *link)
{
    return tutti_container_of(link, tutti_block, links);
}

tutti_code
tutti_blocks_init(tutti_blocks *blocks, uint64_t bytes, tutti_error *err)
{
    tutti_block *hole;

    assert(bytes >= TUTTI_BLOCK_ALIGN && bytes % TUTTI_BLOCK_ALIGN == 0);
    hole = calloc(1, sizeof(*hole));
    if (hole == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a block's record");
    }
    hole->size = bytes;
    *blocks = (tutti_blocks){.limit_bytes = bytes};
    tutti_list_init(&blocks->all);
    tutti_list_add(&blocks->all, &hole->links);
    RB_INIT(&blocks->holes);
    RB_INSERT(tutti_block_holes, &blocks->holes, hole);
    return TUTTI_OK;
}

void
tutti_blocks_fini(tutti_blocks *blocks)
{
    tutti_block *hole = RB_MAX(tutti_block_holes, &blocks->holes);

    assert(blocks->used_bytes == 0);
    assert(hole != NULL && hole->size == blocks->limit_bytes);
    free(hole);
}

static bool
fits_block(const tutti_block *hole, uint64_t size, uint64_t align)
{
    return round_up(hole->offset, align) + size <= hole->offset + hole->size;
}

/*
 * The smallest hole with room for an aligned block; after some that are large enough but lie badly,
 * one with room wherever it lies, so that a lookup never walks through many.
 */
static tutti_block *
find_hole(tutti_blocks *blocks, uint64_t size, uint64_t align)
{
    tutti_block wanted = {.size = size};
    tutti_block *hole = RB_NFIND(tutti_block_holes, &blocks->holes, &wanted);
    int tries;

    for (tries = 0; hole != NULL && !fits_block(hole, size, align); tries++) {
        if (tries == TRIES_MAX) {
            wanted.size = size + align;
            return RB_NFIND(tutti_block_holes, &blocks->holes, &wanted);
        }
        hole = RB_NEXT(tutti_block_holes, &blocks->holes, hole);
    }
    return hole;
}

/* What a block of this size would like: one that costs at most a sixteenth of it in holes. */
static uint64_t
best_align(uint64_t size)
{
    if (size % TUTTI_BLOCK_HUGE == 0 || size >= 16 * (uint64_t)TUTTI_BLOCK_HUGE) {
        return TUTTI_BLOCK_HUGE;
    }
    return size >= 16 * (uint64_t)TUTTI_BLOCK_PAGE ? TUTTI_BLOCK_PAGE : TUTTI_BLOCK_ALIGN;
}

/* Alignment above 64 is a wish: a block that fits is never refused for it. */
static tutti_block *
find_block_place(tutti_blocks *blocks, uint64_t size, uint64_t *ret_offset)
{
    uint64_t align = best_align(size);
    tutti_block *hole = find_hole(blocks, size, align);

    if (hole == NULL && align > TUTTI_BLOCK_PAGE) {
        align = TUTTI_BLOCK_PAGE;
        hole = find_hole(blocks, size, align);
    }
    if (hole == NULL && align > TUTTI_BLOCK_ALIGN) {
        align = TUTTI_BLOCK_ALIGN;
        hole = find_hole(blocks, size, align);
    }
    if (hole != NULL) {
        *ret_offset = round_up(hole->offset, align);
    }
    return hole;
}

/* Cut `block` at `offset`: it keeps what is before. Returns the rest; NULL: no memory, uncut. */
static tutti_block *
cut_block(tutti_block *block, uint64_t offset)
{
    tutti_block *rest = calloc(1, sizeof(*rest));

    assert(offset > block->offset && offset < block->offset + block->size);
    if (rest == NULL) {
        return NULL;
    }
    rest->offset = offset;
    rest->size = block->offset + block->size - offset;
    rest->taken = block->taken;
    block->size -= rest->size;
    tutti_list_add(block->links.next, &rest->links); /* before the next one */
    return rest;
}

/* Let `block` swallow the hole that follows it, if one does. */
static void
swallow_next(tutti_blocks *blocks, tutti_block *block)
{
    tutti_block *next = block_of(block->links.next);

    if (block->links.next == &blocks->all || next->taken) {
        return;
    }
    RB_REMOVE(tutti_block_holes, &blocks->holes, next);
    tutti_list_remove(&next->links);
    block->size += next->size;
    free(next);
}

/* Make `block` a hole, joined with the holes on both sides. A hole's size is its key in the tree,
 * so a neighbour leaves the tree before it grows. */
static tutti_block *
make_hole(tutti_blocks *blocks, tutti_block *block)
{
    tutti_list_node *before = block->links.before;

    block->taken = false;
    swallow_next(blocks, block);
    if (before != &blocks->all && !block_of(before)->taken) {
        tutti_block *left = block_of(before);

        RB_REMOVE(tutti_block_holes, &blocks->holes, left);
        left->size += block->size;
        tutti_list_remove(&block->links);
        free(block);
        block = left;
    }
    RB_INSERT(tutti_block_holes, &blocks->holes, block);
    return block;
}

/*
 * Cut [offset, offset + size) out of `hole`, which is in no tree now; what is left are holes.
 * Without memory for a record everything is put back as it was: make_hole joins what was cut
 * before.
 */
static tutti_block *
carve_block(tutti_blocks *blocks, tutti_block *hole, uint64_t offset, uint64_t size)
{
    tutti_block *block = hole;
    tutti_block *rest;

    hole->taken = true;
    if (offset > hole->offset) {
        block = cut_block(hole, offset);
        (void)make_hole(blocks, hole);
        if (block == NULL) {
            return NULL;
        }
    }
    if (size < block->size) {
        rest = cut_block(block, offset + size);
        if (rest == NULL) {
            (void)make_hole(blocks, block);
            return NULL;
        }
        (void)make_hole(blocks, rest);
    }
    return block;
}

tutti_code
tutti_blocks_take(tutti_blocks *blocks, uint64_t bytes, tutti_block **ret_block,
                  tutti_range *ret_hole, tutti_error *err)
{
    const uint64_t size = round_up(bytes, TUTTI_BLOCK_ALIGN);
    tutti_space_stats stats = {0};
    uint64_t offset = 0;
    tutti_range range;
    tutti_block *hole;

    assert(bytes >= 1 && bytes <= INT64_MAX);
    hole = find_block_place(blocks, size, &offset);
    if (hole == NULL) {
        tutti_blocks_stat(blocks, &stats);
        return tutti_space_fail_limit(&stats, bytes, NULL, err);
    }
    range = (tutti_range){hole->offset, hole->offset + hole->size};
    RB_REMOVE(tutti_block_holes, &blocks->holes, hole);
    hole = carve_block(blocks, hole, offset, size);
    if (hole == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a block's record");
    }
    assert(hole->taken && hole->offset == offset && hole->size == size);
    blocks->used_bytes += size;
    *ret_block = hole;
    *ret_hole = range;
    return TUTTI_OK;
}

tutti_range
tutti_blocks_give(tutti_blocks *blocks, tutti_block *block)
{
    assert(block->taken && blocks->used_bytes >= block->size);
    blocks->used_bytes -= block->size;
    block = make_hole(blocks, block);
    return (tutti_range){block->offset, block->offset + block->size};
}

/* The tree's macros take no const; nothing is changed. */
void
tutti_blocks_stat(const tutti_blocks *blocks, tutti_space_stats *ret_stats)
{
    struct tutti_block_holes *holes = (struct tutti_block_holes *)(uintptr_t)&blocks->holes;
    const tutti_block *largest = RB_MAX(tutti_block_holes, holes);

    ret_stats->used_bytes = blocks->used_bytes;
    ret_stats->limit_bytes = blocks->limit_bytes;
    ret_stats->hole_bytes_max = largest == NULL ? 0 : largest->size;
}
