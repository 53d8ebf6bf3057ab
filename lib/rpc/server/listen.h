/*
 * Listen: which addresses a server may take, taking them, and saying who has them already.
 * At start and stop; one thread.
 */
#ifndef TUTTI_RPC_SERVER_LISTEN_H
#define TUTTI_RPC_SERVER_LISTEN_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/config/address.h"
#include "rpc/server.h"
#include "rpc/server/tls.h"
#include "tutti/error.h"

/* One address that is served. */
typedef struct rpc_listener {
    tutti_address address;
    rpc_tls *tls; /* NULL = plaintext */
    int lock;     /* of a Unix socket: the open lock file; -1 = none */
    bool bound;
} rpc_listener;

/*
 * Parse --listen and look whether strangers may come that way.
 *
 * TUTTI_INVALID_ARGUMENT  an address does not parse; plaintext beyond this machine without
 *                         --insecure; TLS options that do not fit together
 */
tutti_code rpc_listen_check(const tutti_rpc_server_options *options,
                            rpc_listener ret_listeners[TUTTI_ADDRESSES_MAX], size_t *ret_count,
                            tutti_error *err);

/*
 * Would strangers be served without showing who they are?
 *
 * [in] asks  calls need a token
 *
 * TUTTI_INVALID_ARGUMENT OPEN_REFUSED  they would, and --insecure does not say that they may
 */
tutti_code rpc_listen_check_open(const rpc_listener *listeners, size_t count,
                                 const tutti_rpc_server_options *options, bool asks,
                                 tutti_error *err);

/*
 * Bind one address; its port is the real one afterwards. On failure rpc_listen_close cleans up.
 *
 * TUTTI_FAILED_PRECONDITION  somebody has it: the text names the address and who
 * TUTTI_INVALID_ARGUMENT     it cannot be bound; certificates that do not fit
 */
tutti_code rpc_listen_bind(rpc_listener *listener, grpc_server *server,
                           const tutti_rpc_server_options *options, tutti_error *err);

/* gRPC does not listen any more: remove the Unix socket and its lock. */
void rpc_listen_leave(rpc_listener *listener);

/* After the gRPC server is gone. Includes leaving. */
void rpc_listen_close(rpc_listener *listener);

#endif
