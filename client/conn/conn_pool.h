/* Private to client: the connections of a client, lent to one call at a time. */
#ifndef TUTTI_CLIENT_CONN_CONN_POOL_H
#define TUTTI_CLIENT_CONN_CONN_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "rpc/channel.h"
#include "tutti/tensor.h"

/* Which connection a call takes: tensors in bulk do not get in the way of all else. */
typedef enum client_conn_kind {
    CLIENT_CONTROL,
    CLIENT_BULK,
    CLIENT_COORDINATOR,
    CLIENT_MORE, /* connections of a transfer's streams but the first, one each: from here on */
} client_conn_kind;

#define CLIENT_CONN_KINDS (CLIENT_MORE + TUTTI_STREAMS_MAX - 1)

/* A channel and who uses it. The client's lock guards the count. */
typedef struct client_conn {
    tutti_rpc_channel *channel;
    size_t users;         /* calls, and the client itself */
    atomic_bool answered; /* a server has answered on it once */
} client_conn;

/*
 * Start gRPC with the first client of the process, end it with the last.
 * TUTTI_FAILED_PRECONDITION  FORKED: that was another process
 */
tutti_code client_library_enter(tutti_error *err);
/* Balances client_library_enter. With the last client gRPC is shut down. */
void client_library_leave(void);

/* TUTTI_FAILED_PRECONDITION  FORKED: `owner` is another process */
tutti_code client_check_owner(pid_t owner, tutti_error *err);

/* The same: the one that opened the client */
tutti_code client_check_process(const tutti_client *client, tutti_error *err);

/*
 * The connection of a kind, opened when it is needed for the first time; nothing is connected by
 * that yet. Give it back when the call is over: it lives as long as it has users.
 *
 * TUTTI_FAILED_PRECONDITION NO_AGENT, NO_COORDINATOR: this client has none; a forked process and
 * what opening a channel says
 */
tutti_code client_conn_take(tutti_client *client, client_conn_kind kind, client_conn **ret_conn,
                            tutti_error *err);
void client_conn_give(tutti_client *client, client_conn *conn);

/*
 * Give a connection up: the next call of its kind opens another one; this one is closed when its
 * last call is over. Any thread; twice is fine.
 */
void client_conn_break(tutti_client *client, client_conn *conn);

#endif
