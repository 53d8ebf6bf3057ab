/*
 * Meter: how often and how long, counted from any thread, and the page on which a program shows its
 * numbers: the text format of Prometheus 0.0.4.
 *
 * To count costs two relaxed atomic additions. A page is built by one thread; what does not fit in
 * memory makes it fail as a whole, so nobody takes half a page for all of it.
 *
 *     tutti_page_family(page, "tutti_agent_tensors", "gauge", "Tensors held now.");
 *     tutti_page_number(page, "tutti_agent_tensors", "", count);
 */
#ifndef TUTTI_BASE_OS_METER_H
#define TUTTI_BASE_OS_METER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"

#define TUTTI_METER_BOUNDS 11           /* from 25 us to 60 s */
#define TUTTI_PAGE_BYTES_MAX (8u << 20) /* of one page */
#define TUTTI_PAGE_LABELS_MAX 512       /* bytes of one sample's labels */

/* A histogram of durations. Zeroed is empty. */
typedef struct tutti_meter {
    _Atomic uint64_t buckets[TUTTI_METER_BOUNDS + 1]; /* the last: above all bounds */
    _Atomic uint64_t sum_ns;
} tutti_meter;

void tutti_meter_add(tutti_meter *meter, uint64_t duration_ns);
uint64_t tutti_meter_count(const tutti_meter *meter);

/* A counter from any thread. */
static inline void
tutti_count(_Atomic uint64_t *counter, uint64_t more)
{
    (void)atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

typedef struct tutti_page {
    tutti_buf buf;
    bool failed; /* the limit or memory was reached */
} tutti_page;

void tutti_page_init(tutti_page *page);
void tutti_page_fini(tutti_page *page);

/* HELP and TYPE, before the samples of a family. [in] type  "counter", "gauge" or "histogram" */
void tutti_page_family(tutti_page *page, const char *name, const char *type, const char *help);

/*
 * A sample. [in] labels  as tutti_page_labels makes them; "" = none
 */
void tutti_page_number(tutti_page *page, const char *name, const char *labels, uint64_t value);
void tutti_page_seconds(tutti_page *page, const char *name, const char *labels, uint64_t ns);

/* The samples of a histogram in seconds: NAME_bucket, NAME_sum, NAME_count. */
void tutti_page_meter(tutti_page *page, const char *name, const char *labels,
                      const tutti_meter *meter);

/*
 * Pairs as `a="x",b="y"`, their values escaped; what is too long is cut in the last value.
 *
 * [in] pairs  key, value, key, value, ..., NULL
 */
void tutti_page_labels(char ret_labels[TUTTI_PAGE_LABELS_MAX], const char *const *pairs);

#endif
