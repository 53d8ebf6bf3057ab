/* Private to client/cli: the commands about the program itself. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_MAIN_COMMANDS_H
#define TUTTI_CLIENT_CLI_MAIN_COMMANDS_H

#include "client/cli/cli.h"

int cli_health(cli *self);
int cli_version(cli *self);
int cli_help(cli *self);
int cli_completion(cli *self);
int cli_man(cli *self);

/* All commands of the program, and the options that all of them have. */
extern const cli_command cli_commands[];
extern const cli_option cli_global_options[];
extern const cli_syntax cli_all_syntax;

#endif
