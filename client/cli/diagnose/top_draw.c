/*
 * The lines of a sample, made from its document, so that what people see is in --json as well. Texts come
 * from agents: bytes that a terminal could take for commands are shown as "?".
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/diagnose/top.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

#define STALLS_SHOWN 3
#define EVENTS_SHOWN 6
#define GROUPS_SHOWN 8
#define HEAD_LINES 5 /* with the table's heading and an empty line */

static void
put_clean(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        (void)fputc(*text < ' ' || *text > '~' ? '?' : *text, out);
    }
}

static cli_style
write_clean(FILE *out, const json_t *row, const char *key)
{
    const char *text = cli_row_text(row, key);

    put_clean(out, text == NULL || text[0] == '\0' ? "-" : text);
    return CLI_PLAIN;
}

static cli_style
write_state(FILE *out, const json_t *row, const char *key)
{
    const char *state = cli_row_text(row, key);

    (void)fputs(state, out);
    return strcmp(state, "lost") == 0    ? CLI_RED
           : strcmp(state, "alive") == 0 ? CLI_GREEN
                                         : CLI_YELLOW;
}

static void
put_rate(FILE *out, const json_t *row, const char *key, bool bytes)
{
    const json_t *rate = json_object_get(row, key);
    char size[CLI_WORD_SIZE];

    if (!json_is_real(rate)) {
        (void)fputc('-', out);
    } else if (bytes) {
        (void)fprintf(out, "%s/s", cli_format_size((uint64_t)json_real_value(rate), size));
    } else {
        (void)fprintf(out, "%.*f", json_real_value(rate) < 10 ? 1 : 0, json_real_value(rate));
    }
}

static cli_style
write_ops_rate(FILE *out, const json_t *row, const char *key)
{
    put_rate(out, row, key, false);
    return CLI_PLAIN;
}

static cli_style
write_byte_rate(FILE *out, const json_t *row, const char *key)
{
    put_rate(out, row, key, true);
    return CLI_PLAIN;
}

static const cli_column columns[] = {
    {">RANK", "rank", NULL},
    {"STATE", "state", write_state},
    {"HOST", "host", write_clean},
    {"DEVICE", "device", write_clean},
    {">EPOCH", "epoch", NULL},
    {">OPS/S", "ops_per_s", write_ops_rate},
    {">BYTES/S", "bytes_per_s", write_byte_rate},
    {">OPS", "ops", NULL},
    {"WHY", "reason", write_clean},
    {0},
};

static void
draw_head(const json_t *document, FILE *out)
{
    const uint64_t since_s = (uint64_t)cli_row_number(document, "since_ms") / 1000;
    const uint64_t now_s = (uint64_t)time(NULL);
    const uint64_t age_s = now_s > since_s ? now_s - since_s : 0;

    (void)fputs("job ", out);
    put_clean(out, cli_row_text(document, "job"));
    (void)fprintf(
        out,
        ", epoch %" PRId64 ": %" PRId64 " of %" PRId64 " ranks alive, %" PRId64
        " lost, for %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ", coordinator ",
        (int64_t)cli_row_number(document, "epoch"), (int64_t)cli_row_number(document, "alive"),
        (int64_t)cli_row_number(document, "world_size"), (int64_t)cli_row_number(document, "lost"),
        age_s / 3600, age_s / 60 % 60, age_s % 60);
    put_clean(out, cli_row_text(document, "coordinator"));
    (void)fputs("\nops/s ", out);
    put_rate(out, document, "ops_per_s", false);
    (void)fputs("  bytes ", out);
    put_rate(out, document, "bytes_per_s", true);
    (void)fprintf(out, "  ops %" PRId64 " since this coordinator counts\n",
                  (int64_t)cli_row_number(document, "ops"));
}

static void
draw_groups(const json_t *document, FILE *out)
{
    const json_t *groups = json_object_get(document, "groups");
    size_t i;

    (void)fprintf(out, "groups (%zu):", json_array_size(groups));
    for (i = 0; i < json_array_size(groups) && i < GROUPS_SHOWN; i++) {
        const json_t *one = json_array_get(groups, i);

        (void)fputc(' ', out);
        put_clean(out, cli_row_text(one, "name"));
        (void)fprintf(out, " [%" PRId64 "]", (int64_t)cli_row_number(one, "size"));
    }
    (void)fputs(i < json_array_size(groups) ? " ...\n" : "\n", out);
}

/* The last `most` of a list of sentences. */
static void
draw_texts(const cli *how, const char *heading, const json_t *texts, size_t most, cli_style style,
           FILE *out)
{
    const size_t count = json_array_size(texts);
    size_t i;

    if (count == 0) {
        return;
    }
    (void)fprintf(out, "%s (%zu):\n", heading, count);
    for (i = count < most ? 0 : count - most; i < count; i++) {
        (void)fprintf(out, "  %s", cli_style_begin(how, style));
        put_clean(out, json_string_value(json_array_get(texts, i)));
        (void)fprintf(out, "%s\n", cli_style_end(how));
    }
}

static void
draw_ranks(const cli *how, json_t *document, FILE *out, uint32_t rows)
{
    json_t *ranks = json_object_get(document, "ranks");
    cli onto = *how;

    while (rows > 0 && json_array_size(ranks) > rows) {
        (void)json_array_remove(ranks, json_array_size(ranks) - 1);
    }
    onto.out = out;
    cli_print_rows(&onto, ranks, columns);
}

void
top_draw(top *self, const cli *how, FILE *out, uint32_t rows)
{
    json_t *document = top_json(self);

    draw_head(document, out);
    if (self->err.code != TUTTI_OK) {
        (void)fprintf(out, "%s", cli_style_begin(how, CLI_RED));
        put_clean(out, self->err.text);
        (void)fprintf(out, "%s", cli_style_end(how));
    }
    (void)fputc('\n', out);
    draw_ranks(how, document, out, rows);
    draw_groups(document, out);
    draw_texts(how, "stalls", json_object_get(document, "stalls"), STALLS_SHOWN, CLI_YELLOW, out);
    draw_texts(how, "events", json_object_get(document, "events"), EVENTS_SHOWN, CLI_PLAIN, out);
    json_decref(document);
}

static uint32_t
count_texts(size_t count, size_t most)
{
    return count == 0 ? 0 : (uint32_t)(count < most ? count : most) + 1;
}

uint32_t
top_other_lines(top *self)
{
    size_t events;

    (void)pthread_mutex_lock(&self->lock);
    events = self->event_count;
    (void)pthread_mutex_unlock(&self->lock);
    return HEAD_LINES + count_texts(self->stalls.count, STALLS_SHOWN) +
           count_texts(events, EVENTS_SHOWN);
}
