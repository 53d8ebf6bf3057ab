/*
 * Integers are 64 bits wide here and cut at the end; floats of 16 bits are what their definition
 * says, by ldexp, and rounded by counting in units of their last place.
 */
#include "reduce_reference.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SUM (1u << TUTTI_REDUCE_SUM)
#define PROD (1u << TUTTI_REDUCE_PROD)
#define MIN (1u << TUTTI_REDUCE_MIN)
#define MAX (1u << TUTTI_REDUCE_MAX)
#define AVG (1u << TUTTI_REDUCE_AVG)
#define BAND (1u << TUTTI_REDUCE_BAND)
#define BOR (1u << TUTTI_REDUCE_BOR)
#define BXOR (1u << TUTTI_REDUCE_BXOR)
#define PREMUL (1u << TUTTI_REDUCE_PREMUL_SUM)

#define OF_BOOLS (SUM | PROD | MIN | MAX | BAND | BOR | BXOR)
#define OF_INTEGERS (SUM | PROD | MIN | MAX | AVG | BAND | BOR | BXOR)
#define OF_FLOATS (SUM | PROD | MIN | MAX | AVG | PREMUL)
#define OF_COMPLEX (SUM | AVG | PREMUL)

static const struct {
    unsigned ops;
    char kind;       /* bool, unsigned, signed, float, complex */
    int significand; /* of floats: bits, the hidden one too */
    int exponent;    /* of the smallest normal number */
    tutti_dtype part;
} rows[] = {
    [TUTTI_DTYPE_BOOL] = {.ops = OF_BOOLS, .kind = 'b'},
    [TUTTI_DTYPE_UINT8] = {.ops = OF_INTEGERS, .kind = 'u'},
    [TUTTI_DTYPE_UINT16] = {.ops = OF_INTEGERS, .kind = 'u'},
    [TUTTI_DTYPE_UINT32] = {.ops = OF_INTEGERS, .kind = 'u'},
    [TUTTI_DTYPE_UINT64] = {.ops = OF_INTEGERS, .kind = 'u'},
    [TUTTI_DTYPE_INT8] = {.ops = OF_INTEGERS, .kind = 's'},
    [TUTTI_DTYPE_INT16] = {.ops = OF_INTEGERS, .kind = 's'},
    [TUTTI_DTYPE_INT32] = {.ops = OF_INTEGERS, .kind = 's'},
    [TUTTI_DTYPE_INT64] = {.ops = OF_INTEGERS, .kind = 's'},
    [TUTTI_DTYPE_FP16] = {.ops = OF_FLOATS, .kind = 'f', .significand = 11, .exponent = -14},
    [TUTTI_DTYPE_BF16] = {.ops = OF_FLOATS, .kind = 'f', .significand = 8, .exponent = -126},
    [TUTTI_DTYPE_FP32] = {.ops = OF_FLOATS, .kind = 'f'},
    [TUTTI_DTYPE_FP64] = {.ops = OF_FLOATS, .kind = 'f'},
    [TUTTI_DTYPE_COMPLEX64] = {.ops = OF_COMPLEX, .kind = 'c', .part = TUTTI_DTYPE_FP32},
    [TUTTI_DTYPE_COMPLEX128] = {.ops = OF_COMPLEX, .kind = 'c', .part = TUTTI_DTYPE_FP64},
    [TUTTI_DTYPE_FP8_E4M3] = {.ops = 0},
    [TUTTI_DTYPE_FP8_E5M2] = {.ops = 0},
};

bool
reference_allows(tutti_reduce reduce, tutti_dtype dtype)
{
    return dtype > 0 && dtype < sizeof(rows) / sizeof(rows[0]) && reduce > 0 && reduce < 32 &&
           (rows[dtype].ops & 1u << reduce) != 0;
}

/* -------------------------------------------------------------------------------- integers */

static uint64_t
read_bits(const void *array, size_t bytes, size_t index)
{
    uint64_t bits = 0;

    memcpy(&bits, (const char *)array + index * bytes, bytes); /* little-endian, as tensors are */
    return bits;
}

static int64_t
extend(uint64_t bits, size_t bytes)
{
    const unsigned shift = 64 - 8 * (unsigned)bytes;

    return (int64_t)(bits << shift) >> shift;
}

static uint64_t
join_bits(const reference_job *job, uint64_t left, uint64_t right, size_t bytes)
{
    const bool is_signed = rows[job->dtype].kind == 's';
    const bool less = is_signed ? extend(left, bytes) < extend(right, bytes) : left < right;

    switch (job->reduce) {
    case TUTTI_REDUCE_SUM:
    case TUTTI_REDUCE_AVG:
        return left + right;
    case TUTTI_REDUCE_PROD:
        return left * right;
    case TUTTI_REDUCE_MIN:
        return less ? left : right;
    case TUTTI_REDUCE_MAX:
        return less ? right : left;
    case TUTTI_REDUCE_BAND:
        return left & right;
    case TUTTI_REDUCE_BOR:
        return left | right;
    default:
        return left ^ right;
    }
}

static void
reduce_integer(const reference_job *job, size_t index, void *ret_element)
{
    const size_t bytes = tutti_dtype_bytes(job->dtype);
    const uint64_t mask = bytes == 8 ? UINT64_MAX : (1ULL << 8 * bytes) - 1;
    uint64_t total = read_bits(job->inputs[0], bytes, index);
    size_t i;

    for (i = 1; i < job->input_count; i++) {
        total = join_bits(job, total, read_bits(job->inputs[i], bytes, index), bytes) & mask;
    }
    if (job->reduce == TUTTI_REDUCE_AVG && rows[job->dtype].kind == 's') {
        total = (uint64_t)(extend(total, bytes) / (int64_t)job->input_count);
    } else if (job->reduce == TUTTI_REDUCE_AVG) {
        total /= job->input_count;
    }
    memcpy(ret_element, &total, bytes);
}

static void
reduce_bool(const reference_job *job, size_t index, void *ret_element)
{
    size_t trues = 0;
    size_t i;
    bool result;

    for (i = 0; i < job->input_count; i++) {
        trues += read_bits(job->inputs[i], 1, index) != 0 ? 1 : 0;
    }
    switch (job->reduce) {
    case TUTTI_REDUCE_PROD:
    case TUTTI_REDUCE_MIN:
    case TUTTI_REDUCE_BAND:
        result = trues == job->input_count;
        break;
    case TUTTI_REDUCE_BXOR:
        result = trues % 2 == 1;
        break;
    default:
        result = trues > 0;
    }
    *(unsigned char *)ret_element = result ? 1 : 0;
}

/* ---------------------------------------------------------------------------------- floats */

static double
decode_16(tutti_dtype dtype, uint64_t bits)
{
    const int fraction_bits = rows[dtype].significand - 1;
    const int fraction = (int)(bits & ((1u << fraction_bits) - 1));
    const int exponent = (int)((bits & 0x7fff) >> fraction_bits);
    const int special = (1 << (15 - fraction_bits)) - 1;
    double size;

    if (exponent == special) {
        size = fraction == 0 ? (double)INFINITY : (double)NAN;
    } else if (exponent == 0) {
        size = ldexp(fraction, rows[dtype].exponent - fraction_bits);
    } else {
        size = ldexp(fraction + (1 << fraction_bits),
                     rows[dtype].exponent - fraction_bits + exponent - 1);
    }
    return bits & 0x8000 ? -size : size;
}

static uint16_t
encode_16(tutti_dtype dtype, double value)
{
    const int fraction_bits = rows[dtype].significand - 1;
    const int special = ((1 << (15 - fraction_bits)) - 1) << fraction_bits;
    const int sign = signbit(value) ? 0x8000 : 0;
    int exponent = 0;
    int units;

    if (isnan(value)) {
        return (uint16_t)(special | 1 << (fraction_bits - 1));
    }
    if (isinf(value)) {
        return (uint16_t)(sign | special);
    }
    (void)frexp(value, &exponent); /* the hidden bit is worth 2^(exponent - 1) */
    exponent -= 1;
    if (value == 0.0 || exponent < rows[dtype].exponent) {
        exponent = rows[dtype].exponent;
    }
    units = (int)nearbyint(ldexp(fabs(value), fraction_bits - exponent));
    units += (exponent - rows[dtype].exponent) << fraction_bits;
    return (uint16_t)(sign | (units > special ? special : units));
}

static double
read_float(tutti_dtype dtype, const void *array, size_t index)
{
    float narrow;
    double wide;

    switch (dtype) {
    case TUTTI_DTYPE_FP32:
        memcpy(&narrow, (const char *)array + 4 * index, 4);
        return (double)narrow;
    case TUTTI_DTYPE_FP64:
        memcpy(&wide, (const char *)array + 8 * index, 8);
        return wide;
    default:
        return decode_16(dtype, read_bits(array, 2, index));
    }
}

static void
write_float(tutti_dtype dtype, double value, void *ret_element)
{
    const float narrow = isnan(value) ? NAN : (float)value;
    const double wide = isnan(value) ? (double)NAN : value;
    uint16_t bits;

    switch (dtype) {
    case TUTTI_DTYPE_FP32:
        memcpy(ret_element, &narrow, 4);
        break;
    case TUTTI_DTYPE_FP64:
        memcpy(ret_element, &wide, 8);
        break;
    default:
        bits = encode_16(dtype, value);
        memcpy(ret_element, &bits, 2);
    }
}

/* One operation in FP64, or in FP32: the double result of two floats, rounded, is the float one. */
static double
rounded(tutti_dtype dtype, double value)
{
    return dtype == TUTTI_DTYPE_FP64 ? value : (double)(float)value;
}

static double
join_floats(tutti_reduce reduce, double left, double right)
{
    const bool less = left < right || (left == right && signbit(left) && !signbit(right));

    switch (reduce) {
    case TUTTI_REDUCE_PROD:
        return left * right;
    case TUTTI_REDUCE_MIN:
        return isnan(right) || less ? (isnan(left) ? right : left) : right;
    case TUTTI_REDUCE_MAX:
        return isnan(left) || less ? (isnan(right) ? left : right) : left;
    default:
        return left + right;
    }
}

static double
term_of(const reference_job *job, tutti_dtype dtype, size_t input, size_t index)
{
    const double element = read_float(dtype, job->inputs[input], index);

    if (job->factors == NULL) {
        return element;
    }
    return rounded(dtype, element * rounded(dtype, job->factors[input]));
}

static void
reduce_float(const reference_job *job, tutti_dtype dtype, size_t index, void *ret_element)
{
    double total = term_of(job, dtype, 0, index);
    size_t i;

    for (i = 1; i < job->input_count; i++) {
        total = join_floats(job->reduce, total, term_of(job, dtype, i, index));
        total = rounded(dtype, total);
    }
    if (job->reduce == TUTTI_REDUCE_AVG) {
        total = rounded(dtype, total / (double)job->input_count);
    }
    write_float(dtype, total, ret_element);
}

void
reference_element(const reference_job *job, size_t index, void *ret_element)
{
    const tutti_dtype part = rows[job->dtype].part;

    switch (rows[job->dtype].kind) {
    case 'b':
        reduce_bool(job, index, ret_element);
        break;
    case 'f':
        reduce_float(job, job->dtype, index, ret_element);
        break;
    case 'c':
        reduce_float(job, part, 2 * index, ret_element);
        reduce_float(job, part, 2 * index + 1, (char *)ret_element + tutti_dtype_bytes(part));
        break;
    default:
        reduce_integer(job, index, ret_element);
    }
}
