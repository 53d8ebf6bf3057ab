/*
 * Metrics: what a server tells those who watch it, over HTTP: /metrics for Prometheus, /healthz
 * ("is it alive": its loop answers) and /readyz ("may it be sent work"); of a server that has one
 * also a page for people at /, and what that page reads: /state, /ranks and, as it changes, /events.
 *
 * Pages are written on the server's loop, so they see its state without a lock; a loop that does
 * not answer within TUTTI_METRICS_WAIT_MS makes all of them say 503. There are no credentials and no
 * encryption: only this machine may look, unless the options open it to others. What is shown are
 * numbers, names of jobs, methods and kinds of ops, and on the page hosts, devices and groups; never
 * names of tensors, keys, values or bytes. Nothing can be changed.
 */
#ifndef TUTTI_METRICS_METRICS_H
#define TUTTI_METRICS_METRICS_H

#include <stdbool.h>

#include "base/config/config.h"
#include "base/error/text.h"
#include "base/os/meter.h"
#include "rpc/loop.h"
#include "tutti/error.h"

#define TUTTI_METRICS_WAIT_MS 2000
#define TUTTI_METRICS_CONNECTIONS_MAX 32 /* with one more the oldest idle one is closed */

typedef struct tutti_metrics tutti_metrics;

typedef struct tutti_metrics_options {
    const char *listen;    /* "" = no metrics */
    const char *port_file; /* "" = none; gets the address after binding */
    bool open;             /* allow addresses that others can reach */
    bool page;             /* and the page for people */
} tutti_metrics_options;

/* The table for tutti_config_load: metrics, metrics-port-file, metrics-open. */
tutti_option_set tutti_metrics_option_set(tutti_metrics_options *target);

/* What the page for people asks for. */
typedef struct tutti_metrics_wish {
    const char *job; /* "" = the first */
    bool ranks;      /* of these; else the state of all */
    uint32_t first;  /* of ranks */
} tutti_metrics_wish;

/* What is shown. All run on the loop. */
typedef struct tutti_metrics_source {
    tutti_rpc_loop *loop;
    const char *program; /* "tutti-agent"; static */
    void (*on_page)(void *arg, tutti_page *page);
    /* May work be sent? If not, writes why. */
    bool (*on_ready)(void *arg, tutti_text *why);
    /* The page for people: HTML, static; NULL = none. What it asks for is JSON. */
    const unsigned char *html;
    size_t html_size;
    void (*on_wish)(void *arg, const tutti_metrics_wish *wish, tutti_page *page);
    void *arg;
} tutti_metrics_source;

/*
 * Bind and serve on threads of its own, one for each connection: a probe waits for no page but the
 * one that is being written. Without --metrics it does nothing: *ret_metrics is NULL.
 *
 * [in] source  copied; its loop outlives the metrics
 *
 * TUTTI_INVALID_ARGUMENT     the address does not parse, is a Unix socket, has no such host, or is
 *                            one that others can reach without --metrics-open
 * TUTTI_FAILED_PRECONDITION  it is in use
 * TUTTI_RESOURCE_EXHAUSTED   no memory, no thread
 */
tutti_code tutti_metrics_start(const tutti_metrics_options *options,
                               const tutti_metrics_source *source, tutti_metrics **ret_metrics,
                               tutti_error *err);

/* While the loop still runs. NULL is fine. */
void tutti_metrics_stop(tutti_metrics *metrics);

#endif
