/*
 * Dtype and shape: checked once, then counted without overflow. Pure, any thread. A spec may come
 * from another process; tutti_spec_check is the place where it becomes trusted, and the other
 * functions assert that it was.
 */
#include "tensor/spec.h"

#include <assert.h>
#include <inttypes.h>

#include "base/error/fail.h"

/* "FP32[2, 3] " and then why not; a spec with too many dimensions shows those there are. */
static tutti_code
fail_shape(const tutti_spec *spec, tutti_error *err, const char *why)
{
    char buffer[TUTTI_DIMS_MAX * 24 + 32];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    tutti_spec_describe(spec, &text);
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "%s %s", buffer, why);
}

/* The product of all dimensions. A dimension of 0 does not hide an overflow of the others: shapes
 * are cut and joined, and such a shape without its 0 would have more bytes than can be counted. */
static tutti_code
count_elements(const tutti_spec *spec, uint64_t *ret_count, tutti_error *err)
{
    const uint64_t most = (uint64_t)INT64_MAX / tutti_dtype_bytes(spec->dtype);
    uint64_t product = 1;
    bool empty = false;
    uint32_t i;

    for (i = 0; i < spec->dim_count; i++) {
        const uint64_t dim = (uint64_t)spec->dims[i];

        if (spec->dims[i] < 0) {
            return fail_shape(spec, err, "has a negative dimension, need 0 or more");
        }
        if (dim == 0) {
            empty = true;
        } else if (dim > most / product) {
            return fail_shape(spec, err, "has more than 2^63 - 1 bytes");
        } else {
            product *= dim;
        }
    }
    *ret_count = empty ? 0 : product;
    return TUTTI_OK;
}

tutti_code
tutti_spec_check(const tutti_spec *spec, uint64_t *ret_count, uint64_t *ret_bytes, tutti_error *err)
{
    uint64_t count = 0;

    assert(spec != NULL);
    if (tutti_dtype_bytes(spec->dtype) == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_DTYPE", "dtype %d is unknown",
                              (int)spec->dtype);
    }
    if (spec->dim_count > TUTTI_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                              "%" PRIu32 " dimensions, at most %d", spec->dim_count,
                              TUTTI_DIMS_MAX);
    }
    TUTTI_TRY(count_elements(spec, &count, err));
    if (ret_count != NULL) {
        *ret_count = count;
    }
    if (ret_bytes != NULL) {
        *ret_bytes = count * tutti_dtype_bytes(spec->dtype);
    }
    return TUTTI_OK;
}

uint64_t
tutti_spec_count(const tutti_spec *spec)
{
    uint64_t count = 0;
    const tutti_code code = tutti_spec_check(spec, &count, NULL, NULL);

    assert(code == TUTTI_OK);
    return count;
}

uint64_t
tutti_spec_bytes(const tutti_spec *spec)
{
    return tutti_spec_count(spec) * tutti_dtype_bytes(spec->dtype);
}

bool
tutti_spec_same_shape(const tutti_spec *left, const tutti_spec *right)
{
    uint32_t i;

    if (left->dim_count != right->dim_count) {
        return false;
    }
    for (i = 0; i < left->dim_count; i++) {
        if (left->dims[i] != right->dims[i]) {
            return false;
        }
    }
    return true;
}

bool
tutti_spec_equal(const tutti_spec *left, const tutti_spec *right)
{
    return left->dtype == right->dtype && tutti_spec_same_shape(left, right);
}

void
tutti_spec_describe(const tutti_spec *spec, tutti_text *text)
{
    const uint32_t count = spec->dim_count < TUTTI_DIMS_MAX ? spec->dim_count : TUTTI_DIMS_MAX;

    tutti_text_add(text, "%s", tutti_dtype_name(spec->dtype));
    tutti_text_add_shape(text, spec->dims, count);
}

tutti_code
tutti_spec_axis(const tutti_spec *spec, int32_t axis, bool insert, uint32_t *ret_axis,
                tutti_error *err)
{
    const int64_t places = (int64_t)spec->dim_count + (insert ? 1 : 0);
    const int64_t index = axis < 0 ? axis + places : axis;

    assert(spec->dim_count <= TUTTI_DIMS_MAX);
    if (places == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AXIS",
                              "axis %" PRId32 " of a scalar, which has none", axis);
    }
    if (index < 0 || index >= places) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_AXIS",
                              "axis %" PRId32 " of a tensor of %" PRIu32
                              " dimensions, need %" PRId64 " to %" PRId64,
                              axis, spec->dim_count, -places, places - 1);
    }
    *ret_axis = (uint32_t)index;
    return TUTTI_OK;
}
