/* Private to client/cli: the commands about benchmarks and tuning. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_BENCH_COMMANDS_H
#define TUTTI_CLIENT_CLI_BENCH_COMMANDS_H

#include "client/cli/cli.h"

int cli_tune(cli *self);

int cli_bench(cli *self);

/* Their options. */
extern const cli_option cli_bench_options[];

#endif
