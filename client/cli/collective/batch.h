/* A line of `tutti batch`: one call as a JSON object. */
#ifndef TUTTI_CLIENT_CLI_COLLECTIVE_BATCH_H
#define TUTTI_CLIENT_CLI_COLLECTIVE_BATCH_H

#include <jansson.h>
#include <stdint.h>

#include "tutti/op.h"

#define BATCH_NUMBERS_MAX TUTTI_RANKS_MAX /* in a list */

/* An op as a line says it; texts are borrowed from the line. */
typedef struct batch_op {
    tutti_op op;
    int64_t *lists[4];     /* [owned] of shape, input_splits, output_splits, splits */
    int32_t *ranks[2];     /* [owned] of to, axes */
    const char **texts[2]; /* [owned] of inputs, outputs */
} batch_op;

/*
 * Members of the object become the op.
 *
 * TUTTI_INVALID_ARGUMENT  a member that is none of an op's, or has the wrong kind of value
 */
tutti_code batch_op_read(const json_t *line, batch_op *ret_op, tutti_error *err);
void batch_op_fini(batch_op *op); /* also of one that could not be read */

/* A text member; NULL = none. */
const char *batch_text(const json_t *line, const char *name);

/* TUTTI_INVALID_ARGUMENT  a member that is not in `names`, which ends with NULL */
tutti_code batch_check_members(const json_t *line, const char *const *names, tutti_error *err);

#endif
