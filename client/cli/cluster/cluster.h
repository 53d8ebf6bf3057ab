/* A local cluster: a coordinator and agents on this machine, that live on without us. */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_CLUSTER_H
#define TUTTI_CLIENT_CLI_CLUSTER_CLUSTER_H

#include "client/cli/cli.h"
#include "client/cli/util/state.h"

/*
 * Agents that join a job whose other ranks are started elsewhere. They serve on their socket and on
 * an address that other hosts reach, with the options that the environment has for them (TUTTI_*),
 * and end when this process does.
 */
typedef struct cluster_place {
    const char *coordinator; /* "HOST:PORT", where they join */
    bool serve;              /* nobody serves there: start a coordinator, which ends with us too */
    bool insecure;           /* --insecure of all servers */
    const char *listen;      /* of the agents, besides their socket */
    const char *job;
    uint32_t rank_start; /* the rank of the first agent */
    uint32_t world_size;
    /* When the coordinator serves: wait for the others, and set rank_start and world_size. */
    tutti_code (*meet)(void *arg, tutti_error *err);
    bool (*is_over)(void *arg); /* has it become needless to wait for the agents? */
    void (*fail)(void *arg, const tutti_error *why); /* before all of it is ended again */
    void *arg;
} cluster_place;

typedef struct cluster_plan {
    const char *name;
    uint32_t rank_count;
    const char *memory_limit;   /* of each agent, as it takes it; NULL = its default */
    char *const *devices;       /* of each agent, as its --device; NULL = its default */
    const cluster_place *place; /* NULL = the cluster is private, and all of it is here */
    bool bound;        /* its processes end when this one does; those of a place always do */
    bool tcp;          /* serve on ports of loopback too: to every user of this machine */
    uint16_t port;     /* of the coordinator, with tcp; 0 = any */
    char *const *more; /* further words for every agent */
    int more_count;
    uint32_t timeout_ms; /* until all serve */
} cluster_plan;

/*
 * Start all, and wait until all serve. On failure nothing is left running, and the last lines of
 * the log of the one that failed were printed.
 *
 * [out, owned] ret_state  state_fini it; its lock is given back
 *
 * TUTTI_FAILED_PRECONDITION  a cluster of that name runs already
 * TUTTI_CANCELLED            somebody pressed Ctrl-C
 */
tutti_code cluster_start(const cli *self, const cluster_plan *plan, state *ret_state,
                         tutti_error *err);

/*
 * Start the agents of these ranks again, as they were started; what lives of them is ended first,
 * politely. Waits until all of them serve.
 *
 * TUTTI_FAILED_PRECONDITION  its coordinator is gone
 * TUTTI_CANCELLED            somebody pressed Ctrl-C
 */
tutti_code cluster_restart(const cli *self, state *cluster, const uint32_t *ranks, size_t count,
                           uint32_t timeout_ms, tutti_error *err);

/* End all of it, politely at first, and forget it. `timeout_ms` for the polite part. */
tutti_code cluster_stop(state *cluster, uint32_t timeout_ms, tutti_error *err);

/* Its agents alone. cluster_stop after that ends the rest. */
tutti_code cluster_end_agents(state *cluster, uint32_t timeout_ms, tutti_error *err);

/* End some of its processes: politely, and after `timeout_ms` not. */
tutti_code cluster_end(const state *cluster, state_process *const *processes, size_t count,
                       uint32_t timeout_ms, tutti_error *err);

/* Does any of its processes live? */
bool cluster_is_alive(const state *cluster);
bool cluster_process_is_alive(const state_process *process);

#endif
