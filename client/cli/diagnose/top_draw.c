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
    (void)fprintf(out, "  ops %" PRId64 "%s\n", (int64_t)cli_row_number(document, "ops"),
                  (int64_t)json_array_size(json_object_get(document, "ranks")) <
                          (int64_t)cli_row_number(document, "world_size")
                      ? " since this coordinator counts"
                      : "");
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

/* ------------------------------------------------------------------ orders */

static const struct {
    const char *name;
    const char *key;
    bool largest; /* ... first */
} orders[TOP_ORDERS] = {[TOP_BY_RANK] = {"rank", "rank", false},
                        [TOP_BY_STATE] = {"state", "state", true},
                        [TOP_BY_HOST] = {"host", "host", false},
                        [TOP_BY_OPS_RATE] = {"ops/s", "ops_per_s", true},
                        [TOP_BY_BYTES_RATE] = {"bytes/s", "bytes_per_s", true},
                        [TOP_BY_OPS] = {"ops", "ops", true}};

const char *
top_order_name(top_order order)
{
    return orders[order].name;
}

bool
top_order_find(const char *name, top_order *ret_order)
{
    int i;

    for (i = 0; i < TOP_ORDERS; i++) {
        if (strcmp(name, orders[i].name) == 0) {
            *ret_order = (top_order)i;
            return true;
        }
    }
    return false;
}

/* A rate that is not known counts as less than 0. */
static int
compare_values(const json_t *one, const json_t *other)
{
    const double a = json_is_number(one) ? json_number_value(one) : -1;
    const double b = json_is_number(other) ? json_number_value(other) : -1;

    return json_is_string(one) ? strcmp(json_string_value(one), json_string_value(other))
           : a < b             ? -1
                               : a > b;
}

static int
compare_ranks(const void *one, const void *other, void *arg)
{
    const json_t *a = *(json_t *const *)one;
    const json_t *b = *(json_t *const *)other;
    const top_order order = *(const top_order *)arg;
    const char *key = orders[order].key;
    const int found = compare_values(json_object_get(a, key), json_object_get(b, key));

    if (found != 0) {
        return orders[order].largest ? -found : found;
    }
    return compare_values(json_object_get(a, "rank"), json_object_get(b, "rank"));
}

json_t *
top_sort(json_t *ranks, top_order order)
{
    const size_t count = json_array_size(ranks);
    json_t **rows = calloc(count + 1, sizeof(json_t *));
    json_t *sorted = json_array();
    size_t i;

    if (rows == NULL || sorted == NULL) {
        abort();
    }
    for (i = 0; i < count; i++) {
        rows[i] = json_array_get(ranks, i);
    }
    qsort_r(rows, count, sizeof(json_t *), compare_ranks, &order);
    for (i = 0; i < count; i++) {
        (void)json_array_append(sorted, rows[i]);
    }
    free(rows);
    json_decref(ranks);
    return sorted;
}

static void
draw_ranks(const cli *how, json_t *document, FILE *out, uint32_t rows, uint32_t skipped)
{
    json_t *ranks = json_object_get(document, "ranks");
    cli onto = *how;

    while (skipped-- > 0 && json_array_size(ranks) > 1) {
        (void)json_array_remove(ranks, 0);
    }
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
    draw_ranks(how, document, out, rows, self->skipped);
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
