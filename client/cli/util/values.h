/* Private to client/cli: sizes, times, ranks and shapes as people type and read them. */
#ifndef TUTTI_CLIENT_CLI_UTIL_VALUES_H
#define TUTTI_CLIENT_CLI_UTIL_VALUES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/types.h"

/* Parse what people type: "10s", "250ms", "10" (seconds, as sleep(1) has it); "64MiB"; "0-3,7".
 * False: no such value. */
bool cli_parse_ms(const char *text, uint32_t *ret_ms);
bool cli_parse_size(const char *text, uint64_t *ret_bytes);
bool cli_parse_number(const char *text, int64_t least, int64_t most, int64_t *ret_number);

/* [out, owned] ret_ranks  free it */
bool cli_parse_ranks(const char *text, uint32_t **ret_ranks, size_t *ret_count);

/* The rank in "tensor:3.8f..." and "work:3.8f..."; false when it is none of these. */
bool cli_rank_of(const char *handle, uint32_t *ret_rank);

/* Write "64 MiB", "1.5 GiB"; "[2, 3]"; into a buffer of CLI_WORD_SIZE. Return it. */
#define CLI_WORD_SIZE 512
const char *cli_format_size(uint64_t bytes, char *ret);
const char *cli_format_shape(const tutti_spec *spec, char *ret);

/* "0-3,7": runs that go up by one; the order counts. */
void cli_format_ranks(const uint32_t *ranks, size_t count, char *ret, size_t size);

/* "out.%d.npy" becomes "out.3.npy"; a path without %d stays. False: it is too long. */
#define CLI_RANK_MARK "%d"
bool cli_name_file(const char *path, uint32_t rank, char ret[PATH_MAX]);

#endif
