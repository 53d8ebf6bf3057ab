/* What a plan needs to run: its steps written down, chunks, and memory beside the tensors. */
#include <assert.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/host/direct.h"
#include "coll/host/run.h"

#define PIECE_MIN (64U << 10) /* of a slice or block, in a chunk */
#define PIECE_MAX (1U << 20)
#define PIECES 8                /* of one that is between */
#define CHUNK_BYTES (16U << 20) /* of all of them together */
#define STEPS_MAX 0x40000U /* messages of an op between two ranks; exposed regions come behind */

static void
cut_chunk(host_run *self)
{
    const host_plan *plan = &self->plan;
    const uint64_t share = CHUNK_BYTES / plan->units / 64 * 64;
    uint64_t piece = (self->blocks ? self->bytes : self->bytes / plan->units) / PIECES / 64 * 64;

    piece = piece < PIECE_MIN ? PIECE_MIN : piece > PIECE_MAX ? PIECE_MAX : piece;
    piece = share < 64 ? 64 : piece > share ? share : piece;
    self->chunk = plan->whole ? self->bytes : self->blocks ? piece : piece * plan->units;
    while (self->bytes / self->chunk >= STEPS_MAX / (plan->rounds + 1)) {
        self->chunk *= 2;
    }
    self->chunk = self->chunk < self->bytes ? self->chunk : self->bytes;
    self->chunks = (uint32_t)((self->bytes + self->chunk - 1) / self->chunk);
    self->slots = plan->lives / plan->gap + 1;
    self->slots = self->slots < self->chunks ? self->slots : self->chunks;
    self->data_slot = self->chunk * (self->blocks ? plan->units : 1);
    self->stage_slot = plan->stage_units > 0 ? self->chunk * plan->stage_units : self->data_slot;
}

static tutti_code
take_memory(tutti_coll_op *op, host_run *self, tutti_error *err)
{
    self->data = op->output != NULL ? op->output : (void *)(uintptr_t)op->input;
    if (self->plan.scratch) {
        TUTTI_TRY(
            tutti_coll_host_stage(op, (size_t)(self->slots * self->data_slot), &self->data, err));
    }
    if (self->plan.staged) {
        TUTTI_TRY(
            tutti_coll_host_stage(op, (size_t)(self->slots * self->stage_slot), &self->stage, err));
    }
    return TUTTI_OK;
}

/* Where the steps of each round begin. */
static void
index_rounds(host_run *self)
{
    size_t i = 0;
    uint32_t r;

    for (r = 0; r <= self->plan.rounds; r++) {
        self->rounds[r] = i;
        while (i < self->plan.count && self->plan.steps[i].round == r) {
            i++;
        }
    }
    self->rounds[r] = i;
    assert(i == self->plan.count);
}

/* The plan is made twice: once to count its steps, once to write them down. */
static tutti_code
make_plan(tutti_coll_op *op, host_plan_fn make, const host_topology *topology, host_run **ret,
          tutti_error *err)
{
    host_plan counted = {0};
    unsigned char *memory = NULL;
    host_run *self;
    size_t bytes;

    make(&counted, topology);
    bytes = sizeof(host_run) + counted.count * sizeof(host_plan_step) +
            ((size_t)counted.rounds + 2) * sizeof(size_t);
    TUTTI_TRY(tutti_coll_host_stage(op, bytes, &memory, err));
    memset(memory, 0, bytes);
    self = (host_run *)(void *)memory;
    self->rounds = (size_t *)(self + 1);
    self->plan.steps = (host_plan_step *)(self->rounds + counted.rounds + 2);
    make(&self->plan, topology);
    self->plan.lives = self->plan.lives > 0 ? self->plan.lives : self->plan.rounds;
    self->plan.gap = self->plan.gap > 0 ? self->plan.gap : self->plan.rounds;
    index_rounds(self);
    *ret = self;
    return TUTTI_OK;
}

static bool
is_on_blocks(tutti_coll_kind kind)
{
    return kind != TUTTI_COLL_ALL_REDUCE && kind != TUTTI_COLL_REDUCE &&
           kind != TUTTI_COLL_BROADCAST;
}

static uint64_t
block_bytes(const tutti_coll_op *op)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const bool joins = op->args.kind == TUTTI_COLL_ALL_GATHER || op->args.kind == TUTTI_COLL_GATHER;

    return !is_on_blocks(op->args.kind) || joins ? bytes : bytes / tutti_coll_group_size(op->group);
}

tutti_code
tutti_coll_host_run(tutti_coll_op *op, host_plan_fn make, const host_topology *given,
                    tutti_error *err)
{
    static const host_algorithm algorithm = {.advance = tutti_host_run_advance};
    const bool reduces = tutti_coll_is_reduction(op->args.kind);
    host_topology topology = *given;
    host_exchange *exchange = NULL;
    host_run *self = NULL;
    bool in_place = false;
    tutti_code code = tutti_host_exchange_new(op, reduces, &exchange, err);

    if (code == TUTTI_OK && is_on_blocks(op->args.kind)) {
        code = tutti_host_direct_set_up(op, exchange, &in_place, err);
        topology.whole_rows =
            code == TUTTI_OK && tutti_pieces_are_whole(exchange->in, topology.size);
    }
    if (code == TUTTI_OK) {
        code = make_plan(op, make, &topology, &self, err);
    }
    if (code == TUTTI_OK) {
        exchange->base.algorithm = &algorithm;
        exchange->run = self;
        self->blocks = is_on_blocks(op->args.kind);
        self->bytes = block_bytes(op);
        self->element = tutti_dtype_bytes(op->args.spec.dtype);
        cut_chunk(self);
        code = take_memory(op, self, err);
    }
    return code;
}
