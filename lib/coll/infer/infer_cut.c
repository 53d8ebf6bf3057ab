/* What a tensor that is cut becomes on each rank. */
/* Pure, any thread. Splits are checked for negative numbers and overflow of their sum before any is
 * used as a size: they may come from the root of another process. */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/infer/infer.h"

static tutti_code
fail_indivisible(uint32_t axis, int64_t length, uint32_t size, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INDIVISIBLE",
                          "dimension %" PRIu32 " of size %" PRId64
                          " is not divisible by the %" PRIu32 " ranks of the group",
                          axis, length, size);
}

static tutti_code
check_scalar(const tutti_spec *spec, tutti_error *err)
{
    if (spec->dim_count == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SCALAR_INPUT",
                              "a scalar cannot be cut into parts");
    }
    return TUTTI_OK;
}

/* The dimension at `axis` has the group's size, and goes. */
static tutti_code
take_away(tutti_spec *result, uint32_t axis, uint32_t size, tutti_error *err)
{
    if (result->dims[axis] != (int64_t)size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INDIVISIBLE",
                              "dimension %" PRIu32 " of size %" PRId64
                              " cannot be taken apart as a stack, need size %" PRIu32
                              ": one part for each rank",
                              axis, result->dims[axis], size);
    }
    result->dim_count--;
    memmove(&result->dims[axis], &result->dims[axis + 1],
            (result->dim_count - axis) * sizeof(result->dims[0]));
    return TUTTI_OK;
}

static tutti_code
shrink_dim(tutti_spec *result, uint32_t axis, uint32_t size, tutti_error *err)
{
    if (result->dims[axis] % (int64_t)size != 0) {
        return fail_indivisible(axis, result->dims[axis], size, err);
    }
    result->dims[axis] /= (int64_t)size;
    return TUTTI_OK;
}

/* Equal parts of the memory, which keep their dimensions but the first. */
static tutti_code
divide_first(tutti_spec *part, uint32_t size, tutti_error *err)
{
    return part->dims[0] == (int64_t)size ? take_away(part, 0, size, err)
                                          : shrink_dim(part, 0, size, err);
}

tutti_code
tutti_coll_infer_part(const tutti_coll_args *args, uint32_t size, tutti_spec *ret_part,
                      tutti_error *err)
{
    const uint64_t count = tutti_spec_count(&args->spec);
    uint32_t axis = args->axis;
    tutti_spec part = args->spec;
    tutti_code code = check_scalar(&part, err);

    if (code == TUTTI_OK && args->form == TUTTI_FORM_FLAT && args->keep_shape) {
        code = divide_first(&part, size, err);
    } else if (code == TUTTI_OK && args->form == TUTTI_FORM_FLAT) {
        code = count % size == 0 ? tutti_coll_flatten(args, count / size, &part, err)
                                 : fail_indivisible(0, (int64_t)count, size, err);
    } else if (code == TUTTI_OK) {
        code = tutti_spec_axis(&part, (int32_t)args->axis, false, &axis, err);
        if (code == TUTTI_OK) {
            code = args->form == TUTTI_FORM_STACK ? take_away(&part, axis, size, err)
                                                  : shrink_dim(&part, axis, size, err);
        }
    }
    if (code == TUTTI_OK) {
        *ret_part = part;
    }
    return code;
}

static tutti_code
sum_splits(const int64_t *splits, uint32_t count, int64_t *ret_sum, tutti_error *err)
{
    int64_t sum = 0;
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (splits[i] < 0 || __builtin_add_overflow(sum, splits[i], &sum)) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                                  "split %" PRIu32 " is %" PRId64 ", need 0 or more", i, splits[i]);
        }
    }
    *ret_sum = sum;
    return TUTTI_OK;
}

/* Rows of any number to and from each rank. */
static tutti_code
infer_splits(const tutti_coll_args *args, uint32_t size, tutti_spec *result, tutti_error *err)
{
    int64_t out = 0;

    if (args->split_count != size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                              "%" PRIu32 " splits for %" PRIu32
                              " ranks: need input and output splits, one for each rank",
                              args->split_count, size);
    }
    TUTTI_TRY(sum_splits(args->send_splits, size, &out, err));
    if (out != args->spec.dims[0]) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                              "input splits of %" PRId64
                              " rows in all, but the tensor has %" PRId64,
                              out, args->spec.dims[0]);
    }
    TUTTI_TRY(sum_splits(args->recv_splits, size, &result->dims[0], err));
    return tutti_spec_check(result, NULL, NULL, err);
}

/* Rows of any number for each rank, of a scatter. */
static tutti_code
infer_rows(const tutti_coll_args *args, uint32_t size, uint32_t group_rank, tutti_spec *result,
           tutti_error *err)
{
    int64_t rows = 0;

    TUTTI_TRY(check_scalar(&args->spec, err));

    if (args->split_count != size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                              "%" PRIu32 " splits for %" PRIu32 " ranks, need one for each rank",
                              args->split_count, size);
    }
    TUTTI_TRY(sum_splits(args->root_splits, size, &rows, err));
    if (rows != args->spec.dims[0]) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                              "splits of %" PRId64 " rows in all, but the tensor has %" PRId64,
                              rows, args->spec.dims[0]);
    }
    result->dims[0] = args->root_splits[group_rank];
    return TUTTI_OK;
}

/* A part of what is scattered or reduced. */
tutti_code
tutti_coll_infer_cut(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                     tutti_spec *result, tutti_error *err)
{
    if (!args->has_spec) {
        return TUTTI_OK;
    }
    if (args->form == TUTTI_FORM_LIST) {
        return tutti_coll_infer_pick(args, size, group_rank, result, err);
    }
    if (args->root_splits != NULL) {
        return infer_rows(args, size, group_rank, result, err);
    }
    return tutti_coll_infer_part(args, size, result, err);
}

tutti_code
tutti_coll_infer_all_to_all(const tutti_coll_args *args, uint32_t size, tutti_spec *result,
                            tutti_error *err)
{
    tutti_code code = check_scalar(&args->spec, err);

    *result = args->spec;
    if (code == TUTTI_OK && args->has_splits) {
        return infer_splits(args, size, result, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_coll_check_axis(&args->spec, args->axis, args->spec.dim_count, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_coll_check_axis(&args->spec, args->concat_axis, args->spec.dim_count, err);
    }
    if (code == TUTTI_OK) {
        code = shrink_dim(result, args->axis, size, err);
    }
    return code == TUTTI_OK ? tutti_coll_grow_axis(result, args->concat_axis, size, err) : code;
}
