/*
 * Kernels: what works on elements, compiled once for each instruction set ("level").
 *
 * Every level has the same kernels, from the same source (reduce_kernels.inc), and gives the same
 * bits; which one runs is a matter of speed alone. Any thread.
 */
#ifndef TUTTI_COLL_REDUCE_REDUCE_KERNELS_H
#define TUTTI_COLL_REDUCE_REDUCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "tutti/types.h"

#define TUTTI_REDUCE_DTYPES (TUTTI_DTYPE_FP8_E5M2 + 1)
#define TUTTI_REDUCE_OPS (TUTTI_REDUCE_PREMUL_SUM + 1)
#define TUTTI_REDUCE_LEVELS_MAX 3

/* As tutti_reduce_run takes it; of a complex dtype the parts are counted, two per element. */
typedef struct tutti_reduce_job {
    const void *const *inputs;
    size_t input_count;
    const double *factors;
    size_t first; /* where to begin in each array; 0 from outside */
    size_t count;
    void *output;
    size_t parts; /* an average divides by this; 0 = input_count */
    bool far;     /* the inputs are in no cache */
} tutti_reduce_job;

typedef void (*tutti_reduce_kernel)(const tutti_reduce_job *job);

typedef struct tutti_reduce_level {
    const char *name;
    /* NULL where the op is not defined on the dtype: the same holes in every level. */
    tutti_reduce_kernel kernels[TUTTI_REDUCE_DTYPES][TUTTI_REDUCE_OPS];
} tutti_reduce_level;

extern const tutti_reduce_level tutti_reduce_base;
#if defined(__x86_64__)
extern const tutti_reduce_level tutti_reduce_avx2;
extern const tutti_reduce_level tutti_reduce_avx512;
#endif

/*
 * The levels that this processor can run, the best first; the last one is tutti_reduce_base.
 * Returns how many there are.
 */
size_t tutti_reduce_levels(const tutti_reduce_level *ret_levels[TUTTI_REDUCE_LEVELS_MAX]);

#endif
