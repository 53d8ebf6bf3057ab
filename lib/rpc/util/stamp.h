/* Stamp: has a file changed since we read it? Any thread. */
#ifndef TUTTI_RPC_UTIL_STAMP_H
#define TUTTI_RPC_UTIL_STAMP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rpc_stamp {
    uint64_t device;
    uint64_t inode;
    int64_t size;
    int64_t seconds; /* of the last change */
    int64_t nanoseconds;
} rpc_stamp;

/* All zeros when there is no such file; NULL is none. One stat(). */
rpc_stamp rpc_stamp_take(const char *path);

bool rpc_stamp_equal(const rpc_stamp *left, const rpc_stamp *right);

/* Of all files of one TLS end. */
typedef struct rpc_stamps {
    rpc_stamp cert;
    rpc_stamp key;
    rpc_stamp ca;
} rpc_stamps;

/* Paths that are NULL or "" are not there. */
rpc_stamps rpc_stamps_take(const char *cert_path, const char *key_path, const char *ca_path);

bool rpc_stamps_equal(const rpc_stamps *left, const rpc_stamps *right);

#endif
