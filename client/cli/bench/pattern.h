/*
 * What tutti bench --check gives to ops, and what must come of it, worked out here: a second
 * opinion that shares no code with the agents' kernels.
 *
 * Data are small whole numbers that come again every BENCH_PERIOD elements, a prime, so that what
 * lands in a wrong place shows. Up to 64 ranks all results are exact but averages of floats, which
 * may differ by one unit in the last place.
 */
#ifndef TUTTI_CLIENT_CLI_BENCH_PATTERN_H
#define TUTTI_CLIENT_CLI_BENCH_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/op.h"

#define BENCH_PERIOD 1009
#define BENCH_PREMUL_FACTOR 2.0

typedef struct bench_pattern {
    tutti_op_kind kind;
    tutti_dtype dtype;
    tutti_reduce reduce; /* NONE where nothing is reduced */
    uint32_t ranks;
    uint32_t root;
    uint64_t part; /* elements of each rank's part; of what is not cut: all of them */
    uint32_t salt; /* other data for each number */
} bench_pattern;

/* Can results of this dtype be foretold? Not those of reductions that nobody has. */
bool bench_pattern_known(const bench_pattern *self);

/* What group rank `rank` gives: `count` elements. */
void bench_pattern_fill(const bench_pattern *self, uint32_t rank, uint64_t count, void *ret_data);

/* How many of the elements that `rank` got are not what they must be. */
uint64_t bench_pattern_wrong(const bench_pattern *self, uint32_t rank, uint64_t count,
                             const void *data);

#endif
