/*
 * Value: a plain value with memory of its own: an argument, a result, what a name of the table
 * holds. Never changes once it is made; any thread.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_VALUE_H
#define TUTTI_SERVER_AGENT_FUNCTION_VALUE_H

#include "server/agent/tensor/table.h"
#include "tensor/dlpack.h"
#include "tutti/plugin.h"

#define AGENT_VALUE_BYTES_MAX (1U << 20) /* of a text, or of bytes */
#define AGENT_VALUE_DIMS_MAX 64          /* of a shape */

/* One more kind: a function by its name, in u.text. Functions that get one see a text. */
#define AGENT_ANY_FUNCTION 101

typedef struct agent_value {
    tutti_table_value base;
    tutti_any any; /* borrowed as long as the value */
    tutti_span span;
    tutti_dims dims;
    uint64_t memory[]; /* what `any` points to */
} agent_value;

/*
 * A copy of a value, which may have been made by a function and so be anything.
 *
 * [out, owned] ret_value  one reference, for tutti_table_value_unref(&value->base)
 *
 * TUTTI_INVALID_ARGUMENT   BAD_VALUE: a tensor, a pointer, a kind that is none, NULL where there
 *                          should be memory, a text that is not UTF-8, a dtype that agents do not
 *                          know, or beyond the limits above
 * TUTTI_RESOURCE_EXHAUSTED no memory
 */
tutti_code agent_value_new(const tutti_any *any, agent_value **ret_value, tutti_error *err);

static inline agent_value *
agent_value_of(tutti_table_value *base)
{
    return (agent_value *)base;
}

/* NULL is fine. */
void agent_value_unref(agent_value *value);

/* "an int"; "nothing" for a kind that is none. Static. */
const char *agent_value_noun(int32_t kind);

/* ------------------------------------------------------------------ texts */

/* Valid UTF-8 without a NUL: what protobuf may carry as a string. */
bool agent_is_utf8(const char *text, size_t size);

#endif
