/*
 * Exchange: each rank has a piece for each other rank, and a place for one from each. Sends and
 * receives in one group of NCCL; pieces that are rows are packed before, and unpacked behind. Where
 * the op reduces, what came from all goes through a kernel instead.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "coll/nccl/plan.h"

typedef struct exchange {
    nccl_plan *plan;
    const tutti_coll_op *op;
    nccl_pieces pieces;
    uint32_t size;
    uint32_t me;
    unsigned char *inputs; /* of a kernel: room for a piece of each rank */
} exchange;

/* A piece as it can leave: in one run of bytes. NCCL sends no strided data. */
static tutti_code
pack_exchange(exchange *self, const tutti_strided *piece, tutti_strided *ret_run, tutti_error *err)
{
    const uint64_t bytes = tutti_strided_bytes(piece);
    unsigned char *stage = NULL;

    if (tutti_strided_is_whole(piece)) {
        *ret_run = tutti_strided_view(piece->base, bytes);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_nccl_plan_stage(self->plan, bytes, &stage, err));
    *ret_run = tutti_strided_view(stage, bytes);
    return tutti_nccl_plan_copy(&self->plan->packs, ret_run, piece, err);
}

/* Where a piece can arrive, which is unpacked behind. */
static tutti_code
unpack_exchange(exchange *self, uint32_t from, tutti_strided *ret_run, tutti_error *err)
{
    const tutti_strided *piece = &self->pieces.in[from];
    const uint64_t bytes = tutti_strided_bytes(piece);
    unsigned char *stage = NULL;

    if (self->inputs != NULL) {
        *ret_run = tutti_strided_view(self->inputs + from * bytes, bytes);
        return TUTTI_OK;
    }
    if (tutti_strided_is_whole(piece)) {
        *ret_run = tutti_strided_view(piece->base, bytes);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_nccl_plan_stage(self->plan, bytes, &stage, err));
    *ret_run = tutti_strided_view(stage, bytes);
    return tutti_nccl_plan_copy(&self->plan->unpacks, piece, ret_run, err);
}

/* What is for ourselves does not go through NCCL; its copy is among the packs. */
static tutti_code
keep_own(exchange *self, tutti_error *err)
{
    const tutti_strided *out = &self->pieces.out[self->me];
    const tutti_strided *in = &self->pieces.in[self->me];
    tutti_strided from;
    tutti_strided to;
    tutti_code code = pack_exchange(self, out, &from, err);

    if (code != TUTTI_OK || tutti_strided_bytes(out) == 0 || tutti_strided_bytes(in) == 0) {
        return code;
    }
    if (self->inputs == NULL) {
        return tutti_nccl_plan_copy(&self->plan->packs, in, &from, err);
    }
    code = unpack_exchange(self, self->me, &to, err);
    return code == TUTTI_OK ? tutti_nccl_plan_copy(&self->plan->packs, &to, &from, err) : code;
}

static tutti_code
trade_with(exchange *self, uint32_t rank, tutti_error *err)
{
    tutti_strided run;

    if (tutti_strided_bytes(&self->pieces.out[rank]) > 0) {
        TUTTI_TRY(pack_exchange(self, &self->pieces.out[rank], &run, err));
        TUTTI_TRY(tutti_nccl_plan_move(&self->plan->first, NCCL_CALL_SEND, &run, rank, err));
    }
    if (tutti_strided_bytes(&self->pieces.in[rank]) > 0) {
        TUTTI_TRY(unpack_exchange(self, rank, &run, err));
        TUTTI_TRY(tutti_nccl_plan_move(&self->plan->first, NCCL_CALL_RECV, &run, rank, err));
    }
    return TUTTI_OK;
}

/* The kernel that takes the place of unpacking. */
static tutti_code
reduce_all(exchange *self, tutti_error *err)
{
    const uint64_t bytes = tutti_strided_bytes(&self->pieces.in[self->me]);
    const nccl_kernel kernel = {.inputs = self->inputs,
                                .stride = bytes,
                                .input_count = self->size,
                                .reduce = self->op->args.reduce,
                                .dtype = self->op->args.spec.dtype,
                                .count = bytes / tutti_dtype_bytes(self->op->args.spec.dtype),
                                .output = self->pieces.in[self->me].base};

    return bytes > 0 ? tutti_nccl_plan_kernel(self->plan, &kernel, err) : TUTTI_OK;
}

static tutti_code
run_exchange(exchange *self, tutti_error *err)
{
    const bool reduces = self->op->args.kind == TUTTI_COLL_REDUCE_SCATTER;
    tutti_code code = TUTTI_OK;
    uint32_t k;

    if (reduces) {
        code = tutti_nccl_plan_stage(self->plan,
                                     self->size * tutti_strided_bytes(&self->pieces.in[self->me]),
                                     &self->inputs, err);
    }
    if (code == TUTTI_OK) {
        code = keep_own(self, err);
    }
    for (k = 1; k < self->size && code == TUTTI_OK; k++) {
        code = trade_with(self, (self->me + k) % self->size, err);
    }
    return code == TUTTI_OK && reduces ? reduce_all(self, err) : code;
}

/* In place, parts would be overwritten before they have left: they leave from a copy. */
static tutti_code
copy_input(nccl_plan *plan, const tutti_coll_op *op, const void **ret_input, tutti_error *err)
{
    const uint64_t bytes = op->input != NULL ? tutti_spec_bytes(&op->args.spec) : 0;
    unsigned char *stage = NULL;
    tutti_strided from;
    tutti_strided to;
    tutti_code code;

    *ret_input = op->input;
    if (op->input != op->output || bytes == 0) {
        return TUTTI_OK;
    }
    code = tutti_nccl_plan_stage(plan, bytes, &stage, err);
    if (code == TUTTI_OK) {
        from = tutti_strided_view(op->input, bytes);
        to = tutti_strided_view(stage, bytes);
        code = tutti_nccl_plan_copy(&plan->packs, &to, &from, err);
        *ret_input = stage;
    }
    return code;
}

tutti_code
tutti_nccl_plan_exchange(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    exchange self = {.plan = plan,
                     .op = op,
                     .size = tutti_coll_group_size(op->group),
                     .me = tutti_coll_group_rank(op->group)};
    const void *input = NULL;
    tutti_code code;

    self.pieces.out = calloc(2 * (size_t)self.size, sizeof(tutti_strided));
    if (self.pieces.out == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the pieces of an op");
    }
    self.pieces.in = self.pieces.out + self.size;
    code = copy_input(plan, op, &input, err);
    if (code == TUTTI_OK) {
        code = tutti_nccl_pieces_of(op, input, &self.pieces, err);
    }
    if (code == TUTTI_OK) {
        code = run_exchange(&self, err);
    }
    free(self.pieces.out);
    return code;
}
