/* tutti tune: which algorithms are fast here. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/commands.h"
#include "client/cli/bench/tune.h"
#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/values.h"

#define TIME_MS 60000
#define DEFAULT_FILE "tutti.table"

static json_t *
document_tuning(const tune *self, const char *path, const char *table, bool loaded)
{
    json_t *points = json_array();
    size_t i;

    for (i = 0; i < self->count; i++) {
        const tune_point *one = &self->points[i];

        (void)json_array_append_new(
            points, json_pack("{s:s, s:s, s:I, s:s, s:f, s:I}", "op", one->word, "class",
                              one->class_name, "bytes", (json_int_t)one->bytes, "algorithm",
                              one->algorithm, "us", one->us, "calls", (json_int_t)one->calls));
    }
    return json_pack("{s:I, s:I, s:b, s:b, s:s, s:s, s:o}", "ranks", (json_int_t)self->world.count,
                     "hosts", (json_int_t)self->host_count, "complete",
                     (int)(!self->cut && !self->full), "loaded", (int)loaded, "file", path, "table",
                     table, "points", points);
}

/*
 * "-" is the standard output; with --json the table is in the document instead, so that the
 * output stays one document.
 */
static tutti_code
save_tuning(const cli *self, const char *path, const char *table, tutti_error *err)
{
    FILE *file;

    if (strcmp(path, "-") == 0) {
        if (!self->json) {
            (void)fputs(table, self->out);
        }
        return TUTTI_OK;
    }
    file = fopen(path, "w");
    if (file == NULL) {
        return cli_fail_errno(err, errno, "%s", path);
    }
    if (fputs(table, file) == EOF) {
        (void)fclose(file);
        return cli_fail_errno(err, errno, "%s", path);
    }
    return fclose(file) == 0 ? TUTTI_OK : cli_fail_errno(err, errno, "%s", path);
}

static tutti_code
load_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    (void)index;
    return tutti_algorithms_set(client, arg, NULL, err);
}

static void
say_tuning(const tune *what, const char *path, bool loaded)
{
    const cli *self = what->self;
    const bool in_file = strcmp(path, "-") != 0;
    const char *rest = what->cut    ? "; not all there are: give it more --time"
                       : what->full ? "; not all there are: give it less --ops, or a smaller --end"
                                    : "";

    cli_say(self, "%zu measurements on %" PRIu32 " ranks and %" PRIu32 " hosts%s", what->count,
            what->world.count, what->host_count, rest);
    if (loaded) {
        cli_say(self, "the agents take it from now on, until they end");
    }
    if (in_file) {
        cli_say(self, "to load it at the start: tutti-agent --tune-table %s, on every agent", path);
    }
}

/* A table of a run that was cut is written as well: it is good for what was measured. */
static tutti_code
measure_and_save(tune *what, const char *path, tutti_error *err)
{
    const bool load = cli_flag(what->self, "load");
    char *table = NULL;
    tutti_code code = tune_measure(what, err);

    if (code == TUTTI_OK && what->count == 0) {
        code =
            cli_fail(err, TUTTI_FAILED_PRECONDITION, "nothing was measured: give it more --time");
    }
    if (code == TUTTI_OK) {
        code = tune_write_table(what, &table, err);
    }
    if (code == TUTTI_OK) {
        code = save_tuning(what->self, path, table, err);
    }
    if (code == TUTTI_OK && load) {
        code = cli_all_ranks_run(&what->world, load_one, table, err);
    }
    if (code == TUTTI_OK && !cli_print_json(what->self, document_tuning(what, path, table, load)) &&
        strcmp(path, "-") != 0) {
        say_tuning(what, path, load);
    }
    free(table);
    return code;
}

static bool
read_size(cli *self, const char *option, uint64_t *ret)
{
    const char *text = cli_value(self, option);

    if (text != NULL && (!cli_parse_size(text, ret) || *ret == 0)) {
        (void)cli_usage(self, "--%s \"%s\": need a size: 8, 64KiB, 1MiB", option, text);
        return false;
    }
    return true;
}

static bool
read_tuning_options(tune *what)
{
    cli *self = what->self;
    const char *time = cli_value(self, "time");
    uint32_t time_ms = TIME_MS;

    if (time != NULL && (!cli_parse_ms(time, &time_ms) || time_ms == 0)) {
        (void)cli_usage(self, "--time \"%s\": need a time: 30s, 5m", time);
        return false;
    }
    what->began_ms = cli_now_ms();
    what->ends_ms = what->began_ms + time_ms;
    what->ops = cli_value(self, "ops");
    if (!read_size(self, "begin", &what->begin_bytes) ||
        !read_size(self, "end", &what->end_bytes)) {
        return false;
    }
    if (what->begin_bytes > what->end_bytes) {
        (void)cli_usage(self, "--begin is more than --end");
        return false;
    }
    return tune_check_ops(what);
}

/* The points make `tune` too large for the stack. */
int
cli_tune(cli *self)
{
    tune *what = calloc(1, sizeof(*what));
    const char *path = cli_value(self, "output");
    tutti_error err;
    tutti_code code;
    int done = CLI_USAGE;

    if (what == NULL) {
        abort();
    }
    *what = (tune){.self = self, .begin_bytes = 8, .end_bytes = 16 << 20, .host_count = 1};
    if (read_tuning_options(what)) {
        code = cli_all_ranks_open(self, NULL, &what->world, &err);
        if (code == TUTTI_OK && what->world.count < 2) {
            code = cli_fail(
                &err, TUTTI_FAILED_PRECONDITION,
                "a job of one rank needs no algorithms: tutti tune needs at least 2 ranks");
        }
        if (code == TUTTI_OK) {
            code = measure_and_save(what, path == NULL ? DEFAULT_FILE : path, &err);
        }
        done = code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
        cli_all_ranks_close(&what->world);
    }
    free(what);
    return done;
}
