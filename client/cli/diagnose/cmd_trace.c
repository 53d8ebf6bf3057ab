/* tutti trace: what all ranks did last, as one timeline. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/connect/fan_out.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/diagnose/trace.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

#define LATEST 10 /* ops that are listed */
#define WINDOW_MS 1000

/* What was asked. */
typedef struct wish {
    const char *output;
    char group[TUTTI_NAME_MAX + 1]; /* "" = all */
    uint64_t sequence;
    uint32_t window_ms;
} wish;

/* ------------------------------------------------------------------------------ asking */

/* 0 means that it has not happened, and stays 0. */
static uint64_t
to_our_clock(uint64_t at_ns, int64_t offset_ns)
{
    return at_ns == 0 ? 0 : at_ns - (uint64_t)offset_ns;
}

/* To our clock. */
static void
correct_clock(trace_flown *flown)
{
    size_t i;

    for (i = 0; i < flown->count; i++) {
        tutti_flight_entry *entry = &flown->entries[i];

        entry->created_ns = to_our_clock(entry->created_ns, flown->offset_ns);
        entry->started_ns = to_our_clock(entry->started_ns, flown->offset_ns);
        entry->completed_ns = to_our_clock(entry->completed_ns, flown->offset_ns);
        if (entry->completed_ns != 0 && entry->completed_ns < entry->created_ns) {
            entry->completed_ns = entry->created_ns; /* no honest agent says so */
        }
    }
}

/*
 * Runs on several threads at once, each for its own rank. The clock is compared first, so that
 * the times can be corrected at once.
 */
static void
on_rank(void *arg, uint32_t rank, tutti_client *client, const tutti_error *err)
{
    trace_flown *flown = &((trace *)arg)->flown[rank];

    if (client == NULL) {
        flown->err = *err;
        return;
    }
    if (tutti_clock_compare(client, &flown->offset_ns, &flown->error_ns, &flown->err) == TUTTI_OK &&
        tutti_flight_get(client, &flown->entries, &flown->count, &flown->err) == TUTTI_OK) {
        flown->answered = true;
        correct_clock(flown);
    }
}

/* ------------------------------------------------------------------------------ telling */

static int
compare_late(const void *left, const void *right)
{
    const uint64_t a = trace_late_ns(*(const trace_meet *const *)left);
    const uint64_t b = trace_late_ns(*(const trace_meet *const *)right);

    return a == b ? 0 : a > b ? -1 : 1;
}

/* The collectives for which ranks waited longest. [out, owned] */
static const trace_meet **
find_latest(const trace *self, size_t *ret_count)
{
    const trace_meet **latest = calloc(self->meet_count + 1, sizeof(*latest));
    size_t count = 0;
    size_t i;

    if (latest == NULL) {
        abort();
    }
    for (i = 0; i < self->meet_count; i++) {
        const trace_meet *meet = &self->meets[i];

        if (meet->rank_count > 1 && meet->last_ns >= self->begin_ns &&
            meet->first_ns <= self->end_ns) {
            latest[count++] = meet;
        }
    }
    qsort(latest, count, sizeof(*latest), compare_late);
    *ret_count = count < LATEST ? count : LATEST;
    return latest;
}

static json_t *
json_latest(const trace_meet *meet)
{
    json_t *one =
        json_pack("{s:s, s:I, s:s, s:I, s:f, s:I}", "group", meet->one->group, "sequence",
                  (json_int_t)meet->one->sequence, "op", meet->one->name, "last_rank",
                  (json_int_t)meet->last_rank, "late_us", (double)trace_late_ns(meet) / 1000.0,
                  "ranks", (json_int_t)meet->rank_count);

    (void)json_object_set_new(one, "running", json_boolean(meet->open));
    return one;
}

/*
 * A rank that is missing says why: by its error if it should have answered, else by what the
 * coordinator knows.
 */
static json_t *
json_trace_rank(const trace *self, uint32_t rank)
{
    const trace_flown *flown = &self->flown[rank];

    if (!flown->answered) {
        json_t *one = json_pack("{s:I}", "rank", (json_int_t)rank);

        if (self->fan_out->infos[rank].state == TUTTI_RANK_ALIVE) {
            (void)json_object_set_new(one, "error", cli_json_error(&flown->err));
        } else {
            (void)json_object_set_new(one, "reason",
                                      json_string(self->fan_out->infos[rank].reason));
        }
        return one;
    }
    return json_pack("{s:I, s:I, s:f, s:f}", "rank", (json_int_t)rank, "ops",
                     (json_int_t)flown->count, "clock_offset_us", (double)flown->offset_ns / 1000.0,
                     "clock_error_us", (double)flown->error_ns / 1000.0);
}

static json_t *
json_trace(const trace *self, const wish *asked)
{
    size_t count = 0;
    const trace_meet **latest = find_latest(self, &count);
    json_t *ranks = json_array();
    json_t *list = json_array();
    uint32_t rank;
    size_t i;

    for (rank = 0; rank < self->fan_out->count; rank++) {
        (void)json_array_append_new(ranks, json_trace_rank(self, rank));
    }
    for (i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_latest(latest[i]));
    }
    free(latest);
    return json_pack("{s:s, s:s, s:o, s:o}", "output", asked->output, "job",
                     self->fan_out->job.name, "ranks", ranks, "latest", list);
}

static cli_style
write_op(FILE *out, const json_t *row, const char *key)
{
    (void)fprintf(out, "%s%s", cli_row_text(row, key),
                  json_is_true(json_object_get(row, "running")) ? " (running)" : "");
    return CLI_PLAIN;
}

static cli_style
write_late(FILE *out, const json_t *row, const char *key)
{
    (void)fprintf(out, "%.3f ms", json_real_value(json_object_get(row, key)) / 1000.0);
    return CLI_PLAIN;
}

static const cli_column latest_columns[] = {
    {"GROUP", "group", NULL},
    {">SEQ", "sequence", NULL},
    {"OP", "op", write_op},
    {">RANKS", "ranks", NULL},
    {">LAST RANK", "last_rank", NULL},
    {">LATE BY", "late_us", write_late},
    {0},
};

static const char *
why_not(const trace *all, uint32_t rank)
{
    const tutti_rank_info *info = &all->fan_out->infos[rank];

    if (info->state == TUTTI_RANK_ALIVE) {
        return all->flown[rank].err.text;
    }
    return info->reason[0] != '\0' ? info->reason : "nothing is known of it";
}

/*
 * Ranks that are missing are told on the standard error, as the rest may be a file or a document.
 */
static void
print_trace(const cli *self, const trace *all, const wish *asked, const json_t *latest)
{
    uint64_t worst_ns = 0;
    char clocks[64];
    size_t ops = 0;
    uint32_t answered = 0;
    uint32_t rank;

    for (rank = 0; rank < all->fan_out->count; rank++) {
        const trace_flown *flown = &all->flown[rank];

        ops += flown->count;
        answered += flown->answered ? 1 : 0;
        worst_ns = flown->error_ns > worst_ns ? flown->error_ns : worst_ns;
        if (!flown->answered) {
            (void)fprintf(self->err, "tutti: trace: the file has no ops of rank %" PRIu32 ": %s\n",
                          rank, why_not(all, rank));
        }
    }
    if (strcmp(asked->output, "-") == 0) {
        return;
    }
    if (cli_value(self, "from") != NULL) {
        (void)snprintf(clocks, sizeof(clocks), "clocks as they were");
    } else {
        (void)snprintf(clocks, sizeof(clocks), "clocks good to %.3f ms", (double)worst_ns / 1e6);
    }
    cli_say(self,
            "%s: %zu ops of %" PRIu32 " of %" PRIu32
            " ranks, %s; open it at https://ui.perfetto.dev",
            asked->output, ops, answered, all->fan_out->job.world_size, clocks);
    if (!self->quiet && json_array_size(latest) > 0) {
        cli_print_rows(self, latest, latest_columns);
    }
}

/* ------------------------------------------------------------------------------ writing */

/* fclose is checked too: a full disk is often only noticed there. */
static tutti_code
write_events(cli *self, const trace *all, const wish *asked, tutti_error *err)
{
    const bool here = strcmp(asked->output, "-") == 0;
    FILE *file = here ? self->out : fopen(asked->output, "we");
    json_t *events;
    bool well;

    if (file == NULL) {
        return cli_fail_errno(err, errno, "could not write %s", asked->output);
    }
    events = trace_events(all);
    well = events != NULL && json_dumpf(events, file, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0;
    json_decref(events);
    well = fputc('\n', file) != EOF && well;
    if ((here ? fflush(file) : fclose(file)) != 0 || !well) {
        return cli_fail_errno(err, errno, "could not write %s", asked->output);
    }
    return TUTTI_OK;
}

/* "mesh:m/tp:41": the last colon counts. */
static bool
read_around(const char *text, wish *ret)
{
    const char *colon = strrchr(text, ':');
    int64_t sequence = 0;
    size_t size;

    if (colon == NULL || !cli_parse_number(colon + 1, 1, INT64_MAX, &sequence)) {
        return false;
    }
    size = (size_t)(colon - text);
    if (size == 0 || size > TUTTI_NAME_MAX) {
        return false;
    }
    memcpy(ret->group, text, size);
    ret->group[size] = '\0';
    ret->sequence = (uint64_t)sequence;
    return true;
}

/* CLI_FINE, or what to exit with. */
static int
read_wish(cli *self, wish *ret)
{
    const char *output = cli_value(self, "output");
    const char *around = cli_value(self, "around");
    const char *window = cli_value(self, "window");

    *ret = (wish){.output = output != NULL ? output : "trace.json", .window_ms = WINDOW_MS};
    if (around != NULL && !read_around(around, ret)) {
        return cli_usage(self, "--around \"%s\" is no GROUP:SEQ, such as world:41", around);
    }
    if (window != NULL && !cli_parse_ms(window, &ret->window_ms)) {
        return cli_usage(self, "--window \"%s\": need a time: 250ms, 10s, 5m", window);
    }
    if (self->json && strcmp(ret->output, "-") == 0) {
        return cli_usage(self, "-o - and --json both want standard output: choose one");
    }
    return CLI_FINE;
}

/* From the agents, or from what they have left. */
static tutti_code
collect_trace(cli *self, trace *all, cli_fan_out *fan_out, tutti_error *err)
{
    const char *folder = cli_value(self, "from");
    tutti_code code;

    all->flown = calloc(CLI_FAN_OUT_MAX, sizeof(*all->flown));
    if (all->flown == NULL) {
        abort();
    }
    if (folder != NULL) {
        return trace_read_folder(folder, cli_value(self, "job"), all, fan_out, err);
    }
    code = cli_fan_out_open(self, fan_out, err);
    if (code == TUTTI_OK) {
        cli_fan_out_call(self, fan_out, on_rank, all);
    }
    return code;
}

/* Ops that run are drawn until now. */
static void
reach_now(trace *all)
{
    struct timespec now;
    uint64_t now_ns;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    now_ns = (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
    all->end_ns = now_ns > all->end_ns ? now_ns : all->end_ns;
}

/*
 * Files of agents that have ended say nothing about now, so only with living ones the timeline
 * reaches until now.
 */
static tutti_code
run_trace(cli *self, trace *all, cli_fan_out *fan_out, const wish *asked, tutti_error *err)
{
    const tutti_code code = collect_trace(self, all, fan_out, err);

    if (code != TUTTI_OK) {
        return code;
    }
    trace_match(all);
    if (cli_value(self, "from") == NULL) {
        reach_now(all);
    }
    if (asked->group[0] != '\0' &&
        !trace_around(all, asked->group, asked->sequence, asked->window_ms * 1000000ULL)) {
        return cli_fail(
            err, TUTTI_NOT_FOUND,
            "op %" PRIu64
            " of group %s is in no flight record: a record holds the last 4096 ops of an agent",
            asked->sequence, asked->group);
    }
    return write_events(self, all, asked, err);
}

int
cli_trace(cli *self)
{
    cli_fan_out fan_out = {.count = 0};
    trace all = {.fan_out = &fan_out};
    wish asked;
    tutti_error err;
    uint32_t rank;
    int status = read_wish(self, &asked);

    if (status != CLI_FINE) {
        return status;
    }
    if (run_trace(self, &all, &fan_out, &asked, &err) != TUTTI_OK) {
        status = cli_failed(self, NULL, &err);
    } else {
        json_t *document = json_trace(&all, &asked);

        if (!self->json) {
            print_trace(self, &all, &asked, json_object_get(document, "latest"));
        }
        (void)cli_print_json(self, document);
    }
    for (rank = 0; rank < CLI_FAN_OUT_MAX; rank++) {
        tutti_free(all.flown[rank].entries);
        free(all.flown[rank].meets);
    }
    free(all.flown);
    free(all.meets);
    cli_fan_out_close(&fan_out);
    return status;
}
