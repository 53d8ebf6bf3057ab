/*
 * Reduce: one output from many inputs, element by element, in the order of the inputs.
 *
 * The rules are those of tutti.v1.ReduceOp:
 *
 *   BOOL      any byte but 0 is true, true is written as 1; SUM MAX BOR = or, PROD MIN BAND = and,
 *             BXOR = xor
 *   integers  SUM and PROD wrap; AVG is the wrapped sum, in the dtype's width, divided by the count
 *             of inputs and truncated toward zero; no PREMUL_SUM
 *   floats    SUM PROD MIN MAX AVG PREMUL_SUM. FP16 and BF16 are calculated with in FP32 and
 *             rounded once (to nearest, ties to even); AVG divides the sum by the count of inputs;
 *             PREMUL_SUM turns each factor into the type calculated with, multiplies, rounds, adds
 *   complex   SUM AVG PREMUL_SUM, on both parts
 *   FP8       nothing
 *
 * In MIN and MAX a number wins over a NaN, and -0 is less than +0. A NaN in an output of floats is
 * always the quiet one with no sign and an empty payload. So the same inputs in the same order give
 * the same bits on every machine and for every split of the elements, as long as the thread rounds
 * to nearest and keeps subnormals, as C programs do. Any thread; nothing is allocated.
 */
#ifndef TUTTI_COLL_REDUCE_REDUCE_H
#define TUTTI_COLL_REDUCE_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"
#include "tutti/types.h"

#define TUTTI_REDUCE_INPUTS_MAX 4096

/*
 * Does `reduce` work on `dtype`?
 *
 * TUTTI_INVALID_ARGUMENT  BAD_REDUCE_OP: unknown, or not on this dtype ("band on FP32");
 *                         DTYPE_UNSUPPORTED: no arithmetic on this dtype at all
 */
tutti_code tutti_reduce_check(tutti_reduce reduce, tutti_dtype dtype, tutti_error *err);

/*
 * output[i] = inputs[0][i] (reduce) inputs[1][i] ... for i below count. The pair was checked.
 *
 * [in]   inputs   input_count (1 to TUTTI_REDUCE_INPUTS_MAX) arrays of `count` elements, at any
 *                 address
 * [in]   factors  for PREMUL_SUM: one per input; else NULL
 * [out]  output   may be one of the inputs exactly; must not overlap them otherwise
 */
void tutti_reduce_run(tutti_reduce reduce, tutti_dtype dtype, const void *const *inputs,
                      size_t input_count, const double *factors, size_t count, void *output);

/* The same for inputs that are in no cache: what comes next of them is asked for meanwhile. */
void tutti_reduce_run_far(tutti_reduce reduce, tutti_dtype dtype, const void *const *inputs,
                          size_t input_count, const double *factors, size_t count, void *output);

/*
 * What makes an average of a sum that is ready: each element divided by `parts`, with the rules of
 * AVG. Of FP16 and BF16 that is one rounding more than an average of all inputs at once.
 */
void tutti_reduce_divide(tutti_dtype dtype, size_t parts, size_t count, void *data);

#endif
