/*
 * Ops of groups of one rank: a copy, or a reduction of one input. docs/backend.md explains this
 * file step by step. Engine's thread; the state is op->backend_state, freed by finish; there are no
 * messages, and advance cannot fail.
 */
#include "coll/self/self.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce.h"
#include "tensor/spec.h"

/* What one call of advance does; the engine's thread serves other ops in between. It is a multiple
 * of the size of every element. */
#define TURN_BYTES (2U << 20)

/* ------------------------------------------------------------------------------ what ops are */

typedef enum self_work {
    SELF_UNKNOWN, /* a kind that this table does not have */
    SELF_NOTHING,
    SELF_COPY,
    SELF_REDUCE,
} self_work;

/* What a kind is on one rank. With TUTTI_FORM_LIST the input, or the output, is a list that has one
 * tensor for each rank: here one. */
typedef struct self_kind {
    self_work work;
    bool takes_list;
    bool makes_list;
} self_kind;

/* Send and Recv are not here: the engine moves them without a backend. */
static const self_kind kinds[] = {
    [TUTTI_COLL_ALL_REDUCE] = {SELF_REDUCE, false, false},
    [TUTTI_COLL_BROADCAST] = {SELF_COPY, false, false},
    [TUTTI_COLL_ALL_GATHER] = {SELF_COPY, false, true},
    [TUTTI_COLL_BARRIER] = {SELF_NOTHING, false, false},
    [TUTTI_COLL_REDUCE] = {SELF_REDUCE, false, false},
    [TUTTI_COLL_GATHER] = {SELF_COPY, false, true},
    [TUTTI_COLL_SCATTER] = {SELF_COPY, true, false},
    [TUTTI_COLL_REDUCE_SCATTER] = {SELF_REDUCE, true, false},
    [TUTTI_COLL_ALL_TO_ALL] = {SELF_COPY, true, true},
    [TUTTI_COLL_PERMUTE] = {SELF_COPY, false, false},
};

static self_kind
kind_of_coll_self(const tutti_coll_op *op)
{
    const size_t kind = (size_t)op->args.kind;

    return kind < sizeof(kinds) / sizeof(kinds[0]) ? kinds[kind] : (self_kind){0};
}

/* ------------------------------------------------------------------------------ the state */

/* op->backend_state, from start to finish. */
typedef struct self_op {
    self_work work;
    const unsigned char *input;
    unsigned char *output; /* the input itself, when the op is in place */
    uint64_t bytes;        /* of the input, and as many of the output */
    uint64_t done;         /* of them, by earlier calls of advance */
} self_op;

/*
 * On one rank the result has as many bytes as the input, whatever its shape: nothing is cut in
 * parts, and nothing is joined.
 */
static tutti_code
start_coll_self(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_args *args = &op->args;
    const self_kind kind = kind_of_coll_self(op);
    const bool is_list = args->form == TUTTI_FORM_LIST;
    self_op *self;

    op->backend_state = NULL;
    if (kind.work == SELF_UNKNOWN) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "NO_BACKEND",
                              "the self backend does not know op %s",
                              tutti_coll_kind_name(args->kind));
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the state of an op");
    }
    self->work = kind.work;
    if (kind.work != SELF_NOTHING) {
        self->input = is_list && kind.takes_list ? args->list[0].data : op->input;
        self->output = is_list && kind.makes_list ? op->outputs[op->part].data : op->output;
        self->bytes = tutti_spec_bytes(&args->spec); /* of a list: of its first tensor */
    }
    if (self->work == SELF_COPY && self->output == self->input) {
        self->bytes = 0;
    }
    op->backend_state = self;
    return TUTTI_OK;
}

static void
finish_coll_self(tutti_coll_op *op)
{
    free(op->backend_state);
    op->backend_state = NULL;
}

/* ------------------------------------------------------------------------------ the data */

static void
reduce_coll_self(const tutti_coll_args *args, const void *input, size_t bytes, void *output)
{
    const bool is_scaled = args->reduce == TUTTI_REDUCE_PREMUL_SUM;

    tutti_reduce_run(args->reduce, args->spec.dtype, &input, 1, is_scaled ? &args->factor : NULL,
                     bytes / tutti_dtype_bytes(args->spec.dtype), output);
}

static tutti_code
advance_coll_self(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    self_op *self = op->backend_state;
    const uint64_t left = self->bytes - self->done;
    const size_t turn = left < TURN_BYTES ? (size_t)left : TURN_BYTES;

    (void)err;
    if (turn > 0 && self->work == SELF_REDUCE) {
        reduce_coll_self(&op->args, self->input + self->done, turn, self->output + self->done);
    } else if (turn > 0) {
        memcpy(self->output + self->done, self->input + self->done, turn);
    }
    self->done += turn;
    if (self->done == self->bytes) {
        *ret_done = true;
    } else {
        tutti_coll_again(op);
    }
    return TUTTI_OK;
}

const tutti_coll_backend tutti_coll_self = {
    .size = sizeof(tutti_coll_backend),
    .name = "self",
    .start = start_coll_self,
    .advance = advance_coll_self,
    .finish = finish_coll_self,
};
