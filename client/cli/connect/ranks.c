#include "client/cli/connect/ranks.h"

#include <inttypes.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"

json_t *
cli_json_group(const tutti_group_info *info)
{
    return json_pack("{s:s, s:I, s:I, s:s, s:o, s:o, s:s}", "name", info->name, "id",
                     (json_int_t)info->id, "epoch", (json_int_t)info->epoch, "tag", info->tag,
                     "ranks", cli_json_ranks(info->ranks, info->rank_count), "age_ms",
                     info->age_ms == 0 ? json_null() : json_integer((json_int_t)info->age_ms),
                     "owner", info->owner);
}

json_t *
cli_json_ranks(const uint32_t *ranks, size_t count)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_integer(ranks[i]));
    }
    return array;
}

/* How many ranks a group has. */
static cli_style
write_size(FILE *out, const json_t *row, const char *key)
{
    (void)fprintf(out, "%zu", json_array_size(json_object_get(row, key)));
    return CLI_PLAIN;
}

/* "rank 2: alice"; "unix:" is a client of the coordinator's host, without a token. */
static cli_style
write_group_owner(FILE *out, const json_t *row, const char *key)
{
    const char *owner = json_string_value(json_object_get(row, key));
    const char *local = owner == NULL ? NULL : strstr(owner, ": unix:");

    if (local != NULL) {
        (void)fprintf(out, "%.*s: local", (int)(local - owner), owner);
        return CLI_PLAIN;
    }
    return cli_cell_value(out, row, key);
}

const cli_column cli_group_columns[] = {
    {"GROUP", "name", NULL},
    {">ID", "id", NULL},
    {">SIZE", "ranks", write_size},
    {">EPOCH", "epoch", NULL},
    {"RANKS", "ranks", cli_cell_ranks},
    {">AGE", "age_ms", cli_cell_age},
    {"OWNER", "owner", write_group_owner},
    {0},
};

/* A handle names a rank, and nothing of it is used but that. */
tutti_code
cli_connect_member(cli *self, uint32_t rank, tutti_client **ret_client, tutti_error *err)
{
    char handle[32];

    (void)snprintf(handle, sizeof(handle), "tensor:%" PRIu32 ".", rank);
    return cli_connect(self, handle, ret_client, err);
}

/*
 * Only a member may delete a group or a mesh. So the coordinator is asked for one, and that
 * rank's agent does it.
 */
int
cli_delete_as_member(cli *self, cli_find_member_fn find, cli_delete_fn remove)
{
    const char *name = self->arguments[0];
    tutti_client *client = NULL;
    uint32_t member = 0;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = cli_connect_coordinator(self, &client, &err);
    if (code == TUTTI_OK) {
        code = find(client, name, &member, &err);
    }
    tutti_close(client);
    client = NULL;
    if (code == TUTTI_OK) {
        code = cli_connect_member(self, member, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = remove(client, name, &err);
    }
    if (code == TUTTI_OK) {
        (void)cli_print_json(self, json_pack("{s:s}", "deleted", name));
    }
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, name, &err);
}
