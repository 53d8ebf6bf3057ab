/* Job plan: what a schedule of whole programs does, drawn from its seed before anything runs. */
#ifndef TUTTI_TESTS_SIM_JOB_PLAN_H
#define TUTTI_TESTS_SIM_JOB_PLAN_H

#include "plan.h"

#define JOB_VISITORS 2 /* programs without an agent, that use the store */
#define JOB_PROGRAMS (1 + 2 * RANKS_MAX + JOB_VISITORS)

/* How a rank's program makes an op. */
typedef enum job_way {
    JOB_DATA,    /* on arrays of its own */
    JOB_TENSORS, /* on tensors that it puts, reads and deletes */
    JOB_ASYNC,   /* likewise, and waits for it later */
    JOB_WAY_COUNT,
} job_way;

typedef struct job_step {
    plan_op op;
    job_way way;
} job_step;

/* Of whom a fault is: the coordinator, an agent, the program of a rank, or a visitor. */
typedef struct job_fault {
    plan_fault_kind kind;
    uint64_t at_ns;
    uint64_t span_ns; /* of a kill: until it is started anew */
    uint32_t who;     /* of JOB_PROGRAMS, as job_who */
    uint32_t other;
    bool silent;
} job_fault;

enum {
    JOB_COORDINATOR = 0,
    JOB_AGENT = 1,
    JOB_PROGRAM = 1 + RANKS_MAX,
    JOB_VISITOR = 1 + 2 * RANKS_MAX
};

typedef struct job_plan {
    uint64_t seed;
    uint64_t op_mask;
    uint64_t fault_mask;
    plan_kind kind;
    uint32_t size;
    plan_group groups[GROUPS_MAX];
    uint32_t group_count;
    job_step steps[OPS_MAX];
    uint32_t step_count;
    job_fault faults[FAULTS_MAX];
    uint32_t fault_count;
} job_plan;

void job_plan_draw(job_plan *self, uint64_t seed);

#endif
