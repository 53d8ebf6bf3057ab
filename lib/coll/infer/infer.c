/*
 * What an op gives on each rank, or why it cannot be called so. Pure, any thread: run by the agent
 * before it posts an op, by Infer requests, and by the engine when a shape was learnt. The same
 * function in all three, so that what was foretold is what happens.
 */
#include "coll/infer/infer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce.h"

bool
tutti_coll_is_from_root(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_BROADCAST || kind == TUTTI_COLL_SCATTER;
}

bool
tutti_coll_is_to_root(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_REDUCE || kind == TUTTI_COLL_GATHER;
}

bool
tutti_coll_is_reduction(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_ALL_REDUCE || kind == TUTTI_COLL_REDUCE ||
           kind == TUTTI_COLL_REDUCE_SCATTER;
}

static tutti_code
check_root(const tutti_coll_args *args, uint32_t size, uint32_t group_rank, tutti_error *err)
{
    if (args->root >= size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ROOT",
                              "root %" PRId32 " of a group of %" PRIu32 ": need 0 to %" PRIu32,
                              (int32_t)args->root, size, size - 1);
    }
    if (args->root == group_rank && !args->has_spec) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "ROOT_INPUT_MISSING",
                              "group rank %" PRIu32
                              " is the root and gives no tensor: the root needs an input",
                              group_rank);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ joining */

tutti_code
tutti_coll_check_axis(const tutti_spec *spec, uint32_t axis, uint32_t places, tutti_error *err)
{
    if (axis >= places) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AXIS",
                              "axis %" PRId32 " of a tensor of %" PRIu32 " dimensions",
                              (int32_t)axis, spec->dim_count);
    }
    return TUTTI_OK;
}

tutti_code
tutti_coll_grow_axis(tutti_spec *result, uint32_t axis, uint32_t size, tutti_error *err)
{
    const int64_t before = result->dims[axis];

    if (__builtin_mul_overflow(before, (int64_t)size, &result->dims[axis])) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                              "a dimension of size %" PRId64 ", times %" PRIu32
                              " ranks, is more than 2^63 - 1",
                              before, size);
    }
    return tutti_spec_check(result, NULL, NULL, err);
}

static tutti_code
insert_dim(tutti_spec *result, uint32_t axis, uint32_t size, tutti_error *err)
{
    if (result->dim_count == TUTTI_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                              "stacking would make %d dimensions, at most %d", TUTTI_DIMS_MAX + 1,
                              TUTTI_DIMS_MAX);
    }
    memmove(&result->dims[axis + 1], &result->dims[axis],
            (result->dim_count - axis) * sizeof(result->dims[0]));
    result->dims[axis] = (int64_t)size;
    result->dim_count++;
    return tutti_spec_check(result, NULL, NULL, err);
}

/* Give `count` elements the shape that a flat result takes here. */
tutti_code
tutti_coll_flatten(const tutti_coll_args *args, uint64_t count, tutti_spec *result,
                   tutti_error *err)
{
    const tutti_dtype dtype = result->dtype;
    uint64_t wanted = count;

    if (args->flat == NULL) {
        *result = (tutti_spec){.dtype = dtype, .dim_count = 1, .dims = {(int64_t)count}};
        return TUTTI_OK;
    }
    *result = *args->flat;
    result->dtype = dtype;
    TUTTI_TRY(tutti_spec_check(result, &wanted, NULL, err));
    if (wanted != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "OUT_SHAPE",
                              "%" PRIu64 " elements do not fill a shape of %" PRIu64, count,
                              wanted);
    }
    return TUTTI_OK;
}

/* concat: the axis grows by the group's size; stack: a new axis of that length. 0-d gives [size].
 */
static tutti_code
infer_gather(const tutti_coll_args *args, uint32_t size, tutti_spec *result, tutti_error *err)
{
    const bool inserts = args->form == TUTTI_FORM_STACK || args->spec.dim_count == 0;
    uint64_t count;

    *result = args->spec;
    if (args->form == TUTTI_FORM_FLAT) {
        if (__builtin_mul_overflow(tutti_spec_count(&args->spec), (uint64_t)size, &count)) {
            count = UINT64_MAX;
        }
        return tutti_coll_flatten(args, count, result, err);
    }
    TUTTI_TRY(tutti_coll_check_axis(&args->spec, args->axis,
                                    args->spec.dim_count + (inserts ? 1u : 0u), err));
    return inserts ? insert_dim(result, args->axis, size, err)
                   : tutti_coll_grow_axis(result, args->axis, size, err);
}

/* ------------------------------------------------------------------------------ permuting */

/* Each destination once: with two senders for one rank, the second would overwrite the first. */
static tutti_code
check_permutation(const tutti_coll_args *args, uint32_t size, tutti_error *err)
{
    bool *taken;
    uint32_t i;
    tutti_code code = TUTTI_OK;

    if (args->to_count != size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PERMUTATION",
                              "%" PRIu32 " destinations for %" PRIu32
                              " ranks, need one for each rank",
                              args->to_count, size);
    }
    taken = calloc(size, sizeof(*taken));
    if (taken == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to look at a permutation");
    }
    for (i = 0; i < size && code == TUTTI_OK; i++) {
        if (args->to[i] >= size || taken[args->to[i]]) {
            code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PERMUTATION",
                                  "destination %" PRId32 " of group rank %" PRIu32 " is %s",
                                  (int32_t)args->to[i], i,
                                  args->to[i] >= size ? "no group rank" : "there twice");
        } else {
            taken[args->to[i]] = true;
        }
    }
    free(taken);
    return code;
}

static tutti_code
infer_peer(const tutti_coll_args *args, uint32_t size, uint32_t group_rank, tutti_spec *result,
           tutti_error *err)
{
    const bool any = args->kind == TUTTI_COLL_RECV && args->peer == TUTTI_COLL_ANY_SOURCE;

    if (!any && args->peer >= size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_NOT_IN_GROUP",
                              "group rank %" PRId32 " of a group of %" PRIu32
                              ": need 0 to %" PRIu32,
                              (int32_t)args->peer, size, size - 1);
    }
    if (args->peer == group_rank) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SELF_PEER",
                              "group rank %" PRIu32
                              " is this rank itself: copy the tensor instead of sending it",
                              args->peer);
    }
    if (args->kind == TUTTI_COLL_SEND) {
        *result = (tutti_spec){0};
    }
    return TUTTI_OK;
}

tutti_code
tutti_coll_infer(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                 tutti_spec *ret_result, tutti_error *err)
{
    const bool to_root = tutti_coll_is_to_root(args->kind);
    tutti_spec result = {0};
    tutti_code code = TUTTI_OK;

    if (args->has_spec) {
        code = tutti_spec_check(&args->spec, NULL, NULL, err);
    }
    if (code == TUTTI_OK && (to_root || tutti_coll_is_from_root(args->kind))) {
        code = check_root(args, size, group_rank, err);
    }
    if (code == TUTTI_OK && tutti_coll_is_reduction(args->kind)) {
        code = tutti_reduce_check(args->reduce, args->spec.dtype, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (args->has_spec && !args->count_only) {
        result = args->spec;
    }
    switch (args->kind) {
    case TUTTI_COLL_GATHER:
    case TUTTI_COLL_ALL_GATHER:
        code = infer_gather(args, size, &result, err);
        break;
    case TUTTI_COLL_SCATTER:
    case TUTTI_COLL_REDUCE_SCATTER:
        code = tutti_coll_infer_cut(args, size, group_rank, &result, err);
        break;
    case TUTTI_COLL_ALL_TO_ALL:
        code = tutti_coll_infer_all_to_all(args, size, &result, err);
        break;
    case TUTTI_COLL_PERMUTE:
        code = check_permutation(args, size, err);
        break;
    case TUTTI_COLL_SEND:
    case TUTTI_COLL_RECV:
        code = infer_peer(args, size, group_rank, &result, err);
        break;
    default: /* as it was given */
        break;
    }
    if (code == TUTTI_OK) {
        *ret_result = to_root && group_rank != args->root ? (tutti_spec){0} : result;
    }
    return code;
}
