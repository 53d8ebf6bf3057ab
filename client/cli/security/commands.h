/* Private to client/cli: the commands about certificates and tokens. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_SECURITY_COMMANDS_H
#define TUTTI_CLIENT_CLI_SECURITY_COMMANDS_H

#include "client/cli/cli.h"

int cli_certs_make(cli *self);
int cli_certs_show(cli *self);

int cli_token_make(cli *self);
int cli_token_show(cli *self);
int cli_token_key(cli *self);

/* Their options. */
extern const cli_option cli_certs_options[];
extern const cli_option cli_token_options[];
extern const cli_option cli_token_key_options[];

#endif
