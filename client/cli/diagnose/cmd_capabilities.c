/* tutti capabilities, jobs: what an agent can do, and what a coordinator serves. */
#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"

/* ------------------------------------------------------------------------------ capabilities */

static json_t *
json_reductions(uint32_t mask)
{
    json_t *array = json_array();
    uint32_t i;

    for (i = 1; i < 32; i++) {
        if ((mask >> i & 1) != 0) {
            (void)json_array_append_new(array, json_string(tutti_reduce_name((tutti_reduce)i)));
        }
    }
    return array;
}

static json_t *
json_capabilities(const tutti_capabilities *can, uint32_t rank)
{
    json_t *rows = json_array();
    size_t i;

    for (i = 0; i < can->row_count; i++) {
        const tutti_capability *row = &can->rows[i];

        (void)json_array_append_new(
            rows, json_pack("{s:s, s:I, s:s, s:o}", "dtype", tutti_dtype_name(row->dtype),
                            "element_bytes", (json_int_t)row->element_bytes, "backend",
                            row->backend, "reduce_ops", json_reductions(row->reduce_mask)));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "rank", (json_int_t)rank, "inline_bytes_max",
                     (json_int_t)can->inline_bytes_max, "chunk_bytes_max",
                     (json_int_t)can->chunk_bytes_max, "dims_max", (json_int_t)can->dims_max,
                     "capabilities", rows);
}

static cli_style
write_reductions(FILE *out, const json_t *row, const char *key)
{
    const json_t *list = json_object_get(row, key);
    size_t i;

    if (json_array_size(list) == 0) {
        (void)fputs("none: it is moved, not reduced", out);
    }
    for (i = 0; i < json_array_size(list); i++) {
        (void)fprintf(out, "%s%s", i == 0 ? "" : " ", json_string_value(json_array_get(list, i)));
    }
    return CLI_PLAIN;
}

static const cli_column capability_columns[] = {
    {"BACKEND", "backend", NULL},
    {"DTYPE", "dtype", NULL},
    {">BYTES", "element_bytes", NULL},
    {"REDUCE OPS", "reduce_ops", write_reductions},
    {0},
};

int
cli_capabilities(cli *self)
{
    tutti_capabilities can = {0};
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code = cli_connect(self, NULL, &client, &err);

    if (code == TUTTI_OK) {
        code = tutti_capabilities_get(client, &can, &err);
    }
    if (code == TUTTI_OK) {
        cli_print_result(self, json_capabilities(&can, tutti_whoami(client)->rank), "capabilities",
                         capability_columns);
    }
    tutti_capabilities_free(&can);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

/* ------------------------------------------------------------------------------ jobs */

static json_t *
json_jobs(const tutti_job_info *infos, size_t count)
{
    json_t *rows = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(
            rows,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "job", infos[i].name, "world_size",
                      (json_int_t)infos[i].world_size, "alive", (json_int_t)infos[i].alive_count,
                      "lost", (json_int_t)infos[i].lost_count, "groups",
                      (json_int_t)infos[i].group_count, "epoch", (json_int_t)infos[i].epoch,
                      "since_ms", (json_int_t)infos[i].since_ms));
    }
    return json_pack("{s:o}", "jobs", rows);
}

static const cli_column job_columns[] = {
    {"JOB", "job", NULL},
    {">RANKS", "world_size", NULL},
    {">ALIVE", "alive", NULL},
    {">LOST", "lost", NULL},
    {">GROUPS", "groups", NULL},
    {">EPOCH", "epoch", NULL},
    {0},
};

int
cli_jobs(cli *self)
{
    tutti_job_info *infos = NULL;
    tutti_client *client = NULL;
    size_t count = 0;
    tutti_error err;
    tutti_code code = cli_connect_coordinator(self, &client, &err);

    if (code == TUTTI_OK) {
        code = tutti_jobs_list(client, &infos, &count, &err);
    }
    if (code == TUTTI_OK) {
        cli_print_result(self, json_jobs(infos, count), "jobs", job_columns);
    }
    tutti_free(infos);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
