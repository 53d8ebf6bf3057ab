/*
 * The space of host memory: blocks of one memfd, their pages, and tensors with memory of their own.
 * Any thread.
 *
 * One mutex guards the bookkeeping: blocks, kept_bytes, owned regions. It is held for short steps;
 * clearing, punching holes and closing are done outside of it on memory that is the caller's alone:
 * a block that is taken belongs to its taker until it is given, so nobody else touches its bytes or
 * flags. The flags of chunks are atomics, as two blocks may share a chunk at their edges.
 *
 * Invariant: kept_bytes is the sum of touched chunks that lie wholly in holes. Each take and give
 * counts exactly the chunks of its hole that it changes, under the lock.
 *
 * If the process dies, the kernel frees the memfd when the last process that has mapped it ends.
 */
#include "tensor/host/host.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "tensor/host/blocks.h"
#include "tensor/host/own.h"
#include "tensor/host/pages.h"
#include "tensor/space.h"

#define TRIM_STEP (16ULL << 20)

typedef struct space_host {
    tutti_space base;
    tutti_pages pages;
    uint64_t kept_bytes_max;
    pthread_mutex_t lock; /* guards what follows; nothing is locked inside */
    tutti_blocks blocks;
    uint64_t trim_at;                    /* how far tutti_space_host_trim has come */
    uint64_t kept_bytes;                 /* touched chunks that lie wholly in holes */
    RB_HEAD(tutti_owns, tutti_own) owns; /* by where they are mapped */
    uint64_t own_count;
    uint32_t own_id; /* the last one */
    _Atomic uint64_t gone;
    void (*on_gone)(void *arg);
    void *on_gone_arg;
} space_host;

static int
compare_owns(const tutti_own *left, const tutti_own *right)
{
    return (left->data > right->data) - (left->data < right->data);
}

/* The macros generate more than is used. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(tutti_owns, tutti_own, by_data, compare_owns, static)
#pragma GCC diagnostic pop

static const tutti_space_ops space_host_ops;

static space_host *
space_host_from(tutti_space *space)
{
    assert(space->ops == &space_host_ops);
    return tutti_container_of(space, space_host, base);
}

static void
lock_host_space(space_host *self)
{
    const int failed = pthread_mutex_lock(&self->lock);

    assert(failed == 0);
}

static void
unlock_host_space(space_host *self)
{
    const int failed = pthread_mutex_unlock(&self->lock);

    assert(failed == 0);
}

static tutti_range
range_of(const tutti_block *block)
{
    return (tutti_range){block->offset, block->offset + block->size};
}

/*
 * The flag is set, or the bytes are cleared, after the block is taken and outside of the lock.
 * CLEAN and ZERO are the same work: what was never handed out is zero anyhow, and what was may hold
 * another tensor's bytes, which nobody may see. Clearing when it is taken again is the cheapest
 * moment, for it may never be.
 */
static tutti_code
space_host_take(tutti_space *space, uint64_t bytes, tutti_fill fill, tutti_tensor *tensor,
                tutti_error *err)
{
    space_host *self = space_host_from(space);
    tutti_block *block = NULL;
    tutti_range hole = {0};
    tutti_code code;

    lock_host_space(self);
    code = tutti_blocks_take(&self->blocks, bytes, &block, &hole, err);
    if (code == TUTTI_OK) {
        self->kept_bytes -=
            tutti_pages_touched(&self->pages, tutti_pages_chunks(hole, range_of(block)));
    }
    unlock_host_space(self);
    if (code != TUTTI_OK) {
        return code;
    }
    if (fill == TUTTI_FILL_RAW) {
        tutti_pages_touch(&self->pages, range_of(block));
    } else {
        tutti_pages_clean(&self->pages, range_of(block));
    }
    tensor->data = self->pages.data + block->offset;
    tensor->offset = block->offset;
    tensor->block = block;
    return TUTTI_OK;
}

/*
 * A thread that frees much returns its pages while the block is still its own, outside of the lock:
 * the others need not wait for the kernel. Whether it is much is only an estimate, since others may
 * free at the same time; space_host_give looks again.
 */
static void
return_early(space_host *self, tutti_range range)
{
    bool much;

    lock_host_space(self);
    much = range.end - range.offset > self->kept_bytes_max - self->kept_bytes;
    unlock_host_space(self);
    if (much) {
        tutti_pages_return(&self->pages, tutti_pages_chunks(range, range));
    }
}

/*
 * Out of the map before it is closed: tutti_space_host_find must not give out a descriptor that is
 * being closed. on_gone is called outside of the lock: it wakes an engine, which then tells peers
 * to unmap (lib/coll/shm/region.c).
 */
static void
drop_own(space_host *self, tutti_own *own)
{
    lock_host_space(self);
    RB_REMOVE(tutti_owns, &self->owns, own);
    self->own_count--;
    unlock_host_space(self);
    tutti_own_close(own);
    atomic_fetch_add(&self->gone, 1);
    if (self->on_gone != NULL) {
        self->on_gone(self->on_gone_arg);
    }
}

/* own memory first; then the pages, then the block: from tutti_blocks_give on another thread may
 * have the bytes. */
static void
space_host_give(tutti_space *space, tutti_tensor *tensor)
{
    space_host *self = space_host_from(space);
    const tutti_range range = range_of(tensor->block);
    tutti_range chunks;
    uint64_t touched;

    if (tensor->own != NULL) {
        drop_own(self, tensor->own);
    }
    return_early(self, range);
    lock_host_space(self);
    chunks = tutti_pages_chunks(tutti_blocks_give(&self->blocks, tensor->block), range);
    touched = tutti_pages_touched(&self->pages, chunks);
    if (self->kept_bytes + touched > self->kept_bytes_max) {
        /* Edges, many small blocks, or two that were freed at once: short, so under the lock. */
        tutti_pages_return(&self->pages, chunks);
        touched = tutti_pages_touched(&self->pages, chunks);
    }
    self->kept_bytes += touched;
    unlock_host_space(self);
}

/* The first hole that ends behind `at`, or NULL. A walk over all blocks: trimming runs now and
 * then, and needs no index of its own. */
static const tutti_block *
find_hole(const space_host *self, uint64_t at)
{
    const tutti_list_node *link;

    for (link = self->blocks.all.next; link != &self->blocks.all; link = link->next) {
        const tutti_block *block = tutti_container_of(link, tutti_block, links);

        if (!block->taken && block->offset + block->size > at) {
            return block;
        }
    }
    return NULL;
}

/*
 * In steps of TRIM_STEP, with the lock released in between, so that takers wait for one step at
 * most. trim_at keeps the place between calls. Chunks are returned only when two passes have found
 * them free (aging): memory that tensors come and go in stays.
 */
bool
tutti_space_host_trim(tutti_space *space, uint64_t bytes_max)
{
    space_host *self = space_host_from(space);
    uint64_t returned = 0;
    bool more = true;

    while (more && returned < bytes_max) {
        const tutti_block *hole;

        lock_host_space(self); /* for a short step: others take and give blocks in between */
        hole = find_hole(self, self->trim_at);
        if (hole == NULL) {
            self->trim_at = 0;
            more = false;
        } else {
            const tutti_range all = range_of(hole);
            tutti_range part = all;
            uint64_t bytes;

            part.offset = part.offset < self->trim_at ? self->trim_at : part.offset;
            part.end = part.end - part.offset > TRIM_STEP ? part.offset + TRIM_STEP : part.end;
            bytes = tutti_pages_age(&self->pages, tutti_pages_chunks(all, part));
            self->kept_bytes -= bytes;
            self->trim_at = part.end;
            returned += bytes;
        }
        unlock_host_space(self);
    }
    return more;
}

static void
space_host_stat(tutti_space *space, tutti_space_stats *ret_stats)
{
    space_host *self = space_host_from(space);

    lock_host_space(self);
    tutti_blocks_stat(&self->blocks, ret_stats);
    ret_stats->kept_bytes = self->kept_bytes;
    unlock_host_space(self);
}

static void
space_host_close(tutti_space *space)
{
    space_host *self = space_host_from(space);

    tutti_blocks_fini(&self->blocks);
    tutti_pages_close(&self->pages);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

/*
 * What was touched of the block's chunks is not touched any more. Nothing of a block is counted in
 * kept_bytes while it is taken, and what is touched when it is given back is looked up then; so
 * nothing needs to be corrected here.
 */
static tutti_code
space_host_own(tutti_space *space, tutti_tensor *tensor, tutti_error *err)
{
    space_host *self = space_host_from(space);
    tutti_own *own = NULL;

    TUTTI_TRY(tutti_own_open(&self->pages, range_of(tensor->block), tensor->bytes, &own, err));

    tensor->own = own;
    tensor->data = own->data;
    lock_host_space(self);
    self->own_id += self->own_id == UINT32_MAX ? 2 : 1;
    own->id = self->own_id;
    RB_INSERT(tutti_owns, &self->owns, own);
    self->own_count++;
    unlock_host_space(self);
    return TUTTI_OK;
}

/* The regions do not overlap, so only the last one that begins at or before `data` can hold it. The
 * descriptor stays good as long as the caller keeps the tensor. */
bool
tutti_space_host_find(tutti_space *space, const void *data, uint64_t size,
                      tutti_space_host_region *ret_region)
{
    space_host *self = space_host_from(space);
    const unsigned char *from = data;
    tutti_own *at;
    tutti_own *found = NULL;

    lock_host_space(self);
    at = RB_ROOT(&self->owns);
    while (at != NULL) { /* the last one that begins at or before it */
        const bool before = (const unsigned char *)at->data <= from;

        found = before ? at : found;
        at = before ? RB_RIGHT(at, by_data) : RB_LEFT(at, by_data);
    }
    if (found != NULL && (uint64_t)(from - (const unsigned char *)found->data) <= found->size &&
        size <= found->size - (uint64_t)(from - (const unsigned char *)found->data)) {
        *ret_region = (tutti_space_host_region){found->id, found->fd, found->data, found->size};
    } else {
        found = NULL;
    }
    unlock_host_space(self);
    return found != NULL;
}

void
tutti_space_host_on_gone(tutti_space *space, void (*on_gone)(void *arg), void *arg)
{
    space_host *self = space_host_from(space);

    self->on_gone = on_gone;
    self->on_gone_arg = arg;
}

uint64_t
tutti_space_host_owned(tutti_space *space)
{
    space_host *self = space_host_from(space);
    uint64_t count;

    lock_host_space(self);
    count = self->own_count;
    unlock_host_space(self);
    return count;
}

uint64_t
tutti_space_host_gone(tutti_space *space)
{
    return atomic_load(&space_host_from(space)->gone);
}

static int
space_host_own_descriptor(const tutti_tensor *tensor)
{
    return ((const tutti_own *)tensor->own)->fd;
}

static const tutti_space_ops space_host_ops = {
    .size = sizeof(tutti_space_ops),
    .take = space_host_take,
    .give = space_host_give,
    .stat = space_host_stat,
    .close = space_host_close,
    .own = space_host_own,
    .descriptor = space_host_own_descriptor,
};

static tutti_code
round_limit(uint64_t limit_bytes, uint64_t *ret_size, tutti_error *err)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (limit_bytes > (uint64_t)INT64_MAX - page) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
                              "a memory limit of 8 EiB or more cannot be mapped");
    }
    *ret_size = limit_bytes == 0 ? page : (limit_bytes + page - 1) / page * page;
    return TUTTI_OK;
}

static tutti_code
space_host_init(space_host *self, uint64_t size, uint64_t kept_bytes_max, tutti_error *err)
{
    tutti_code code;

    TUTTI_TRY(tutti_pages_open(&self->pages, size, err));
    code = tutti_blocks_init(&self->blocks, size, err);
    if (code != TUTTI_OK) {
        tutti_pages_close(&self->pages);
        return code;
    }
    self->kept_bytes_max = kept_bytes_max == 0 ? size / 4 : kept_bytes_max;
    (void)pthread_mutex_init(&self->lock, NULL); /* cannot fail on Linux */
    self->base.ops = &space_host_ops;
    return TUTTI_OK;
}

tutti_code
tutti_space_host_open(const tutti_space_host_options *options, tutti_space **ret_space,
                      tutti_error *err)
{
    space_host *self;
    uint64_t size = 0;
    tutti_code code;

    assert(options != NULL && ret_space != NULL);
    TUTTI_TRY(round_limit(options->limit_bytes, &size, err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a space");
    }
    code = space_host_init(self, size, options->kept_bytes_max, err);
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    *ret_space = &self->base;
    return TUTTI_OK;
}

int
tutti_space_host_descriptor(tutti_space *space)
{
    return space_host_from(space)->pages.fd;
}

void *
tutti_space_host_memory(tutti_space *space, uint64_t *ret_size)
{
    const space_host *self = space_host_from(space);

    *ret_size = self->pages.size;
    return self->pages.data;
}
