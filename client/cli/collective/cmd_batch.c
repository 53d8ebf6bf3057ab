/* tutti batch: lines of calls, through one pipeline; each answer is a line. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/collective/batch.h"
#include "client/cli/collective/commands.h"
#include "client/cli/connect/connect.h"
#include "client/cli/npy/npy.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"

#define RESULTS_KEPT 512
#define LINE_BYTES_MAX ((size_t)1 << 20)

typedef struct batch {
    cli *tool;
    FILE *file;
    tutti_client *client;
    tutti_pipeline *pipeline;
    uint64_t line;   /* the number of the last one read */
    uint64_t *lines; /* by call: the line it came from */
    size_t line_room;
    bool failed;
} batch;

/* ------------------------------------------------------------------------------ answers */

static void
print_batch_line(const batch *self, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);

    (void)fprintf(self->tool->out, "%s\n", text == NULL ? "" : text);
    free(text);
    json_decref(object);
}

/* A failed line is answered like any other; the exit code tells that there was one. */
static void
say_failed(batch *self, uint64_t line, const tutti_error *err)
{
    self->failed = true;
    print_batch_line(
        self, json_pack("{s:I, s:o}", "line", (json_int_t)line, "error", cli_json_error(err)));
}

/* The results of a list, and what came with a tensor if that is text. Empties it. */
static void
add_more(json_t *object, tutti_op_more *more)
{
    json_t *list = more->output_count == 0 ? NULL : json_array();
    size_t i;

    for (i = 0; i < more->output_count; i++) {
        json_t *one = json_pack("{s:s}", "handle", more->outputs[i].text);

        if (more->outputs[i].known) {
            cli_json_spec(one, &more->outputs[i].spec);
        }
        (void)json_array_append_new(list, one);
    }
    if (list != NULL) {
        (void)json_object_set_new(object, "outputs", list);
    }
    if (more->user_meta_size > 0) {
        (void)json_object_set_new(object, "user_meta",
                                  json_stringn(more->user_meta, more->user_meta_size));
    }
    tutti_op_more_free(more);
}

/* Answers come as calls end, so each says the line it belongs to. */
static void
say_result(batch *self, tutti_pipeline_result *result)
{
    const uint64_t line = self->lines[result->id - 1];
    const tutti_op_result *op = &result->op;
    json_t *object;

    if (result->error.code != TUTTI_OK) {
        say_failed(self, line, &result->error);
        return;
    }
    object = json_pack("{s:I}", "line", (json_int_t)line);
    if (op->output.text[0] != '\0') {
        (void)json_object_set_new(object, "handle", json_string(op->output.text));
    }
    if (op->output.known) {
        cli_json_spec(object, &op->output.spec);
    }
    if (op->sequence != 0) {
        (void)json_object_set_new(object, "sequence", json_integer((json_int_t)op->sequence));
        (void)json_object_set_new(object, "elapsed_us", json_integer((json_int_t)op->elapsed_us));
    }
    if (op->work[0] != '\0') {
        (void)json_object_set_new(object, "work", json_string(op->work));
    }
    add_more(object, &result->more);
    print_batch_line(self, object);
}

/* ------------------------------------------------------------------------------ calls */

/* The pipeline copies the op, so it is freed at once. */
static tutti_code
submit_op(batch *self, const json_t *line, tutti_op_kind kind, uint64_t *ret_id, tutti_error *err)
{
    batch_op own;
    tutti_code code = batch_op_read(line, &own, err);

    if (code == TUTTI_OK) {
        code = tutti_pipeline_submit(self->pipeline, kind, &own.op, ret_id, err);
    }
    batch_op_fini(&own);
    return code;
}

/*
 * The file is read when its line comes, and closed when its bytes have been given to the stream.
 */
static tutti_code
submit_put(batch *self, const json_t *line, uint64_t *ret_id, tutti_error *err)
{
    static const char *const names[] = {"file", "name", "into", NULL};
    const char *path = batch_text(line, "file");
    npy_array array = {0};
    tutti_error inner;
    tutti_code code = batch_check_members(line, names, err);

    if (code == TUTTI_OK && path == NULL) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "put needs a file: \"file\": \"x.npy\"");
    }
    if (code == TUTTI_OK) {
        code = npy_open(path, TUTTI_DTYPE_NONE, &array, &inner);
        if (code != TUTTI_OK) {
            code = cli_fail(err, code, "%.200s: %.800s", path, inner.text);
        }
    }
    if (code == TUTTI_OK) {
        code = tutti_pipeline_put(self->pipeline, &array.spec, array.data, batch_text(line, "name"),
                                  batch_text(line, "into"), ret_id, err);
        npy_close(&array);
    }
    return code;
}

static tutti_code
submit_delete(batch *self, const json_t *line, uint64_t *ret_id, tutti_error *err)
{
    static const char *const names[] = {"handle", NULL};
    const char *handle = batch_text(line, "handle");
    tutti_code code = batch_check_members(line, names, err);

    return code == TUTTI_OK ? tutti_pipeline_delete(self->pipeline, handle, ret_id, err) : code;
}

static tutti_code
submit_sync(batch *self, const json_t *line, uint64_t *ret_id, tutti_error *err)
{
    static const char *const names[] = {"group", "timeout_ms", NULL};
    const json_int_t timeout_ms = json_integer_value(json_object_get(line, "timeout_ms"));
    tutti_code code = batch_check_members(line, names, err);

    if (code == TUTTI_OK && (timeout_ms < 0 || timeout_ms > UINT32_MAX)) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "\"timeout_ms\": need a number of at least 0");
    }
    return code == TUTTI_OK ? tutti_pipeline_sync(self->pipeline, batch_text(line, "group"),
                                                  (uint32_t)timeout_ms, ret_id, err)
                            : code;
}

/* Names of calls are those of the ops, and the three that are not ops. */
static tutti_code
submit_batch(batch *self, const json_t *line, uint64_t *ret_id, tutti_error *err)
{
    const char *call = batch_text(line, "call");
    tutti_op_kind kind;

    if (call == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "need an object with \"call\": \"all_reduce\", \"put\", ...");
    }
    if (strcmp(call, "put") == 0) {
        return submit_put(self, line, ret_id, err);
    }
    if (strcmp(call, "delete") == 0) {
        return submit_delete(self, line, ret_id, err);
    }
    if (strcmp(call, "sync") == 0) {
        return submit_sync(self, line, ret_id, err);
    }
    if (tutti_op_kind_parse(strcmp(call, "reduce") == 0 ? "reduce_to_root" : call, &kind)) {
        return submit_op(self, line, kind, ret_id, err);
    }
    return cli_fail(err, TUTTI_INVALID_ARGUMENT, "there is no call \"%.60s\"", call);
}

/* ------------------------------------------------------------------------------ lines */

/* Ids of the pipeline count from 1. */
static void
note_batch(batch *self, uint64_t id)
{
    if (id > self->line_room) {
        self->line_room = 2 * self->line_room + 64;
        self->lines = realloc(self->lines, self->line_room * sizeof(*self->lines));
        if (self->lines == NULL) {
            abort();
        }
    }
    self->lines[id - 1] = self->line;
}

static bool
is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

/* What has been answered is told while others are under way, so that it need not be kept. */
static tutti_code
take_some(batch *self, tutti_error *err)
{
    tutti_pipeline_result result;
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && tutti_pipeline_count(self->pipeline) > RESULTS_KEPT) {
        code = tutti_pipeline_next(self->pipeline, &result, err);
        if (code == TUTTI_OK) {
            say_result(self, &result);
        }
    }
    return code == TUTTI_OK ? tutti_pipeline_flush(self->pipeline, err) : code;
}

/* False: the stream is over, and nothing more can be said. */
static bool
run_line(batch *self, const char *text)
{
    json_error_t where;
    json_t *line = json_loads(text, 0, &where);
    uint64_t id = 0;
    tutti_error err;
    tutti_code code;

    if (line == NULL) {
        code = cli_fail(&err, TUTTI_INVALID_ARGUMENT, "no JSON: %s", where.text);
    } else {
        code = submit_batch(self, line, &id, &err);
    }
    json_decref(line);
    if (code == TUTTI_OK) {
        note_batch(self, id);
        code = take_some(self, &err);
    }
    if (code != TUTTI_OK) {
        say_failed(self, self->line, &err);
    }
    return code != TUTTI_UNAVAILABLE && code != TUTTI_CANCELLED;
}

/* A line that is too long is refused alone; the ones behind it still run. */
static void
run_lines(batch *self)
{
    char *text = NULL;
    size_t room = 0;
    bool on = true;
    ssize_t size;

    while (on && (size = getline(&text, &room, self->file)) >= 0) {
        self->line++;
        if ((size_t)size > LINE_BYTES_MAX) {
            tutti_error err;

            (void)cli_fail(&err, TUTTI_INVALID_ARGUMENT, "a line of %zd bytes, at most %zu", size,
                           LINE_BYTES_MAX);
            say_failed(self, self->line, &err);
        } else if (!is_blank(text)) {
            on = run_line(self, text);
        }
    }
    free(text);
}

/* NOT_FOUND means that nothing is under way any more. */
static tutti_code
take_all(batch *self, tutti_error *err)
{
    tutti_pipeline_result result;
    tutti_code code;

    while ((code = tutti_pipeline_next(self->pipeline, &result, err)) == TUTTI_OK) {
        say_result(self, &result);
    }
    return code == TUTTI_NOT_FOUND ? TUTTI_OK : code;
}

static tutti_code
open_all_batch(batch *self, uint32_t in_flight, tutti_error *err)
{
    const char *path = self->tool->arguments[0];
    tutti_pipeline_options options;
    tutti_code code;

    self->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (self->file == NULL) {
        return cli_fail_errno(err, errno, "%s", path);
    }
    code = cli_connect(self->tool, NULL, &self->client, err);
    if (code != TUTTI_OK) {
        return code;
    }
    tutti_pipeline_options_init(&options);
    options.stop_on_error = cli_flag(self->tool, "stop-on-error");
    options.in_flight_max = in_flight;
    return tutti_pipeline_open(self->client, &options, &self->pipeline, err);
}

/* The exit code is that of the stream if it broke, else it says whether any line failed. */
int
cli_batch(cli *self)
{
    batch own = {.tool = self};
    int64_t in_flight = 0;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank) ||
        !cli_number(self, "in-flight", 1, UINT32_MAX, &in_flight)) {
        return CLI_USAGE;
    }
    code = open_all_batch(&own, (uint32_t)in_flight, &err);
    if (code == TUTTI_OK) {
        run_lines(&own);
        code = take_all(&own, &err);
    }
    (void)tutti_pipeline_close(own.pipeline, NULL);
    tutti_close(own.client);
    if (own.file != NULL && own.file != stdin) {
        (void)fclose(own.file);
    }
    free(own.lines);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    return own.failed ? CLI_FAILED : CLI_FINE;
}
