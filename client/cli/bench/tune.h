/* Measuring algorithms on the agents of a job. Private to client/cli. */
#ifndef TUTTI_CLIENT_CLI_BENCH_TUNE_H
#define TUTTI_CLIENT_CLI_BENCH_TUNE_H

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "tutti/algorithms.h"

#define TUNE_POINTS_MAX 1024

/* One algorithm at one size. */
typedef struct tune_point {
    const char *word;       /* "all_reduce" */
    const char *class_name; /* "exact", "float", "any" */
    uint64_t bytes;
    char algorithm[32];
    double us; /* a call, as its callers see it; the best of some batches */
    uint32_t calls;
} tune_point;

/* An op, and for elements of which class. */
typedef struct tune_subject {
    tutti_op_kind kind;
    tutti_code (*call)(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                       tutti_error *err);
    const char *word; /* "all_reduce" */
    tutti_dtype dtype;
    const char *class_name;
} tune_subject;

typedef struct tune {
    cli *self;
    cli_all_ranks world;
    uint64_t begin_bytes;
    uint64_t end_bytes;
    uint64_t ends_ms; /* on cli_now_ms */
    uint64_t began_ms;
    uint64_t subject_ends_ms; /* each op has its share of the time */
    uint32_t host_count;
    const char *ops; /* "all_reduce,broadcast"; NULL = all */
    tune_point points[TUNE_POINTS_MAX];
    size_t count;
    bool cut;  /* time was up, or somebody pressed Ctrl-C, before all were measured */
    bool full; /* there was no room for more points before all were measured */
} tune;

/* Are `ops` ones that can be measured? False: it was said. */
bool tune_check_ops(const tune *self);

/*
 * Measure everything, then let the agents take again what they took. What was measured before an
 * error stays in points.
 */
tutti_code tune_measure(tune *self, tutti_error *err);

/* tune_table.c: the fastest of each size, as a table. [out, owned] ret_text  free it */
tutti_code tune_write_table(const tune *self, char **ret_text, tutti_error *err);

#endif
