/* What a reduction must give, told once more, element by element and with other means. */
#ifndef TUTTI_TESTS_REDUCE_REFERENCE_H
#define TUTTI_TESTS_REDUCE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "tutti/types.h"

/* Is it in the table of tutti.v1.ReduceOp? */
bool reference_allows(tutti_reduce reduce, tutti_dtype dtype);

typedef struct reference_job {
    tutti_reduce reduce;
    tutti_dtype dtype;
    const void *const *inputs;
    size_t input_count;
    const double *factors; /* or NULL */
} reference_job;

/* Element `index` into `ret_element`. */
void reference_element(const reference_job *job, size_t index, void *ret_element);

#endif
