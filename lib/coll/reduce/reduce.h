/*
 * Reduce: one output from many inputs, element by element, in the order of the inputs.
 *
 * The rules are those of tutti.v1.ReduceOp: integers wrap, FP16 and BF16 are accumulated in FP32
 * and rounded once, a number wins over a NaN in MIN and MAX, integer AVG truncates toward zero,
 * floating AVG divides by the count of inputs. The same inputs in the same order give the same bits
 * on every machine and for every split of the elements. Any thread; nothing is allocated.
 */
#ifndef TUTTI_COLL_REDUCE_H
#define TUTTI_COLL_REDUCE_H

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
 * output[i] = inputs[0][i] (reduce) inputs[1][i] ... for i below count.
 *
 * [in]  inputs   input_count (1 to TUTTI_REDUCE_INPUTS_MAX) arrays of `count` elements, any
 * alignment [in]  factors  for PREMUL_SUM: one per input; else NULL [out] output   may be one of
 * the inputs exactly; must not overlap them otherwise
 */
void tutti_reduce_run(tutti_reduce reduce, tutti_dtype dtype, const void *const *inputs,
                      size_t input_count, const double *factors, size_t count, void *output);

#endif
