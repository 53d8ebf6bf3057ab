/*
 * tutti bench: one op, size after size, on all ranks of a group at once.
 *
 * One process drives all ranks, each on a thread of its own: what is measured is what callers of
 * libtutti see. Sizes and bus bandwidths are counted as nccl-tests counts them
 * (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
 */
#ifndef TUTTI_CLIENT_CLI_BENCH_BENCH_H
#define TUTTI_CLIENT_CLI_BENCH_BENCH_H

#include "client/cli/bench/gate.h"
#include "client/cli/cli.h"
#include "client/cli/collective/collective.h"
#include "client/cli/connect/connect.h"
#include "tutti/share.h"

/* Who gives, or gets, and how much: the whole of what the size says, or one rank's part of it. */
typedef enum bench_share {
    BENCH_NOTHING = 0,
    BENCH_WHOLE,
    BENCH_PART,
    BENCH_WHOLE_AT_ROOT,
} bench_share;

/* An op that can be measured. */
typedef struct bench_op {
    tutti_op_kind kind;
    const char *word; /* "all_reduce" */
    collective_fn fn;
    bench_share gives;
    bench_share gets;
    bool reduces;
    bool rooted;
    bool in_place; /* a result may take the place of what was given */
    /* Of bus bandwidth: links * (n - 1) / n of what the algorithm moves; 0 = all of it, whatever n.
     */
    unsigned links;
} bench_op;

/* By name, with - or _; "reduce" and "recv" are known. NULL: there is none. */
const bench_op *bench_op_find(const char *word);
const bench_op *bench_op_at(int index); /* all of them, from 0; NULL = no more */
double bench_bus_factor(const bench_op *op, uint32_t ranks);

/* Where the tensors are. */
typedef enum bench_way {
    BENCH_HANDLE = 0, /* in the agents */
    BENCH_INLINE,     /* in the caller's memory: they travel with each call */
    BENCH_SHARE, /* in the agents, and mapped: the caller writes before each call, reads after */
} bench_way;

const char *bench_way_name(bench_way way); /* "inline" */

/* What the command line asks for. */
typedef struct bench_plan {
    const bench_op *op;
    tutti_reduce reduce; /* NONE where nothing is reduced */
    tutti_dtype dtype;
    uint64_t begin_bytes; /* 0 = the least there is */
    uint64_t end_bytes;
    int64_t factor; /* from size to size */
    int64_t iterations;
    int64_t warmup;
    int64_t root;
    const char *group;  /* NULL = all ranks */
    const char *device; /* NULL = each agent's first */
    bench_way way;
    bool async;
    bool check;
    bool percentiles; /* columns of p50 and p99, at the end */
    const char *plot; /* file of a plot; NULL = none */
} bench_plan;

/* False: it makes no sense, which was said. */
bool bench_plan_read(cli *self, bench_plan *ret_plan);

/* Bytes of the least row: an element for each part; of a row that is asked for, as many whole parts
 * as fit, but no less than the least row; and elements of a part. */
uint64_t bench_plan_least(const bench_plan *plan, uint32_t ranks);
uint64_t bench_plan_fit(const bench_plan *plan, uint32_t ranks, uint64_t bytes);
uint64_t bench_plan_part(const bench_plan *plan, uint32_t ranks, uint64_t bytes);

/* What one rank has for a row. */
typedef struct bench_rank {
    uint64_t in_bytes;
    uint64_t out_bytes;
    char input[TUTTI_HANDLE_MAX + 1]; /* "" = none */
    char output[TUTTI_HANDLE_MAX + 1];
    void *in_data; /* of BENCH_INLINE and SHARE; NULL = none */
    void *out_data;
    tutti_view *in_view; /* of BENCH_SHARE; NULL = none */
    tutti_view *out_view;
    double *took_us; /* of each call */
    uint64_t began_ns;
    uint64_t ended_ns;
} bench_rank;

/* Figures of one row, in place or not. */
typedef struct bench_figures {
    bool known; /* false = this op has no such form */
    double us;  /* of the slowest rank, for one call */
    double p50_us;
    double p99_us;
    double algorithm_gbps; /* 1e9 bytes a second */
    double bus_gbps;
    bool checked;
    uint64_t wrong; /* elements, of all ranks */
} bench_figures;

/* A row that was measured, out of place and in place. */
typedef struct bench_row {
    uint64_t bytes;
    bench_figures figures[2];
} bench_row;

/* One run of the command, at one of its rows. */
typedef struct bench_run {
    cli *self;
    const bench_plan *plan;
    cli_all_ranks world;
    bench_rank *ranks;
    bench_gate *gate;
    int32_t *next;  /* of permute: each gives to the one after it */
    uint64_t bytes; /* of the row */
    uint64_t part;  /* elements of each rank's part; of what is not cut: all of them */
    uint32_t salt;  /* of this check's data */
    bool in_place;
    bool said_copied; /* of BENCH_SHARE: that nothing can be mapped */
    bench_row *rows;  /* [owned] that were measured, with --plot */
    size_t row_count;
} bench_run;

/* memory.c: tensors or memory for a row; forget is for any state. */
tutti_code bench_memory_make(bench_run *run, tutti_error *err);
void bench_memory_forget(bench_run *run);

/* call.c: one op of one rank, until it is done; async: begun, *ret_works of them. */
#define BENCH_WORKS_MAX 2 /* of a call: sending and receiving */
typedef char bench_work[TUTTI_HANDLE_MAX + 1];

tutti_code bench_call(const bench_run *run, uint32_t index, tutti_error *err);
tutti_code bench_begin(const bench_run *run, uint32_t index, bench_work ret_works[BENCH_WORKS_MAX],
                       size_t *ret_count, tutti_error *err);

/* time.c: warm up, measure. TUTTI_CANCELLED when a signal ended it. */
tutti_code bench_time(bench_run *run, bench_figures *ret, tutti_error *err);

/* check.c: fresh data, one call, and what came of it beside what should have. */
tutti_code bench_check(bench_run *run, uint64_t *ret_wrong, tutti_error *err);

/* print.c */
void bench_print_head(const bench_run *run);
void bench_print_row(const bench_run *run, const bench_figures figures[2]);
void bench_print_end(const bench_run *run, double bus_gbps, uint64_t wrong);

/* plot.c: keep a row; can the file be written; write it: an SVG of all rows. For --plot. */
void bench_plot_add(bench_run *run, const bench_figures figures[2]);
tutti_code bench_plot_check(const char *path, tutti_error *err);
tutti_code bench_plot_write(const bench_run *run, const char *path, tutti_error *err);

#endif
