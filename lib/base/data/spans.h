/*
 * Lists of ranks as spans. A span is three numbers: the first rank, how many, and the step from one
 * to the next, so that all 10 000 ranks of a job are 0, 10000, 1. A list of a few spans is how the
 * coordinator's messages carry large groups. Any thread.
 */
#ifndef TUTTI_BASE_DATA_SPANS_H
#define TUTTI_BASE_DATA_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"

#define TUTTI_SPAN_NUMBERS 3
#define TUTTI_SPANS_MAX 64 /* of a list; a list that wants more is sent rank by rank */

typedef struct tutti_spans {
    size_t count; /* numbers, not spans; 0 = send the list itself */
    uint32_t numbers[TUTTI_SPANS_MAX * TUTTI_SPAN_NUMBERS];
} tutti_spans;

/*
 * Of a list that is no shorter in spans, or has ranks that no job has, nothing. Steps are upwards
 * only. `ranks` NULL = 0, 1, 2 ...
 */
void tutti_spans_pack(const uint32_t *ranks, size_t count, tutti_spans *ret_spans);

/*
 * Back to ranks, each below TUTTI_RANKS_MAX and at most so many; distinct or not.
 *
 * [out, owned] ret_ranks  free it
 *
 * TUTTI_INVALID_ARGUMENT    BAD_SPANS
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code tutti_spans_unpack(const uint32_t *numbers, size_t count, uint32_t **ret_ranks,
                              size_t *ret_count, tutti_error *err);

#endif
