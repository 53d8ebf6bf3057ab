/*
 * Spec: what a tensor is, without its bytes. Plain data; any thread.
 */
#ifndef TUTTI_TENSOR_SPEC_H
#define TUTTI_TENSOR_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error/text.h"
#include "tutti/error.h"
#include "tutti/types.h"

/*
 * Is it one that can exist? Fills in the number of its elements and bytes (NULL = not wanted).
 *
 * A dimension of 0 makes 0 bytes; the others must fit into 63 bits of bytes all the same, so that
 * no product of some of the dimensions of a checked spec ever overflows.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DTYPE: none of ours; BAD_SHAPE: a negative dimension, too many
 *                         dimensions, or more bytes than 63 bits count
 */
tutti_code tutti_spec_check(const tutti_spec *spec, uint64_t *ret_count, uint64_t *ret_bytes,
                            tutti_error *err);

/* Of a spec that was checked. */
uint64_t tutti_spec_count(const tutti_spec *spec);
uint64_t tutti_spec_bytes(const tutti_spec *spec);

bool tutti_spec_equal(const tutti_spec *left, const tutti_spec *right);
bool tutti_spec_same_shape(const tutti_spec *left, const tutti_spec *right);

/* "FP32[2, 3]" */
void tutti_spec_describe(const tutti_spec *spec, tutti_text *text);

/*
 * An axis as people give it, negative from the end, as an index below `dim_count` (below dim_count
 * + 1 when a dimension is to be inserted there).
 *
 * TUTTI_INVALID_ARGUMENT  BAD_AXIS: the text says which are allowed
 */
tutti_code tutti_spec_axis(const tutti_spec *spec, int32_t axis, bool insert, uint32_t *ret_axis,
                           tutti_error *err);

#endif
