/*
 * Guard: lib/auth in front of a server's methods. Of both mains; opened before the server is made,
 * closed after it is freed.
 */
#ifndef TUTTI_SERVER_GUARD_H
#define TUTTI_SERVER_GUARD_H

#include "auth/auth.h"
#include "rpc/server.h"

/*
 * Before the server starts.
 *
 * [in] options  what `auth` was opened with
 */
void tutti_guard_serve(tutti_auth *auth, const tutti_auth_options *options,
                       tutti_rpc_server *server);

#endif
