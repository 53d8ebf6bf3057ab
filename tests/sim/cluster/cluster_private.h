/* The inside of cluster.h: the state of a schedule, and what its parts ask of each other. */
#ifndef TUTTI_TESTS_SIM_CLUSTER_PRIVATE_H
#define TUTTI_TESTS_SIM_CLUSTER_PRIVATE_H

#include "sim/cluster/cluster_plan.h"
#include "sim/cluster/program.h"
#include "sim/kernel.h"
#include "sim/play.h"
#include "tutti/tutti.h"

/* A program that uses libtutti: of a rank, or a visitor. It is started anew when it was killed. */
typedef struct cluster_user {
    uint32_t who; /* as in cluster_plan.h */
    int process;
    bool killed;
    bool through;
    uint32_t next; /* step; a new one goes on behind the one in which the last was killed */
    sim_task *task;
    uint64_t stopped_ns; /* in all, and since when */
    uint64_t stopped_since_ns;
    bool stopped;
} cluster_user;

#define CLUSTER_LIVES_MAX 40

typedef struct cluster_state {
    cluster_plan plan;
    program *programs[1 + RANKS_MAX]; /* that live now: the coordinator, agents */
    program *past[CLUSTER_LIVES_MAX]; /* killed, or ended */
    uint32_t past_count;
    cluster_user *users[CLUSTER_PROGRAMS]; /* of ranks and visitors, that live now */
    cluster_user *ghosts[CLUSTER_LIVES_MAX];
    uint32_t ghost_count;
    bool store_is_new; /* a coordinator was killed, and what it held is gone */
    bool calm;         /* nothing befalls anybody any more */
    play_counts counts;
} cluster_state;

extern cluster_state cluster;

/* Bodies of the tasks. [in] arg  the cluster_user */
void *cluster_run_rank(void *arg);
void *cluster_run_visitor(void *arg);
void *cluster_run_controller(void *arg);

uint32_t cluster_member(const plan_group *group, uint32_t rank); /* its group rank; size = none */

/* The last ops, from fresh clients: every group that should live lives, and nothing is left. A task of the driver. */
void cluster_judge_end(void);
void cluster_judge_store(void);
void cluster_store_open(void);

#endif
