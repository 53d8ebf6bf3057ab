/* Private to client/cli: help, from the table of commands. */
#ifndef TUTTI_CLIENT_CLI_PARSE_HELP_H
#define TUTTI_CLIENT_CLI_PARSE_HELP_H

#include "client/cli/cli.h"

void cli_help_all(const cli *self, FILE *file);
void cli_help_command(const cli_command *command, FILE *file);

/* The commands that begin with a word, "cluster"; false when there are none. */
bool cli_help_prefix(const cli *self, const char *word, FILE *file);

#endif
