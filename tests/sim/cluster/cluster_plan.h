/* Cluster plan: what a schedule of whole programs does, drawn from its seed before anything runs. */
#ifndef TUTTI_TESTS_SIM_CLUSTER_PLAN_H
#define TUTTI_TESTS_SIM_CLUSTER_PLAN_H

#include "sim/plan.h"

#define CLUSTER_VISITORS 2 /* programs without an agent, that use the store */
#define CLUSTER_GROUPS 3
#define CLUSTER_FAULTS 6
#define CLUSTER_PROGRAMS (1 + 2 * RANKS_MAX + CLUSTER_VISITORS + 1)

/* How a rank's program makes an op. */
typedef enum cluster_way {
    CLUSTER_DATA,    /* on arrays of its own */
    CLUSTER_TENSORS, /* on tensors that it puts, reads and deletes */
    CLUSTER_ASYNC,   /* likewise, and waits for it later */
    CLUSTER_WAY_COUNT,
} cluster_way;

typedef struct cluster_step {
    plan_op op;
    cluster_way way;
} cluster_step;

/* Of whom a fault is: the coordinator, an agent, the program of a rank, or a visitor. */
typedef struct cluster_fault {
    plan_fault_kind kind;
    uint64_t at_ns;
    uint64_t span_ns; /* of a kill: until it is started anew */
    uint32_t who;     /* of CLUSTER_PROGRAMS, as below */
    uint32_t other;
    bool silent;
} cluster_fault;

enum {
    CLUSTER_COORDINATOR = 0,
    CLUSTER_AGENT = 1,
    CLUSTER_PROGRAM = 1 + RANKS_MAX,
    CLUSTER_VISITOR = 1 + 2 * RANKS_MAX,
    CLUSTER_CONTROLLER = CLUSTER_VISITOR + CLUSTER_VISITORS,
};

typedef struct cluster_plan {
    uint64_t seed;
    uint64_t op_mask;
    uint64_t fault_mask;
    plan_kind kind;
    uint32_t size;
    plan_group groups[CLUSTER_GROUPS];
    uint32_t group_count;
    cluster_step steps[OPS_MAX];
    uint32_t step_count;
    cluster_fault faults[CLUSTER_FAULTS];
    uint32_t fault_count;
} cluster_plan;

void cluster_plan_draw(cluster_plan *self, uint64_t seed);

#endif
