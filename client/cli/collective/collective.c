/*
 * What all collectives have in common on the command line: reading their options into an op, the
 * call of one rank, and the document of its result. A command has only some of the options, so
 * each reader asks first whether its option is there.
 */
#include "client/cli/collective/collective.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

/* ------------------------------------------------------------------------------ options */

static bool
read_reduce(collective *self)
{
    const char *word = cli_value(self->self, "op");
    const char *factor = cli_value(self->self, "factor");
    char *end = NULL;

    self->op.reduce = word == NULL ? TUTTI_REDUCE_SUM : tutti_reduce_parse(word);
    if (self->op.reduce == TUTTI_REDUCE_NONE) {
        (void)cli_usage(self->self,
                        "--op \"%s\": need sum, prod, min, max, avg, band, bor, bxor or premul_sum",
                        word);
        return false;
    }
    if (factor != NULL) {
        self->op.factor = strtod(factor, &end);
        if (end == factor || *end != '\0') {
            (void)cli_usage(self->self, "--factor \"%s\": need a number", factor);
            return false;
        }
    }
    return true;
}

/* A number into an int32 of the op, when the command has the option. */
static bool
read_collective_number(collective *self, const char *option, int64_t least, int64_t most,
                       int32_t *ret)
{
    int64_t number = *ret;

    if (!cli_has_option(self->self, option)) {
        return true;
    }
    if (!cli_number(self->self, option, least, most, &number)) {
        return false;
    }
    *ret = (int32_t)number;
    return true;
}

/* ------------------------------------------------------------------------------ parts */

static const char *
is_option_given(const collective *self, const char *option)
{
    return cli_has_option(self->self, option) ? cli_value(self->self, option) : NULL;
}

/* The root is a group rank, or with --root-global a rank of the job. */
static bool
read_root(collective *self)
{
    int32_t *root = &self->op.root;

    if (is_option_given(self, "root-global") == NULL) {
        return read_collective_number(self, "root", 0, TUTTI_RANKS_MAX - 1, root);
    }
    if (is_option_given(self, "root") != NULL) {
        (void)cli_usage(self->self, "--root and --root-global: give only one of them");
        return false;
    }
    self->op.global = true;
    return read_collective_number(self, "root-global", 0, TUTTI_RANKS_MAX - 1, root);
}

/* --stack is the same as --form stack. */
static bool
read_form(collective *self)
{
    static const char *const words[] = {"concat", "stack", "flat"};
    static const tutti_form forms[] = {TUTTI_FORM_CONCAT, TUTTI_FORM_STACK, TUTTI_FORM_FLAT};
    const char *word = is_option_given(self, "form");
    const bool stack = is_option_given(self, "stack") != NULL;
    size_t i;

    if (stack && word != NULL) {
        (void)cli_usage(self->self, "--stack and --form: give only one of them");
        return false;
    }
    self->op.form = stack ? TUTTI_FORM_STACK : TUTTI_FORM_CONCAT;
    for (i = 0; word != NULL && i < 3; i++) {
        if (strcmp(word, words[i]) == 0) {
            self->op.form = forms[i];
            return true;
        }
    }
    if (word != NULL) {
        (void)cli_usage(self->self, "--form \"%s\": need concat, stack or flat", word);
    }
    return word == NULL;
}

/*
 * "2,3" into `shape`; false: it is no shape. The numbers lie in `self`, as the op only borrows
 * them.
 */
static bool
parse_shape(collective *self, const char *text)
{
    const char *at = text;
    char number[24];
    size_t count = 0;

    do {
        const size_t size = strcspn(at, ",");

        if (size >= sizeof(number) || count == TUTTI_DIMS_MAX) {
            return false;
        }
        memcpy(number, at, size);
        number[size] = '\0';
        if (!cli_parse_number(number, 0, INT64_MAX, &self->shape[count++])) {
            return false;
        }
        at += size;
    } while (*at++ == ',');
    self->op.out_shape = self->shape;
    self->op.out_shape_count = count;
    return true;
}

static bool
read_shape(collective *self)
{
    const char *text = is_option_given(self, "shape");

    if (text == NULL) {
        return true;
    }
    if (self->op.form != TUTTI_FORM_FLAT) {
        (void)cli_usage(
            self->self,
            "--shape is for --form flat only: the shapes of other forms follow from the input");
        return false;
    }
    if (!parse_shape(self, text)) {
        (void)cli_usage(self->self, "--shape \"%s\": need up to %d numbers, such as 2,3", text,
                        TUTTI_DIMS_MAX);
        return false;
    }
    return true;
}

/* Of permute: by sender, who gets its tensor. */
static bool
read_destinations(collective *self)
{
    const char *text = is_option_given(self, "to");
    uint32_t *ranks = NULL;
    size_t count = 0;
    size_t i;

    if (text == NULL) {
        (void)cli_usage(self->self,
                        "permute needs a destination for each group rank, such as --to 1,2,0");
        return false;
    }
    if (!cli_parse_ranks(text, &ranks, &count)) {
        (void)cli_usage(self->self,
                        "--to \"%s\": need a destination for each group rank, such as 1,2,0", text);
        return false;
    }
    self->to = calloc(count, sizeof(*self->to));
    if (self->to == NULL) {
        abort();
    }
    for (i = 0; i < count; i++) {
        self->to[i] = (int32_t)ranks[i];
    }
    free(ranks);
    self->op.src_dst = self->to;
    self->op.src_dst_count = count;
    return true;
}

/* [out] self->op what was read; self owns the lists it points to */
static bool
read_parts(collective *self)
{
    const int64_t most = TUTTI_DIMS_MAX;

    if (self->fn == tutti_permute && !read_destinations(self)) {
        return false;
    }
    return read_root(self) && read_form(self) && read_shape(self) && collective_read_splits(self) &&
           read_collective_number(self, "axis", -most, most, &self->op.axis) &&
           read_collective_number(self, "split-axis", -most, most, &self->op.split_axis) &&
           read_collective_number(self, "concat-axis", -most, most, &self->op.concat_axis);
}

/* ------------------------------------------------------------------------------ all of them */

/* The order matters for messages only: the first option that is wrong is named. */
bool
collective_read(collective *self)
{
    cli *tool = self->self;
    int64_t step = 0;
    int32_t blocks = 0;
    int32_t tag = 0;

    tutti_op_init(&self->op);
    self->op.timeout_ms = tool->timeout_ms;
    self->op.group = is_option_given(self, "group");
    self->op.monitored = is_option_given(self, "monitored") != NULL;
    self->op.async = cli_has_option(tool, "async") && cli_flag(tool, "async");
    if (!read_parts(self) ||
        (self->fn == tutti_send &&
         !read_collective_number(self, "to", 0, TUTTI_RANKS_MAX - 1, &self->op.peer)) ||
        !read_collective_number(self, "from", 0, TUTTI_RANKS_MAX - 1, &self->op.peer) ||
        !read_collective_number(self, "group-offset", INT32_MIN, INT32_MAX,
                                &self->op.group_offset) ||
        !read_collective_number(self, "group-count", 1, TUTTI_RANKS_MAX, &blocks) ||
        !read_collective_number(self, "tag", 0, INT32_MAX, &tag) ||
        (cli_has_option(tool, "step") && !cli_number(tool, "step", 0, INT64_MAX, &step))) {
        return false;
    }
    self->op.step = (uint64_t)step;
    self->op.tag = (uint32_t)tag;
    self->op.group_count = (uint32_t)blocks;
    return !cli_has_option(tool, "op") || read_reduce(self);
}

void
collective_end(collective *self)
{
    free(self->to);
    free(self->splits);
}

/* ------------------------------------------------------------------------------ documents */

json_t *
collective_json_result(uint32_t rank, const tutti_op_result *result)
{
    json_t *object =
        json_pack("{s:I, s:s}", "rank", (json_int_t)rank, "handle", result->output.text);

    if (result->output.known) {
        cli_json_spec(object, &result->output.spec);
    }
    if (result->work[0] != '\0') {
        (void)json_object_set_new(object, "work", json_string(result->work));
    }
    return object;
}

json_t *
collective_json(const collective *self, const tutti_op_result *result, json_t *results)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:o}", "op", self->word, "group",
                     self->op.group == NULL ? "world" : self->op.group, "sequence",
                     (json_int_t)result->sequence, "elapsed_us", (json_int_t)result->elapsed_us,
                     "results", results);
}

/* ------------------------------------------------------------------------------ one rank */

void
collective_say(const cli *self, const tutti_op_result *result)
{
    if (self->json) {
        return;
    }
    if (result->work[0] != '\0') {
        const bool both = result->output.text[0] != '\0' && !self->quiet;

        (void)fprintf(self->out, "%s%s%s\n", result->work, both ? "  " : "",
                      both ? result->output.text : "");
    } else if (result->output.text[0] != '\0') {
        cli_say_tensor(self, &result->output);
    }
}

/* The rank follows from the handle, unless --rank says it. */
int
collective_on_one(collective *self)
{
    cli *tool = self->self;
    const char *input = tool->argument_count > 0 ? tool->arguments[0] : NULL;
    tutti_client *client = NULL;
    tutti_op_result result;
    tutti_error err;
    tutti_code code = cli_connect(tool, input, &client, &err);

    self->op.input = input;
    self->op.output = cli_has_option(tool, "into") ? cli_value(tool, "into") : NULL;
    if (code == TUTTI_OK) {
        code = collective_own_splits(self, client, &self->op, &err);
    }
    if (code == TUTTI_OK) {
        code = self->fn(client, &self->op, &result, &err);
    }
    if (code == TUTTI_OK) {
        json_t *results = json_array();
        json_t *one = collective_json_result(tutti_whoami(client)->rank, &result);

        if (strcmp(self->word, "recv") == 0 && !self->op.async) {
            (void)json_object_set_new(one, "source", json_integer(result.source));
            (void)json_object_set_new(one, "source_global", json_integer(result.source_global));
        }
        (void)json_array_append_new(results, one);
        if (!cli_print_json(tool, collective_json(self, &result, results))) {
            collective_say(tool, &result);
        }
    }
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(tool, NULL, &err);
}
