/*
 * Our numbers as NCCL's. Factors of PREMUL_SUM are rounded here to the element type, to nearest
 * with ties to even (IEEE 754), since NCCL takes a scalar of that type. A NaN stays a NaN; what is
 * too large for FP16 becomes infinity.
 */
#include "coll/nccl/map.h"

#include <math.h>
#include <string.h>

/* Types that NCCL does not have (BOOL, 16-bit integers) are only moved, as bytes: their reductions
 * are kernels of ours. */
ncclDataType_t
tutti_nccl_type(tutti_dtype dtype, uint32_t *ret_each)
{
    *ret_each = dtype == TUTTI_DTYPE_COMPLEX64 || dtype == TUTTI_DTYPE_COMPLEX128 ? 2 : 1;
    switch (dtype) {
    case TUTTI_DTYPE_UINT32:
        return ncclUint32;
    case TUTTI_DTYPE_UINT64:
        return ncclUint64;
    case TUTTI_DTYPE_INT8:
        return ncclInt8;
    case TUTTI_DTYPE_INT32:
        return ncclInt32;
    case TUTTI_DTYPE_INT64:
        return ncclInt64;
    case TUTTI_DTYPE_FP16:
        return ncclFloat16;
    case TUTTI_DTYPE_BF16:
        return ncclBfloat16;
    case TUTTI_DTYPE_FP32:
    case TUTTI_DTYPE_COMPLEX64:
        return ncclFloat32;
    case TUTTI_DTYPE_FP64:
    case TUTTI_DTYPE_COMPLEX128:
        return ncclFloat64;
    default:
        return ncclUint8;
    }
}

ncclRedOp_t
tutti_nccl_op(tutti_reduce reduce)
{
    switch (reduce) {
    case TUTTI_REDUCE_PROD:
        return ncclProd;
    case TUTTI_REDUCE_MIN:
        return ncclMin;
    case TUTTI_REDUCE_MAX:
        return ncclMax;
    case TUTTI_REDUCE_AVG:
        return ncclAvg;
    default:
        return ncclSum;
    }
}

/*
 * A double as a float that rounds to 16 bits as the double would: what does not fit is cut off, and
 * the lowest bit then says that something was (rounding to odd; Boldo and Melquiond 2008). Rounded
 * to nearest instead, a double near the middle of two halves would become that middle, and round to
 * the wrong side.
 */
static float
to_odd_float(double factor)
{
    float single = (float)factor;
    uint32_t bits;

    if (isnan(factor) || (double)single == factor) {
        return single;
    }
    memcpy(&bits, &single, sizeof(bits));
    bits -= fabs((double)single) > fabs(factor) ? 1 : 0; /* towards 0, from infinity too */
    bits |= 1u;
    memcpy(&single, &bits, sizeof(single));
    return single;
}

/* Of a float's bits the upper half, rounded: 0x7fff plus the lowest kept bit makes ties go to even.
 * A NaN could become infinity by that, so it is made anew. */
static uint16_t
to_bf16(float factor)
{
    uint32_t bits;

    memcpy(&bits, &factor, sizeof(bits));
    if (isnan(factor)) {
        return 0x7fc0;
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/*
 * The significand as a whole number of the smallest step at that exponent, which lrintf rounds to
 * even. 65520 is the middle between the largest FP16 and the next step: from there on it is
 * infinity. A carry out of the significand runs into the exponent, which is right.
 */
static uint16_t
to_fp16(float factor)
{
    const uint16_t sign = signbit(factor) != 0 ? 0x8000 : 0;
    const float size = fabsf(factor);
    int exponent = 0;
    long steps;

    if (isnan(factor)) {
        return 0x7e00;
    }
    if (size >= 65520.0f) {
        return sign | 0x7c00;
    }
    (void)frexpf(size, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* subnormal from here */
    steps = lrintf(ldexpf(size, 11 - exponent));
    return (uint16_t)(sign + steps + ((long)(exponent + 13) << 10));
}

void
tutti_nccl_scalar(ncclDataType_t type, double factor, void *ret_scalar)
{
    const float single = (float)factor;
    const float odd = to_odd_float(factor);
    const uint16_t half = type == ncclBfloat16 ? to_bf16(odd) : to_fp16(odd);

    memset(ret_scalar, 0, sizeof(double));
    if (type == ncclFloat64) {
        memcpy(ret_scalar, &factor, sizeof(factor));
    } else if (type == ncclFloat32) {
        memcpy(ret_scalar, &single, sizeof(single));
    } else {
        memcpy(ret_scalar, &half, sizeof(half));
    }
}
