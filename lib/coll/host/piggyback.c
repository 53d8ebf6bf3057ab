/*
 * Tiny all-reduces: the inputs travel with the signatures (coll/agree/agree.h), so when the ranks
 * have agreed each has all of them, and reduces them in the order of the ranks. The op has no round
 * of its own: a dissemination (Hensgen, Finkel, Manber 1988) of the inputs, as Bruck's all-gather
 * is.
 *
 * A rank's rider is written before anything is agreed, from its own args; it is used only after the
 * verdict, when all ranks have said the same args.
 */
#include <string.h>

#include "coll/host/host_private.h"
#include "coll/host/pick.h"
#include "coll/reduce/reduce.h"

#define BOUNDARY 16 /* of each rank's elements */

/* The elements, then the factor of PREMUL_SUM, each on its boundary. */
static size_t
factor_at(const tutti_coll_op *op)
{
    return ((size_t)tutti_spec_bytes(&op->args.spec) + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
}

size_t
tutti_coll_host_piggyback(tutti_coll_op *op, unsigned char *ret_bytes)
{
    const tutti_coll_args *args = &op->args;
    const uint64_t factor = tutti_coll_host_factor(op);
    const bool scaled = args->reduce == TUTTI_REDUCE_PREMUL_SUM;
    size_t size;

    if (!tutti_coll_host_may_piggyback(op)) {
        return 0;
    }
    size = factor_at(op) + (scaled ? BOUNDARY : 0);
    memset(ret_bytes, 0, size);
    memcpy(ret_bytes, op->input, (size_t)tutti_spec_bytes(&args->spec));
    if (scaled) {
        memcpy(ret_bytes + factor_at(op), &factor, sizeof(factor));
    }
    return size;
}

static tutti_code
advance_ridden(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    const void *inputs[TUTTI_COLL_PIGGYBACK_RANKS_MAX];
    double factors[TUTTI_COLL_PIGGYBACK_RANKS_MAX];
    const uint32_t ranks = tutti_coll_group_size(op->group);
    const bool scaled = op->args.reduce == TUTTI_REDUCE_PREMUL_SUM;
    size_t size;
    const unsigned char *riders = tutti_coll_riders(op, &size);
    uint32_t i;

    (void)err;
    for (i = 0; i < ranks; i++) {
        inputs[i] = riders + i * size;
        if (scaled) {
            memcpy(&factors[i], riders + i * size + factor_at(op), sizeof(factors[i]));
        }
    }
    tutti_reduce_run(op->args.reduce, op->args.spec.dtype, inputs, ranks, scaled ? factors : NULL,
                     (size_t)tutti_spec_count(&op->args.spec), op->output);
    *ret_done = true;
    return TUTTI_OK;
}

bool
tutti_coll_host_has_ridden(const tutti_coll_op *op)
{
    size_t size;

    return op->args.kind == TUTTI_COLL_ALL_REDUCE && tutti_coll_riders(op, &size) != NULL;
}

tutti_code
tutti_coll_host_ridden(tutti_coll_op *op, tutti_error *err)
{
    static const host_algorithm ridden = {.advance = advance_ridden};
    void *state = NULL;
    const tutti_code code = tutti_coll_host_state(op, sizeof(host_state), 0, &state, err);

    tutti_coll_host_tell(op);
    if (code == TUTTI_OK) {
        ((host_state *)state)->algorithm = &ridden;
    }
    return code;
}
