/* Statistics of turns. */
#ifndef TUTTI_BENCH_NUMBER_H
#define TUTTI_BENCH_NUMBER_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_TURNS_MAX 64

/* For qsort: doubles, the least first. */
static inline int
bench_compare_numbers(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return (left > right) - (left < right);
}

/* [in] count  1 to BENCH_TURNS_MAX */
static inline double
bench_find_median(const double *values, size_t count)
{
    double sorted[BENCH_TURNS_MAX];

    assert(count > 0 && count <= BENCH_TURNS_MAX);
    memcpy(sorted, values, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), bench_compare_numbers);
    return sorted[count / 2];
}

#endif
