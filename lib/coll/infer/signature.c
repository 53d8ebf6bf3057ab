/*
 * What a rank called, in the form that ranks compare. Pure, any thread.
 *
 * u32  kind (8 bits), flags (8), reduce op (8), flags above 8 bits (8)
 * u32  root, u32 axis, u32 concat axis or checksum of a permutation
 * spec if FLAG_SPEC; count and two sums if it is a list; u64 step if FLAG_STEP, always the last
 *
 * Two calls that may be one op must have equal bytes or fit by tutti_signature_compare, and bytes
 * that are equal must mean the same call: so what ranks need not have alike (rows with splits,
 * shapes of open lists) is written as 0. Long things travel as checksums: differences are found,
 * not named in detail. A checksum that collides leads to an op with different lists on different
 * ranks, which ends in a wrong size, not in silence.
 */
#include "coll/infer/signature.h"

#include <string.h>

#include "base/error/fail.h"
#include "coll/packet/packet.h"

#define FLAG_SPEC 1
#define FLAG_COUNT 2
#define FLAG_STACK 4
#define FLAG_SPLITS 8
#define FLAG_LIST 16
#define FLAG_COALESCED 32
#define FLAG_ROOT_INFO 64 /* the root has more to tell than a signature holds */
#define FLAG_DEVICE 128
#define FLAG_STEP 256 /* 0 does not travel */
#define STEP_BYTES 8
#define FNV_START 2166136261u /* FNV-1a: Fowler, Noll, Vo 1991 */
#define FNV_PRIME 16777619u

static uint32_t
add_to_sum(uint32_t sum, uint32_t number)
{
    int byte;

    for (byte = 0; byte < 4; byte++) {
        sum = (sum ^ (number >> (8 * byte) & 0xff)) * FNV_PRIME;
    }
    return sum;
}

/* A checksum: ranks that say different permutations are found, not named in detail. */
static uint32_t
permutation_sum(const tutti_coll_args *args)
{
    uint32_t sum = FNV_START;
    uint32_t i;

    for (i = 0; i < args->to_count; i++) {
        sum = add_to_sum(sum, args->to[i]);
    }
    return sum;
}

/* Of a call that was read the sums are all there is. */
static uint32_t
dtype_sum(const tutti_coll_args *args)
{
    uint32_t sum = FNV_START;
    uint32_t i;

    if (args->list == NULL) {
        return args->dtype_sum;
    }
    for (i = 0; i < args->list_count; i++) {
        sum = add_to_sum(sum, (uint32_t)args->list[i].spec.dtype);
    }
    return sum;
}

/* With the axes: they belong to the shape in which a part comes out. Where each rank has shapes of
 * its own, nothing. */
static uint32_t
shape_sum(const tutti_coll_args *args)
{
    uint32_t sum = FNV_START;
    uint32_t i;
    uint32_t d;

    if (args->list == NULL || tutti_signature_is_open(args)) {
        return args->list == NULL ? args->shape_sum : 0;
    }
    for (i = 0; i < args->list_count; i++) {
        const tutti_spec *spec = &args->list[i].spec;

        sum = add_to_sum(add_to_sum(sum, spec->dim_count), args->list[i].axis);
        for (d = 0; d < spec->dim_count; d++) {
            sum = add_to_sum(sum, (uint32_t)spec->dims[d]);
            sum = add_to_sum(sum, (uint32_t)((uint64_t)spec->dims[d] >> 32));
        }
    }
    return sum;
}

/* Flat is a way to look at what is joined, or cut, along the first dimension. */
static bool
is_flat(const tutti_coll_args *args)
{
    return args->form == TUTTI_FORM_FLAT;
}

bool
tutti_signature_is_open(const tutti_coll_args *args)
{
    return args->form == TUTTI_FORM_LIST && args->kind != TUTTI_COLL_SCATTER &&
           args->kind != TUTTI_COLL_REDUCE_SCATTER;
}

bool
tutti_signature_has_root_info(const tutti_coll_args *args)
{
    return tutti_coll_is_from_root(args->kind) && args->has_spec && !args->count_only &&
           (args->coalesced || args->root_splits != NULL || args->meta.size > 0);
}

static uint32_t
flags_of(const tutti_coll_args *args)
{
    return (args->has_spec ? FLAG_SPEC : 0u) | (args->count_only ? FLAG_COUNT : 0u) |
           (args->form == TUTTI_FORM_STACK ? FLAG_STACK : 0u) |
           (args->form == TUTTI_FORM_LIST ? FLAG_LIST : 0u) |
           (args->has_splits ? FLAG_SPLITS : 0u) | (args->coalesced ? FLAG_COALESCED : 0u) |
           (tutti_signature_has_root_info(args) ? FLAG_ROOT_INFO : 0u) |
           (args->on_device ? FLAG_DEVICE : 0u) | (args->step != 0 ? FLAG_STEP : 0u);
}

/* What of the shape all ranks must have alike; the rest is 0. */
static tutti_spec
common_spec(const tutti_coll_args *args)
{
    tutti_spec spec = args->spec;

    if (args->has_splits && spec.dim_count > 0) {
        spec.dims[0] = 0; /* each rank has its own number of rows */
    }
    if (tutti_signature_is_open(args)) {
        spec.dim_count = 0;
    }
    return spec;
}

size_t
tutti_signature_write(const tutti_coll_args *args, unsigned char *ret_bytes)
{
    const tutti_spec spec = common_spec(args);
    size_t size = 16;

    tutti_packet_put_u32(ret_bytes, (uint32_t)args->kind | (flags_of(args) & 0xff) << 8 |
                                        (uint32_t)args->reduce << 16 | flags_of(args) >> 8 << 24);
    tutti_packet_put_u32(ret_bytes + 4, args->root);
    tutti_packet_put_u32(ret_bytes + 8, is_flat(args) || args->coalesced ? 0 : args->axis);
    tutti_packet_put_u32(ret_bytes + 12,
                         args->to != NULL ? permutation_sum(args) : args->concat_axis);
    if (args->has_spec) {
        size += tutti_packet_write_spec(&spec, ret_bytes + size);
    }
    if (args->has_spec && args->list_count > 0) {
        tutti_packet_put_u32(ret_bytes + size, args->list_count);
        tutti_packet_put_u32(ret_bytes + size + 4, dtype_sum(args));
        tutti_packet_put_u32(ret_bytes + size + 8, shape_sum(args));
        size += 12;
    }
    if (args->step != 0) {
        tutti_packet_put_u32(ret_bytes + size, (uint32_t)args->step);
        tutti_packet_put_u32(ret_bytes + size + 4, (uint32_t)(args->step >> 32));
        size += STEP_BYTES;
    }
    return size;
}

static void
read_flags(uint32_t flags, tutti_coll_args *args)
{
    args->has_spec = (flags & FLAG_SPEC) != 0;
    args->count_only = (flags & FLAG_COUNT) != 0;
    args->form = (flags & FLAG_LIST) != 0    ? TUTTI_FORM_LIST
                 : (flags & FLAG_STACK) != 0 ? TUTTI_FORM_STACK
                                             : TUTTI_FORM_CONCAT;
    args->has_splits = (flags & FLAG_SPLITS) != 0;
    args->coalesced = (flags & FLAG_COALESCED) != 0;
    args->on_device = (flags & FLAG_DEVICE) != 0;
    args->meta.size = (flags & FLAG_ROOT_INFO) != 0 ? 1 : 0;
}

/*
 * Bytes of another rank. Exactly the fields that the flags name must be there, and nothing behind
 * them; the step's 8 bytes are taken off the end first. A value that tutti_signature_write never
 * makes (a step of 0, an empty list with sums) is malformed.
 */
bool
tutti_signature_read(const void *bytes, size_t size, tutti_coll_args *ret_args)
{
    const unsigned char *at = bytes;
    uint32_t word;
    size_t used = 0;

    *ret_args = (tutti_coll_args){0};
    if (size < 16) {
        return false;
    }
    word = tutti_packet_get_u32(at);
    if ((word >> 24 & ~(uint32_t)(FLAG_STEP >> 8)) != 0) {
        return false;
    }
    ret_args->kind = (tutti_coll_kind)(word & 0xff);
    read_flags(word >> 8 & 0xff, ret_args);
    ret_args->reduce = (tutti_reduce)(word >> 16 & 0xff);
    ret_args->root = tutti_packet_get_u32(at + 4);
    ret_args->axis = ret_args->coalesced ? 0 : tutti_packet_get_u32(at + 8); /* each its own */
    ret_args->concat_axis = tutti_packet_get_u32(at + 12);
    at += 16;
    size -= 16;
    if ((word >> 24) != 0) {
        if (size < STEP_BYTES) {
            return false;
        }
        size -= STEP_BYTES;
        ret_args->step =
            tutti_packet_get_u32(at + size) | (uint64_t)tutti_packet_get_u32(at + size + 4) << 32;
        if (ret_args->step == 0) {
            return false;
        }
    }
    if (ret_args->has_spec) {
        used = tutti_packet_read_spec(at, size, &ret_args->spec);
        if (used == 0) {
            return false;
        }
        ret_args->spec = common_spec(ret_args);
    }
    if (size - used == 12) {
        ret_args->list_count = tutti_packet_get_u32(at + used);
        ret_args->dtype_sum = tutti_packet_get_u32(at + used + 4);
        ret_args->shape_sum = tutti_packet_get_u32(at + used + 8);
        used += ret_args->list_count > 0 ? 12 : 0; /* else malformed */
    }
    return used == size && (ret_args->has_spec || ret_args->list_count == 0);
}

/* Of the specs alone: a destination's count is enough for it. */
static tutti_signature_field
compare_specs(const tutti_coll_args *left, const tutti_coll_args *right)
{
    if (!left->has_spec || !right->has_spec) {
        return tutti_coll_is_from_root(left->kind) || left->has_spec == right->has_spec
                   ? TUTTI_FIELD_NONE
                   : TUTTI_FIELD_SHAPE;
    }
    if (left->spec.dtype != right->spec.dtype) {
        return TUTTI_FIELD_DTYPE;
    }
    if (left->count_only || right->count_only) {
        return tutti_spec_count(&left->spec) == tutti_spec_count(&right->spec) ? TUTTI_FIELD_NONE
                                                                               : TUTTI_FIELD_SHAPE;
    }
    return tutti_spec_same_shape(&left->spec, &right->spec) ? TUTTI_FIELD_NONE : TUTTI_FIELD_SHAPE;
}

static tutti_signature_field
compare_lists(const tutti_coll_args *left, const tutti_coll_args *right)
{
    tutti_signature_field field;

    if (left->list_count != right->list_count) {
        return TUTTI_FIELD_LIST;
    }
    if (left->dtype_sum != right->dtype_sum) {
        return TUTTI_FIELD_DTYPE;
    }
    field = compare_specs(left, right);
    return field == TUTTI_FIELD_NONE && left->shape_sum != right->shape_sum ? TUTTI_FIELD_SHAPE
                                                                            : field;
}

/*
 * The fields in the order of how much a difference explains: if ops differ, there is no use in
 * saying that shapes do. The step comes first: it says that ranks are at different places of their
 * programs.
 */
tutti_signature_field
tutti_signature_compare(const tutti_coll_args *left, const tutti_coll_args *right)
{
    if (left->step != right->step) {
        return TUTTI_FIELD_STEP;
    }
    if (left->kind != right->kind) {
        return TUTTI_FIELD_OP;
    }
    if (left->on_device != right->on_device) {
        return TUTTI_FIELD_DEVICE;
    }
    if (left->reduce != right->reduce) {
        return TUTTI_FIELD_REDUCE;
    }
    if (left->root != right->root) {
        return TUTTI_FIELD_ROOT;
    }
    if (left->kind == TUTTI_COLL_PERMUTE && left->concat_axis != right->concat_axis) {
        return TUTTI_FIELD_PERMUTATION;
    }
    if (left->axis != right->axis || left->concat_axis != right->concat_axis) {
        return TUTTI_FIELD_AXIS;
    }
    if (left->form != right->form || left->has_splits != right->has_splits ||
        left->coalesced != right->coalesced) {
        return TUTTI_FIELD_FORM;
    }
    return left->has_spec && right->has_spec ? compare_lists(left, right)
                                             : compare_specs(left, right);
}

const char *
tutti_signature_field_name(tutti_signature_field field)
{
    static const char *const names[] = {"nothing",     "step",          "op",    "device",
                                        "reduce op",   "root",          "axis",  "form",
                                        "permutation", "list's length", "dtype", "shape"};

    return names[field];
}

const char *
tutti_signature_reason(tutti_signature_field field, tutti_code *ret_code)
{
    *ret_code = TUTTI_INVALID_ARGUMENT;
    if (field == TUTTI_FIELD_DTYPE) {
        return "DTYPE_MISMATCH";
    }
    if (field == TUTTI_FIELD_SHAPE) {
        return "SHAPE_MISMATCH";
    }
    if (field == TUTTI_FIELD_LIST) {
        return "LIST_SIZE";
    }
    *ret_code = TUTTI_FAILED_PRECONDITION;
    return field == TUTTI_FIELD_DEVICE ? "DEVICE_MISMATCH" : "OP_MISMATCH";
}
