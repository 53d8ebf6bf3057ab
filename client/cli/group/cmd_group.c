/* tutti group create, get, list, delete, abort, shrink */
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

/* Of a group that is known by name or tag one member's call is enough; of others all have to call,
 * so that their next calls meet again, unless --rank says that the others come from elsewhere. */
static tutti_code
create_group(cli *self, const tutti_group_options *options, const uint32_t *ranks, size_t count,
             tutti_group_info *ret_info, tutti_error *err)
{
    const bool one =
        options->name != NULL || options->tag != NULL || cli_value(self, "rank") != NULL;
    const size_t calls = one ? 1 : count;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < calls && code == TUTTI_OK; i++) {
        tutti_client *client = NULL;

        code = cli_connect_member(self, ranks[i], &client, err);
        if (code == TUTTI_OK) {
            tutti_group_info_free(ret_info);
            code = tutti_group_create_with(client, options, ranks, count, ret_info, err);
        }
        tutti_close(client);
    }
    return code;
}

int
cli_group_create(cli *self)
{
    const char *name = self->arguments[0];
    tutti_group_options options;
    tutti_group_info info = {0};
    uint32_t *ranks = NULL;
    size_t count = 0;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (self->argument_count > 2) {
        return cli_usage(self, "unexpected argument \"%s\": ranks are one word, with commas: 0,1,7",
                         self->arguments[2]);
    }
    if (name[0] == '\0') {
        return cli_usage(self, "an empty name: write - for a group without a name of its own");
    }
    if (!cli_parse_ranks(self->arguments[1], &ranks, &count)) {
        return cli_usage(self, "\"%s\": need a list of ranks: 0-3,7", self->arguments[1]);
    }
    tutti_group_options_init(&options);
    options.name = strcmp(name, "-") == 0 ? NULL : name;
    options.tag = cli_value(self, "tag");
    options.sort = cli_flag(self, "sort");
    options.ephemeral = cli_flag(self, "ephemeral");
    code = create_group(self, &options, ranks, count, &info, &err);
    if (code == TUTTI_OK) {
        cli_print_result(self, cli_json_group(&info), NULL, cli_group_columns);
    }
    tutti_group_info_free(&info);
    free(ranks);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, name, &err);
}

/* With --rank that agent answers, since mesh:NAME/DIM is another group for each rank. */
int
cli_group_get(cli *self)
{
    const char *name = self->arguments[0];
    tutti_client *client = NULL;
    tutti_group_info info = {0};
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = rank < 0 ? cli_connect_coordinator(self, &client, &err)
                    : cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_group_get(client, name, &info, &err);
    }
    if (code == TUTTI_OK) {
        cli_print_result(self, cli_json_group(&info), NULL, cli_group_columns);
    }
    tutti_group_info_free(&info);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, name, &err);
}

int
cli_group_list(cli *self)
{
    tutti_client *client = NULL;
    tutti_group_info *infos = NULL;
    json_t *groups = json_array();
    size_t count = 0;
    tutti_error err;
    tutti_code code = cli_connect_coordinator(self, &client, &err);
    size_t i;

    if (code == TUTTI_OK) {
        code = tutti_group_list(client, &infos, &count, &err);
    }
    for (i = 0; i < count; i++) {
        (void)json_array_append_new(groups, cli_json_group(&infos[i]));
    }
    if (code == TUTTI_OK) {
        cli_print_result(self, json_pack("{s:O}", "groups", groups), "groups", cli_group_columns);
    }
    for (i = 0; i < count; i++) {
        tutti_group_info_free(&infos[i]);
    }
    tutti_free(infos);
    json_decref(groups);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

/* Any member will do, so it is the first. */
static tutti_code
find_group_member(tutti_client *client, const char *name, uint32_t *ret_rank, tutti_error *err)
{
    tutti_group_info info = {0};
    const tutti_code code = tutti_group_get(client, name, &info, err);

    *ret_rank = code == TUTTI_OK ? info.ranks[0] : 0;
    tutti_group_info_free(&info);
    return code;
}

int
cli_group_delete(cli *self)
{
    return cli_delete_as_member(self, find_group_member, tutti_group_delete);
}

/* As the member of --rank, else as the first. */
int
cli_group_abort(cli *self)
{
    const char *name = self->arguments[0];
    tutti_client *client = NULL;
    int64_t rank;
    uint32_t member = 0;
    tutti_error err;
    tutti_code code = TUTTI_OK;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (rank < 0) {
        code = cli_connect_coordinator(self, &client, &err);
        if (code == TUTTI_OK) {
            code = find_group_member(client, name, &member, &err);
        }
        tutti_close(client);
        client = NULL;
    }
    if (code == TUTTI_OK) {
        code = cli_connect_member(self, member, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_group_abort(client, name, cli_value(self, "reason"), &err);
    }
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, name, &err);
}

/* The call of one rank, as of `tutti metadata`: each survivor makes its own. */
int
cli_group_shrink(cli *self)
{
    const char *name = self->arguments[0];
    tutti_client *client = NULL;
    tutti_group_info info = {0};
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_group_shrink(client, name, self->timeout_ms, &info, &err);
    }
    if (code == TUTTI_OK) {
        cli_print_result(self, cli_json_group(&info), NULL, cli_group_columns);
    }
    tutti_group_info_free(&info);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, name, &err);
}
