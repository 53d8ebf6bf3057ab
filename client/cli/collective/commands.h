/* Private to client/cli: the commands about ops. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_COLLECTIVE_COMMANDS_H
#define TUTTI_CLIENT_CLI_COLLECTIVE_COMMANDS_H

#include "client/cli/cli.h"

int cli_all_reduce(cli *self);
int cli_reduce(cli *self);
int cli_reduce_scatter(cli *self);
int cli_broadcast(cli *self);
int cli_all_gather(cli *self);
int cli_gather(cli *self);
int cli_scatter(cli *self);
int cli_all_to_all(cli *self);
int cli_permute(cli *self);
int cli_barrier(cli *self);
int cli_send(cli *self);
int cli_recv(cli *self);
int cli_wait(cli *self);
int cli_cancel(cli *self);

int cli_sync(cli *self);

int cli_infer(cli *self);

int cli_batch(cli *self);

/* Their options. */
extern const cli_option cli_all_reduce_options[];
extern const cli_option cli_reduce_options[];
extern const cli_option cli_reduce_scatter_options[];
extern const cli_option cli_broadcast_options[];
extern const cli_option cli_all_gather_options[];
extern const cli_option cli_gather_options[];
extern const cli_option cli_scatter_options[];
extern const cli_option cli_all_to_all_options[];
extern const cli_option cli_permute_options[];
extern const cli_option cli_barrier_options[];
extern const cli_option cli_send_options[];
extern const cli_option cli_recv_options[];
extern const cli_option cli_infer_options[];
extern const cli_option cli_batch_options[];

#endif
