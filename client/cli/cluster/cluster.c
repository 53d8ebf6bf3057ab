/*
 * A cluster's processes while they run, and how they end. A process is known by its pid and the
 * time when it was started: a pid alone may belong to another process by now, and that one must
 * not be killed.
 */
#include "client/cli/cluster/cluster.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "client/cli/util/output.h"
#include "client/cli/util/process.h"
#include "client/cli/util/state.h"

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

/*
 * Asks all to end, waits, then kills the rest and waits for the kernel. Each process is held by a
 * descriptor first, so that no signal can hit another process of the same number.
 */
tutti_code
cluster_end(const state *cluster, state_process *const *processes, size_t count,
            uint32_t timeout_ms, tutti_error *err)
{
    process_ref *refs = calloc(count + 1, sizeof(*refs));
    bool ended;
    size_t i;

    if (refs == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to end %zu processes", count);
    }
    for (i = 0; i < count; i++) {
        refs[i] = (process_ref){.pid = processes[i]->pid, .started = processes[i]->started};
        process_hold(&refs[i]);
        process_signal(&refs[i], SIGTERM);
    }
    (void)process_wait_all(refs, count, timeout_ms);
    for (i = 0; i < count; i++) {
        process_signal(&refs[i], SIGKILL);
    }
    ended = process_wait_all(refs, count, 5000);
    free(refs);
    while (waitpid(-1, NULL, WNOHANG) > 0) { /* those that we started ourselves */
    }
    return ended ? TUTTI_OK
                 : cli_fail(err, TUTTI_DEADLINE_EXCEEDED,
                            "a process of cluster %s could not be ended", cluster->name);
}

tutti_code
cluster_end_agents(state *cluster, uint32_t timeout_ms, tutti_error *err)
{
    const uint32_t count = cluster->rank_count;
    state_process **agents = calloc((size_t)count + 1, sizeof(state_process *));
    tutti_code code;
    uint32_t i;

    if (agents == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to stop %" PRIu32 " agents",
                        count);
    }
    for (i = 0; i < count; i++) {
        agents[i] = &cluster->ranks[i];
    }
    code = cluster_end(cluster, agents, count, timeout_ms, err);
    free(agents);
    return code;
}

/*
 * The agents go first, so that they can say goodbye to the coordinator. The state is removed only
 * when all are gone: until then it must be possible to stop them.
 */
tutti_code
cluster_stop(state *cluster, uint32_t timeout_ms, tutti_error *err)
{
    state_process *coordinator = &cluster->coordinator;
    tutti_code code = cluster_end_agents(cluster, timeout_ms, err);

    if (code == TUTTI_OK) {
        code = cluster_end(cluster, &coordinator, 1, timeout_ms / 2, err);
    }
    if (code == TUTTI_OK) {
        state_remove(cluster);
    }
    return code;
}
