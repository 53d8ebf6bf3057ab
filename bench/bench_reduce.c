/*
 * How fast are reductions, beside memcpy and a plain loop over the same arrays?
 *
 *     bench_reduce [--json]
 *
 * Every case runs the three by turns and keeps the best turn of each, so what else the machine does
 * meets all of them. GB/s are bytes of input read; memcpy reads one array.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "bench_reduce_plain.h"
#include "coll/reduce/reduce.h"

#define INPUTS_MAX 4
#define BYTES_MAX (64U << 20)
#define SKEW 4160 /* not all arrays at the same place of a page */
#define TURNS 15
#define TURN_BYTES (32U << 20) /* of an array, in one turn at least */

typedef struct bench_case {
    tutti_reduce reduce;
    tutti_dtype dtype;
    plain_fn plain;
    size_t input_count;
    bool in_place;
} bench_case;

typedef struct bench_arrays {
    unsigned char *inputs[INPUTS_MAX];
    unsigned char *output;
} bench_arrays;

typedef struct bench_result {
    double tutti; /* GB/s read */
    double plain;
    double copy;
} bench_result;

enum what {
    TUTTI,
    PLAIN,
    COPY,
    WHAT_COUNT
};

static void
run_once(const bench_case *self, const bench_arrays *arrays, size_t bytes, enum what what)
{
    const void *const *inputs = (const void *const *)arrays->inputs;
    void *output = self->in_place ? arrays->inputs[0] : arrays->output;
    const size_t count = bytes / tutti_dtype_bytes(self->dtype);

    if (what == TUTTI) {
        tutti_reduce_run(self->reduce, self->dtype, inputs, self->input_count, NULL, count, output);
    } else if (what == PLAIN) {
        self->plain(inputs, self->input_count, count, output);
    } else {
        memcpy(arrays->output, arrays->inputs[0], bytes);
    }
}

static uint64_t
time_turn(const bench_case *self, const bench_arrays *arrays, size_t bytes, enum what what)
{
    const size_t rounds = TURN_BYTES > bytes ? TURN_BYTES / bytes : 1;
    const uint64_t start = tutti_clock_ns();
    size_t i;

    for (i = 0; i < rounds; i++) {
        run_once(self, arrays, bytes, what);
    }
    return (tutti_clock_ns() - start) / rounds;
}

static bench_result
measure(const bench_case *self, const bench_arrays *arrays, size_t bytes)
{
    uint64_t best[WHAT_COUNT] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    const double read = (double)(self->input_count * bytes);
    int turn;
    int what;

    for (turn = 0; turn < TURNS; turn++) {
        for (what = 0; what < WHAT_COUNT; what++) {
            const uint64_t ns = time_turn(self, arrays, bytes, (enum what)what);

            best[what] = ns < best[what] ? ns : best[what];
        }
    }
    return (bench_result){
        .tutti = read / (double)best[TUTTI],
        .plain = read / (double)best[PLAIN],
        .copy = (double)bytes / (double)best[COPY],
    };
}

static void
print_row(const bench_case *self, size_t bytes, const bench_result *result)
{
    printf("%-4s %-5s %6zu  %-8s %8zu KiB %8.1f %8.1f %8.1f %8.1fx %8.1fx\n",
           tutti_reduce_name(self->reduce), tutti_dtype_name(self->dtype), self->input_count,
           self->in_place ? "in place" : "apart", bytes >> 10, result->tutti, result->plain,
           result->copy, result->tutti / result->plain, result->tutti / result->copy);
}

static void
print_json(const bench_case *self, size_t bytes, const bench_result *result, bool first)
{
    printf("%s\n  {\"op\": \"%s\", \"dtype\": \"%s\", \"inputs\": %zu, \"in_place\": %s, "
           "\"bytes\": %zu, \"tutti_gb_per_s\": %.2f, \"plain_gb_per_s\": %.2f, "
           "\"memcpy_gb_per_s\": %.2f}",
           first ? "" : ",", tutti_reduce_name(self->reduce), tutti_dtype_name(self->dtype),
           self->input_count, self->in_place ? "true" : "false", bytes, result->tutti,
           result->plain, result->copy);
}

static const bench_case cases[] = {
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP32, plain_sum_fp32, 2, false},
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP32, plain_sum_fp32, 2, true},
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP32, plain_sum_fp32, 4, false},
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP16, plain_sum_fp16, 2, false},
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP16, plain_sum_fp16, 4, false},
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_BF16, plain_sum_bf16, 2, false},
    {TUTTI_REDUCE_SUM, TUTTI_DTYPE_INT8, plain_sum_int8, 2, false},
    {TUTTI_REDUCE_MAX, TUTTI_DTYPE_FP64, plain_max_fp64, 2, false},
};

static void
run_cases(const bench_arrays *arrays, bool json)
{
    static const size_t sizes[] = {64U << 10, 64U << 20};
    bench_result result;
    size_t c;
    size_t s;

    if (json) {
        printf("[");
    } else {
        printf("%-4s %-5s %6s  %-8s %12s %8s %8s %8s %9s %9s\n", "op", "dtype", "inputs", "output",
               "each input", "tutti", "plain", "memcpy", "to plain", "to memcpy");
    }
    for (c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            result = measure(&cases[c], arrays, sizes[s]);
            if (json) {
                print_json(&cases[c], sizes[s], &result, c == 0 && s == 0);
            } else {
                print_row(&cases[c], sizes[s], &result);
            }
        }
    }
    printf(json ? "\n]\n" : "GB/s of input read; memcpy reads one array\n");
}

/* Small numbers in every dtype: no subnormals, infinities or NaNs, so that all do the same work. */
static void
fill(unsigned char *array, size_t number)
{
    size_t i;

    memset(array, (int)(0x3c + number), BYTES_MAX);
    for (i = 0; i < BYTES_MAX; i += 64) {
        array[i] = (unsigned char)(i >> 6);
    }
}

int
main(int argc, char **argv)
{
    const bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    unsigned char *memory;
    bench_arrays arrays;
    size_t i;

    if (argc > 1 && !json) {
        (void)fprintf(stderr, "usage: bench_reduce [--json]\n");
        return 2;
    }
    memory = aligned_alloc(4096, (INPUTS_MAX + 1) * ((size_t)BYTES_MAX + 2 * 4096 * INPUTS_MAX));
    if (memory == NULL) {
        (void)fprintf(stderr, "bench_reduce: no memory for %u arrays of 64 MiB\n", INPUTS_MAX + 1);
        return 1;
    }
    for (i = 0; i < INPUTS_MAX; i++) {
        arrays.inputs[i] = memory + i * ((size_t)BYTES_MAX + SKEW);
        fill(arrays.inputs[i], i);
    }
    arrays.output = memory + INPUTS_MAX * ((size_t)BYTES_MAX + SKEW);
    fill(arrays.output, 0);
    run_cases(&arrays, json);
    free(memory);
    return 0;
}
