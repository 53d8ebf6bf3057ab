/* Stores that are compared: each is called by many threads, and each thread has a connection of its own. */
#ifndef TUTTI_BENCH_STORE_PEER_H
#define TUTTI_BENCH_STORE_PEER_H

#include "tutti/error.h"

#define PEER_VALUE "sixteen bytes ok" /* what is set and read */

typedef enum peer_op {
    PEER_SET,
    PEER_GET,
    PEER_ADD,
} peer_op;

typedef struct peer {
    const char *name;
    /* [out, owned] ret_client  with `key` set to PEER_VALUE, and key.n a number from 0 on */
    tutti_code (*open)(const char *address, const char *key, void **ret_client, tutti_error *err);
    tutti_code (*call)(void *client, peer_op op, tutti_error *err); /* waits for its answer */
    void (*close)(void *client);
} peer;

extern const peer peer_tutti;
extern const peer peer_etcd;

#endif
