/* Private to client/cli: values of functions as people type and read them. */
#ifndef TUTTI_CLIENT_CLI_UTIL_TYPED_H
#define TUTTI_CLIENT_CLI_UTIL_TYPED_H

#include "client/cli/cli.h"

/* One line for the pages of commands that take values. */
#define CLI_TYPED_HELP                                                                             \
    "A value is a number (3, 0.5), null, a shape ([2,3]), or a text. A word in front says what a " \
    "value is: text:3, float:3, dtype:FP32, device:cuda:0, hex:00ff for bytes, function:NAME, "    \
    "tensor:HANDLE or a handle as agents give it, name:NAME for whatever the agent has under "     \
    "that name."

/* A value that was typed, and the memory that it borrows. */
typedef struct cli_typed {
    tutti_value value;
    int64_t dims[TUTTI_VALUE_DIMS_MAX];
    unsigned char *bytes; /* [owned] */
} cli_typed;

/*
 * [in] word  outlives the value, which borrows from it
 *
 * TUTTI_INVALID_ARGUMENT  a word that is no value: a dtype, a shape or bytes that make no sense
 */
tutti_code cli_typed_parse(const char *word, cli_typed *ret, tutti_error *err);
void cli_typed_free(cli_typed *typed); /* zeroed is fine */

/* As it would be typed; of a tensor its handle, dtype and shape. */
void cli_typed_print(FILE *out, const tutti_value *value);

/* {"kind": "int", "value": 3}; of a tensor "handle", "dtype", "shape" and "bytes". */
json_t *cli_typed_json(const tutti_value *value);

#endif
