/* tutti all-reduce and all other collectives, send, recv, wait. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/collective/collective.h"
#include "client/cli/collective/commands.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

/* What is for one rank's call, or for everyone's, and is not silently left out of the other. */
static bool
check_collective_words(const collective *self, int64_t rank)
{
    const cli *tool = self->self;
    const char *path = cli_has_option(tool, "output") ? cli_value(tool, "output") : NULL;

    if (rank < 0 && self->op.async) {
        (void)cli_usage(tool, "--async is for one rank's call: say --rank");
    } else if (rank < 0 && cli_has_option(tool, "into") && cli_flag(tool, "into")) {
        (void)cli_usage(tool, "--into is for one rank's call: say --rank");
    } else if (rank >= 0 && path != NULL) {
        (void)cli_usage(
            tool, "-o is for a call on all ranks: save the result of one rank with tutti get");
    } else if (path != NULL && self->result == COLLECTIVE_EACH && strstr(path, "%d") == NULL) {
        (void)cli_usage(tool, "-o \"%s\": every rank has a result: write %%d for its group rank",
                        path);
    } else {
        return true;
    }
    return false;
}

/* One rank's call when --rank says so, else everyone's. */
static int
run_collective(collective *self)
{
    int64_t rank = -1;
    int done = CLI_USAGE;

    if (collective_read(self) && cli_rank_option(self->self, &rank) &&
        check_collective_words(self, rank)) {
        done = rank >= 0 ? collective_on_one(self) : collective_on_all(self);
    }
    collective_end(self);
    return done;
}

int
cli_all_reduce(cli *self)
{
    collective what = {.self = self, .word = "all_reduce", .fn = tutti_all_reduce};

    return run_collective(&what);
}

int
cli_reduce(cli *self)
{
    collective what = {.self = self,
                       .word = "reduce",
                       .fn = tutti_reduce_to_root,
                       .grows = true,
                       .result = COLLECTIVE_AT_ROOT};

    return run_collective(&what);
}

int
cli_reduce_scatter(cli *self)
{
    collective what = {.self = self,
                       .word = "reduce_scatter",
                       .fn = tutti_reduce_scatter,
                       .grows = true,
                       .result = COLLECTIVE_EACH};

    return run_collective(&what);
}

int
cli_broadcast(cli *self)
{
    collective what = {.self = self, .word = "broadcast", .fn = tutti_broadcast, .from_root = true};

    return run_collective(&what);
}

int
cli_all_gather(cli *self)
{
    collective what = {.self = self, .word = "all_gather", .fn = tutti_all_gather, .grows = true};

    return run_collective(&what);
}

int
cli_gather(cli *self)
{
    collective what = {.self = self,
                       .word = "gather",
                       .fn = tutti_gather,
                       .grows = true,
                       .result = COLLECTIVE_AT_ROOT};

    return run_collective(&what);
}

int
cli_scatter(cli *self)
{
    collective what = {.self = self,
                       .word = "scatter",
                       .fn = tutti_scatter,
                       .grows = true,
                       .from_root = true,
                       .result = COLLECTIVE_EACH};

    return run_collective(&what);
}

int
cli_all_to_all(cli *self)
{
    collective what = {.self = self,
                       .word = "all_to_all",
                       .fn = tutti_all_to_all,
                       .grows = true,
                       .result = COLLECTIVE_EACH};

    return run_collective(&what);
}

int
cli_permute(cli *self)
{
    collective what = {.self = self,
                       .word = "permute",
                       .fn = tutti_permute,
                       .grows = true,
                       .result = COLLECTIVE_EACH};

    return run_collective(&what);
}

int
cli_barrier(cli *self)
{
    collective what = {.self = self, .word = "barrier", .fn = tutti_barrier};

    return run_collective(&what);
}

int
cli_send(cli *self)
{
    collective what = {.self = self, .word = "send", .fn = tutti_send};
    int64_t rank;

    if (!collective_read(&what) || !cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (cli_value(self, "to") == NULL && what.op.group_count == 0) {
        return cli_usage(self, "send needs a destination: --to RANK");
    }
    return collective_on_one(&what);
}

int
cli_recv(cli *self)
{
    collective what = {.self = self, .word = "recv", .fn = tutti_recv};
    int64_t rank;

    if (!collective_read(&what) || !cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    return collective_on_one(&what);
}

/* ------------------------------------------------------------------------------ wait */

static json_t *
json_work(const tutti_work_status *status)
{
    json_t *object = json_pack("{s:s, s:b, s:I}", "work", status->work, "done", status->done,
                               "elapsed_us", (json_int_t)status->elapsed_us);

    if (status->output.text[0] != '\0') {
        (void)json_object_set_new(object, "handle", json_string(status->output.text));
    }
    if (status->output.known) {
        cli_json_spec(object, &status->output.spec);
    }
    if (status->error.code != TUTTI_OK) {
        (void)json_object_set_new(object, "error", cli_json_error(&status->error));
    }
    return object;
}

/* All of one agent: the works of one call live together. */
static bool
is_one_agent(cli *self)
{
    uint32_t first = 0;
    uint32_t rank;
    int i;

    for (i = 0; i < self->argument_count; i++) {
        if (strncmp(self->arguments[i], "work:", 5) != 0 ||
            !cli_rank_of(self->arguments[i], i == 0 ? &first : &rank) || (i > 0 && rank != first)) {
            (void)cli_usage(self, "\"%s\": need works of one rank, as --async has printed them",
                            self->arguments[i]);
            return false;
        }
    }
    return true;
}

static bool
print_json_works(const cli *self, const tutti_work_status *statuses, size_t count)
{
    json_t *works = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(works, json_work(&statuses[i]));
    }
    return cli_print_json(self, json_pack("{s:o}", "works", works));
}

static bool
print_works(const cli *self, const tutti_work_status *statuses, size_t count)
{
    bool well = true;
    size_t i;

    for (i = 0; i < count; i++) {
        well = well && statuses[i].error.code == TUTTI_OK;
    }
    if (print_json_works(self, statuses, count)) {
        return well;
    }
    for (i = 0; i < count; i++) {
        if (statuses[i].error.code != TUTTI_OK) {
            (void)fprintf(self->err, "tutti: %s: %s\n", statuses[i].work, statuses[i].error.text);
        } else {
            cli_say(self, "%s  done in %" PRIu64 " us  %s", statuses[i].work,
                    statuses[i].elapsed_us, statuses[i].output.text);
        }
    }
    return well;
}

/* Those that still ran end now, on all ranks; how, tutti wait tells. */
static bool
print_cancelled(const cli *self, const tutti_work_status *statuses, size_t count)
{
    size_t i;

    if (print_json_works(self, statuses, count)) {
        return true;
    }
    for (i = 0; i < count; i++) {
        cli_say(self, "%s  %s", statuses[i].work,
                statuses[i].done ? "had ended" : "is cancelled on all ranks");
    }
    return true;
}

static int
run_works(cli *self, bool cancel)
{
    const char *const *works = (const char *const *)self->arguments;
    const size_t count = (size_t)self->argument_count;
    tutti_work_status *statuses = NULL;
    tutti_client *client = NULL;
    int64_t rank;
    bool well = true;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank) || !is_one_agent(self)) {
        return CLI_USAGE;
    }
    statuses = calloc(count, sizeof(*statuses));
    if (statuses == NULL) {
        abort();
    }
    code = cli_connect(self, self->arguments[0], &client, &err);
    if (code == TUTTI_OK) {
        code = cancel ? tutti_cancel(client, works, count, statuses, &err)
                      : tutti_wait(client, works, count, self->timeout_ms, statuses, &err);
    }
    if (code == TUTTI_OK) {
        well = (cancel ? print_cancelled : print_works)(self, statuses, count);
    }
    tutti_close(client);
    free(statuses);
    return code != TUTTI_OK ? cli_failed(self, NULL, &err) : well ? CLI_FINE : CLI_FAILED;
}

int
cli_wait(cli *self)
{
    return run_works(self, false);
}

int
cli_cancel(cli *self)
{
    return run_works(self, true);
}
