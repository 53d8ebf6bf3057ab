#include "tensor/host/tensor_host.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "tensor/host/tensor_host_blocks.h"
#include "tensor/host/tensor_host_pages.h"
#include "tensor/space.h"

typedef struct space_host {
    tutti_space base;
    tutti_pages pages;
    uint64_t kept_bytes_max;
    pthread_mutex_t lock; /* guards what follows; nothing is locked inside */
    tutti_blocks blocks;
    uint64_t kept_bytes; /* touched chunks that lie wholly in holes */
} space_host;

static const tutti_space_ops space_host_ops;

static space_host *
space_host_from(tutti_space *space)
{
    assert(space->ops == &space_host_ops);
    return tutti_container_of(space, space_host, base);
}

static void
lock(space_host *self)
{
    const int failed = pthread_mutex_lock(&self->lock);

    assert(failed == 0);
}

static void
unlock(space_host *self)
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
 * `zeroed` makes no difference: what was never handed out is zero anyhow, and what was may hold
 * another tensor's bytes, which nobody may see; clearing them when they are taken again is the
 * cheapest moment, for they may never be.
 */
static tutti_code
space_host_take(tutti_space *space, uint64_t bytes, bool zeroed, tutti_tensor *tensor,
                tutti_error *err)
{
    space_host *self = space_host_from(space);
    tutti_block *block = NULL;
    tutti_range hole = {0};
    tutti_code code;

    (void)zeroed;
    lock(self);
    code = tutti_blocks_take(&self->blocks, bytes, &block, &hole, err);
    if (code == TUTTI_OK) {
        self->kept_bytes -=
            tutti_pages_touched(&self->pages, tutti_pages_chunks(hole, range_of(block)));
    }
    unlock(self);
    if (code != TUTTI_OK) {
        return code;
    }
    tutti_pages_clean(&self->pages, range_of(block));
    tensor->data = self->pages.data + block->offset;
    tensor->offset = block->offset;
    tensor->block = block;
    return TUTTI_OK;
}

/* Whoever frees much pays for its return while the block is still theirs: nobody waits for it. */
static void
return_early(space_host *self, tutti_range range)
{
    bool much;

    lock(self);
    much = range.end - range.offset > self->kept_bytes_max - self->kept_bytes;
    unlock(self);
    if (much) {
        tutti_pages_return(&self->pages, tutti_pages_chunks(range, range));
    }
}

static void
space_host_give(tutti_space *space, tutti_tensor *tensor)
{
    space_host *self = space_host_from(space);
    const tutti_range range = range_of(tensor->block);
    tutti_range chunks;
    uint64_t touched;

    return_early(self, range);
    lock(self);
    chunks = tutti_pages_chunks(tutti_blocks_give(&self->blocks, tensor->block), range);
    touched = tutti_pages_touched(&self->pages, chunks);
    if (self->kept_bytes + touched > self->kept_bytes_max) {
        /* Edges, many small blocks, or two that were freed at once: short, so under the lock. */
        tutti_pages_return(&self->pages, chunks);
        touched = tutti_pages_touched(&self->pages, chunks);
    }
    self->kept_bytes += touched;
    unlock(self);
}

static void
space_host_stat(tutti_space *space, tutti_space_stats *ret_stats)
{
    space_host *self = space_host_from(space);

    lock(self);
    tutti_blocks_stat(&self->blocks, ret_stats);
    ret_stats->kept_bytes = self->kept_bytes;
    unlock(self);
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

static const tutti_space_ops space_host_ops = {
    .size = sizeof(tutti_space_ops),
    .take = space_host_take,
    .give = space_host_give,
    .stat = space_host_stat,
    .close = space_host_close,
};

static tutti_code
round_limit(uint64_t limit_bytes, uint64_t *ret_size, tutti_error *err)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (limit_bytes > (uint64_t)INT64_MAX - page) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED,
                          "a memory limit of 8 EiB or more cannot be mapped");
    }
    *ret_size = limit_bytes == 0 ? page : (limit_bytes + page - 1) / page * page;
    return TUTTI_OK;
}

static tutti_code
space_host_init(space_host *self, uint64_t size, uint64_t kept_bytes_max, tutti_error *err)
{
    tutti_code code = tutti_pages_open(&self->pages, size, err);

    if (code != TUTTI_OK) {
        return code;
    }
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
    code = round_limit(options->limit_bytes, &size, err);
    if (code != TUTTI_OK) {
        return code;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a space");
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
