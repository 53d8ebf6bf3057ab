#include "client/cli/cluster.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "client/cli/process.h"

bool
cluster_process_is_alive(const state_process *process)
{
    return process->pid > 0 && process_started(process->pid) == process->started;
}

bool
cluster_is_alive(const state *cluster)
{
    bool alive = cluster_process_is_alive(&cluster->coordinator);
    uint32_t i;

    for (i = 0; i < cluster->rank_count; i++) {
        alive = alive || cluster_process_is_alive(&cluster->ranks[i]);
    }
    return alive;
}

/* The agents first, so that they can say goodbye to the coordinator. */
tutti_code
cluster_stop(state *cluster, uint32_t timeout_ms, tutti_error *err)
{
    const uint32_t count = cluster->rank_count;
    process_ref *refs = calloc(count + 1, sizeof(*refs));
    uint32_t i;

    if (refs == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to stop %" PRIu32 " agents",
                        count);
    }
    for (i = 0; i <= count; i++) {
        const state_process *process = i < count ? &cluster->ranks[i] : &cluster->coordinator;

        refs[i] = (process_ref){.pid = process->pid, .started = process->started};
        process_hold(&refs[i]);
    }
    for (i = 0; i < count; i++) {
        process_signal(&refs[i], SIGTERM);
    }
    (void)process_wait_all(refs, count, timeout_ms);
    process_signal(&refs[count], SIGTERM);
    (void)process_wait_all(refs, count + 1, timeout_ms / 2);
    for (i = 0; i <= count; i++) {
        process_signal(&refs[i], SIGKILL);
    }
    if (!process_wait_all(refs, count + 1, 5000)) {
        free(refs);
        return cli_fail(err, TUTTI_DEADLINE_EXCEEDED, "a process of cluster %s could not be ended",
                        cluster->name);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) { /* those that we started ourselves */
    }
    free(refs);
    state_remove(cluster);
    return TUTTI_OK;
}
