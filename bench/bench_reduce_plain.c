#include "bench_reduce_plain.h"

#include <stdint.h>
#include <string.h>

#define PLAIN(name, ELEMENT, TERM, widen, join, narrow)                                            \
    void name(const void *const *inputs, size_t input_count, size_t count, void *output)           \
    {                                                                                              \
        ELEMENT *out = output;                                                                     \
        size_t i;                                                                                  \
        size_t k;                                                                                  \
                                                                                                   \
        for (i = 0; i < count; i++) {                                                              \
            TERM total = widen(((const ELEMENT *)inputs[0])[i]);                                   \
                                                                                                   \
            for (k = 1; k < input_count; k++) {                                                    \
                const TERM term = widen(((const ELEMENT *)inputs[k])[i]);                          \
                                                                                                   \
                total = (TERM)(join);                                                              \
            }                                                                                      \
            out[i] = narrow(total);                                                                \
        }                                                                                          \
    }

static float
float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t
bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float
widen_bf16(uint16_t element)
{
    return float_of((uint32_t)element << 16);
}

static uint16_t
narrow_bf16(float value)
{
    const uint32_t bits = bits_of(value);

    if (value != value) {
        return 0x7fc0;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float
widen_fp16(uint16_t element)
{
    const uint32_t sign = (uint32_t)(element & 0x8000) << 16;
    const uint32_t exponent = element >> 10 & 31;
    const uint32_t fraction = element & 1023;
    const float tiny = (float)fraction * 0x1p-24f;

    if (exponent == 31) {
        return float_of(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent == 0) {
        return sign != 0 ? -tiny : tiny;
    }
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t
narrow_fp16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7fffffff;

    if (size > 0x7f800000) {
        return 0x7e00;
    }
    if (size >= 0x47800000) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (size < 0x38800000) {
        return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | (size - 0x38000000 + 0x0fff + (size >> 13 & 1)) >> 13);
}

PLAIN(plain_sum_fp32, float, float, , total + term, )
PLAIN(plain_sum_fp16, uint16_t, float, widen_fp16, total + term, narrow_fp16)
PLAIN(plain_sum_bf16, uint16_t, float, widen_bf16, total + term, narrow_bf16)
PLAIN(plain_sum_int8, int8_t, int8_t, , total + term, )
PLAIN(plain_max_fp64, double, double, , term > total ? term : total, )
