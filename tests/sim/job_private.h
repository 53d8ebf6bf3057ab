/* The inside of job.h: the state of a schedule, and what its parts ask of each other. */
#ifndef TUTTI_TESTS_SIM_JOB_PRIVATE_H
#define TUTTI_TESTS_SIM_JOB_PRIVATE_H

#include "job_plan.h"
#include "kernel.h"
#include "play.h"
#include "program.h"
#include "tutti/tutti.h"

/* A program that uses libtutti: of a rank, or a visitor. It is started anew when it was killed. */
typedef struct job_user {
    uint32_t who; /* as in job_plan.h */
    int process;
    bool killed;
    bool through;
    uint32_t next; /* step; a new one goes on behind the one in which the last was killed */
    sim_task *task;
    uint64_t stopped_ns; /* in all, and since when */
    uint64_t stopped_since_ns;
    bool stopped;
} job_user;

#define JOB_LIVES_MAX 40

typedef struct job_state {
    job_plan plan;
    program *programs[1 + RANKS_MAX]; /* that live now: the coordinator, agents */
    program *past[JOB_LIVES_MAX];     /* killed, or ended */
    uint32_t past_count;
    job_user *users[JOB_PROGRAMS]; /* of ranks and visitors, that live now */
    job_user *ghosts[JOB_LIVES_MAX];
    uint32_t ghost_count;
    bool store_is_new; /* a coordinator was killed, and what it held is gone */
    uint32_t successes[OPS_MAX];
    bool calm; /* nothing befalls anybody any more */
    play_counts counts;
} job_state;

extern job_state job;

/* Bodies of the tasks. [in] arg  the job_user */
void *job_run_rank(void *arg);
void *job_run_visitor(void *arg);

uint32_t job_member(const plan_group *group, uint32_t rank); /* its group rank; size = none */

/* The last ops, from fresh clients: every group that should live lives, and nothing is left. A task of the driver. */
void job_judge_end(void);
void job_judge_store(void);
void job_store_open(void);

#endif
