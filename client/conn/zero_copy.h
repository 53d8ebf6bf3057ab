/* Private to client: the caller's memory while gRPC looks at it. */
#ifndef TUTTI_CLIENT_CONN_ZERO_COPY_H
#define TUTTI_CLIENT_CONN_ZERO_COPY_H

#include <semaphore.h>

#include "client/conn/channel_pool.h"

/* The caller's memory while gRPC looks at it. Any thread gives back; one thread lends. */
typedef struct client_loan {
    sem_t back;
    size_t out;
} client_loan;

void client_loan_init(client_loan *loan);

/* A blob of `size` bytes at `data`; small ones are copied and no loan. */
tutti_rpc_blob client_loan_blob(client_loan *loan, const void *data, size_t size);

/* Count what has come back, without waiting. */
void client_loan_collect(client_loan *loan);

/*
 * The call is over: wait until nobody looks at the memory any more, and give the line back. When a
 * dead peer keeps gRPC from letting go, the connection is broken.
 */
void client_loan_settle(client_loan *loan, tutti_client *client, client_line *line);

#endif
