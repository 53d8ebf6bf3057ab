/*
 * Ranges of tensors as requests name them (tutti_tensor_range of table.h): "w@256:FP32[2,8]". Any thread.
 */
#ifndef TUTTI_SERVER_AGENT_TENSOR_RANGE_H
#define TUTTI_SERVER_AGENT_TENSOR_RANGE_H

#include "server/agent/tensor/table.h"

/* Stands between handle or name and the range; no handle and no name has it. */
#define AGENT_RANGE_SIGN '@'

/*
 * Split "NAME@OFFSET:DTYPE[DIM,DIM]".
 *
 * [in]         text      with an AGENT_RANGE_SIGN; from a client
 * [out]        ret_name  what stands before the sign
 * [out, owned] ret_range  agent_range_free it
 *
 * TUTTI_INVALID_ARGUMENT    BAD_HANDLE: the name is too long; BAD_RANGE: the rest is no range; BAD_DTYPE,
 *                           BAD_SHAPE: as tutti_spec_check
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code agent_range_parse(const char *text, char ret_name[TUTTI_TABLE_HANDLE_SIZE],
                             tutti_tensor_range **ret_range, tutti_error *err);

void agent_range_free(tutti_tensor_range *range); /* with its view; NULL is fine */

/* Have they bytes in common? Both of one tensor; NULL = all of it. A range without bytes meets none. */
bool agent_ranges_meet(const tutti_tensor_range *left, const tutti_tensor_range *right);

/* The same bytes as the same dtype? NULL = the whole tensor, which equals no range. */
bool agent_ranges_equal(const tutti_tensor_range *left, const tutti_tensor_range *right);

#endif
