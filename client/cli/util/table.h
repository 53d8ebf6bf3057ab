/* Private to client/cli: tables for people. */
#ifndef TUTTI_CLIENT_CLI_UTIL_TABLE_H
#define TUTTI_CLIENT_CLI_UTIL_TABLE_H

#include "client/cli/cli.h"
#include "client/cli/util/output.h"

/* Rows of text in columns as wide as what is in them. */
typedef struct cli_table cli_table;

/* [out, owned] Free it with cli_table_free. */
cli_table *cli_table_new(void);

/* A column; all of them before the first cell. '>' in front of its heading: aligned to the right.
 */
void cli_table_add_column(cli_table *table, const char *heading);

/* One cell, in reading order. Copied. */
void cli_table_add(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_table_add_styled(cli_table *table, cli_style style, const char *text);
void cli_table_print(const cli *self, const cli_table *table);
void cli_table_free(cli_table *table); /* NULL is fine */

#endif
