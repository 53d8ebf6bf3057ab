/*
 * Private to coll/host: plans. An algorithm over messages is written down as a plan: what this
 * rank does in each round, in terms of units of its data. Making a plan needs no memory of the op
 * and moves nothing; run.c carries it out, chunk by chunk, several chunks at once.
 *
 * A tensor that is moved or reduced as a whole is cut in chunks, and each chunk in `units` slices,
 * as equal as can be. An op on blocks (one for each rank) has a unit for each block, and a chunk
 * takes the same bytes of each of them.
 *
 * Each chunk has a stage beside its data, where what comes is kept until it is reduced or copied.
 * In a round what is local comes first, then messages begin; between two ranks there is at most one
 * message in each direction.
 */
#ifndef TUTTI_COLL_HOST_PLAN_H
#define TUTTI_COLL_HOST_PLAN_H

#include "coll/host/host_private.h"
#include "coll/select/select.h"

typedef enum host_plan_verb {
    PLAN_LOAD,   /* units of the input to the data; `other`: which piece of the input */
    PLAN_STORE,  /* a unit of the data to piece `other` of the output */
    PLAN_REDUCE, /* units of the data and the same ones of the stage, joined, to the data */
    PLAN_FINISH, /* units of the data are sums: make the result of them */
    PLAN_FOLD,   /* the units of the stage, rank by rank, to the data; `first`: that of rank 0 */
    PLAN_KEEP,   /* a unit of the data to the stage's unit `other` */
    PLAN_TAKE,   /* the stage's unit `other` to a unit of the data */
    PLAN_SEND,
    PLAN_RECV,
} host_plan_verb;

typedef struct host_plan_step {
    uint32_t round;
    uint32_t first; /* unit */
    uint32_t count;
    uint32_t other; /* piece, or unit of the stage; of messages the peer */
    uint8_t verb;
    bool staged; /* LOAD, SEND, RECV: the stage instead of the data */
} host_plan_step;

typedef struct host_plan {
    host_plan_step *steps; /* by round; NULL: they are only counted */
    size_t count;
    uint32_t rounds; /* messages begin in rounds 0 to rounds - 1; local steps also in `rounds` */
    uint32_t units;  /* of the data */
    uint32_t stage_units; /* of a chunk's whole length each; 0: the stage is as the data */
    bool staged;          /* there is a stage */
    bool scratch;         /* the data is not where it belongs: LOAD and STORE */
    bool whole;           /* one chunk */
    uint32_t gap;         /* rounds from the begin of one chunk to that of the next */
    uint32_t lives;       /* rounds that a chunk's stage and scratch are in use */
} host_plan;

/* The ranks of the op, and the hosts on which they are. */
typedef struct host_topology {
    uint32_t size;
    uint32_t me;
    uint32_t root;
    bool whole_rows;       /* blocks of the output, or input, are such that messages can use them */
    const uint32_t *hosts; /* [size] number of each rank's host, from 0; NULL = not known */
    uint32_t host_count;
} host_topology;

/* Rounds in which what doubles reaches `size`. */
uint32_t tutti_host_log2_up(uint32_t size);

/* Adds one step; rounds must not go down. */
void tutti_host_plan_add(host_plan *plan, uint32_t round, host_plan_verb verb, uint32_t first,
                         uint32_t count, uint32_t other);
void tutti_host_plan_send(host_plan *plan, uint32_t round, uint32_t to, uint32_t first,
                          uint32_t count);
void tutti_host_plan_recv(host_plan *plan, uint32_t round, uint32_t from, uint32_t first,
                          uint32_t count);
/* ... from, or to, the stage */
void tutti_host_plan_send_staged(host_plan *plan, uint32_t round, uint32_t to, uint32_t first,
                                 uint32_t count);
void tutti_host_plan_recv_staged(host_plan *plan, uint32_t round, uint32_t from, uint32_t first,
                                 uint32_t count);

typedef void (*host_plan_fn)(host_plan *plan, const host_topology *topology);

/* plan.c: NULL where there is no plan for it */
host_plan_fn tutti_host_plan_of(tutti_coll_kind kind, tutti_algorithm algorithm);

/* plan_reduce.c */
void tutti_host_plan_doubling(host_plan *plan, const host_topology *topology);
void tutti_host_plan_rabenseifner(host_plan *plan, const host_topology *topology);
void tutti_host_plan_ring(host_plan *plan, const host_topology *topology);
void tutti_host_plan_chain(host_plan *plan, const host_topology *topology);
void tutti_host_plan_bruck(host_plan *plan, const host_topology *topology);

/* plan_tree.c */
void tutti_host_plan_reduce_binomial(host_plan *plan, const host_topology *topology);
void tutti_host_plan_reduce_chain(host_plan *plan, const host_topology *topology);
void tutti_host_plan_broadcast_binomial(host_plan *plan, const host_topology *topology);
void tutti_host_plan_broadcast_chain(host_plan *plan, const host_topology *topology);
void tutti_host_plan_gather_binomial(host_plan *plan, const host_topology *topology);
void tutti_host_plan_scatter_binomial(host_plan *plan, const host_topology *topology);

/* plan_blocks.c */
void tutti_host_plan_all_gather_ring(host_plan *plan, const host_topology *topology);
void tutti_host_plan_all_gather_doubling(host_plan *plan, const host_topology *topology);
void tutti_host_plan_all_gather_bruck(host_plan *plan, const host_topology *topology);
void tutti_host_plan_reduce_scatter_ring(host_plan *plan, const host_topology *topology);
void tutti_host_plan_reduce_scatter_halving(host_plan *plan, const host_topology *topology);
void tutti_host_plan_all_to_all_bruck(host_plan *plan, const host_topology *topology);

/* plan_hosts.c */
void tutti_host_plan_hosts_all_reduce(host_plan *plan, const host_topology *topology);
void tutti_host_plan_hosts_broadcast(host_plan *plan, const host_topology *topology);
void tutti_host_plan_hosts_all_gather(host_plan *plan, const host_topology *topology);

/* run.c: make the plan for an op, and run it. */
tutti_code tutti_coll_host_run(tutti_coll_op *op, host_plan_fn make, const host_topology *topology,
                               tutti_error *err);

#endif
