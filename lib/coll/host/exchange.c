/*
 * Exchange: each rank has a piece for each other rank, and a place for one from each. Direct: every
 * pair at once, a chunk a round. Pairwise: with one partner a round, i + k and i - k in round k
 * (Thakur, Rabenseifner, Gropp 2005), which spares switches what many senders to one receiver do.
 * Where pieces are rows, chunks are packed at the sender and
 * unpacked at the receiver. When the op reduces, what comes from all is reduced, in the order of
 * group ranks, instead of placed.
 */
#include "coll/host/exchange.h"

#include <string.h>

#include "base/error/fail.h"

#define CHUNK_BYTES (1u << 20)
#define STEPS_MAX 0x40000U /* messages of an op between two ranks; exposed regions come behind */
#define ROUND_BYTES (16u << 20) /* staged at once, for all ranks together */

static const host_algorithm algorithm;

static uint64_t
chunk_of(const host_exchange *self, const tutti_strided *piece, uint32_t round)
{
    const uint64_t bytes = tutti_strided_bytes(piece);
    const uint64_t begin = self->chunk * round;

    return begin >= bytes ? 0 : bytes - begin < self->chunk ? bytes - begin : self->chunk;
}

/* The chunk of a round as bytes in a row: where they stand, or packed. */
static void *
place_out(const host_exchange *self, uint32_t to, uint32_t round)
{
    return self->send_stage == NULL ? self->out[to].base + self->chunk * round
                                    : self->send_stage + to * self->chunk;
}

static void
pack_exchange(const host_exchange *self, uint32_t to, uint32_t round)
{
    const uint64_t bytes = chunk_of(self, &self->out[to], round);
    tutti_strided staged;

    if (self->send_stage != NULL && bytes > 0) {
        staged = tutti_strided_view(place_out(self, to, round), bytes);
        tutti_host_strided_copy(&staged, 0, &self->out[to], self->chunk * round, bytes);
    }
}

/* All that leaves in a round is packed before any of it is received: a message that is parked here
 * already is written to its place inside of tutti_coll_recv. */
static void
pack_round(const tutti_coll_op *op, const host_exchange *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t i;

    for (i = 0; i < size; i++) {
        if (i != tutti_coll_group_rank(op->group) || self->combine != NULL) {
            pack_exchange(self, i, round);
        }
    }
}

static void
send_chunk(tutti_coll_op *op, const host_exchange *self, uint32_t to, uint32_t round)
{
    const uint64_t bytes = chunk_of(self, &self->out[to], round);

    if (bytes > 0) {
        tutti_coll_send(op, op->round, to, place_out(self, to, round), (size_t)bytes,
                        tutti_coll_host_factor(op));
    }
}

static void
recv_chunk(tutti_coll_op *op, const host_exchange *self, uint32_t from, uint32_t round)
{
    const uint64_t bytes = chunk_of(self, &self->in[from], round);

    if (bytes > 0) {
        tutti_coll_recv(op, op->round, from,
                        self->recv_stage != NULL ? self->recv_stage + from * self->chunk
                                                 : self->in[from].base + self->chunk * round,
                        (size_t)bytes, &self->factor_bits[from]);
    }
}

static void
post_turn(tutti_coll_op *op, const host_exchange *self, uint32_t round, uint32_t turn)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint32_t first = 1 + turn * self->partners;
    const uint32_t end = size - first < self->partners ? size : first + self->partners;
    uint32_t k;

    if (turn == 0) {
        pack_round(op, self, round);
    }
    for (k = first; k < end; k++) { /* not everybody to the same rank first */
        send_chunk(op, self, (me + k) % size, round);
    }
    for (k = first; k < end; k++) {
        recv_chunk(op, self, (me + size - k) % size, round);
    }
}

/* ------------------------------------------------------------------------------ what has come */

static void
place_round(tutti_coll_op *op, const host_exchange *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    uint32_t i;

    for (i = 0; i < size; i++) {
        const uint64_t bytes = chunk_of(self, &self->in[i], round);
        const uint64_t at = self->chunk * round;

        if (i == me && bytes > 0) {
            tutti_host_strided_copy(&self->in[i], at, &self->out[me], at, bytes);
        } else if (self->recv_stage != NULL && bytes > 0) {
            const tutti_strided staged =
                tutti_strided_view(self->recv_stage + i * self->chunk, bytes);

            tutti_host_strided_copy(&self->in[i], at, &staged, 0, bytes);
        }
    }
}

/* The reduction that the op names. */
static void
combine_by_reduction(const tutti_coll_op *op, const host_exchange *self, const void *const *inputs,
                     uint64_t bytes, void *output)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool scaled = op->args.reduce == TUTTI_REDUCE_PREMUL_SUM;
    uint32_t i;

    self->factor_bits[tutti_coll_group_rank(op->group)] = tutti_coll_host_factor(op);
    for (i = 0; i < size && scaled; i++) {
        memcpy(&self->factors[i], &self->factor_bits[i], sizeof(double));
    }
    tutti_reduce_run(op->args.reduce, op->args.spec.dtype, inputs, size,
                     scaled ? self->factors : NULL,
                     (size_t)(bytes / tutti_dtype_bytes(op->args.spec.dtype)), output);
}

static void
combine_round(tutti_coll_op *op, const host_exchange *self, uint32_t round)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint64_t bytes = chunk_of(self, &self->in[me], round);
    uint32_t i;

    if (bytes == 0) {
        return;
    }
    for (i = 0; i < size; i++) {
        self->inputs[i] = i == me ? place_out(self, me, round) : self->recv_stage + i * self->chunk;
    }
    self->combine(op, self, self->inputs, bytes, self->in[me].base + self->chunk * round);
}

/* op->round counts turns: `turns` of them make a round of one chunk. At the first turn of a round,
 * what the round before brought is placed or combined; nothing is in flight then. */
static tutti_code
advance_exchange(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    const host_exchange *self = op->backend_state;
    const uint32_t round = op->round / self->turns;
    const uint32_t turn = op->round % self->turns;

    (void)err;
    if (op->round > 0 && turn == 0 && self->combine != NULL) {
        combine_round(op, self, round - 1);
    } else if (op->round > 0 && turn == 0) {
        place_round(op, self, round - 1);
    }
    if (round == self->rounds) {
        *ret_done = true;
    } else {
        post_turn(op, self, round, turn);
    }
    return TUTTI_OK;
}

static const host_algorithm algorithm = {.advance = advance_exchange};

/* ------------------------------------------------------------------------------ setting up */

/* The longest piece decides the number of rounds; a rank with shorter pieces has no message in the
 * later ones. */
static uint64_t
find_largest_part(const tutti_strided *pieces, uint32_t size, uint64_t most)
{
    uint32_t i;

    for (i = 0; i < size; i++) {
        const uint64_t bytes = tutti_strided_bytes(&pieces[i]);

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes of a round for each rank: alike on all ranks, and whole elements of any dtype. */
static uint64_t
chunk_bytes(uint32_t size)
{
    const uint64_t share = ROUND_BYTES / size / 64 * 64;

    return share > CHUNK_BYTES ? CHUNK_BYTES : share < 64 ? 64 : share;
}

tutti_code
tutti_host_exchange_new(tutti_coll_op *op, bool reduces, host_exchange **ret_exchange,
                        tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const size_t bytes =
        sizeof(host_exchange) +
        size * (2 * sizeof(tutti_strided) + sizeof(uint64_t) + sizeof(double) + sizeof(void *));
    void *memory = NULL;
    const tutti_code code = tutti_coll_host_state(op, bytes, 0, &memory, err);
    host_exchange *self = memory;

    if (code == TUTTI_OK) {
        self->base.algorithm = &algorithm;
        self->combine = reduces ? combine_by_reduction : NULL;
        self->chunk = chunk_bytes(size);
        self->partners = size - 1;
        self->turns = 1;
        self->out = (tutti_strided *)(self + 1);
        self->in = self->out + size;
        self->factor_bits = (uint64_t *)(self->in + size);
        self->factors = (double *)(self->factor_bits + size);
        self->inputs = (const void **)(self->factors + size);
        *ret_exchange = self;
    }
    return code;
}

tutti_code
tutti_host_exchange_ready(tutti_coll_op *op, host_exchange *self, bool in_place, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint64_t most = find_largest_part(self->in, size, find_largest_part(self->out, size, 0));
    const bool packs = in_place || !tutti_pieces_are_whole(self->out, size);
    const bool unpacks = self->combine != NULL || !tutti_pieces_are_whole(self->in, size);

    self->turns = (size - 2) / self->partners + 1;
    while (self->turns > 1 && most / self->chunk >= STEPS_MAX / self->turns) {
        self->chunk *= 2;
    }
    self->rounds = (uint32_t)((most + self->chunk - 1) / self->chunk);
    if (most < self->chunk) {
        self->chunk = most;
    }
    if (packs) {
        TUTTI_TRY(tutti_coll_host_stage(op, size * self->chunk, &self->send_stage, err));
    }
    if (unpacks) {
        TUTTI_TRY(tutti_coll_host_stage(op, size * self->chunk, &self->recv_stage, err));
    }
    return TUTTI_OK;
}
