/*
 * Gradients of ops. Pure functions.
 *
 * A linear op's gradient op is its adjoint: of the matrix that maps all ranks' inputs to all ranks'
 * results, the transposed. So all-gather and reduce-scatter are each other's, broadcast and reduce,
 * gather and scatter, send and receive; all-reduce by sum is its own, and permute's is the inverse
 * permutation. max and min of all-reduce: the gradient is summed over the ranks, as for sum, and
 * goes to each rank whose input is the result, ties included.
 */
#include "server/agent/autograd/grad_op.h"

#include <assert.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce.h"
#include "server/agent/autograd/tape.h"

static bool
is_linear(tutti_reduce reduce)
{
    return reduce == TUTTI_REDUCE_SUM || reduce == TUTTI_REDUCE_AVG ||
           reduce == TUTTI_REDUCE_PREMUL_SUM;
}

bool
tutti_grad_op_masks(const tutti_coll_args *args)
{
    return args->kind == TUTTI_COLL_ALL_REDUCE &&
           (args->reduce == TUTTI_REDUCE_MAX || args->reduce == TUTTI_REDUCE_MIN);
}

static tutti_code
check_local(tutti_coll_kind kind, tutti_error *err)
{
    if (kind != TUTTI_COLL_ALL_REDUCE && kind != TUTTI_COLL_ALL_GATHER &&
        kind != TUTTI_COLL_REDUCE_SCATTER && kind != TUTTI_COLL_ALL_TO_ALL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_LOCAL_GRAD",
                              "local_grad is for all_reduce, all_gather, reduce_scatter and "
                              "all_to_all");
    }
    return TUTTI_OK;
}

/* 0: the op has no gradient op. */
static tutti_coll_kind
grad_op_kind(tutti_coll_kind kind)
{
    switch (kind) {
    case TUTTI_COLL_BROADCAST:
        return TUTTI_COLL_REDUCE;
    case TUTTI_COLL_REDUCE:
        return TUTTI_COLL_BROADCAST;
    case TUTTI_COLL_ALL_GATHER:
        return TUTTI_COLL_REDUCE_SCATTER;
    case TUTTI_COLL_REDUCE_SCATTER:
        return TUTTI_COLL_ALL_GATHER;
    case TUTTI_COLL_GATHER:
        return TUTTI_COLL_SCATTER;
    case TUTTI_COLL_SCATTER:
        return TUTTI_COLL_GATHER;
    case TUTTI_COLL_SEND:
        return TUTTI_COLL_RECV;
    case TUTTI_COLL_RECV:
        return TUTTI_COLL_SEND;
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_ALL_TO_ALL:
    case TUTTI_COLL_PERMUTE:
    case TUTTI_COLL_BARRIER:
        return kind;
    default:
        return 0;
    }
}

/*
 * Asked before the op runs, so that a program learns at the forward op, and not at Backward, that
 * gradients cannot go back through it.
 */
tutti_code
tutti_grad_op_check(const tutti_coll_args *args, bool local, tutti_error *err)
{
    if (tutti_coll_is_reduction(args->kind) && !is_linear(args->reduce) &&
        !tutti_grad_op_masks(args)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
                              "%s here has no gradient, and the tensor is traced: use sum, avg or "
                              "premul_sum, all_reduce with max or min, or no_grad",
                              tutti_reduce_name(args->reduce));
    }
    if (grad_op_kind(args->kind) == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "NO_GRADIENT",
                              "%s has no gradient, and the tensor is traced: use no_grad",
                              tutti_coll_kind_name(args->kind));
    }
    if (args->has_spec &&
        tutti_reduce_check(TUTTI_REDUCE_PREMUL_SUM, args->spec.dtype, NULL) != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_UNSUPPORTED",
                              "%s has no gradients, and the op is traced",
                              tutti_dtype_name(args->spec.dtype));
    }
    if (args->root_splits != NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "TRACED_LIST",
            "a scatter of uneven parts is not recorded, and the tensor is traced: "
            "call it with no_grad");
    }
    return local ? check_local(args->kind, err) : TUTTI_OK;
}

/* ------------------------------------------------------------------------------ masks */

/*
 * Equality is of bits, so that a NaN that is the result masks the inputs with the same bits: a
 * comparison of floats would let no gradient through. Two zeros of different signs are equal, since
 * max and min take either. Unsigned integers of the dtype's size serve all float formats.
 */
#define MASK_OF(type)                                                                              \
    static void mask_##type(const type *input, const type *output, uint64_t count,                 \
                            unsigned char *mask)                                                   \
    {                                                                                              \
        uint64_t i;                                                                                \
                                                                                                   \
        for (i = 0; i < count; i++) { /* but for the sign, all bits of a zero are 0 */             \
            const type either = input[i] | output[i];                                              \
                                                                                                   \
            mask[i] = input[i] == output[i] || (type)(either << 1) == 0;                           \
        }                                                                                          \
    }

MASK_OF(uint16_t)
MASK_OF(uint32_t)
MASK_OF(uint64_t)

void
tutti_grad_op_mask(const tutti_spec *spec, const void *input, const void *output,
                   unsigned char *mask)
{
    const uint64_t count = tutti_spec_count(spec);

    switch (tutti_dtype_bytes(spec->dtype)) {
    case 2:
        mask_uint16_t(input, output, count, mask);
        break;
    case 4:
        mask_uint32_t(input, output, count, mask);
        break;
    default:
        assert(tutti_dtype_bytes(spec->dtype) == 8);
        mask_uint64_t(input, output, count, mask);
    }
}

/*
 * Zero bytes, not a product with 0: a gradient that is infinite or NaN where the mask is 0 must
 * become zero, and 0 * NaN is NaN.
 */
static void
keep_masked(const tutti_tape_record *record, tutti_tensor *gradient)
{
    const size_t bytes = tutti_dtype_bytes(gradient->spec.dtype);
    const uint64_t count = tutti_spec_count(&gradient->spec);
    const unsigned char *mask = record->mask->data;
    unsigned char *data = gradient->data;
    uint64_t i;

    for (i = 0; i < count; i++) {
        if (mask[i] == 0) {
            memset(data + i * bytes, 0, bytes);
        }
    }
}

/* ------------------------------------------------------------------------------ gradient ops */

/*
 * The tag's top bit gives gradients' messages a space of their own, in which no message of the
 * caller can meet them. Splits and axes change sides. An all-reduce by avg is its own gradient op,
 * so factor_of has nothing to add there.
 */
void
tutti_grad_op_args(const tutti_tape_record *record, tutti_coll_args *ret_args, bool *ret_gives)
{
    const tutti_coll_args *args = &record->args;
    const bool avg = args->kind == TUTTI_COLL_ALL_REDUCE && args->reduce == TUTTI_REDUCE_AVG;

    *ret_args = (tutti_coll_args){
        .kind = grad_op_kind(args->kind),
        .reduce = avg ? TUTTI_REDUCE_AVG : TUTTI_REDUCE_SUM,
        .root = args->root,
        .peer = args->peer,
        .tag = args->tag ^ (1U << 31), /* a space of their own */
        .axis = args->kind == TUTTI_COLL_ALL_TO_ALL ? args->concat_axis : args->axis,
        .concat_axis = args->axis,
        .form = args->form,
        .has_splits = args->has_splits,
        .split_count = args->split_count,
        .send_splits = args->recv_splits,
        .recv_splits = args->send_splits,
        .to = args->to, /* the inverse already */
        .to_count = args->to_count,
    };
    if (args->form == TUTTI_FORM_FLAT && record->in != NULL) {
        ret_args->flat = &record->in->spec;
    }
    *ret_gives = record->result.dtype != TUTTI_DTYPE_NONE;
}

static void
scale_grad_op(double factor, tutti_tensor *gradient)
{
    const void *inputs[1] = {gradient->data};

    if (factor != 1) {
        tutti_reduce_run(TUTTI_REDUCE_PREMUL_SUM, gradient->spec.dtype, inputs, 1, &factor,
                         tutti_spec_count(&gradient->spec), gradient->data);
    }
}

/*
 * By what this rank's input was multiplied, as far as the gradient op does not do it itself: the
 * avg of an all_reduce is in the op, unless the record is local.
 */
static double
factor_of(const tutti_tape_record *record)
{
    const tutti_coll_args *args = &record->args;

    if (!tutti_coll_is_reduction(args->kind)) {
        return 1;
    }
    if (args->reduce == TUTTI_REDUCE_PREMUL_SUM) {
        return args->factor;
    }
    return args->reduce == TUTTI_REDUCE_AVG &&
                   (record->local || args->kind != TUTTI_COLL_ALL_REDUCE)
               ? 1.0 / record->size
               : 1;
}

bool
tutti_grad_op_is_plain(const tutti_tape_record *record)
{
    return !record->local && !tutti_grad_op_masks(&record->args) && factor_of(record) == 1;
}

void
tutti_grad_op_finish(const tutti_tape_record *record, tutti_tensor *gradient)
{
    scale_grad_op(factor_of(record), gradient);
    if (record->mask != NULL) {
        keep_masked(record, gradient);
    }
}

/* ------------------------------------------------------------------------------ one rank alone */

/* A part of a tensor: `rows` blocks of bytes, one behind the other every `stride` bytes. */
typedef struct part {
    uint64_t rows;
    uint64_t bytes;
    uint64_t stride;
    uint64_t offset;
} part;

/*
 * `bytes` is a block's length within one row of the dimensions before `axis`. A tensor without
 * elements has no rows to divide by.
 */
static part
part_of(const tutti_tape_record *record, const tutti_spec *whole, uint32_t axis)
{
    part result = {.rows = 1, .bytes = tutti_spec_bytes(whole) / record->size};
    uint32_t i;

    if (record->args.form != TUTTI_FORM_FLAT) {
        for (i = 0; i < axis; i++) {
            result.rows *= (uint64_t)whole->dims[i];
        }
    }
    result.bytes = result.rows == 0 ? 0 : result.bytes / result.rows;
    result.stride = result.bytes * record->size;
    result.offset = result.bytes * record->rank;
    return result;
}

/* Rows of our own in parts of any length along dimension 0. */
static part
part_of_splits(const tutti_tape_record *record, const tutti_spec *whole, const int64_t *splits)
{
    const uint64_t length = (uint64_t)whole->dims[0];
    const uint64_t row_bytes = length == 0 ? 0 : tutti_spec_bytes(whole) / length;
    part result = {.rows = 1, .bytes = row_bytes * (uint64_t)splits[record->rank]};
    uint32_t i;

    for (i = 0; i < record->rank; i++) {
        result.offset += row_bytes * (uint64_t)splits[i];
    }
    return result;
}

/*
 * As many bytes in both. `piece` is the shorter of the two block lengths; one divides the other, as
 * both are products of dimensions of the same elements, so no piece crosses a block's end in
 * either.
 */
static void
copy_part(const part *from, const void *source, const part *to, void *target)
{
    const uint64_t piece = from->bytes < to->bytes ? from->bytes : to->bytes;
    const uint64_t bytes = from->rows * from->bytes;
    uint64_t at;

    for (at = 0; at < bytes; at += piece) {
        const uint64_t read = from->offset + at / from->bytes * from->stride + at % from->bytes;
        const uint64_t write = to->offset + at / to->bytes * to->stride + at % to->bytes;

        memcpy((unsigned char *)target + write, (const unsigned char *)source + read, piece);
    }
}

void
tutti_grad_op_local(const tutti_tape_record *record, const tutti_tensor *gradient,
                    tutti_tensor *ret)
{
    const tutti_coll_args *args = &record->args;
    const tutti_spec *result = &record->result;
    part from = {.rows = 1, .bytes = gradient->bytes};
    part to = {.rows = 1, .bytes = ret->bytes};

    if (args->kind == TUTTI_COLL_ALL_TO_ALL && args->has_splits) {
        from = part_of_splits(record, result, args->recv_splits);
        to = part_of_splits(record, &args->spec, args->send_splits);
    } else if (args->kind == TUTTI_COLL_ALL_TO_ALL) {
        from = part_of(record, result, args->concat_axis);
        to = part_of(record, &args->spec, args->axis);
    } else if (args->kind == TUTTI_COLL_ALL_GATHER) {
        from = part_of(record, result, args->axis);
    } else if (args->kind == TUTTI_COLL_REDUCE_SCATTER) {
        to = part_of(record, &args->spec, args->axis);
    }
    copy_part(&from, gradient->data, &to, ret->data);
    tutti_grad_op_finish(record, ret);
}
