/*
 * All-gather by messages between all pairs, a chunk a round. Each rank's input goes straight to
 * where it belongs in each output; only if rows of several ranks alternate there, chunks come to a
 * stage and are placed row by row.
 *
 * In place is no case here: the output is larger than the input.
 */
#include <string.h>

#include "coll/host/host_private.h"

#define CHUNK_BYTES (1u << 20)

typedef struct all_gather {
    host_state base;
    uint64_t bytes; /* of one input */
    uint64_t row;   /* bytes of an input that lie together in the output */
    uint64_t chunk; /* bytes of one round; whole rows unless a row is larger than that */
    uint32_t rounds;
    unsigned char *stage; /* chunks of the others, when the output is strided */
} all_gather;

static size_t
chunk_bytes(const all_gather *self, uint32_t round)
{
    const uint64_t begin = self->chunk * round;
    const uint64_t rest = self->bytes - begin;

    return (size_t)(rest < self->chunk ? rest : self->chunk);
}

/* Where byte `at` of rank i's input stands in the output. */
static unsigned char *
find_all_gather_place(const tutti_coll_op *op, const all_gather *self, uint32_t i, uint64_t at)
{
    const uint64_t size = tutti_coll_group_size(op->group);
    const uint64_t row = at / self->row;

    return (unsigned char *)op->output + (row * size + i) * self->row + at % self->row;
}

/* Put a chunk where it belongs, row by row. */
static void
place_chunk(const tutti_coll_op *op, const all_gather *self, uint32_t i, uint32_t round,
            const unsigned char *data)
{
    uint64_t at = self->chunk * round;
    const uint64_t end = at + chunk_bytes(self, round);

    while (at < end) {
        const uint64_t in_row = self->row - at % self->row;
        const size_t length = (size_t)(in_row < end - at ? in_row : end - at);

        memcpy(find_all_gather_place(op, self, i, at), data, length);
        data += length;
        at += length;
    }
}

/* Our own part is copied in the same rhythm, so the copy overlaps with messages. */
static void
place_round(tutti_coll_op *op, const all_gather *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    uint32_t i;

    for (i = 0; i < size; i++) {
        if (i == me) {
            place_chunk(op, self, i, round, (const unsigned char *)op->input + self->chunk * round);
        } else if (self->stage != NULL) {
            place_chunk(op, self, i, round, self->stage + i * self->chunk);
        }
    }
}

/* Each rank begins with its neighbour: if all began with rank 0, its network would be the limit of
 * the first messages. */
static void
post_round(tutti_coll_op *op, const all_gather *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const size_t bytes = chunk_bytes(self, round);
    uint32_t k;

    for (k = 1; k < size; k++) { /* not everybody at the same rank first */
        const uint32_t to = (me + k) % size;
        const uint32_t from = (me + size - k) % size;

        tutti_coll_send(op, round, to, (const char *)op->input + self->chunk * round, bytes, 0);
        tutti_coll_recv(op, round, from,
                        self->stage != NULL
                            ? self->stage + from * self->chunk
                            : find_all_gather_place(op, self, from, self->chunk * round),
                        bytes, NULL);
    }
}

static tutti_code
advance_all_gather(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    const all_gather *self = op->backend_state;

    (void)err;
    if (op->round > 0) {
        place_round(op, self, op->round - 1);
    }
    if (op->round == self->rounds) {
        *ret_done = true;
    } else {
        post_round(op, self, op->round);
    }
    return TUTTI_OK;
}

/* Bytes of an input that stay together: all dimensions from the axis on. */
static uint64_t
row_bytes(const tutti_coll_args *args)
{
    uint64_t bytes = tutti_dtype_bytes(args->spec.dtype);
    uint32_t i;

    for (i = args->axis; i < args->spec.dim_count; i++) {
        bytes *= (uint64_t)args->spec.dims[i];
    }
    return bytes;
}

tutti_code
tutti_coll_host_all_gather(tutti_coll_op *op, tutti_error *err)
{
    static const host_algorithm algorithm = {.advance = advance_all_gather};
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint64_t row = row_bytes(&op->args);
    const uint64_t chunk = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;
    const bool strided = row < bytes;
    const size_t stage =
        strided ? (size_t)chunk * (size_t)tutti_coll_group_size(op->group) : (size_t)0;
    void *memory = NULL;
    const tutti_code code = tutti_coll_host_state(op, sizeof(all_gather), stage, &memory, err);
    all_gather *self = memory;

    if (code == TUTTI_OK) {
        self->base.algorithm = &algorithm;
        self->bytes = bytes;
        self->row = row;
        self->chunk = chunk;
        self->rounds = (uint32_t)((bytes + chunk - 1) / chunk);
        self->stage = strided ? (unsigned char *)(self + 1) : NULL;
    }
    return code;
}
