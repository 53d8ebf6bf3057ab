/* tutti infer: what an op would make, without running it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/collective/collective.h"
#include "client/cli/collective/commands.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

#define RANKS_SHOWN_MAX 1024

/* "FP32[2,3]", "INT64[]". False: it is none, so it may be a handle. */
static bool
parse_spec(const char *text, tutti_spec *ret)
{
    const size_t size = strcspn(text, "[");
    const char *at = text + size;
    char word[24];

    if (size >= sizeof(word) || *at != '[' || text[strlen(text) - 1] != ']') {
        return false;
    }
    memcpy(word, text, size);
    word[size] = '\0';
    *ret = (tutti_spec){.dtype = tutti_dtype_parse(word)};
    while (*++at != ']' && ret->dim_count < TUTTI_DIMS_MAX) {
        const size_t digits = strcspn(at, ",]");

        if (digits >= sizeof(word)) {
            return false;
        }
        memcpy(word, at, digits);
        word[digits] = '\0';
        if (!cli_parse_number(word, 0, INT64_MAX, &ret->dims[ret->dim_count++])) {
            return false;
        }
        at += digits;
        if (*at == ']') {
            break;
        }
    }
    return *at == ']' && at[1] == '\0' && ret->dtype != TUTTI_DTYPE_NONE;
}

typedef struct inference {
    collective what;
    tutti_op_kind kind;
    const tutti_spec *input; /* NULL = of a tensor */
    uint32_t size;
    int64_t only; /* this group rank; -1 = all of them */
    tutti_spec *results;
} inference;

/* The question is put for each rank, as results may differ in shape. */
static tutti_code
ask_inference(inference *self, tutti_client *client, tutti_error *err)
{
    tutti_op op = self->what.op;
    tutti_infer_place place = {.group_size = self->size};
    tutti_code code = TUTTI_OK;
    uint32_t rank;

    for (rank = 0; rank < self->size && code == TUTTI_OK; rank++) {
        if (self->only >= 0 && self->only != rank) {
            continue;
        }
        place.group_rank = rank;
        code = collective_set_splits(&self->what, rank, &op, err);
        if (code == TUTTI_OK) {
            code = tutti_infer(client, self->kind, &op, self->input, &place, &self->results[rank],
                               err);
        }
    }
    return code;
}

static json_t *
document_inference(const inference *self)
{
    json_t *results = json_array();
    uint32_t rank;

    for (rank = 0; rank < self->size; rank++) {
        if (self->only < 0 || self->only == rank) {
            json_t *one = json_pack("{s:I}", "group_rank", (json_int_t)rank);

            if (self->results[rank].dtype != TUTTI_DTYPE_NONE) {
                cli_json_spec(one, &self->results[rank]);
            }
            (void)json_array_append_new(results, one);
        }
    }
    return json_pack("{s:s, s:I, s:o}", "op", tutti_op_kind_name(self->kind), "group_size",
                     (json_int_t)self->size, "results", results);
}

/* A rank to which the op gives nothing has no dtype: "nothing", and empty cells behind it. */
static cli_style
write_dtype(FILE *out, const json_t *row, const char *key)
{
    (void)fputs(json_object_get(row, key) == NULL ? "nothing" : cli_row_text(row, key), out);
    return CLI_PLAIN;
}

static cli_style
write_shape(FILE *out, const json_t *row, const char *key)
{
    if (json_object_get(row, key) == NULL) {
        (void)fputc(' ', out);
        return CLI_PLAIN;
    }
    return cli_cell_shape(out, row, key);
}

static cli_style
write_bytes(FILE *out, const json_t *row, const char *key)
{
    if (json_object_get(row, key) == NULL) {
        (void)fputc(' ', out);
        return CLI_PLAIN;
    }
    return cli_cell_value(out, row, key);
}

static const cli_column inference_columns[] = {
    {">GROUP RANK", "group_rank", NULL},
    {"DTYPE", "dtype", write_dtype},
    {"SHAPE", "shape", write_shape},
    {">BYTES", "bytes", write_bytes},
    {0},
};

/* Without --count the group is the job's world, so an agent must be asked first. */
static int
run_inference(inference *self)
{
    cli *tool = self->what.self;
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code =
        cli_connect(tool, self->input == NULL ? self->what.op.input : NULL, &client, &err);

    if (code == TUTTI_OK && self->size == 0) {
        self->size = tutti_whoami(client)->world_size;
    }
    if (code == TUTTI_OK && self->only >= (int64_t)self->size) {
        code = cli_fail(&err, TUTTI_INVALID_ARGUMENT,
                        "--group-rank %" PRId64 " of %" PRIu32 " ranks", self->only, self->size);
    }
    if (code == TUTTI_OK && self->size > RANKS_SHOWN_MAX && self->only < 0) {
        code = cli_fail(&err, TUTTI_INVALID_ARGUMENT,
                        "%" PRIu32 " ranks are too many to ask about at a time: give --group-rank",
                        self->size);
    }
    if (code == TUTTI_OK) {
        self->results = calloc(self->size, sizeof(*self->results));
        if (self->results == NULL) {
            abort();
        }
        code = ask_inference(self, client, &err);
    }
    if (code == TUTTI_OK) {
        cli_print_result(tool, document_inference(self), "results", inference_columns);
    }
    tutti_close(client);
    free(self->results);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(tool, NULL, &err);
}

/* "reduce" is what the command is called, "reduce_to_root" the function. */
static bool
parse_kind(const char *word, tutti_op_kind *ret)
{
    return tutti_op_kind_parse(strcmp(word, "reduce") == 0 ? "reduce_to_root" : word, ret) &&
           *ret != TUTTI_OP_BARRIER && *ret != TUTTI_OP_SEND && *ret != TUTTI_OP_RECV;
}

int
cli_infer(cli *self)
{
    inference what = {.what = {.self = self}, .only = -1};
    int64_t size = 0;
    tutti_spec input;
    int done = CLI_USAGE;

    if (!parse_kind(self->arguments[0], &what.kind)) {
        return cli_usage(self, "\"%s\": need an op that makes tensors, such as all-gather",
                         self->arguments[0]);
    }
    what.what.fn = what.kind == TUTTI_OP_PERMUTE ? tutti_permute : NULL;
    if (collective_read(&what.what) && cli_number(self, "count", 1, TUTTI_RANKS_MAX, &size) &&
        cli_number(self, "group-rank", 0, TUTTI_RANKS_MAX - 1, &what.only)) {
        what.size = (uint32_t)size;
        what.what.op.input = self->arguments[1];
        what.input = parse_spec(self->arguments[1], &input) ? &input : NULL;
        if (what.input == NULL && strchr(self->arguments[1], '[') != NULL) {
            done = cli_usage(self, "\"%s\": need a dtype and dimensions, such as FP32[2,3]",
                             self->arguments[1]);
        } else if (what.only >= size && size > 0) {
            done = cli_usage(self,
                             "--group-rank %" PRId64 " of %" PRId64
                             " ranks, need a group rank below that number",
                             what.only, size);
        } else {
            done = run_inference(&what);
        }
    }
    collective_end(&what.what);
    return done;
}
