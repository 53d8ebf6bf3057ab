/*
 * Private to client: completions that are ready, and the threads that wait for them. Knows nothing
 * of what it is that completes, nor of gRPC.
 */
#ifndef TUTTI_CLIENT_QUEUE_READY_H
#define TUTTI_CLIENT_QUEUE_READY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/list.h"
#include "tutti/error.h"

#define QUEUE_NEVER UINT64_MAX

typedef struct queue_ready queue_ready;

/* What makes things ready: it is polled by one thread at a time. */
typedef struct queue_source {
    /* Let happen what can, until something has or the time is over. It calls queue_ready_put. */
    void (*poll)(queue_ready *ready, uint64_t deadline_ns);
    /* Whoever is in poll, or is the next there, comes back. Any thread. */
    void (*wake)(queue_ready *ready);
} queue_source;

/* Any thread; all is behind the lock, which is a leaf. */
struct queue_ready {
    const queue_source *source;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tutti_list_node done;
    pthread_t poller; /* while `polling` */
    bool polling;
    bool served; /* a thread of the queue polls: takers only wait */
    bool dry;    /* there is nothing to be polled any more */
    bool over;   /* nothing will come behind what is there */
    int fd;      /* readable while `done` has something, or it is over; -1 = not wanted */
};

void queue_ready_init(queue_ready *self, const queue_source *source);
void queue_ready_fini(queue_ready *self);

/* One more is ready. */
void queue_ready_put(queue_ready *self, tutti_list_node *link);

/* The first one; waits for it. NULL: none in that time, or it is over. */
tutti_list_node *queue_ready_take(queue_ready *self, uint64_t deadline_ns);

/* Poll without waiting if nobody polls, so that what has happened is seen. False: somebody polls. */
bool queue_ready_glance(queue_ready *self);

/* Poll until it is over, as the thread of the queue. When something is ready `between` takes all;
 * NULL: others take. */
void queue_ready_serve(queue_ready *self, void (*between)(queue_ready *ready));

/* Nothing is to be polled any more: takers only wait. */
void queue_ready_dry(queue_ready *self);

/* Nothing more will be put: takers get what is there, and then NULL at once. */
void queue_ready_end(queue_ready *self);

/* Until that is so, or the time is over; what is ready stays. */
void queue_ready_wait_over(queue_ready *self, uint64_t deadline_ns);

/*
 * A descriptor that is readable while take would not wait. Always the same.
 * TUTTI_RESOURCE_EXHAUSTED  there is none
 */
tutti_code queue_ready_fd(queue_ready *self, int *ret_fd, tutti_error *err);

#endif
