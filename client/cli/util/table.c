/* Tables: columns as wide as what is in them. */
#include "client/cli/util/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "client/cli/cli.h"
#include "client/cli/util/output.h"

#define COLUMNS_MAX 16
#define GAP 2

typedef struct cell {
    char *text;
    cli_style style;
} cell;

struct cli_table {
    cell *cells; /* the headings come first */
    size_t count;
    size_t room;
    size_t columns;
    bool right[COLUMNS_MAX];
};

/* How much room a text takes: the bytes that begin a character of UTF-8. */
static size_t
width_of(const char *text)
{
    size_t width = 0;

    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80 ? 1 : 0;
    }
    return width;
}

/* Much of what tables have comes from others: names, reasons, signatures. */
static void
add_cell(cli_table *table, cli_style style, char *text)
{
    if (table->count == table->room) {
        table->room = table->room == 0 ? 64 : 2 * table->room;
        table->cells = reallocarray(table->cells, table->room, sizeof(*table->cells));
    }
    if (table->cells == NULL || text == NULL) {
        abort(); /* no memory to print a table: nothing better can be done */
    }
    (void)tutti_utf8_clean(text);
    table->cells[table->count++] = (cell){text, style};
}

cli_table *
cli_table_new(void)
{
    cli_table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        abort();
    }
    return table;
}

void
cli_table_add_column(cli_table *table, const char *heading)
{
    const bool right = *heading == '>';

    assert(table->columns < COLUMNS_MAX && table->count == table->columns);
    table->right[table->columns++] = right;
    add_cell(table, CLI_BOLD, strdup(heading + (right ? 1 : 0)));
}

void
cli_table_add(cli_table *table, const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
    }
    va_end(args);
    add_cell(table, CLI_PLAIN, text);
}

void
cli_table_add_styled(cli_table *table, cli_style style, const char *text)
{
    add_cell(table, style, strdup(text));
}

static void
print_cell(const cli *self, const cell *one, size_t width, bool right, bool last)
{
    const int fill = (int)(width - width_of(one->text));
    const bool styled = one->style != CLI_PLAIN;

    (void)fprintf(self->out, "%*s%s%s%s", right ? fill : 0, "",
                  styled ? cli_style_begin(self, one->style) : "", one->text,
                  styled ? cli_style_end(self) : "");
    if (!last) {
        (void)fprintf(self->out, "%*s", (right ? 0 : fill) + GAP, "");
    }
}

void
cli_table_print(const cli *self, const cli_table *table)
{
    size_t widths[COLUMNS_MAX] = {0};
    size_t i;

    assert(table->count % table->columns == 0);
    for (i = 0; i < table->count; i++) {
        const size_t width = width_of(table->cells[i].text);

        if (width > widths[i % table->columns]) {
            widths[i % table->columns] = width;
        }
    }
    for (i = 0; i < table->count; i++) {
        const size_t column = i % table->columns;
        const bool last = column + 1 == table->columns;

        print_cell(self, &table->cells[i], widths[column], table->right[column], last);
        if (last) {
            (void)fputc('\n', self->out);
        }
    }
}

void
cli_table_free(cli_table *table)
{
    size_t i;

    if (table != NULL) {
        for (i = 0; i < table->count; i++) {
            free(table->cells[i].text);
        }
        free(table->cells);
        free(table);
    }
}
