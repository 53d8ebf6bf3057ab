/*
 * Tables from JSON. Each command makes one document; --json prints it, and otherwise its rows are
 * shown in columns. So both always say the same.
 */
#include "client/cli/util/result.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/cli/util/table.h"
#include "client/cli/util/values.h"

const char *
cli_row_text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

json_int_t
cli_row_number(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

/* ------------------------------------------------------------------------------ cells */

/* "-" stands for what is missing or empty. */
cli_style
cli_cell_value(FILE *out, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    if (json_is_string(value) && json_string_length(value) > 0) {
        (void)fputs(json_string_value(value), out);
    } else if (json_is_integer(value)) {
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_boolean(value)) {
        (void)fputs(json_is_true(value) ? "yes" : "no", out);
    } else {
        (void)fputc('-', out);
    }
    return CLI_PLAIN;
}

cli_style
cli_cell_bytes(FILE *out, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    char word[CLI_WORD_SIZE];

    (void)fputs(json_is_integer(value) ? cli_format_size((uint64_t)json_integer_value(value), word)
                                       : "-",
                out);
    return CLI_PLAIN;
}

cli_style
cli_cell_age(FILE *out, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    const json_int_t seconds = json_integer_value(value) / 1000;

    if (!json_is_integer(value)) {
        (void)fputs("-", out);
    } else if (seconds < 60) {
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT "s", seconds);
    } else if (seconds < 3600) {
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT "m", seconds / 60);
    } else if (seconds < 86400) {
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT "h", seconds / 3600);
    } else {
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT "d", seconds / 86400);
    }
    return CLI_PLAIN;
}

cli_style
cli_cell_ranks(FILE *out, const json_t *row, const char *key)
{
    const json_t *array = json_object_get(row, key);
    const size_t count = json_array_size(array);
    uint32_t *ranks = calloc(count + 1, sizeof(*ranks));
    char text[1024];
    size_t i;

    if (ranks == NULL) {
        abort(); /* no memory to print a table: nothing better can be done */
    }
    for (i = 0; i < count; i++) {
        ranks[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    }
    cli_format_ranks(ranks, count, text, sizeof(text));
    (void)fputs(array == NULL ? "-" : text, out);
    free(ranks);
    return CLI_PLAIN;
}

cli_style
cli_cell_shape(FILE *out, const json_t *row, const char *key)
{
    const json_t *array = json_object_get(row, key);
    size_t i;

    (void)fputc(array == NULL ? '-' : '[', out);
    for (i = 0; i < json_array_size(array); i++) {
        (void)fprintf(out, "%s%" JSON_INTEGER_FORMAT, i == 0 ? "" : ", ",
                      json_integer_value(json_array_get(array, i)));
    }
    (void)fputs(array == NULL ? "" : "]", out);
    return CLI_PLAIN;
}

/* ------------------------------------------------------------------------------ rows */

/* A cell is written into memory first, as the table must know all widths before it prints. */
static void
add_table_cell(cli_table *table, const cli_column *column, const json_t *row)
{
    const cli_cell_fn write = column->write == NULL ? cli_cell_value : column->write;
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    cli_style style;

    if (memory == NULL) {
        abort();
    }
    style = write(memory, row, column->key);
    if (fclose(memory) != 0) {
        abort();
    }
    cli_table_add_styled(table, style, text);
    free(text);
}

void
cli_print_rows(const cli *self, const json_t *rows, const cli_column *columns)
{
    cli_table *table = cli_table_new();
    const cli_column *column;
    size_t i;

    for (column = columns; column->heading != NULL; column++) {
        cli_table_add_column(table, column->heading);
    }
    for (i = 0; i < json_array_size(rows); i++) {
        for (column = columns; column->heading != NULL; column++) {
            add_table_cell(table, column, json_array_get(rows, i));
        }
    }
    cli_table_print(self, table);
    cli_table_free(table);
}

/*
 * [in, moved] document
 * [in]        rows_key  NULL = the document itself is the one row
 */
void
cli_print_result(const cli *self, json_t *document, const char *rows_key, const cli_column *columns)
{
    if (!self->json) {
        json_t *rows = rows_key != NULL ? json_incref(json_object_get(document, rows_key))
                                        : json_pack("[O]", document);

        cli_print_rows(self, rows, columns);
        json_decref(rows);
    }
    (void)cli_print_json(self, document);
}
