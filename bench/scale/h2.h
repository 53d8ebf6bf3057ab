/*
 * A connection of a gRPC client, as small as it can be: a socket, HTTP/2 frames by hand, no thread.
 *
 * Why not lib/rpc: a client of gRPC has about as much work and memory for a connection as the server
 * has. With ten thousand of them on the machine of the server, the clients would be measured. What is
 * left out: TLS, names, flow control of what is sent (requests are small), compressed headers.
 *
 * One thread. Callbacks must not close the connection that they are of, except by h2_close.
 */
#ifndef TUTTI_BENCH_SCALE_H2_H
#define TUTTI_BENCH_SCALE_H2_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define H2_STREAMS_MAX 8 /* of a connection at a time */

typedef struct h2_conn h2_conn;

/* [in] arg  of on_open and on_close: the connection's; of the others: the call's */
typedef struct h2_events {
    void (*on_open)(void *arg); /* calls may be made */
    void (*on_message)(void *arg, uint32_t stream, const uint8_t *data, size_t size);
    void (*on_end)(void *arg, uint32_t stream, const char *status); /* "0" = OK; lent */
    void (*on_close)(void *arg, const char *why); /* not after h2_close; the connection is freed */
} h2_events;

/* The connections of a process. */
typedef struct h2_net {
    int epoll;
    struct sockaddr_in server;
    char authority[64];
    uint64_t sent_bytes;
    uint64_t received_bytes;
    h2_conn *closed; /* to be freed */
} h2_net;

/* [in] address  "127.0.0.1:PORT". False: it is none */
bool h2_net_init(h2_net *net, const char *address);

/* [in] number  connections of one address of this machine are limited by its ports */
h2_conn *h2_open(h2_net *net, uint32_t number, const h2_events *events, void *arg);
void h2_close(h2_conn *conn);

/* Begin a call with one message. [in] path  "/package.Service/Method". 0 = too many streams */
uint32_t h2_call(h2_conn *conn, const char *path, const uint8_t *data, size_t size, bool end,
                 void *arg);

/* The client gives up the call: nothing is heard of it any more. */
void h2_cancel(h2_conn *conn, uint32_t stream);

/* One more message on an open stream. */
void h2_send(h2_conn *conn, uint32_t stream, const uint8_t *data, size_t size, bool end);

/* Do what is to be done, for at most `wait_ms`. */
void h2_turn(h2_net *net, int wait_ms);

#endif
