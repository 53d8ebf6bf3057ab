/* A local cluster: a coordinator and agents on this machine, that live on without us. */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_CLUSTER_H
#define TUTTI_CLIENT_CLI_CLUSTER_CLUSTER_H

#include "client/cli/cli.h"
#include "client/cli/util/state.h"

typedef struct cluster_plan {
    const char *name;
    uint32_t rank_count;
    const char *memory_limit; /* of each agent, as it takes it; NULL = its default */
    bool tcp;                 /* serve on ports of loopback too: to every user of this machine */
    uint16_t port;            /* of the coordinator, with tcp; 0 = any */
    char *const *more;        /* further words for every agent */
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

/* End some of its processes: politely, and after `timeout_ms` not. */
tutti_code cluster_end(const state *cluster, state_process *const *processes, size_t count,
                       uint32_t timeout_ms, tutti_error *err);

/* Does any of its processes live? */
bool cluster_is_alive(const state *cluster);
bool cluster_process_is_alive(const state_process *process);

#endif
