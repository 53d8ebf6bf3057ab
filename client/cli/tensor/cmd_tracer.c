/* tutti tracer, tutti backward: gradients of collectives, on all ranks or on one. */
#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/tensor/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "tutti/tracer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/connect/connect.h"

/* All ranks, or the one of --rank. */
static tutti_code
open_ranks(cli *self, int64_t rank, cli_all_ranks *ret_all_ranks, tutti_error *err)
{
    tutti_code code;

    if (rank < 0) {
        return cli_all_ranks_open(self, NULL, ret_all_ranks, err);
    }
    ret_all_ranks->ranks = calloc(1, sizeof(*ret_all_ranks->ranks));
    ret_all_ranks->clients = calloc(1, sizeof(*ret_all_ranks->clients));
    if (ret_all_ranks->ranks == NULL || ret_all_ranks->clients == NULL) {
        abort();
    }
    ret_all_ranks->count = 1;
    ret_all_ranks->ranks[0] = (uint32_t)rank;
    code = cli_connect(self, NULL, &ret_all_ranks->clients[0], err);
    if (code != TUTTI_OK) {
        cli_all_ranks_close(ret_all_ranks);
    }
    return code;
}

/* Do `fn` with `self` on all of them. An exit code. */
static int
on_ranks(cli *self, cli_rank_fn fn)
{
    cli_all_ranks world = {0};
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = open_ranks(self, rank, &world, &err);
    if (code == TUTTI_OK) {
        code = cli_all_ranks_run(&world, fn, self, &err);
    }
    cli_all_ranks_close(&world);
    if (code != TUTTI_OK) {
        return cli_failed(self, self->arguments[0], &err);
    }
    (void)cli_print_json(self, json_pack("{s:s}", "tracer", self->arguments[0]));
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ tapes */

static tutti_code
create_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const cli *self = arg;

    (void)index;
    return tutti_tracer_create(client, self->arguments[0], err);
}

int
cli_tracer_create(cli *self)
{
    return on_ranks(self, create_one);
}

static tutti_code
attach_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const cli *self = arg;

    (void)index;
    return tutti_tracer_attach(client, self->arguments[0],
                               (const char *const *)(self->arguments + 1),
                               (size_t)self->argument_count - 1, err);
}

int
cli_tracer_attach(cli *self)
{
    return on_ranks(self, attach_one);
}

static tutti_code
clear_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const cli *self = arg;

    (void)index;
    return tutti_tracer_clear(client, self->arguments[0], err);
}

int
cli_tracer_clear(cli *self)
{
    return on_ranks(self, clear_one);
}

static tutti_code
delete_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const cli *self = arg;

    (void)index;
    return tutti_tracer_delete(client, self->arguments[0], err);
}

int
cli_tracer_delete(cli *self)
{
    return on_ranks(self, delete_one);
}

static cli_style
write_walking(FILE *out, const json_t *row, const char *key)
{
    (void)fputs(json_is_true(json_object_get(row, key)) ? "backward" : "", out);
    return CLI_PLAIN;
}

static const cli_column tracer_columns[] = {
    {"TRACER", "name", NULL},
    {">OPS", "op_count", NULL},
    {">ATTACHED", "attached_count", NULL},
    {"STATE", "walking", write_walking},
    {0},
};

static json_t *
json_infos(const tutti_tracer_info *infos, size_t count)
{
    json_t *tracers = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(
            tracers, json_pack("{s:s, s:I, s:I, s:b}", "name", infos[i].name, "op_count",
                               (json_int_t)infos[i].op_count, "attached_count",
                               (json_int_t)infos[i].attached_count, "walking", infos[i].walking));
    }
    return json_pack("{s:o}", "tracers", tracers);
}

int
cli_tracer_list(cli *self)
{
    tutti_tracer_info *infos = NULL;
    tutti_client *client = NULL;
    size_t count = 0;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_tracer_list(client, &infos, &count, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    cli_print_result(self, json_infos(infos, count), "tracers", tracer_columns);
    tutti_free(infos);
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ backward */

/* What one rank found. */
typedef struct found {
    tutti_gradient *gradients;
    size_t count;
} found;

typedef struct backward {
    cli *self;
    tutti_backward_options options;
    char **tensors; /* [owned] */
    const char **gradients;
    cli_all_ranks world;
    found *founds; /* by index of the world */
} backward;

/* Splits arguments "TENSOR=GRADIENT" in place. False: one has no '=', which was said. */
static bool
split_pairs(backward *it)
{
    const size_t count = (size_t)it->self->argument_count - 1;
    size_t i;

    it->tensors = calloc(count + 1, sizeof(*it->tensors));
    it->gradients = calloc(count + 1, sizeof(*it->gradients));
    for (i = 0; i < count && it->tensors != NULL && it->gradients != NULL; i++) {
        char *at = strchr(it->self->arguments[i + 1], '=');

        if (at == NULL) {
            (void)fprintf(it->self->err, "tutti: backward: \"%s\" is no TENSOR=GRADIENT\n",
                          it->self->arguments[i + 1]);
            return false;
        }
        *at = '\0';
        it->tensors[i] = it->self->arguments[i + 1];
        it->gradients[i] = at + 1;
    }
    it->options.tensors = (const char *const *)it->tensors;
    it->options.gradients = it->gradients;
    it->options.given_count = count;
    return it->tensors != NULL && it->gradients != NULL;
}

static tutti_code
walk_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const backward *it = arg;
    found *mine = &it->founds[index];

    return tutti_backward(client, it->self->arguments[0], &it->options, &mine->gradients,
                          &mine->count, NULL, err);
}

/* A tensor without a gradient has null. */
static json_t *
json_found(uint32_t rank, const found *mine)
{
    json_t *gradients = json_array();
    size_t i;

    for (i = 0; i < mine->count; i++) {
        const char *handle = mine->gradients[i].gradient.text;
        json_t *one = json_pack("{s:s}", "tensor", mine->gradients[i].tensor);

        (void)json_object_set_new(one, "gradient",
                                  handle[0] == '\0' ? json_null() : json_string(handle));
        (void)json_array_append_new(gradients, one);
    }
    return json_pack("{s:I, s:o}", "rank", (json_int_t)rank, "gradients", gradients);
}

static cli_style
write_gradient(FILE *out, const json_t *row, const char *key)
{
    const char *handle = cli_row_text(row, key);

    (void)fputs(handle == NULL ? "none" : handle, out);
    return CLI_PLAIN;
}

static const cli_column gradient_columns[] = {
    {">RANK", "rank", NULL},
    {"TENSOR", "tensor", NULL},
    {"GRADIENT", "gradient", write_gradient},
    {0},
};

/* JSON groups them by rank; the table has a row for each. */
static void
print_founds(const backward *it)
{
    json_t *ranks = json_array();
    json_t *rows = json_array(); /* the gradients of all ranks */
    uint32_t i;
    size_t k;

    for (i = 0; i < it->world.count; i++) {
        json_t *rank = json_found(it->world.ranks[i], &it->founds[i]);
        const json_t *gradients = json_object_get(rank, "gradients");

        for (k = 0; k < json_array_size(gradients); k++) {
            json_t *row = json_copy(json_array_get(gradients, k));

            (void)json_object_set_new(row, "rank", json_integer(it->world.ranks[i]));
            (void)json_array_append_new(rows, row);
        }
        (void)json_array_append_new(ranks, rank);
    }
    if (!cli_print_json(it->self, json_pack("{s:o}", "ranks", ranks))) {
        cli_print_rows(it->self, rows, gradient_columns);
    }
    json_decref(rows);
}

static tutti_code
walk_all(backward *it, int64_t rank, tutti_error *err)
{
    tutti_code code = open_ranks(it->self, rank, &it->world, err);

    if (code != TUTTI_OK) {
        return code;
    }
    it->founds = calloc(it->world.count + 1, sizeof(*it->founds));
    if (it->founds == NULL) {
        abort();
    }
    return cli_all_ranks_run(&it->world, walk_one, it, err);
}

static void
free_backward(backward *it)
{
    uint32_t i;

    for (i = 0; i < it->world.count && it->founds != NULL; i++) {
        tutti_free(it->founds[i].gradients);
    }
    free(it->founds);
    cli_all_ranks_close(&it->world);
    free(it->gradients);
    free(it->tensors);
}

int
cli_backward(cli *self)
{
    backward it = {.self = self};
    tutti_error err;
    int64_t rank;
    int exit_code = CLI_FINE;

    tutti_backward_options_init(&it.options);
    it.options.keep = cli_flag(self, "keep");
    it.options.timeout_ms = self->timeout_ms;
    if (!cli_rank_option(self, &rank) || !split_pairs(&it)) {
        exit_code = CLI_USAGE;
    } else if (walk_all(&it, rank, &err) != TUTTI_OK) {
        exit_code = cli_failed(self, self->arguments[0], &err);
    } else {
        print_founds(&it);
    }
    free_backward(&it);
    return exit_code;
}
