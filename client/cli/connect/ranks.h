/* Groups and lists of ranks, for people. Private to client/cli. */
#ifndef TUTTI_CLIENT_CLI_CONNECT_RANKS_H
#define TUTTI_CLIENT_CLI_CONNECT_RANKS_H

#include "client/cli/cli.h"
#include "client/cli/util/result.h"

json_t *cli_json_ranks(const uint32_t *ranks, size_t count);
json_t *cli_json_group(const tutti_group_info *info);

/* Columns of a table of cli_json_group's. */
extern const cli_column cli_group_columns[];

/* The agent of a rank speaks, unless --rank names another: a member has to. */
tutti_code cli_connect_member(cli *self, uint32_t rank, tutti_client **ret_client,
                              tutti_error *err);

/* Deletes what the argument names, which a member of it alone may do. */
typedef tutti_code (*cli_find_member_fn)(tutti_client *client, const char *name, uint32_t *ret_rank,
                                         tutti_error *err);
typedef tutti_code (*cli_delete_fn)(tutti_client *client, const char *name, tutti_error *err);

int cli_delete_as_member(cli *self, cli_find_member_fn find, cli_delete_fn remove);

#endif
