/* tutti mesh ... */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/connect/ranks.h"
#include "client/cli/group/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"
#include "tutti/mesh.h"

#define DIMS_SIZE 1024

/* ------------------------------------------------------------------------------ showing */

/* "coordinate" is there only for a rank that is in the mesh. */
static json_t *
json_mesh(const tutti_mesh_info *info)
{
    json_t *dims = json_array();
    json_t *mesh;
    uint32_t i;

    for (i = 0; i < info->dim_count; i++) {
        (void)json_array_append_new(dims, json_string(info->dims[i]));
    }
    mesh = json_pack("{s:s, s:I, s:o, s:o, s:o}", "name", info->name, "id", (json_int_t)info->id,
                     "dims", dims, "shape", cli_json_ranks(info->shape, info->dim_count), "ranks",
                     cli_json_ranks(info->ranks, info->rank_count));
    if (info->inside) {
        (void)json_object_set_new(mesh, "coordinate",
                                  cli_json_ranks(info->coordinate, info->dim_count));
    }
    return mesh;
}

/* "dp 2, tp 4": the dimensions, each with its number in the array under `key`. */
static cli_style
write_dims(FILE *out, const json_t *row, const char *key)
{
    const json_t *dims = json_object_get(row, "dims");
    const json_t *numbers = json_object_get(row, key);
    size_t i;

    if (numbers == NULL) {
        (void)fputc('-', out); /* this rank is not in the mesh */
    }
    for (i = 0; i < json_array_size(numbers); i++) {
        (void)fprintf(out, "%s%s %" JSON_INTEGER_FORMAT, i == 0 ? "" : ", ",
                      json_string_value(json_array_get(dims, i)),
                      json_integer_value(json_array_get(numbers, i)));
    }
    return CLI_PLAIN;
}

static const cli_column mesh_columns[] = {
    {"MESH", "name", NULL},
    {"DIMENSIONS", "shape", write_dims},
    {"HERE", "coordinate", write_dims},
    {"RANKS", "ranks", cli_cell_ranks},
    {0},
};

/* And end: what was made of it is the exit code. */
static int
show_mesh(cli *self, tutti_client *client, tutti_mesh_info *info, tutti_code code,
          const tutti_error *err)
{
    if (code == TUTTI_OK) {
        cli_print_result(self, json_mesh(info), NULL, mesh_columns);
    }
    tutti_mesh_info_free(info);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, self->arguments[0], err);
}

/* ------------------------------------------------------------------------------ words */

/* "2x4" */
static bool
parse_shape(const char *text, uint32_t shape[TUTTI_MESH_DIMS_MAX], uint32_t *ret_count)
{
    char word[256];
    char *rest = word;
    char *one;

    *ret_count = 0;
    if ((size_t)snprintf(word, sizeof(word), "%s", text) >= sizeof(word)) {
        return false;
    }
    while ((one = strsep(&rest, "x")) != NULL) {
        int64_t number;

        if (*ret_count == TUTTI_MESH_DIMS_MAX ||
            !cli_parse_number(one, 1, UINT16_MAX + 1, &number)) {
            return false;
        }
        shape[(*ret_count)++] = (uint32_t)number;
    }
    return true;
}

/* "dp,tp" into words of a buffer. False: more than a mesh has dimensions. */
static bool
parse_dims(const char *text, char buffer[DIMS_SIZE], const char *dims[TUTTI_MESH_DIMS_MAX],
           uint32_t *ret_count)
{
    char *rest = buffer;
    char *one;

    *ret_count = 0;
    if ((size_t)snprintf(buffer, DIMS_SIZE, "%s", text) >= DIMS_SIZE) {
        return false;
    }
    while ((one = strsep(&rest, ",")) != NULL) {
        if (*ret_count == TUTTI_MESH_DIMS_MAX) {
            return false;
        }
        dims[(*ret_count)++] = one;
    }
    return true;
}

/* ------------------------------------------------------------------------------ commands */

/* The call of one rank is enough: a mesh is known by its name. */
int
cli_mesh_create(cli *self)
{
    const char *words = cli_value(self, "dims");
    const char *list = cli_value(self, "ranks");
    uint32_t shape[TUTTI_MESH_DIMS_MAX];
    const char *dims[TUTTI_MESH_DIMS_MAX];
    char buffer[DIMS_SIZE];
    uint32_t *ranks = NULL;
    uint32_t dim_count = 0;
    uint32_t name_count = 0;
    size_t count = 0;
    tutti_client *client = NULL;
    tutti_mesh_info info = {0};
    tutti_error err;
    tutti_code code;

    if (!parse_shape(self->arguments[1], shape, &dim_count)) {
        return cli_usage(self, "\"%s\": need a shape: 2x4", self->arguments[1]);
    }
    if (words != NULL &&
        (!parse_dims(words, buffer, dims, &name_count) || name_count != dim_count)) {
        return cli_usage(self, "\"%s\" are not %" PRIu32 " names: write dp,tp", words, dim_count);
    }
    if (list != NULL && !cli_parse_ranks(list, &ranks, &count)) {
        return cli_usage(self, "\"%s\": need a list of ranks: 0-3,7", list);
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_mesh_create(client, self->arguments[0], shape, words == NULL ? NULL : dims,
                                 dim_count, ranks, count, &info, &err);
    }
    free(ranks);
    return show_mesh(self, client, &info, code, &err);
}

int
cli_mesh_get(cli *self)
{
    tutti_client *client = NULL;
    tutti_mesh_info info = {0};
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = rank < 0 ? cli_connect_coordinator(self, &client, &err)
                    : cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_mesh_get(client, self->arguments[0], &info, &err);
    }
    return show_mesh(self, client, &info, code, &err);
}

/* -1: the agent's own rank */
int
cli_mesh_slice(cli *self)
{
    const char *dims[TUTTI_MESH_DIMS_MAX];
    char buffer[DIMS_SIZE];
    uint32_t count = 0;
    tutti_client *client = NULL;
    tutti_mesh_info info = {0};
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (!parse_dims(self->arguments[1], buffer, dims, &count)) {
        return cli_usage(self, "\"%s\" are no dimensions: write dp,tp", self->arguments[1]);
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_mesh_slice(client, self->arguments[0], -1, dims, count,
                                cli_flag(self, "flatten"), &info, &err);
    }
    return show_mesh(self, client, &info, code, &err);
}

int
cli_mesh_list(cli *self)
{
    tutti_client *client = NULL;
    tutti_mesh_info *infos = NULL;
    json_t *meshes = json_array();
    size_t count = 0;
    tutti_error err;
    tutti_code code = cli_connect_coordinator(self, &client, &err);
    size_t i;

    if (code == TUTTI_OK) {
        code = tutti_mesh_list(client, &infos, &count, &err);
    }
    for (i = 0; i < count; i++) {
        (void)json_array_append_new(meshes, json_mesh(&infos[i]));
    }
    if (code == TUTTI_OK) {
        cli_print_result(self, json_pack("{s:O}", "meshes", meshes), "meshes", mesh_columns);
    }
    for (i = 0; i < count; i++) {
        tutti_mesh_info_free(&infos[i]);
    }
    tutti_free(infos);
    json_decref(meshes);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

static const cli_column row_columns[] = {
    {">ROW", "row", NULL},
    {"RANKS", "ranks", cli_cell_ranks},
    {0},
};

static void
print_rows(const cli *self, const tutti_rank_lists *lists)
{
    json_t *groups = json_array();
    json_t *rows = json_array(); /* the same, numbered */
    size_t i;

    for (i = 0; i < lists->count; i++) {
        json_t *ranks = cli_json_ranks(lists->ranks + lists->starts[i],
                                       lists->starts[i + 1] - lists->starts[i]);

        (void)json_array_append_new(rows,
                                    json_pack("{s:I, s:O}", "row", (json_int_t)i, "ranks", ranks));
        (void)json_array_append_new(groups, ranks);
    }
    if (!cli_print_json(self, json_pack("{s:o}", "groups", groups))) {
        cli_print_rows(self, rows, row_columns);
    }
    json_decref(rows);
}

int
cli_mesh_groups(cli *self)
{
    const char *dim = self->argument_count > 1 ? self->arguments[1] : NULL;
    tutti_client *client = NULL;
    tutti_rank_lists lists = {0};
    tutti_error err;
    tutti_code code = cli_connect_coordinator(self, &client, &err);

    if (code == TUTTI_OK) {
        code = tutti_mesh_groups(client, self->arguments[0], dim, &lists, &err);
    }
    if (code == TUTTI_OK) {
        print_rows(self, &lists);
    }
    tutti_rank_lists_free(&lists);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, self->arguments[0], &err);
}

static tutti_code
find_mesh_member(tutti_client *client, const char *name, uint32_t *ret_rank, tutti_error *err)
{
    tutti_mesh_info info = {0};
    const tutti_code code = tutti_mesh_get(client, name, &info, err);

    *ret_rank = code == TUTTI_OK ? info.ranks[0] : 0;
    tutti_mesh_info_free(&info);
    return code;
}

int
cli_mesh_delete(cli *self)
{
    return cli_delete_as_member(self, find_mesh_member, tutti_mesh_delete);
}
