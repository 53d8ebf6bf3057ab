/* Keeping a lease of keys until the command ends. */
#ifndef TUTTI_CLIENT_CLI_STORE_HOLD_H
#define TUTTI_CLIENT_CLI_STORE_HOLD_H

#include "client/cli/cli.h"

/* Before any thread begins: SIGINT and SIGTERM wait for store_hold. */
void store_hold_prepare(void);

/*
 * Keep the lease until SIGINT, SIGTERM or --timeout, then revoke it. A coordinator that is away for
 * less than the lease's time is waited for.
 *
 * TUTTI_NOT_FOUND  NO_LEASE: it has ended
 */
tutti_code store_hold(const cli *self, tutti_client *client, const tutti_kv_lease *lease,
                      tutti_error *err);

#endif
