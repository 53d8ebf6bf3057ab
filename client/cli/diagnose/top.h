/*
 * Top: what goes on in a job, again and again, in a terminal or once.
 *
 *   sample ── what was asked last, and rates against what was asked before
 *   screen ── the terminal, which is given back as it was
 */
#ifndef TUTTI_CLIENT_CLI_DIAGNOSE_TOP_H
#define TUTTI_CLIENT_CLI_DIAGNOSE_TOP_H

#include <pthread.h>

#include "client/cli/cli.h"
#include "tutti/diagnose.h"
#include "tutti/group.h"
#include "tutti/membership.h"

#define TOP_RANKS_MAX 1024 /* that are asked for at once */
#define TOP_EVENTS 64      /* that are kept */
#define TOP_EVENT_MAX 320
#define TOP_TOTALS 5 /* samples over which the rate of the whole job is taken */

/* How much the counters of a rank grow in a second, between two of its heartbeats: they bring the counters. */
typedef struct top_rank {
    uint64_t incarnation;
    uint64_t told_ms; /* when the last heartbeat came; 0 = none has */
    uint64_t ops;
    uint64_t bytes;
    double ops_per_s; /* -1 = not known yet */
    double bytes_per_s;
} top_rank;

typedef enum top_order {
    TOP_BY_RANK = 0,
    TOP_BY_STATE, /* lost ones first */
    TOP_BY_HOST,
    TOP_BY_OPS_RATE, /* the largest first, as by the two below */
    TOP_BY_BYTES_RATE,
    TOP_BY_OPS,
    TOP_ORDERS
} top_order;

typedef struct top_total {
    uint64_t at_ms;
    uint64_t ops;
    uint64_t bytes;
} top_total;

typedef struct top {
    tutti_client *client; /* of the coordinator */
    char coordinator[256];
    uint64_t now_ms; /* of the last sample, monotonic */
    tutti_job_info job;
    tutti_rank_info ranks[TOP_RANKS_MAX]; /* from `first` on */
    uint32_t rank_count;
    uint32_t first;
    top_order order;
    uint32_t skipped;     /* of the ranks in that order, that are not drawn */
    top_rank *rates;      /* [owned] of all ranks of the job */
    uint32_t rates_count; /* the world size that they are for */
    top_total totals[TOP_TOTALS];
    size_t total_count;
    double ops_per_s; /* of the job; -1 = not known yet */
    double bytes_per_s;
    tutti_group_info *groups; /* [owned] */
    size_t group_count;
    tutti_stalls stalls; /* [owned] */
    tutti_error err;     /* why the last sample failed; code TUTTI_OK = it did not */

    tutti_member_watch *watch;
    pthread_mutex_t lock; /* guards below; the watch's thread writes it */
    char events[TOP_EVENTS][TOP_EVENT_MAX];
    size_t event_count; /* all that there were */
} top;

/* ------------------------------------------------------------------ top_sample.c */

/* Follow the members, too. [in, moved] client, also on failure */
tutti_code top_open(top *self, tutti_client *client, tutti_error *err);
void top_close(top *self); /* zeroed is fine */

/* Ask once, for ranks from `first` on. What could not be asked stays as it was, and `err` says why. */
tutti_code top_sample(top *self, uint32_t first, tutti_error *err);

/* What the counters of a rank say, as the coordinator told them at `now_ms`. Zero the rate before. */
void top_turn_rate(top_rank *rate, const tutti_rank_info *info, uint64_t now_ms);

json_t *top_json(top *self);

/* ------------------------------------------------------------------ top_draw.c */

/* The word that --sort takes for an order, and the order of a word; false = no order has that word. */
const char *top_order_name(top_order order);
bool top_order_find(const char *name, top_order *ret_order);

/* [in, moved] ranks */
json_t *top_sort(json_t *ranks, top_order order);

/* Lines for people, without control characters of others. [in] rows  of ranks; 0 = all */
void top_draw(top *self, const cli *how, FILE *out, uint32_t rows);

/* How many lines there are beside those of ranks. */
uint32_t top_other_lines(top *self);

/* ------------------------------------------------------------------ top_screen.c */

/* Show it until q, Ctrl-C or --timeout; a sample each interval. The exit code. */
int top_run(top *self, const cli *how, uint32_t interval_ms);

#endif
