/*
 * tutti restore and tutti store move: a store is filled by the program that has all kinds of stores,
 * tutti-coordinator with --restore or --move-from (server/fill.h). It tells how far it is in lines on its
 * standard output; its last words are the error.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/process.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/values.h"

#define PROGRAM "tutti-coordinator"

extern char **environ;

typedef struct filling {
    const cli *self;
    const char *what; /* for the bar */
    cli_bar_part bar;
    uint64_t keys; /* of its last line */
    uint64_t bytes;
    uint64_t version;
    bool done;
    tutti_error err; /* what it says of its end */
} filling;

/* ------------------------------------------------------------------ what it says */

static tutti_code
code_of(const char *name)
{
    int code;

    for (code = TUTTI_CANCELLED; code <= TUTTI_UNAUTHENTICATED; code++) {
        if (strcmp(tutti_code_name((tutti_code)code), name) == 0) {
            return (tutti_code)code;
        }
    }
    return TUTTI_UNKNOWN;
}

static void
take_line(filling *work, const char *line)
{
    uint64_t done = 0;
    uint64_t total = 0;
    char name[32] = "";

    if (sscanf(line, "progress: %" SCNu64 " of %" SCNu64, &done, &total) == 2) {
        if (work->bar.bar == NULL) {
            work->bar.bar = cli_bar_new(work->self, work->what, total);
        }
        (void)cli_bar_moved(&work->bar, done, total);
    } else if (sscanf(line, "done: %" SCNu64 " keys, %" SCNu64 " bytes, version %" SCNu64,
                      &work->keys, &work->bytes, &work->version) == 3) {
        work->done = true;
    } else if (sscanf(line, "failed: %31s %63s", name, work->err.reason) >= 1) {
        work->err.code = code_of(name);
    }
}

/* Its log goes on to standard error; behind the name of the program stands why it failed. */
static void
take_last_words(filling *work, FILE *words)
{
    static const char name[] = PROGRAM ": ";
    char *line = NULL;
    size_t room = 0;

    rewind(words);
    while (getline(&line, &room, words) > 0) {
        if (strncmp(line, name, sizeof(name) - 1) != 0) {
            (void)fputs(line, work->self->err);
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(work->err.text, sizeof(work->err.text), "%.*s",
                       (int)sizeof(work->err.text) - 1, line + sizeof(name) - 1);
    }
    free(line);
}

/* ------------------------------------------------------------------ running it */

static void
listen_to(filling *work, int output)
{
    FILE *lines = fdopen(output, "r");
    char *line = NULL;
    size_t room = 0;

    if (lines == NULL) {
        abort();
    }
    while (getline(&line, &room, lines) > 0) {
        take_line(work, line);
    }
    free(line);
    (void)fclose(lines);
}

static tutti_code
start_filling(char **words, FILE *said, int *ret_output, pid_t *ret_pid, tutti_error *err)
{
    process_plan plan = {
        .arguments = words, .environment = environ, .input = STDIN_FILENO, .bound = true};
    int ends[2];
    tutti_code code;

    if (pipe(ends) != 0) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no descriptors for a pipe");
    }
    plan.output = ends[1];
    plan.error = fileno(said);
    code = process_start(&plan, ret_pid, err);
    (void)close(ends[1]);
    if (code != TUTTI_OK) {
        (void)close(ends[0]);
        return code;
    }
    *ret_output = ends[0];
    return TUTTI_OK;
}

static int
judge_end(filling *work, int status, tutti_error *err)
{
    if (work->done && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return CLI_FINE;
    }
    *err = work->err;
    if (err->text[0] == '\0') {
        (void)cli_fail(err, TUTTI_UNKNOWN, PROGRAM " ended without a word (status %d)", status);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == CLI_USAGE ? CLI_USAGE : CLI_FAILED;
}

static int
run_filling(filling *work, char **words, tutti_error *err)
{
    FILE *said = tmpfile();
    pid_t pid = 0;
    int output = -1;
    int status = 0;

    if (said == NULL) {
        abort();
    }
    if (start_filling(words, said, &output, &pid, err) != TUTTI_OK) {
        (void)fclose(said);
        return CLI_FAILED;
    }
    listen_to(work, output);
    (void)waitpid(pid, &status, 0);
    if (work->bar.bar != NULL) {
        cli_bar_free(work->bar.bar);
    }
    take_last_words(work, said);
    (void)fclose(said);
    return judge_end(work, status, err);
}

/* tutti-coordinator --log warn --store TO OPTION FROM, and what stands behind the two arguments. */
static int
run_coordinator(cli *self, filling *work, const char *option, const char *from, const char *to)
{
    const int more = self->argument_count - 2;
    char **words = calloc((size_t)more + 9, sizeof(*words));
    char path[PROCESS_PATH_MAX];
    tutti_error err = {0};
    int status = CLI_FAILED;
    int i;

    if (words == NULL) {
        abort();
    }
    if (process_find(PROGRAM, path, &err) == TUTTI_OK) {
        const char *const first[] = {path, "--log", "warn", "--store", to, option, from};

        for (i = 0; i < 7; i++) {
            words[i] = (char *)(uintptr_t)first[i];
        }
        for (i = 0; i < more; i++) {
            words[7 + i] = self->arguments[2 + i];
        }
        status = run_filling(work, words, &err);
    }
    free(words);
    if (status != CLI_FINE) {
        (void)cli_failed(self, NULL, &err);
    }
    return status;
}

/* False: words are still wanted. */
static bool
say_filled(const filling *work, const char *from, const char *to)
{
    return cli_print_json(work->self,
                          json_pack("{s:s, s:s, s:I, s:I, s:I}", "from", from, "store", to, "keys",
                                    (json_int_t)work->keys, "bytes", (json_int_t)work->bytes,
                                    "version", (json_int_t)work->version));
}

static int
fill_store(cli *self, const char *option, bool moves)
{
    const char *from = self->arguments[0];
    const char *to = self->arguments[1];
    filling work = {.self = self, .what = to};
    char size[CLI_WORD_SIZE];
    const int status = run_coordinator(self, &work, option, from, to);

    if (status == CLI_FINE && !say_filled(&work, from, to)) {
        cli_say(self, "%s: %" PRIu64 " keys, %s, at version %" PRIu64, to, work.keys,
                cli_format_size(work.bytes, size), work.version);
        if (moves) {
            cli_say(self, "%s still has them: start no coordinator on it any more", from);
        }
    }
    return status;
}

int
cli_restore(cli *self)
{
    return fill_store(self, "--restore", false);
}

int
cli_store_move(cli *self)
{
    return fill_store(self, "--move-from", true);
}
