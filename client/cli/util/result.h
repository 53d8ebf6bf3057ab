/*
 * Private to client/cli: the rows of a command's result, shown as a table.
 *
 * A command describes its result once, as a JSON document. With --json the document itself is
 * printed; for people its rows are printed as a table, whose columns are a list beside the command.
 * So a value that the table shows is always in the document as well.
 */
#ifndef TUTTI_CLIENT_CLI_UTIL_RESULT_H
#define TUTTI_CLIENT_CLI_UTIL_RESULT_H

#include "client/cli/cli.h"
#include "client/cli/util/output.h"

/* Write the cell of `row` into `out`, and return the style that it is shown in. `key` is that of
 * the column. What is written may be empty. */
typedef cli_style (*cli_cell_fn)(FILE *out, const json_t *row, const char *key);

typedef struct cli_column {
    const char *heading; /* '>' in front: the column is aligned to the right */
    const char *key;     /* the member of the row's object */
    cli_cell_fn write;   /* NULL: cli_cell_value */
} cli_column;

/* A string, a number, or "yes" and "no"; "-" where it is absent or empty. */
cli_style cli_cell_value(FILE *out, const json_t *row, const char *key);

/* A number of bytes as "1.5 GiB"; "-" where it is absent. */
cli_style cli_cell_bytes(FILE *out, const json_t *row, const char *key);

/* An array of ranks as "0-3,7"; an array of dimensions as "[2, 3]". "-" where it is absent. */
cli_style cli_cell_ranks(FILE *out, const json_t *row, const char *key);
cli_style cli_cell_age(FILE *out, const json_t *row, const char *key); /* of ms: "7s", "5d" */
cli_style cli_cell_shape(FILE *out, const json_t *row, const char *key);

/* Members of a row: NULL or 0 where they are absent. */
const char *cli_row_text(const json_t *row, const char *key);
json_int_t cli_row_number(const json_t *row, const char *key);

/* Print the array `rows` as a table for people. `columns` end with one without a heading. */
void cli_print_rows(const cli *self, const json_t *rows, const cli_column *columns);

/* Print a document: with --json as it is, for people the array under `rows_key` (NULL: the document
 * is the only row). [in, moved] document */
void cli_print_result(const cli *self, json_t *document, const char *rows_key,
                      const cli_column *columns);

#endif
