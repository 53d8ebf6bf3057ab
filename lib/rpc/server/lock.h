/*
 * Lock: only one server at a time on a Unix socket's path. gRPC would take the path from a running
 * server without a word, and remove it when the first of the two ends.
 */
#ifndef TUTTI_RPC_SERVER_LOCK_H
#define TUTTI_RPC_SERVER_LOCK_H

#include "tutti/error.h"

/*
 * Lock "PATH.lock" and write who we are into it.
 *
 * [out] ret_lock  a descriptor for rpc_lock_close
 *
 * TUTTI_FAILED_PRECONDITION  another process holds it: the text names it
 * TUTTI_NOT_FOUND, ...       from the system, with the path
 */
tutti_code rpc_lock_open(const char *path, int *ret_lock, tutti_error *err);

/* Remove the lock file and let the lock go. [in] lock  from rpc_lock_open; not usable afterwards */
void rpc_lock_close(const char *path, int lock);

#endif
