/* Certificates and keys from PEM files, checked with words before gRPC sees them. */
#ifndef TUTTI_RPC_UTIL_PEM_H
#define TUTTI_RPC_UTIL_PEM_H

#include "tutti/error.h"

#define TUTTI_RPC_PEM_MAX (1u << 20) /* bytes of a PEM file */

/* Certificate chain, private key and authorities as PEM text; those not wanted are NULL. */
typedef struct rpc_pems {
    char *cert;
    char *key;
    char *ca;
} rpc_pems;

/*
 * Read and check. Paths may be "" or NULL: not wanted.
 *
 * TUTTI_INVALID_ARGUMENT  no PEM, no certificate or key in the file, an encrypted key; a key that
 *                         is not the certificate's; a certificate whose time is over or has not
 *                         come (of several authorities: all of them)
 * TUTTI_NOT_FOUND, ...    from the system, with the path
 */
tutti_code rpc_pems_read(const char *cert_path, const char *key_path, const char *ca_path,
                         rpc_pems *ret_pems, tutti_error *err);

void rpc_pems_fini(rpc_pems *pems);

#endif
