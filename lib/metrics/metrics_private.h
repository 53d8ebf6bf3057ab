/* Private to lib/metrics: a question to the loop, the socket, and what the process itself shows. */
#ifndef TUTTI_METRICS_PRIVATE_H
#define TUTTI_METRICS_PRIVATE_H

#include <pthread.h>

#include "base/config/address.h"
#include "base/data/list.h"
#include "metrics/metrics.h"

typedef enum metrics_topic {
    METRICS_NUMBERS,
    METRICS_HEALTH,
    METRICS_READINESS,
    METRICS_HTML, /* this one and the next ones: of the page for people */
    METRICS_STATE,
    METRICS_RANKS,
    METRICS_EVENTS,
} metrics_topic;

#define METRICS_JOB_MAX 128 /* bytes of a job's name, with the NUL */

/* What is asked for; of which job, and from which rank on, for the page. */
typedef struct metrics_request {
    metrics_topic topic;
    char job[METRICS_JOB_MAX];
    uint32_t first;
} metrics_request;

/* ask.c: asks the loop and waits. Fills an empty page; the HTTP status. Any thread. */
unsigned metrics_ask(const tutti_metrics_source *source, const metrics_request *request,
                     tutti_page *page);

/*
 * visitors.c: connections. When there are too many, the one that has been idle for longest
 * is hung up on; when none is idle, the one whose request began first. Any thread.
 */
typedef struct metrics_visitor metrics_visitor;
typedef struct metrics_visitors {
    pthread_mutex_t lock; /* guards the rest */
    tutti_list_node all;  /* who was heard of last is last */
    size_t count;         /* of those that were not hung up on */
} metrics_visitors;

void metrics_visitors_init(metrics_visitors *self);
void metrics_visitors_fini(metrics_visitors *self); /* all have gone */
/* The socket stays the caller's. NULL = no memory; the others take NULL. */
metrics_visitor *metrics_visitors_come(metrics_visitors *self, int socket);
void metrics_visitors_turn(metrics_visitors *self, metrics_visitor *visitor, bool busy);
void metrics_visitors_go(metrics_visitors *self, metrics_visitor *visitor); /* frees it */

/* listen.c: a socket that listens; *ret_address says where. */
tutti_code metrics_listen(const tutti_metrics_options *options, int *ret_socket,
                          tutti_address *ret_address, tutti_error *err);

/* process.c: memory, descriptors, time, version. Any thread. */
void metrics_add_process(tutti_page *page, const char *program);

#endif
