/* Private to client/cli: the commands about groups and meshes. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_GROUP_COMMANDS_H
#define TUTTI_CLIENT_CLI_GROUP_COMMANDS_H

#include "client/cli/cli.h"

int cli_group_create(cli *self);
int cli_group_get(cli *self);
int cli_group_list(cli *self);
int cli_group_delete(cli *self);
int cli_group_abort(cli *self);
int cli_group_shrink(cli *self);

int cli_group_split(cli *self);
int cli_group_translate(cli *self);

int cli_mesh_create(cli *self);
int cli_mesh_get(cli *self);
int cli_mesh_list(cli *self);
int cli_mesh_groups(cli *self);
int cli_mesh_slice(cli *self);
int cli_mesh_delete(cli *self);

int cli_metadata_broadcast(cli *self);
int cli_metadata_all_gather(cli *self);

/* Their options. */
extern const cli_option cli_metadata_options[];
extern const cli_option cli_metadata_broadcast_options[];
extern const cli_option cli_group_create_options[];
extern const cli_option cli_group_abort_options[];
extern const cli_option cli_group_split_options[];
extern const cli_option cli_group_translate_options[];
extern const cli_option cli_mesh_create_options[];
extern const cli_option cli_mesh_slice_options[];

#endif
