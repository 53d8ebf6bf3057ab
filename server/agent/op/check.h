/* Arguments of ops, checked against the shapes that are known. Any thread; nothing is kept. */
#ifndef TUTTI_SERVER_AGENT_OP_CHECK_H
#define TUTTI_SERVER_AGENT_OP_CHECK_H

#include <stdint.h>

#include "coll/coll.h"

/* Can the output hold the result? Same dtype and element count; dimensions may differ.
 * DTYPE_MISMATCH, OUT_SHAPE */
tutti_code agent_check_output(const tutti_spec *output, const tutti_spec *result, tutti_error *err);
/* The same of all results of an op, where the caller has said what they must be: expect_count of 0 =
 * anything. LIST_SIZE, too */
tutti_code agent_check_expected(const tutti_spec *expects, uint32_t expect_count,
                                const tutti_spec *results, uint32_t count, tutti_error *err);
/* Does a result of that many bytes fit into a message? INLINE_LIMIT */
tutti_code agent_check_inline(uint64_t bytes, tutti_error *err);

/*
 * Axes as the caller gave them (negative = from the end) become those of args->spec, which is
 * known. For scatter they stay as given: receivers do not know the shape. BAD_AXIS
 */
tutti_code agent_take_axes(tutti_coll_args *args, int32_t axis, int32_t concat_axis,
                           tutti_error *err);
/* The same for one tensor of a list, whose spec is tensor->spec. */
tutti_code agent_take_list_axis(const tutti_coll_args *args, int32_t axis,
                                tutti_coll_tensor *tensor, tutti_error *err);

#endif
