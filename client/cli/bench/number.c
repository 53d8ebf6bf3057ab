/*
 * The numbers of every dtype, read and written without the agents' code: the checker must not
 * share a mistake with what it checks. It works on doubles, which hold all numbers that the
 * patterns use exactly.
 */
#include "client/cli/bench/number.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ------------------------------------------------------------------------------ 16 bits */

/* Rounded to nearest, ties to even, by the machine's own rounding of whole numbers. */
static uint16_t
half_of(double number)
{
    const uint16_t sign = signbit(number) ? 0x8000 : 0;
    int exponent;
    double part = frexp(fabs(number), &exponent); /* 0.5 <= part < 1 */
    double scaled;

    if (number == 0) {
        return sign;
    }
    scaled = nearbyint(ldexp(part, 11)); /* 1024 to 2048 */
    if (scaled >= 2048) {
        scaled = 1024;
        exponent++;
    }
    if (exponent > 16) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (exponent < -13) { /* subnormal */
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(fabs(number), 24)));
    }
    return (uint16_t)(sign | (uint16_t)((exponent + 14) << 10) | ((uint16_t)scaled & 0x3ff));
}

/* The inverse of half_of; subnormal numbers have the exponent 0 and no hidden bit. */
static double
half_to(uint16_t bits)
{
    const int exponent = (bits >> 10) & 0x1f;
    const int part = bits & 0x3ff;
    double number;

    if (exponent == 0x1f) {
        number = part == 0 ? (double)INFINITY : (double)NAN;
    } else {
        number = exponent == 0 ? ldexp(part, -24) : ldexp(part + 1024, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -number : number;
}

/* BF16 is the upper half of an FP32, rounded to nearest, ties to even. */
static uint16_t
brain_of(double number)
{
    const float single = (float)number;
    uint32_t bits;

    memcpy(&bits, &single, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* no NaN comes here */
}

static double
brain_to(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float single;

    memcpy(&single, &wide, sizeof(single));
    return (double)single;
}

/* ------------------------------------------------------------------------------ elements */

bool
bench_number_is_float(tutti_dtype dtype)
{
    return bench_number_unit(dtype) > 0;
}

double
bench_number_unit(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_DTYPE_FP16:
        return 0x1p-10;
    case TUTTI_DTYPE_BF16:
        return 0x1p-7;
    case TUTTI_DTYPE_FP32:
    case TUTTI_DTYPE_COMPLEX64:
        return (double)FLT_EPSILON;
    case TUTTI_DTYPE_FP64:
    case TUTTI_DTYPE_COMPLEX128:
        return DBL_EPSILON;
    default:
        return 0;
    }
}

double
bench_number_wrap(tutti_dtype dtype, double number)
{
    const int64_t whole = (int64_t)number;

    switch (dtype) {
    case TUTTI_DTYPE_UINT8:
        return (double)(uint8_t)whole;
    case TUTTI_DTYPE_UINT16:
        return (double)(uint16_t)whole;
    case TUTTI_DTYPE_INT8:
        return (double)(int8_t)whole;
    case TUTTI_DTYPE_INT16:
        return (double)(int16_t)whole;
    default:
        return number; /* what we join stays far below 31 bits */
    }
}

static void
store_float(tutti_dtype dtype, const double number[2], void *ret_element)
{
    const float singles[2] = {(float)number[0], (float)number[1]};
    const uint16_t short_one = dtype == TUTTI_DTYPE_FP16 ? half_of(number[0]) : brain_of(number[0]);

    switch (dtype) {
    case TUTTI_DTYPE_FP32:
    case TUTTI_DTYPE_COMPLEX64:
        memcpy(ret_element, singles, tutti_dtype_bytes(dtype));
        break;
    case TUTTI_DTYPE_FP64:
    case TUTTI_DTYPE_COMPLEX128:
        memcpy(ret_element, number, tutti_dtype_bytes(dtype));
        break;
    default:
        memcpy(ret_element, &short_one, sizeof(short_one));
        break;
    }
}

/* Whole numbers are written byte by byte, lowest first, as all machines here have it. */
void
bench_number_store(tutti_dtype dtype, const double number[2], void *ret_element)
{
    const size_t size = tutti_dtype_bytes(dtype);
    uint64_t bits = (uint64_t)(int64_t)number[0];
    size_t i;

    if (bench_number_is_float(dtype)) {
        store_float(dtype, number, ret_element);
        return;
    }
    for (i = 0; i < size; i++, bits >>= 8) {
        ((unsigned char *)ret_element)[i] = (unsigned char)(bits & 0xff);
    }
}

/* Only for floats: integers are compared as bytes, so nobody reads them. */
void
bench_number_load(tutti_dtype dtype, const void *element, double ret_number[2])
{
    float singles[2] = {0, 0};
    uint16_t bits = 0;

    ret_number[0] = 0;
    ret_number[1] = 0;
    switch (dtype) {
    case TUTTI_DTYPE_FP64:
    case TUTTI_DTYPE_COMPLEX128:
        memcpy(ret_number, element, tutti_dtype_bytes(dtype));
        break;
    case TUTTI_DTYPE_FP32:
    case TUTTI_DTYPE_COMPLEX64:
        memcpy(singles, element, tutti_dtype_bytes(dtype));
        ret_number[0] = (double)singles[0];
        ret_number[1] = (double)singles[1];
        break;
    default:
        memcpy(&bits, element, sizeof(bits));
        ret_number[0] = dtype == TUTTI_DTYPE_FP16 ? half_to(bits) : brain_to(bits);
        break;
    }
}
