/*
 * Reductions that NCCL lacks: BOOL, 16-bit integers, bit ops, AVG of integers. The rules are those
 * of coll/reduce/reduce.h, in the order of the inputs; tests/conformance compares the two.
 */
#include <stdint.h>

#include "coll/nccl/kernel.h"
#include "tutti/types.h"

/* Products and sums wrap: calculated without a sign, in at least 32 bits. */
template <typename T, typename U> struct Integer {
    static __device__ T
    join(T left, T right, uint32_t reduce)
    {
        switch (reduce) {
        case TUTTI_REDUCE_PROD:
            return (T)((U)left * (U)right);
        case TUTTI_REDUCE_MIN:
            return left < right ? left : right;
        case TUTTI_REDUCE_MAX:
            return left > right ? left : right;
        case TUTTI_REDUCE_BAND:
            return (T)(left & right);
        case TUTTI_REDUCE_BOR:
            return (T)(left | right);
        case TUTTI_REDUCE_BXOR:
            return (T)(left ^ right);
        default:
            return (T)((U)left + (U)right);
        }
    }

    static __device__ T
    take(T value)
    {
        return value;
    }

    /* Truncated toward zero, as C divides: in 64 bits, which hold the count beside any value. */
    static __device__ T
    end(T value, uint32_t reduce, uint32_t inputs)
    {
        if (reduce != TUTTI_REDUCE_AVG) {
            return value;
        }
        return (T)-1 < (T)0 ? (T)((int64_t)value / (int64_t)inputs)
                            : (T)((uint64_t)value / (uint64_t)inputs);
    }
};

/* Any byte but 0 is true, true is written as 1. */
struct Bool {
    static __device__ uint8_t
    join(uint8_t left, uint8_t right, uint32_t reduce)
    {
        switch (reduce) {
        case TUTTI_REDUCE_PROD:
        case TUTTI_REDUCE_MIN:
        case TUTTI_REDUCE_BAND:
            return left & right;
        case TUTTI_REDUCE_BXOR:
            return left ^ right;
        default:
            return left | right;
        }
    }

    static __device__ uint8_t
    take(uint8_t value)
    {
        return value != 0;
    }

    static __device__ uint8_t
    end(uint8_t value, uint32_t, uint32_t)
    {
        return value;
    }
};

template <typename T, typename Rules>
static __device__ void
reduce(const nccl_kernel_args &args)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    const unsigned char *bytes = (const unsigned char *)args.inputs;
    T *output = (T *)args.output;

    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.count; i += step) {
        T value = Rules::take(((const T *)bytes)[i]);

        for (uint32_t k = 1; k < args.input_count; k++) {
            value = Rules::join(value, Rules::take(((const T *)(bytes + k * args.stride))[i]),
                                args.reduce);
        }
        output[i] = Rules::end(value, args.reduce, args.input_count);
    }
}

#define KERNEL(name, T, rules)                                                                     \
    extern "C" __global__ void tutti_reduce_##name(nccl_kernel_args args)                          \
    {                                                                                              \
        reduce<T, rules>(args);                                                                    \
    }
#define INTEGER(T, U) Integer<T, U>

KERNEL(BOOL, uint8_t, Bool)
KERNEL(UINT8, uint8_t, INTEGER(uint8_t, uint32_t))
KERNEL(UINT16, uint16_t, INTEGER(uint16_t, uint32_t))
KERNEL(UINT32, uint32_t, INTEGER(uint32_t, uint32_t))
KERNEL(UINT64, uint64_t, INTEGER(uint64_t, uint64_t))
KERNEL(INT8, int8_t, INTEGER(int8_t, uint32_t))
KERNEL(INT16, int16_t, INTEGER(int16_t, uint32_t))
KERNEL(INT32, int32_t, INTEGER(int32_t, uint32_t))
KERNEL(INT64, int64_t, INTEGER(int64_t, uint64_t))
