/* For qsort: doubles, the least first. */
#ifndef TUTTI_BENCH_NUMBER_H
#define TUTTI_BENCH_NUMBER_H

static inline int
bench_compare_numbers(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return (left > right) - (left < right);
}

#endif
