/*
 * Guard: lib/auth in front of a server's methods. Of both mains; opened before the server is made,
 * closed after it is freed.
 */
#ifndef TUTTI_SERVER_GUARD_H
#define TUTTI_SERVER_GUARD_H

#include "auth/auth.h"
#include "rpc/server.h"

/*
 * Before keys are read: a process that is told of a private key, a secret or a token hides its
 * memory, unless --core-dumps says otherwise.
 *
 * [in] more  files of keys and tokens besides those of the two options, ended by NULL; "" = none
 */
tutti_code tutti_guard_hide_keys(const tutti_auth_options *options,
                                 const tutti_rpc_server_options *serving, const char *const *more,
                                 tutti_error *err);

/*
 * Before the server starts.
 *
 * [in] options  what `auth` was opened with
 */
void tutti_guard_serve(tutti_auth *auth, const tutti_auth_options *options,
                       tutti_rpc_server *server);

#endif
