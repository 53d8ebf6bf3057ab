/* Plan: what a schedule does, drawn from its seed before anything runs, so that parts can be left out. */
#ifndef TUTTI_TESTS_SIM_PLAN_H
#define TUTTI_TESTS_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/args.h"

#define RANKS_MAX 5
#define GROUPS_MAX 3
#define OPS_MAX 64
#define FAULTS_MAX 6

typedef struct plan_group {
    uint32_t ranks[RANKS_MAX];
    uint32_t size;
} plan_group;

typedef struct plan_op {
    tutti_coll_kind kind; /* SEND: `root` sends and `peer` receives; both are group ranks */
    uint32_t group;
    uint32_t root;
    uint32_t peer;
    int64_t count; /* elements of INT64 that a rank gives for each part */
    uint32_t odd;  /* this group rank calls something else; the group's size = nobody */
    uint64_t timeout_ns[RANKS_MAX]; /* of a rank of the job */
    uint64_t think_ns[RANKS_MAX];   /* before a rank of the job calls it */
} plan_op;

typedef enum plan_fault_kind {
    FAULT_KILL,
    FAULT_STOP,
    FAULT_CUT,     /* both directions */
    FAULT_ONE_WAY, /* from `rank` to `other` */
    FAULT_SLOW,
} plan_fault_kind;

typedef struct plan_fault {
    plan_fault_kind kind;
    uint64_t at_ns;
    uint64_t span_ns;
    uint32_t rank;
    uint32_t other;
    bool silent; /* of a kill: as a host that loses its power, whose connections say nothing */
} plan_fault;

/* The less befalls, the more can be asked of what ends, and when. */
typedef enum plan_kind {
    PLAN_GENTLE, /* nothing befalls anybody, and nobody is late */
    PLAN_LATE,   /* some call too late */
    PLAN_DEATHS, /* processes are killed, and nothing else */
    PLAN_ROUGH,
    PLAN_KIND_COUNT,
} plan_kind;

typedef struct plan {
    uint64_t seed;
    uint64_t op_mask; /* which of them are played */
    uint64_t fault_mask;
    plan_kind kind;
    uint32_t size;
    uint32_t window; /* collectives that a rank has under way at one time */
    const char *algorithms;
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

#endif
