/* Private to client/cli: the commands about tensors and tracers. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_TENSOR_COMMANDS_H
#define TUTTI_CLIENT_CLI_TENSOR_COMMANDS_H

#include "client/cli/cli.h"

int cli_put(cli *self);
int cli_get(cli *self);
int cli_list(cli *self);
int cli_stat(cli *self);
int cli_copy(cli *self);
int cli_delete(cli *self);

int cli_tracer_create(cli *self);
int cli_tracer_attach(cli *self);
int cli_tracer_clear(cli *self);
int cli_tracer_delete(cli *self);
int cli_tracer_list(cli *self);
int cli_backward(cli *self);

#endif
