/* Private to client: a thread that ends streams which do not move. */
#ifndef TUTTI_CLIENT_CONN_STALL_TIMER_H
#define TUTTI_CLIENT_CONN_STALL_TIMER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/channel.h"

/*
 * A thread that gives up streams which do not move. One for each client, started with the first
 * transfer or watch. `lock` guards all of it; a stream is in `watched` from add to remove.
 */
typedef struct client_stall_timer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tutti_list_node watched;
    pthread_t thread;
    bool started;
    bool stopping;
} client_stall_timer;

/*
 * A stream that is watched. `moved_ns` is written by the transfer's thread at any time (atomic),
 * all else is behind the timer's lock. The struct and the stream must stay until remove has
 * returned.
 */
typedef struct client_watched {
    tutti_list_node link;
    tutti_rpc_stream *stream;
    uint64_t patience_ns;
    atomic_uint_fast64_t moved_ns;
    bool stalled;
} client_watched;

void client_stall_timer_init(client_stall_timer *watch);
void client_stall_timer_fini(client_stall_timer *watch); /* ends the thread */

/* TUTTI_RESOURCE_EXHAUSTED  no thread could be started */
tutti_code client_stall_timer_add(client_stall_timer *watch, client_watched *watched,
                                  tutti_rpc_stream *stream, uint64_t patience_ns, tutti_error *err);
void client_stall_timer_moved(client_watched *watched);

/* Was it given up? Before the stream is finished. */
bool client_stall_timer_remove(client_stall_timer *watch, client_watched *watched);

#endif
