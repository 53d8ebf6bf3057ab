/* Private to client/cli: what a shell completes. */
#ifndef TUTTI_CLIENT_CLI_MAIN_COMPLETE_H
#define TUTTI_CLIENT_CLI_MAIN_COMPLETE_H

#include "client/cli/cli.h"

/* complete_names.c: those of a kind that there are, "tensors", one a line. CLI_USAGE: no kind. */
int cli_complete_names(cli *self, const char *kind);

/* "bash", "zsh" or "fish". False: no such shell. */
bool cli_complete_write(const char *shell, FILE *file);

#endif
