/* Private to client/cli: results and errors, as text for people or as JSON. */
#ifndef TUTTI_CLIENT_CLI_UTIL_OUTPUT_H
#define TUTTI_CLIENT_CLI_UTIL_OUTPUT_H

#include "client/cli/cli.h"

/* An error in words; `code` is returned. As base's TUTTI_FAIL does for the library. */
tutti_code cli_fail(tutti_error *err, tutti_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tutti_code cli_fail_errno(tutti_error *err, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Say what went wrong, "tutti: put x.npy: text"; `what` NULL = the command. Returns CLI_FAILED. */
int cli_failed(const cli *self, const char *what, const tutti_error *err);

/* Print a document when --json was given, and return true. [in, moved] document */
bool cli_print_json(const cli *self, json_t *document);

/* A tensor that a command made: with --quiet its handle alone. Not with --json. */
void cli_say_tensor(const cli *self, const tutti_handle *handle);

/* A line for people; not with --quiet. */
void cli_say(const cli *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Codes for a terminal, "" elsewhere. */
typedef enum cli_style {
    CLI_PLAIN,
    CLI_BOLD,
    CLI_GREEN,
    CLI_YELLOW,
    CLI_RED,
} cli_style;
const char *cli_style_begin(const cli *self, cli_style style);
const char *cli_style_end(const cli *self);

/* json_pack's dtype, shape and bytes of a tensor, put into `object` as "dtype", "shape", "bytes".
 */
void cli_json_spec(json_t *object, const tutti_spec *spec);
json_t *cli_json_error(const tutti_error *err);

#endif
