/* Private to client: the caller's memory while gRPC looks at it. */
#ifndef TUTTI_CLIENT_CONN_ZERO_COPY_H
#define TUTTI_CLIENT_CONN_ZERO_COPY_H

#include <semaphore.h>

#include "client/conn/conn_pool.h"

/*
 * Counts how often the caller's memory is lent to gRPC. One thread lends and waits (`out` is its
 * own); any thread of gRPC gives back (`back`). Lives on the caller's stack, until
 * client_zero_copy_end.
 */
typedef struct client_zero_copy_ref {
    sem_t back;
    size_t out;
} client_zero_copy_ref;

void client_zero_copy_init(client_zero_copy_ref *ref);

/* A blob of `size` bytes at `data`; small ones are copied and no zero-copy reference. */
tutti_rpc_blob client_zero_copy_blob(client_zero_copy_ref *ref, const void *data, size_t size);

/* Count what has come back, without waiting. */
void client_zero_copy_collect(client_zero_copy_ref *ref);

/*
 * The call is over: wait until nobody looks at the memory any more, and give the line back. When a
 * dead peer keeps gRPC from letting go, the connection is broken.
 */
void client_zero_copy_end(client_zero_copy_ref *ref, tutti_client *client, client_conn *conn);

#endif
