/* Private to client/cli: the commands about the key-value store. Each returns the exit code. */
#ifndef TUTTI_CLIENT_CLI_STORE_COMMANDS_H
#define TUTTI_CLIENT_CLI_STORE_COMMANDS_H

#include "client/cli/cli.h"

int cli_store_get(cli *self);
int cli_store_set(cli *self);
int cli_store_cas(cli *self);
int cli_store_add(cli *self);
int cli_store_delete(cli *self);

int cli_store_list(cli *self);
int cli_store_wait(cli *self);
int cli_store_watch(cli *self);

int cli_store_append(cli *self);

int cli_store_multi_get(cli *self);
int cli_store_multi_set(cli *self);

int cli_store_take(cli *self);
int cli_store_push(cli *self);
int cli_store_pop(cli *self);
int cli_store_len(cli *self);

int cli_store_check(cli *self);

int cli_store_lease_grant(cli *self);
int cli_store_lease_keep(cli *self);
int cli_store_lease_revoke(cli *self);
int cli_store_lease_list(cli *self);

int cli_store_count(cli *self);

int cli_store_meet(cli *self);

int cli_backup(cli *self);
int cli_restore(cli *self);
int cli_store_move(cli *self);

#endif
