/* Private to lib/metrics: a question to the loop, the socket, and what the process itself shows. */
#ifndef TUTTI_METRICS_PRIVATE_H
#define TUTTI_METRICS_PRIVATE_H

#include "base/address.h"
#include "metrics/metrics.h"

typedef enum metrics_topic {
    METRICS_NUMBERS,
    METRICS_HEALTH,
    METRICS_READINESS,
} metrics_topic;

/* metrics_ask.c: asks the loop and waits. Fills an empty page; the HTTP status. HTTP's thread. */
unsigned metrics_ask(const tutti_metrics_source *source, metrics_topic topic, tutti_page *page);

/* metrics_listen.c: a socket that listens; *ret_address says where. */
tutti_code metrics_listen(const tutti_metrics_options *options, int *ret_socket,
                          tutti_address *ret_address, tutti_error *err);

/* metrics_process.c: memory, descriptors, time, version. Any thread. */
void metrics_add_process(tutti_page *page, const char *program);

#endif
