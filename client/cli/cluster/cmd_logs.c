/*
 * tutti logs: what the processes of a local cluster have logged, of one or of all. Lines of
 * several logs are put in order by the time in front of each. A line without a time, such as one
 * of a crash, keeps the time of the line before it and so stays behind it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/state.h"
#include "client/cli/util/values.h"

#define LOOK_AGAIN_MS 50
#define STAMP_SIZE 24 /* "2026-11-23T01:58:57.589Z" */

/* One log, and its next line. */
typedef struct log_reader {
    FILE *file;   /* NULL = there is none */
    int64_t rank; /* -1 = the coordinator's */
    char *line;   /* with its end; NULL = never read */
    size_t room;
    ssize_t size;               /* of the line; 0 = there is none now */
    char stamp[STAMP_SIZE + 1]; /* when it was said; of the line before when this one has none */
} log_reader;

/* ------------------------------------------------------------------------------ reading */

/* A time is told by its form only, which is cheap and enough for our own logs. */
static void
take_stamp(log_reader *self)
{
    if (self->size > STAMP_SIZE && self->line[4] == '-' && self->line[10] == 'T' &&
        self->line[STAMP_SIZE - 1] == 'Z') {
        memcpy(self->stamp, self->line, STAMP_SIZE);
    }
}

/* A line that is being written has no end yet: when more may come it is left for later. */
static void
read_log_line(log_reader *self, bool more_comes)
{
    if (self->file == NULL || self->size > 0) {
        return;
    }
    clearerr(self->file);
    self->size = getline(&self->line, &self->room, self->file);
    if (self->size > 0 && self->line[self->size - 1] != '\n' && more_comes) {
        (void)fseek(self->file, -self->size, SEEK_CUR);
        self->size = 0;
    }
    self->size = self->size < 0 ? 0 : self->size;
    take_stamp(self);
}

/* Go to where the last `count` lines begin. */
static void
skip_lines(log_reader *self, int64_t count)
{
    int64_t lines = 0;

    while (self->file != NULL && getline(&self->line, &self->room, self->file) > 0) {
        lines++;
    }
    if (self->file != NULL) {
        rewind(self->file);
    }
    while (lines-- > count && getline(&self->line, &self->room, self->file) > 0) {
    }
}

/*
 * The one whose line was said first; NULL = none has one. At equal times the coordinator comes
 * first, then the ranks in their order.
 */
static log_reader *
find_earliest(log_reader *readers, size_t count, bool more_comes)
{
    log_reader *first = NULL;
    size_t i;

    for (i = 0; i < count; i++) {
        read_log_line(&readers[i], more_comes);
        if (readers[i].size > 0 && (first == NULL || strcmp(readers[i].stamp, first->stamp) < 0)) {
            first = &readers[i];
        }
    }
    return first;
}

/* ------------------------------------------------------------------------------ showing */

/*
 * Each line is a document of its own, so that a program can read while the log grows. Bytes that
 * are no UTF-8 would be none, so they become '?'.
 */
static void
print_json(const cli *self, const log_reader *from, size_t size)
{
    json_t *line = json_stringn(from->line, size);
    size_t i;

    for (i = 0; line == NULL && i < size; i++) { /* not UTF-8 */
        from->line[i] = (char)((unsigned char)from->line[i] < 0x80 ? from->line[i] : '?');
    }
    line = line != NULL ? line : json_stringn(from->line, size);
    line = json_pack("{s:o, s:o}", "rank", from->rank < 0 ? json_null() : json_integer(from->rank),
                     "line", line != NULL ? line : json_string(""));
    (void)json_dumpf(line, self->out, JSON_COMPACT);
    (void)fputc('\n', self->out);
    json_decref(line);
}

static void
print_log_line(const cli *self, const log_reader *from, bool named)
{
    const size_t size = (size_t)from->size - (from->line[from->size - 1] == '\n' ? 1 : 0);

    if (self->json) {
        print_json(self, from, size);
        return;
    }
    if (named && from->rank < 0) {
        (void)fprintf(self->out, "[coordinator] ");
    } else if (named) {
        (void)fprintf(self->out, "[%" PRId64 "] ", from->rank);
    }
    (void)fwrite(from->line, 1, size, self->out);
    (void)fputc('\n', self->out);
}

/* False: nobody reads it any more. */
static bool
print_all(const cli *self, log_reader *readers, size_t count, bool more_comes)
{
    log_reader *next;

    while ((next = find_earliest(readers, count, more_comes)) != NULL) {
        print_log_line(self, next, count > 1);
        next->size = 0;
    }
    return fflush(self->out) == 0 && ferror(self->out) == 0;
}

/* A cluster that was stopped has taken its logs away. */
static bool
is_gone(const log_reader *readers, size_t count)
{
    struct stat found;
    size_t i;

    for (i = 0; i < count; i++) {
        if (readers[i].file != NULL && fstat(fileno(readers[i].file), &found) == 0 &&
            found.st_nlink > 0) {
            return false;
        }
    }
    return true;
}

/*
 * Looks again every 50 ms. When the cluster is gone, one last round prints what is there, also a
 * line without an end.
 */
static void
follow_log(const cli *self, log_reader *readers, size_t count)
{
    const struct timespec shortly = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    const uint64_t until_ms = cli_now_ms() + self->timeout_ms;
    bool over = false;

    while (!over) {
        over = is_gone(readers, count) || (self->timeout_ms != 0 && cli_now_ms() >= until_ms);
        over = !print_all(self, readers, count, !over) || over;
        if (!over) {
            (void)nanosleep(&shortly, NULL);
        }
    }
}

/* ------------------------------------------------------------------------------ the command */

static void
open_log(log_reader *ret, const state_process *process, int64_t rank)
{
    *ret = (log_reader){.rank = rank, .file = fopen(process->log, "re")};
}

/* All, or the one that was named. False: there is none of that name, which was said. */
static tutti_code
open_logs(const cli *self, const state *cluster, log_reader *readers, size_t *ret_count,
          tutti_error *err)
{
    const char *named = self->argument_count > 0 ? self->arguments[0] : NULL;
    int64_t rank = 0;
    uint32_t i;

    *ret_count = 1;
    if (named != NULL && strcmp(named, "coordinator") == 0) {
        open_log(&readers[0], &cluster->coordinator, -1);
    } else if (named != NULL && cli_parse_number(named, 0, cluster->rank_count - 1, &rank)) {
        open_log(&readers[0], &cluster->ranks[rank], rank);
    } else if (named != NULL) {
        *ret_count = 0;
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%.80s\" is no process of cluster %s: need a rank from 0 to %" PRIu32
                        ", or coordinator",
                        named, cluster->name, cluster->rank_count - 1);
    } else {
        open_log(&readers[0], &cluster->coordinator, -1);
        for (i = 0; i < cluster->rank_count; i++) {
            open_log(&readers[(*ret_count)++], &cluster->ranks[i], i);
        }
    }
    return TUTTI_OK;
}

static void
show_log(const cli *self, log_reader *readers, size_t count, int64_t lines)
{
    size_t i;

    for (i = 0; i < count && lines >= 0; i++) {
        skip_lines(&readers[i], lines);
    }
    if (cli_flag(self, "follow")) {
        follow_log(self, readers, count);
    } else {
        (void)print_all(self, readers, count, false);
    }
    for (i = 0; i < count; i++) {
        if (readers[i].file != NULL) {
            (void)fclose(readers[i].file);
        }
        free(readers[i].line);
    }
}

int
cli_logs(cli *self)
{
    const char *name =
        cli_value(self, "name") != NULL ? cli_value(self, "name") : cli_value(self, "cluster");
    log_reader *readers = NULL;
    size_t count = 0;
    int64_t lines = -1;
    state cluster;
    tutti_error err;
    tutti_code code;

    if (!cli_number(self, "lines", 0, INT32_MAX, &lines)) {
        return CLI_USAGE;
    }
    code = state_init(&cluster, name != NULL ? name : "default", &err);
    if (code == TUTTI_OK) {
        code = state_read(&cluster, &err);
    }
    if (code == TUTTI_OK) {
        readers = calloc((size_t)cluster.rank_count + 1, sizeof(*readers));
        if (readers == NULL) {
            abort();
        }
        code = open_logs(self, &cluster, readers, &count, &err);
    }
    if (code == TUTTI_OK) {
        show_log(self, readers, count, lines);
    }
    free(readers);
    state_fini(&cluster);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
