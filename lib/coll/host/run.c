/*
 * Runs plans. Round r of the op is round r - gap * c of chunk c, so several chunks are on their way
 * at once: while what came for one of them is reduced, the messages of those before it are in
 * flight.
 *
 * All ranks run the same number of rounds, and each pair exchanges at most one message in each
 * direction in a round of a chunk; `chunk * (rounds + 1) + round` is its step, alike on both sides.
 * A chunk's stage and scratch are in use for `lives` rounds, so `slots` of them, used in turn, are
 * enough: chunk c may take the slot of chunk c - slots, as that one has ended.
 *
 * Memory is taken at the start; a plan that is under way cannot run out of it.
 */
#include <assert.h>
#include <string.h>

#include "coll/host/run.h"

#include "base/error/fail.h"
#include "coll/host/direct.h"

/* A chunk at work. */
typedef struct chunk_job {
    tutti_coll_op *op;
    const host_exchange *exchange;
    const host_run *run;
    uint32_t chunk;
    uint64_t bytes; /* of the tensor or a block */
} chunk_job;

/* ------------------------------------------------------------------------------ where things are
 */

/* Where unit `unit` begins in a chunk, in bytes. The first `longer` units have one element more;
 * units are whole elements, so no element is cut. */
static uint64_t
offset_of(const chunk_job *at, uint32_t unit)
{
    const host_run *run = at->run;
    const uint64_t count = at->bytes / run->element;
    const uint64_t longer = count % run->plan.units;

    if (run->blocks) {
        return at->bytes * unit;
    }
    return (count / run->plan.units * unit + (unit < longer ? unit : longer)) * run->element;
}

static uint64_t
get_step_bytes(const chunk_job *at, uint32_t first, uint32_t count)
{
    return offset_of(at, first + count) - offset_of(at, first);
}

/* In scratch each chunk has a slot; blocks in place are the pieces of the output; else the output
 * itself. */
static unsigned char *
data_at(const chunk_job *at, uint32_t unit)
{
    const host_run *run = at->run;

    if (run->plan.scratch) {
        return run->data + at->chunk % run->slots * run->data_slot + offset_of(at, unit);
    }
    if (run->blocks) {
        return at->exchange->in[unit].base + at->chunk * run->chunk;
    }
    return run->data + at->chunk * run->chunk + offset_of(at, unit);
}

static unsigned char *
stage_at(const chunk_job *at, uint32_t unit)
{
    const host_run *run = at->run;
    const uint64_t offset = run->plan.stage_units > 0 ? at->bytes * unit : offset_of(at, unit);

    return run->stage + at->chunk % run->slots * run->stage_slot + offset;
}

/* ------------------------------------------------------------------------------ local steps */

/* AVG and PREMUL_SUM are sums here: factors were applied by load_step, and the division comes once,
 * in finish_sum. */
static void
reduce_two(const tutti_coll_op *op, const void *left, const void *right, uint64_t bytes,
           void *output)
{
    const void *const inputs[] = {left, right};
    tutti_reduce reduce = op->args.reduce;

    if (reduce == TUTTI_REDUCE_AVG || reduce == TUTTI_REDUCE_PREMUL_SUM) {
        reduce = TUTTI_REDUCE_SUM;
    }
    tutti_reduce_run(reduce, op->args.spec.dtype, inputs, 2, NULL,
                     (size_t)(bytes / tutti_dtype_bytes(op->args.spec.dtype)), output);
}

/* Factors of PREMUL_SUM are applied where a rank's own input enters, so what travels is scaled
 * already. In place, the input stands where the data is: nothing to copy. */
static void
load_step(const chunk_job *at, const host_plan_step *step)
{
    const tutti_coll_op *op = at->op;
    const uint64_t bytes = get_step_bytes(at, step->first, step->count);
    unsigned char *data = data_at(at, step->first);
    const uint64_t begin = at->chunk * at->run->chunk;
    const void *inputs[1];
    tutti_strided dest;

    if (at->run->blocks) {
        dest = tutti_strided_view(data, bytes);
        tutti_host_strided_copy(&dest, 0, &at->exchange->out[step->other], begin, bytes);
        if (op->args.reduce != TUTTI_REDUCE_PREMUL_SUM) {
            return;
        }
        inputs[0] = data;
    } else {
        inputs[0] = (const unsigned char *)op->input + begin + offset_of(at, step->first);
    }
    if (at->exchange->combine != NULL && op->args.reduce == TUTTI_REDUCE_PREMUL_SUM) {
        tutti_reduce_run(TUTTI_REDUCE_PREMUL_SUM, op->args.spec.dtype, inputs, 1, &op->args.factor,
                         (size_t)(bytes / at->run->element), data);
    } else if (inputs[0] != data && bytes > 0) {
        memcpy(data, inputs[0], (size_t)bytes);
    }
}

static void
store_step(const chunk_job *at, const host_plan_step *step)
{
    const uint64_t bytes = get_step_bytes(at, step->first, 1);
    const tutti_strided source = tutti_strided_view(data_at(at, step->first), bytes);

    tutti_host_strided_copy(&at->exchange->in[step->other], at->chunk * at->run->chunk, &source, 0,
                            bytes);
}

/* All inputs are in the stage, beginning with our own (Bruck's rotated order): they are reduced
 * from rank 0 on, so the bits are those of a sum in the order of ranks. */
static void
fold_step(const chunk_job *at, const host_plan_step *step)
{
    const tutti_coll_op *op = at->op;
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool scaled = op->args.reduce == TUTTI_REDUCE_PREMUL_SUM; /* it was, by load */
    uint32_t i;

    for (i = 0; i < size; i++) {
        at->exchange->inputs[i] = stage_at(at, (step->first + i) % size);
    }
    tutti_reduce_run(scaled ? TUTTI_REDUCE_SUM : op->args.reduce, op->args.spec.dtype,
                     at->exchange->inputs, size, NULL, (size_t)(at->bytes / at->run->element),
                     data_at(at, 0));
}

static void
finish_sum(const chunk_job *at, const host_plan_step *step)
{
    const tutti_coll_op *op = at->op;

    if (op->args.reduce == TUTTI_REDUCE_AVG) {
        tutti_reduce_divide(
            op->args.spec.dtype, tutti_coll_group_size(op->group),
            (size_t)(get_step_bytes(at, step->first, step->count) / at->run->element),
            data_at(at, step->first));
    }
}

/* ------------------------------------------------------------------------------ steps */

/* A unit without bytes has no message, on both sides: they compute the same sizes. */
static void
post_step(const chunk_job *at, const host_plan_step *step)
{
    const host_run *run = at->run;
    const uint32_t number = at->chunk * (run->plan.rounds + 1) + step->round;
    unsigned char *data = step->staged ? stage_at(at, step->first) : data_at(at, step->first);
    const uint64_t bytes = step->staged && run->plan.stage_units > 0
                               ? at->bytes * step->count
                               : get_step_bytes(at, step->first, step->count);

    if (bytes == 0) { /* nor does the other side */
        return;
    }
    if (step->verb == PLAN_SEND) {
        tutti_coll_send(at->op, number, step->other, data, (size_t)bytes, 0);
    } else {
        tutti_coll_recv(at->op, number, step->other, data, (size_t)bytes, NULL);
    }
}

static void
do_step(const chunk_job *at, const host_plan_step *step)
{
    switch ((host_plan_verb)step->verb) {
    case PLAN_LOAD:
        load_step(at, step);
        break;
    case PLAN_STORE:
        store_step(at, step);
        break;
    case PLAN_REDUCE:
        reduce_two(at->op, data_at(at, step->first), stage_at(at, step->first),
                   get_step_bytes(at, step->first, step->count), data_at(at, step->first));
        break;
    case PLAN_FINISH:
        finish_sum(at, step);
        break;
    case PLAN_FOLD:
        fold_step(at, step);
        break;
    case PLAN_KEEP:
        memcpy(stage_at(at, step->other), data_at(at, step->first), (size_t)at->bytes);
        break;
    case PLAN_TAKE:
        memcpy(data_at(at, step->first), stage_at(at, step->other), (size_t)at->bytes);
        break;
    case PLAN_SEND:
    case PLAN_RECV:
        post_step(at, step);
        break;
    }
}

static void
do_round(tutti_coll_op *op, const host_exchange *exchange, uint32_t chunk, uint32_t round)
{
    const host_run *run = exchange->run;
    const uint64_t rest = run->bytes - chunk * run->chunk;
    const chunk_job at = {.op = op,
                          .exchange = exchange,
                          .run = run,
                          .chunk = chunk,
                          .bytes = rest < run->chunk ? rest : run->chunk};
    size_t i;

    for (i = run->rounds[round]; i < run->rounds[round + 1]; i++) {
        do_step(&at, &run->plan.steps[i]);
    }
}

/* The chunks that are at work in this round of the op: chunk c is in its round now - c * gap, from
 * 0 to plan.rounds. The oldest comes first, so it ends first. */
tutti_code
tutti_host_run_advance(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    const host_exchange *exchange = op->backend_state;
    const host_run *run = exchange->run;
    const uint64_t now = op->round;
    const uint64_t behind = now > run->plan.rounds ? now - run->plan.rounds : 0;
    uint64_t chunk = (behind + run->plan.gap - 1) / run->plan.gap;

    (void)err;
    for (; chunk < run->chunks && chunk * run->plan.gap <= now; chunk++) {
        do_round(op, exchange, (uint32_t)chunk, (uint32_t)(now - chunk * run->plan.gap));
    }
    *ret_done = now == (uint64_t)(run->chunks - 1) * run->plan.gap + run->plan.rounds;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ run open */

#define PIECE_MIN (64U << 10) /* of a slice or block, in a chunk */
#define PIECE_MAX (1U << 20)
#define PIECES 8                /* of one that is between */
#define CHUNK_BYTES (16U << 20) /* of all of them together */
#define STEPS_MAX 0x40000U /* messages of an op between two ranks; exposed regions come behind */

/*
 * Chunks are about an eighth of a slice or block, so that pipes are filled, within limits that keep
 * messages large enough and all stages together below CHUNK_BYTES. Alike on all ranks: only the
 * sizes of the op and the plan's units go in. Sizes are multiples of 64, so chunks are whole
 * elements of any dtype. The loop keeps steps below those of exposed regions.
 */
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

/* A root of a broadcast may have no output: its data is its input, which is only read. */
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

/* Find for each round the first of its steps. */
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

/* The plan is made twice: once to count its steps, once to write them down. Both makings are the
 * same function of the topology. */
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
