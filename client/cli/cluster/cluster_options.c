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
    {"count", 'n', "N", "how many programs here; all ranks of --cluster, else 2", NULL},
    {"nnodes", 0, "N", "on how many hosts this is started, for one job; needs --coordinator", NULL},
    {"node-rank", 0, "R", "which of these this is, from 0", NULL},
    {"rank-start", 0, "R", "instead of --node-rank: the first rank here; needs --world-size", NULL},
    {"world-size", 0, "N", "with --rank-start: ranks of the whole job", NULL},
    {"devices", 0, "LIST", "device of each rank's agent: cuda:0,cuda:1; \"cuda\" = one for each",
     "cuda cpu"},
    {"listen", 0, "ADDRESS", "with --nnodes, of the agents (default: where others reach this host)",
     NULL},
    {"insecure", 0, NULL, "with --nnodes: trust everybody who can reach the servers", NULL},
    {"memory-limit", 'm', "SIZE", "tensor memory of each agent: 512MiB, 4GiB", NULL},
    {"keep", 'k', NULL, "leave the private cluster running", NULL},
    {"no-prefix", 0, NULL, "do not put [rank] before the programs' lines", NULL},
    OPTION_END,
};
