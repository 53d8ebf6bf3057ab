/*
 * TLS: certificates from files, checked with words before gRPC sees them. gRPC itself would log,
 * abort, or refuse every connection from then on.
 */
#ifndef TUTTI_RPC_SERVER_TLS_H
#define TUTTI_RPC_SERVER_TLS_H

#include <grpc/grpc_security.h>
#include <stddef.h>

#include "tutti/error.h"

/*
 * The certificates of one port, read again when the files change. gRPC asks for news once for each
 * port, so ports do not share one.
 */
typedef struct rpc_tls rpc_tls;

/*
 * [in] ca_path  "" = clients need no certificate
 *
 * Paths are borrowed until free. Codes as rpc_pems_read, and TUTTI_RESOURCE_EXHAUSTED.
 */
tutti_code rpc_tls_open(const char *cert_path, const char *key_path, const char *ca_path,
                        rpc_tls **ret_tls, tutti_error *err);

/* After the last server that uses its credentials is gone. NULL is fine. */
void rpc_tls_close(rpc_tls *tls);

/*
 * Credentials for the port; released by the caller. For every new connection gRPC asks for the
 * newest certificates: files that changed are read, and taken when they fit together; else that is
 * logged and the old ones stay.
 */
grpc_server_credentials *rpc_tls_credentials(rpc_tls *tls);

/* The one URI name of the client's certificate; its one DNS name when it has no URIs; else "": of
 * several names nobody could say which one is meant. */
void rpc_tls_identity(grpc_call *call, char *ret_identity, size_t size);

/* The one URI name of the client's certificate; else "". */
void rpc_tls_uri(grpc_call *call, char *ret_uri, size_t size);

#endif
