/*
 * All-reduce by messages between all pairs.
 *
 * flat: each rank sends its whole input to all, and reduces all of them; one round, for small data.
 * direct: each rank reduces one slice from all inputs and gives the result to all (a reduce-scatter
 * and an all-gather, pipelined by blocks). In both, all inputs of an element meet at one place and
 * are reduced in the order of ranks, so float sums have the bits that
 * docs/decisions/0006-reduction.md promises.
 *
 * In place: a slice is read by its owner alone from its own input, and what others need of our
 * input (block r) leaves before its result comes (round r + 1); results of block r - 1 are written
 * to places whose inputs have left.
 */
#include <string.h>

#include "base/error/fail.h"
#include "coll/host/host_private.h"
#include "coll/reduce/reduce.h"

#define BLOCK_BYTES (512u << 10) /* of one slice, per round */

/* Both forms keep, by group rank: where each input stands, and its factor. */
typedef struct all_reduce {
    host_state base;
    uint64_t *factor_bits; /* as they travel */
    double *factors;
    const void **inputs;
    unsigned char *stage; /* inputs of the others */
    size_t element;
    uint64_t count;       /* elements of the tensor */
    uint64_t slice_count; /* of the largest slice */
    uint64_t block_count; /* elements of a block */
    uint32_t rounds;      /* blocks of the largest slice */
} all_reduce;

static void
reduce_parts(tutti_coll_op *op, const all_reduce *self, size_t count, void *output)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool scaled = op->args.reduce == TUTTI_REDUCE_PREMUL_SUM;
    uint32_t i;

    for (i = 0; i < size && scaled; i++) {
        memcpy(&self->factors[i], &self->factor_bits[i], sizeof(double));
    }
    tutti_reduce_run(op->args.reduce, op->args.spec.dtype, self->inputs, size,
                     scaled ? self->factors : NULL, count, output);
}

/* ------------------------------------------------------------------------------ small */

/* Sent to all at once; with few bytes the order does not matter. */
static tutti_code
advance_small(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    all_reduce *self = op->backend_state;
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const size_t bytes = (size_t)self->count * self->element;
    uint32_t i;

    (void)err;
    if (op->round == 1) {
        reduce_parts(op, self, (size_t)self->count, op->output);
        *ret_done = true;
        return TUTTI_OK;
    }
    for (i = 0; i < size; i++) {
        if (i != me) {
            tutti_coll_send(op, 0, i, op->input, bytes, tutti_coll_host_factor(op));
            tutti_coll_recv(op, 0, i, self->stage + i * bytes, bytes, &self->factor_bits[i]);
            self->inputs[i] = self->stage + i * bytes;
        }
    }
    self->inputs[me] = op->input;
    self->factor_bits[me] = tutti_coll_host_factor(op);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ large */

/* Slice `i` of the tensor: elements [first, first + count). */
static uint64_t
slice_of(const all_reduce *self, uint32_t size, uint32_t i, uint64_t *ret_first)
{
    const uint64_t base = self->count / size;
    const uint64_t longer = self->count % size;

    *ret_first = base * i + (i < longer ? i : longer);
    return base + (i < longer ? 1 : 0);
}

/* Block `round` of slice `i`, in bytes; 0 behind the slice's end. */
static size_t
block_of(const all_reduce *self, uint32_t size, uint32_t i, uint32_t round, size_t *ret_offset)
{
    uint64_t first;
    const uint64_t count = slice_of(self, size, i, &first);
    const uint64_t begin = (uint64_t)round * self->block_count;
    uint64_t length;

    if (begin >= count) {
        return 0;
    }
    length = count - begin < self->block_count ? count - begin : self->block_count;
    *ret_offset = (size_t)(first + begin) * self->element;
    return (size_t)length * self->element;
}

/* Inputs of block `round`: mine to their reducers, the others' for my slice to me. */
static void
post_scatter(tutti_coll_op *op, all_reduce *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const size_t stride = (size_t)self->block_count * self->element;
    size_t offset = 0;
    uint32_t i;

    for (i = 0; i < size; i++) {
        const size_t theirs = i == me ? 0 : block_of(self, size, i, round, &offset);
        const size_t mine = i == me ? 0 : block_of(self, size, me, round, &(size_t){0});

        if (theirs > 0) {
            tutti_coll_send(op, 2 * round, i, (const char *)op->input + offset, theirs,
                            tutti_coll_host_factor(op));
        }
        if (mine > 0) {
            tutti_coll_recv(op, 2 * round, i, self->stage + i * stride, mine,
                            &self->factor_bits[i]);
        }
    }
}

static void
reduce_block(tutti_coll_op *op, all_reduce *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const size_t stride = (size_t)self->block_count * self->element;
    size_t offset = 0;
    const size_t bytes = block_of(self, size, me, round, &offset);
    uint32_t i;

    if (bytes == 0) {
        return;
    }
    for (i = 0; i < size; i++) {
        self->inputs[i] = self->stage + i * stride;
    }
    self->inputs[me] = (const char *)op->input + offset;
    self->factor_bits[me] = tutti_coll_host_factor(op);
    reduce_parts(op, self, bytes / self->element, (char *)op->output + offset);
}

/* Results of block `round`: mine to all, theirs to me. */
static void
post_gather(tutti_coll_op *op, all_reduce *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    size_t own_offset = 0;
    const size_t own = block_of(self, size, me, round, &own_offset);
    uint32_t i;

    for (i = 0; i < size; i++) {
        size_t offset = 0;
        const size_t theirs = i == me ? 0 : block_of(self, size, i, round, &offset);

        if (i != me && own > 0) {
            tutti_coll_send(op, 2 * round + 1, i, (const char *)op->output + own_offset, own, 0);
        }
        if (theirs > 0) {
            tutti_coll_recv(op, 2 * round + 1, i, (char *)op->output + offset, theirs, NULL);
        }
    }
}

/* Round r: reduce what round r - 1 brought; exchange the inputs of block r beside the results of
 * block r - 1. Steps 2r and 2r + 1 keep the two kinds of messages of a block apart. */
static tutti_code
advance_large(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    all_reduce *self = op->backend_state;
    const uint32_t round = op->round;

    (void)err;
    if (round > self->rounds) {
        *ret_done = true;
        return TUTTI_OK;
    }
    if (round > 0) {
        reduce_block(op, self, round - 1);
    }
    if (round < self->rounds) {
        post_scatter(op, self, round);
    }
    if (round > 0) {
        post_gather(op, self, round - 1);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ start */

/* The state, its three tables by group rank, and the stage, in one piece. */
static tutti_code
new_state(tutti_coll_op *op, size_t stage_bytes, all_reduce **ret, tutti_error *err)
{
    const size_t size = tutti_coll_group_size(op->group);
    const size_t tables = size * (sizeof(uint64_t) + sizeof(double) + sizeof(void *));
    void *memory = NULL;
    const tutti_code code =
        tutti_coll_host_state(op, sizeof(all_reduce) + tables, stage_bytes, &memory, err);
    all_reduce *self = memory;

    if (code == TUTTI_OK) {
        self->factor_bits = (uint64_t *)(self + 1);
        self->factors = (double *)(self->factor_bits + size);
        self->inputs = (const void **)(self->factors + size);
        self->stage = (unsigned char *)(self->inputs + size);
        *ret = self;
    }
    return code;
}

tutti_code
tutti_coll_host_all_reduce(tutti_coll_op *op, bool flat, tutti_error *err)
{
    static const host_algorithm small = {.advance = advance_small};
    static const host_algorithm large = {.advance = advance_large};
    const uint32_t size = tutti_coll_group_size(op->group);
    const size_t element = tutti_dtype_bytes(op->args.spec.dtype);
    const uint64_t count = tutti_spec_count(&op->args.spec);
    const uint64_t slice = (count + size - 1) / size;
    const uint64_t block = slice < BLOCK_BYTES / element ? slice : BLOCK_BYTES / element;
    const size_t stage = (size_t)(flat ? count : block) * element * size;
    all_reduce *self = NULL;

    TUTTI_TRY(new_state(op, stage, &self, err));

    self->base.algorithm = flat ? &small : &large;
    self->element = element;
    self->count = count;
    self->slice_count = slice;
    self->block_count = block;
    self->rounds = (uint32_t)((slice + block - 1) / block);
    return TUTTI_OK;
}
