/* Plan: what a schedule does, drawn from its seed before anything runs, so that parts can be left out. */
#ifndef TUTTI_TESTS_SIM_PLAN_H
#define TUTTI_TESTS_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/args.h"

#define RANKS_MAX 5
#define GROUPS_MAX 5
#define OPS_MAX 64
#define FAULTS_MAX 8
#define TENSORS_MAX 3 /* of a coalesced op */
#define NOBODY UINT32_MAX

/* How a group ends in the middle of its ops. */
typedef enum plan_end {
    END_NONE,
    END_DELETED,
    END_ABORTED,
    END_COUNT,
} plan_end;

typedef struct plan_group {
    uint32_t ranks[RANKS_MAX];
    uint32_t size;
    uint64_t opens_ns; /* when it is made */
    plan_end end;
    uint64_t ends_ns;
    uint32_t ender; /* who has asked for it, a rank of the job: it hears first */
} plan_group;

/* What an op gives and gets, but for one tensor from each rank. */
typedef enum plan_shape {
    SHAPE_PLAIN,
    SHAPE_LIST, /* a tensor for each rank, or from each, of lengths of its own */
    SHAPE_COALESCED,
    SHAPE_SPLITS,
    SHAPE_META, /* bytes go with the tensor */
    SHAPE_COUNT,
} plan_shape;

typedef struct plan_op {
    tutti_coll_kind kind; /* SEND: `root` sends and `peer` receives; both are group ranks */
    plan_shape shape;
    tutti_reduce reduce;
    uint32_t group;
    uint32_t root;
    uint32_t peer;
    bool any_source; /* of a receive */
    bool states;     /* receivers say what they expect */
    int64_t count;   /* elements of INT64 that a rank gives for each part */
    bool in_place;
    uint32_t apart;     /* ranks of the job, as bits, whose memory here cannot be exposed */
    uint32_t odd;       /* this group rank calls something else; the group's size = nobody */
    uint32_t refuser;   /* this group rank refuses the call; NOBODY */
    uint32_t canceller; /* this group rank's caller goes away; NOBODY */
    uint64_t cancel_ns; /* ... so long behind its call */
    uint64_t timeout_ns[RANKS_MAX]; /* of a rank of the job */
    uint64_t think_ns[RANKS_MAX];   /* before a rank of the job calls it */
} plan_op;

typedef enum plan_fault_kind {
    FAULT_KILL,
    FAULT_STOP,
    FAULT_CUT,     /* both directions */
    FAULT_ONE_WAY, /* from `rank` to `other` */
    FAULT_SLOW,
    FAULT_LEAVE,   /* politely */
    FAULT_CALLERS, /* its program ends between two ops, and another comes */
    FAULT_PROBE,   /* no fault: it looks who can be reached */
    FAULT_MEMORY,  /* allocations fail */
    FAULT_CLOCK,   /* its clock jumps, as behind a pause of its machine */
    FAULT_COUNT,
} plan_fault_kind;

typedef struct plan_fault {
    plan_fault_kind kind;
    uint64_t at_ns;
    uint64_t span_ns;
    uint32_t rank;
    uint32_t other;
    bool silent; /* of a kill: as a host that loses its power, whose connections say nothing */
    uint64_t returns_ns; /* of a kill: another process takes the rank so long behind it; 0 = none */
} plan_fault;

/* The less befalls, the more can be asked of what ends, and when. */
typedef enum plan_kind {
    PLAN_GENTLE, /* nothing befalls anybody, and nobody is late */
    PLAN_LATE,   /* some call too late */
    PLAN_DEATHS, /* processes are killed, and nothing else */
    PLAN_ROUGH,
    PLAN_RETURNS, /* as deaths, and others take their ranks */
    PLAN_KIND_COUNT,
} plan_kind;

typedef struct plan {
    uint64_t seed;
    uint64_t op_mask; /* which of them are played */
    uint64_t fault_mask;
    plan_kind kind;
    uint32_t size;
    uint32_t window;        /* collectives that a rank has under way at one time, in each group */
    const char *algorithms; /* NULL: of no selector */
    const char *others;     /* what one of the ranks has instead */
    uint32_t other_rank;    /* NOBODY */
    uint32_t hosts[RANKS_MAX];     /* of the ranks of the job; 0 = nobody knows */
    bool shares;                   /* ranks of a host expose memory to each other */
    bool skews;                    /* each process has a clock of its own */
    bool follows;                  /* ops follow from those before them: the group is resynced */
    bool steps;                    /* ops have numbers of their own, which ranks compare */
    plan_group groups[GROUPS_MAX]; /* the first has all ranks */
    uint32_t group_count;
    plan_op ops[OPS_MAX];
    uint32_t op_count;
    plan_fault faults[FAULTS_MAX];
    uint32_t fault_count;
} plan;

/* Draws from the kernel, which is open with this seed. */
void plan_draw(plan *self, uint64_t seed);

bool plan_plays(uint64_t mask, uint32_t index);

const char *plan_fault_name(plan_fault_kind kind); /* "is killed" */

/* Can an op of a kind be called so? */
bool plan_shape_fits(plan_shape shape, tutti_coll_kind kind);

#endif
