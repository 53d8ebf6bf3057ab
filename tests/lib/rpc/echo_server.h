/*
 * The echo service of the tests, and a server with it: what all tests call.
 *
 * Unary answers with the request's text, the payload's size as number and its byte sum as sum. Text
 * that begins with '/' asks for something else:
 *
 *   /later      the same, from another thread
 *   /payload    with `count` bytes of payload, referenced
 *   /metadata   with the value of x-echo as text
 *   /identity   with who the caller is;  /peer, with where;  /deadline, with the ms left as number
 *   /colour     with "colour " and its number as text
 *   /sleep      keeps the loop busy for `number` ms
 *   /stats      with what the server has counted, "cancelled=1 ended=2 ..." as text
 *
 * fail != 0 fails with that code, and everything a tutti_error can say. Upload with text "/slow"
 * reads nothing more until echo_server_release. Chat with text "/finish" answers, and finishes from
 * another thread while the answer may be on its way; with "/thread" it tells the loop's name. Behind a Chat with text "/nest" each message
 * is a nested Unary call; the text of an error is its reason then.
 */
#ifndef TUTTI_TESTS_RPC_ECHO_SERVER_H
#define TUTTI_TESTS_RPC_ECHO_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/data/list.h"
#include "rpc/lane.h"
#include "rpc/server.h"

#define ECHO_LOOPS_MAX 2

typedef struct echo_server {
    tutti_rpc_server_options options;
    tutti_rpc_loop *loops[ECHO_LOOPS_MAX];
    size_t loop_count;
    tutti_rpc_server *server;
    tutti_rpc_authorize_fn authorize; /* set before start, with the two below */
    void (*on_deaf)(void *arg);
    tutti_rpc_gate *gate;   /* of the service; NULL = none */
    tutti_rpc_lanes *lanes; /* of the last loop, when `has_lanes` */
    bool has_lanes;
    uint64_t busy_ns; /* of the lanes */
    bool open_calls;  /* Unary needs no credentials */
    bool quiet_chat;  /* Chat runs on the first loop, all else on the last */
    bool open_enums;  /* enum numbers nobody knows reach the handlers */
    tutti_rpc_task release;
    tutti_list_node parked; /* loop's thread */
    tutti_list_node slow;   /* likewise */
    atomic_size_t parked_count;
    atomic_size_t cancel_count; /* on_cancel of parked calls and streams */
    atomic_size_t half_close_count;
    atomic_size_t end_count;     /* on_end of streams */
    atomic_size_t message_count; /* of uploads */
    atomic_size_t written_count; /* on_written of downloads */
    atomic_size_t made;          /* payloads referenced ... */
    atomic_size_t released;      /* ... and released */
    atomic_size_t drain_count;
    atomic_bool keep_parked; /* on_cancel does not answer parked calls */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool draining;
    bool stopped;
} echo_server;

/* Options with the test's defaults: any port of 127.0.0.1, a grace of 2 s. Before start. */
void echo_server_init(echo_server *self, const char *listen);

/* One loop, or two: the second for the service, which dozes; the first for all else. */
tutti_code echo_server_start(echo_server *self, size_t loop_count, tutti_error *err);

/* "127.0.0.1:45678": the first address. */
const char *echo_server_address(const echo_server *self);

/* Answer all parked calls, and let slow uploads go on. */
void echo_server_release(echo_server *self);

/* Drain; and wait for it. */
void echo_server_drain_begin(echo_server *self);
void echo_server_drain_end(echo_server *self);

/* Both. */
void echo_server_drain(echo_server *self);

/* Drain unless that was done, and free everything. After a failed start too. */
void echo_server_fini(echo_server *self);

#endif
