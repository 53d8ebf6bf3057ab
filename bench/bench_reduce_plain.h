/* The loops one writes without a thought: the peer of bench_reduce. */
#ifndef TUTTI_BENCH_REDUCE_PLAIN_H
#define TUTTI_BENCH_REDUCE_PLAIN_H

#include <stddef.h>

typedef void (*plain_fn)(const void *const *inputs, size_t input_count, size_t count, void *output);

void plain_sum_fp32(const void *const *inputs, size_t input_count, size_t count, void *output);
void plain_sum_fp16(const void *const *inputs, size_t input_count, size_t count, void *output);
void plain_sum_bf16(const void *const *inputs, size_t input_count, size_t count, void *output);
void plain_sum_int8(const void *const *inputs, size_t input_count, size_t count, void *output);
void plain_max_fp64(const void *const *inputs, size_t input_count, size_t count, void *output);

#endif
