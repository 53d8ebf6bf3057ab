/* Private to coll/host: one algorithm per file, found by its three functions. */
#ifndef TUTTI_COLL_HOST_HOST_PRIVATE_H
#define TUTTI_COLL_HOST_HOST_PRIVATE_H

#include "coll/host/host.h"

#define HOST_STAGES_MAX 4

typedef struct host_algorithm {
    tutti_code (*start)(tutti_coll_op *op, tutti_error *err);
    tutti_code (*advance)(tutti_coll_op *op, bool *ret_done, tutti_error *err);
} host_algorithm;

/* State of an op: allocated by start with what it needs behind it, freed by tutti_coll_host_finish.
 */
typedef struct host_state {
    const host_algorithm *algorithm;
    void *stages[HOST_STAGES_MAX]; /* more memory, freed with it */
} host_state;

/* `flat`: everything to everybody, in one round */
tutti_code tutti_coll_host_all_reduce(tutti_coll_op *op, bool flat, tutti_error *err);
tutti_code tutti_coll_host_all_gather(tutti_coll_op *op, tutti_error *err);
/* All others. `pairwise`: with one partner after the other, not with all at once */
tutti_code tutti_coll_host_exchange(tutti_coll_op *op, bool pairwise, tutti_error *err);

/* Chooses what moves the data of an op, and starts it. `learnt` as pick.h */
typedef tutti_code (*host_start_fn)(tutti_coll_op *op, bool learnt, tutti_error *err);

/*
 * Any of them, all ranks in each other's memory; and is it chosen? All ranks answer alike.
 * [in] by_messages  goes on when some rank cannot be reached so
 */
tutti_code tutti_coll_host_direct(tutti_coll_op *op, host_start_fn by_messages, tutti_error *err);
bool tutti_coll_host_is_direct(const tutti_coll_op *op);

/* piggyback.c: ops whose data travels with the agreement. Has that of all ranks? */
bool tutti_coll_host_has_ridden(const tutti_coll_op *op);
tutti_code tutti_coll_host_ridden(tutti_coll_op *op, tutti_error *err);
size_t tutti_coll_host_piggyback(tutti_coll_op *op, unsigned char *ret_bytes);

/* Free the state. */
void tutti_coll_host_finish(tutti_coll_op *op);

/* ... and go on with what `start` starts: its first advance, from round 0. */
tutti_code tutti_coll_host_restart(tutti_coll_op *op, host_start_fn start, bool learnt,
                                   bool *ret_done, tutti_error *err);

/*
 * Memory for a state: `bytes` of zeros, and `stage_bytes` more as they are, behind them.
 * TUTTI_RESOURCE_EXHAUSTED with words when there is none.
 */
tutti_code tutti_coll_host_state(tutti_coll_op *op, size_t bytes, size_t stage_bytes,
                                 void **ret_state, tutti_error *err);

/* More memory for an op that has its state; as it is, not zeroed. At most HOST_STAGES_MAX times. */
tutti_code tutti_coll_host_stage(tutti_coll_op *op, size_t bytes, unsigned char **ret_stage,
                                 tutti_error *err);

/* This rank's factor of PREMUL_SUM, as it travels beside the data. */
uint64_t tutti_coll_host_factor(const tutti_coll_op *op);

#endif
