/* Private to client/cli: the commands about functions and sessions. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_SESSION_COMMANDS_H
#define TUTTI_CLIENT_CLI_SESSION_COMMANDS_H

#include "client/cli/cli.h"

int cli_session(cli *self);

int cli_functions(cli *self);
int cli_call_function(cli *self);

/* Their options. */
extern const cli_option cli_session_options[];
extern const cli_option cli_call_options[];

#endif
