/* Arguments of ops, checked against the shapes that are known. */
#include "server/agent/op/check.h"

#include <inttypes.h>

#include "base/error/fail.h"

tutti_code
agent_check_inline(uint64_t bytes, tutti_error *err)
{
    if (bytes > TUTTI_INLINE_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INLINE_LIMIT",
                              "a result of %" PRIu64
                              " bytes does not fit into a message (limit %u): use handles",
                              bytes, TUTTI_INLINE_BYTES_MAX);
    }
    return TUTTI_OK;
}

tutti_code
agent_check_output(const tutti_spec *output, const tutti_spec *result, tutti_error *err)
{
    if (output->dtype != result->dtype) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                              "the output is %s, the result %s, need the same dtype",
                              tutti_dtype_name(output->dtype), tutti_dtype_name(result->dtype));
    }
    if (tutti_spec_count(output) != tutti_spec_count(result)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "OUT_SHAPE",
                              "the output has %" PRIu64 " elements, the result %" PRIu64
                              ", need the same number",
                              tutti_spec_count(output), tutti_spec_count(result));
    }
    return TUTTI_OK;
}

tutti_code
agent_check_expected(const tutti_spec *expects, uint32_t expect_count, const tutti_spec *results,
                     uint32_t count, tutti_error *err)
{
    uint32_t i;

    if (expect_count != 0 && expect_count != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "%" PRIu32 " arrays for %" PRIu32
                              " results, need one for each result",
                              expect_count, count);
    }
    for (i = 0; i < expect_count; i++) {
        TUTTI_TRY(agent_check_output(&expects[i], &results[i], err));
    }
    return TUTTI_OK;
}

static bool
has_axis(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_ALL_GATHER || kind == TUTTI_COLL_GATHER ||
           kind == TUTTI_COLL_REDUCE_SCATTER || kind == TUTTI_COLL_ALL_TO_ALL;
}

/*
 * Joining scalars makes a dimension, as stacking does, so gathers take an axis of a scalar. Cutting
 * a scalar is refused by the signature's own check (lib/coll/infer), with the op's number.
 */
tutti_code
agent_take_axes(tutti_coll_args *args, int32_t axis, int32_t concat_axis, tutti_error *err)
{
    const bool joins = args->kind == TUTTI_COLL_ALL_GATHER || args->kind == TUTTI_COLL_GATHER;
    const bool scalar = args->spec.dim_count == 0;

    /* A receiver does not know the number of dimensions, so a negative axis stays as it is, and all
     * ranks' signatures have the same word for it. */
    if (args->kind == TUTTI_COLL_SCATTER) {
        args->axis = args->form == TUTTI_FORM_FLAT ? 0 : (uint32_t)axis;
    }
    if (!has_axis(args->kind) || args->form == TUTTI_FORM_FLAT || args->has_splits ||
        (scalar && !joins)) {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_spec_axis(
        &args->spec, axis, joins && (args->form == TUTTI_FORM_STACK || scalar), &args->axis, err));
    if (args->kind == TUTTI_COLL_ALL_TO_ALL) {
        TUTTI_TRY(tutti_spec_axis(&args->spec, concat_axis, false, &args->concat_axis, err));
    }
    return TUTTI_OK;
}

/*
 * Each tensor of a coalesced op is an op of its own and has its axis. In other lists the tensors
 * are parts, which are not cut.
 */
tutti_code
agent_take_list_axis(const tutti_coll_args *args, int32_t axis, tutti_coll_tensor *tensor,
                     tutti_error *err)
{
    tutti_coll_args one = *args;
    tutti_code code;

    tensor->axis = 0;
    if (!args->coalesced) {
        return TUTTI_OK;
    }
    one.spec = tensor->spec;
    code = agent_take_axes(&one, axis, 0, err);
    tensor->axis = one.axis;
    return code;
}
