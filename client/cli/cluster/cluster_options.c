/* The options of what starts clusters and programs. */
#include "client/cli/cli.h"
#include "client/cli/cluster/commands.h"
#include "client/cli/parse/options.h"

const cli_option cli_start_options[] = {
    {"count", 'n', "N", "how many agents (default: 2)", NULL},
    {"name", 0, "NAME", "name of the cluster (default: default)", NULL},
    {"memory-limit", 'm', "SIZE", "tensor memory of each agent: 512MiB, 4GiB", NULL},
    {"tcp", 0, NULL, "serve on ports of loopback too: open to every user of this machine", NULL},
    {"port", 'p', "PORT", "of the coordinator, with --tcp", NULL},
    OPTION_END,
};

const cli_option cli_name_options[] = {
    {"name", 0, "NAME", "name of the cluster (default: default)", "@clusters"},
    OPTION_END,
};

const cli_option cli_logs_options[] = {
    {"follow", 'f', NULL, "go on, and show new lines as they come", NULL},
    {"lines", 'n', "N", "the last N lines of each log (default: all)", NULL},
    {"name", 0, "NAME", "name of the cluster (default: default)", "@clusters"},
    OPTION_END,
};

const cli_option cli_run_options[] = {
    {"count", 'n', "N", "how many programs; all ranks of --cluster, else 2", NULL},
    {"memory-limit", 'm', "SIZE", "tensor memory of each agent: 512MiB, 4GiB", NULL},
    {"keep", 'k', NULL, "leave the private cluster running", NULL},
    {"no-prefix", 0, NULL, "do not put [rank] before the programs' lines", NULL},
    OPTION_END,
};
