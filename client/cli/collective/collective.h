/*
 * Collectives from the command line, in three forms:
 *
 *   FILE.npy ...      one file per group rank, on all ranks at once
 *   NAME              the tensor of that name on every rank, on all ranks at once
 *   HANDLE --rank R   one rank's call; the others come from elsewhere
 */
#ifndef TUTTI_CLIENT_CLI_COLLECTIVE_COLLECTIVE_H
#define TUTTI_CLIENT_CLI_COLLECTIVE_COLLECTIVE_H

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"

typedef tutti_code (*collective_fn)(tutti_client *client, const tutti_op *op,
                                    tutti_op_result *ret_result, tutti_error *err);

/* Who has a result. */
typedef enum collective_result {
    COLLECTIVE_SAME = 0, /* every rank, the same one */
    COLLECTIVE_AT_ROOT,  /* the root alone */
    COLLECTIVE_EACH,     /* every rank, one of its own */
} collective_result;

/* An op as the command line says it. */
typedef struct collective {
    cli *self;
    const char *word; /* "all_reduce" */
    collective_fn fn;
    tutti_op op;
    bool grows;     /* the result is a new tensor: never in place */
    bool from_root; /* the root alone gives */
    collective_result result;
    int64_t shape[TUTTI_DIMS_MAX]; /* of --shape */
    int32_t *to;                   /* of permute */
    int64_t *splits;               /* of all-to-all: by sender, and then by receiver */
    size_t split_count;            /* ranks */
} collective;

/*
 * --group, --op, --factor, --root, --axis, --async ... as far as the command has them. False: they
 * make no sense, which was said. Call collective_end in any case.
 */
bool collective_read(collective *self);
void collective_end(collective *self);

/* collective_splits.c: --splits, and what of it concerns one rank. */
bool collective_read_splits(collective *self);
tutti_code collective_set_splits(const collective *self, uint32_t group_rank, tutti_op *op,
                                 tutti_error *err);
tutti_code collective_own_splits(const collective *self, tutti_client *client, tutti_op *op,
                                 tutti_error *err);

/* One rank's result for --json; the document around an array of them, which is taken over. */
json_t *collective_json_result(uint32_t rank, const tutti_op_result *result);
json_t *collective_json(const collective *self, const tutti_op_result *result, json_t *results);

/* A line about one rank's result, for people. */
void collective_say(const cli *self, const tutti_op_result *result);

/* Before an op on all ranks of the world: ops that only some have called, and that have failed, are
 * called by the others too. */
tutti_code collective_catch_up(const cli_all_ranks *world, const char *group, tutti_error *err);

/* Files, a name or nothing as arguments: one call on each rank. Exit code. */
int collective_on_all(collective *self);

/* One call on one rank. Exit code. */
int collective_on_one(collective *self);

#endif
