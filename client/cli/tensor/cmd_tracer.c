/* tutti tracer, tutti backward: gradients of collectives, on all ranks or on one. */
#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/tensor/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/table.h"
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

static void
print_infos(const cli *self, const tutti_tracer_info *infos, size_t count)
{
    cli_table *table = cli_table_new("TRACER|>OPS|>ATTACHED|STATE");
    json_t *tracers = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        cli_table_add(table, "%s", infos[i].name);
        cli_table_add(table, "%" PRIu32, infos[i].op_count);
        cli_table_add(table, "%" PRIu32, infos[i].attached_count);
        cli_table_add(table, "%s", infos[i].walking ? "backward" : "");
        (void)json_array_append_new(
            tracers, json_pack("{s:s, s:I, s:I, s:b}", "name", infos[i].name, "op_count",
                               (json_int_t)infos[i].op_count, "attached_count",
                               (json_int_t)infos[i].attached_count, "walking", infos[i].walking));
    }
    if (!cli_print_json(self, json_pack("{s:o}", "tracers", tracers))) {
        cli_table_print(self, table);
    }
    cli_table_free(table);
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
    print_infos(self, infos, count);
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

/* "TENSOR=GRADIENT". False: there is none; said. */
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

static void
print_founds(const backward *it)
{
    cli_table *table = cli_table_new(">RANK|TENSOR|GRADIENT");
    json_t *ranks = json_array();
    uint32_t i;
    size_t k;

    for (i = 0; i < it->world.count; i++) {
        const found *mine = &it->founds[i];

        (void)json_array_append_new(ranks, json_found(it->world.ranks[i], mine));
        for (k = 0; k < mine->count; k++) {
            const char *handle = mine->gradients[k].gradient.text;

            cli_table_add(table, "%" PRIu32, it->world.ranks[i]);
            cli_table_add(table, "%s", mine->gradients[k].tensor);
            cli_table_add(table, "%s", handle[0] == '\0' ? "none" : handle);
        }
    }
    if (!cli_print_json(it->self, json_pack("{s:o}", "ranks", ranks))) {
        cli_table_print(it->self, table);
    }
    cli_table_free(table);
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
