/* Private to client/cli: the commands about local clusters and programs on them. Each returns the
 * exit code. */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_COMMANDS_H
#define TUTTI_CLIENT_CLI_CLUSTER_COMMANDS_H

#include "client/cli/cli.h"

int cli_cluster_start(cli *self);
int cli_cluster_stop(cli *self);
int cli_cluster_status(cli *self);
int cli_cluster_list(cli *self);
int cli_cluster_restart(cli *self);

int cli_logs(cli *self);

int cli_run(cli *self);

int cli_init(cli *self);

/* Their options. */
extern const cli_option cli_start_options[];
extern const cli_option cli_name_options[];
extern const cli_option cli_logs_options[];
extern const cli_option cli_run_options[];

#endif
