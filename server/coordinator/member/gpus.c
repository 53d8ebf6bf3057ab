/*
 * Which agent of a job has which GPU: two agents on one GPU are a mistake far more often than a
 * wish. The GPUs of all agents are in one map by UUID, NUL and incarnation, so a newcomer's check
 * costs one look-up for each of its GPUs, also in large jobs. Lost agents do not count, nor does the
 * agent whose seat the newcomer takes: a process that is started again has the same GPU.
 */
#include "server/coordinator/member/gpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

/* A GPU of an agent in its job's map: by UUID, NUL, and the agent's incarnation. */
typedef struct coord_gpu {
    tutti_map_node node;
    coord_agent *agent;
} coord_gpu;

struct coord_gpus {
    size_t count;
    coord_gpu list[];
};

/* The next UUID of a list by spaces; its size, 0 = none. Advances *at behind it. */
static size_t
next_uuid(const char **at, const char **ret_uuid)
{
    size_t size;

    *at += strspn(*at, " ");
    size = strcspn(*at, " ");
    *ret_uuid = *at;
    *at += size;
    return size;
}

static size_t
count_uuids(const char *gpus)
{
    const char *at = gpus;
    const char *uuid;
    size_t count = 0;

    while (next_uuid(&at, &uuid) > 0) {
        count++;
    }
    return count;
}

tutti_code
coord_gpus_keep(coord_agent *agent, tutti_error *err)
{
    const char *at = agent->info.gpus;
    const size_t count = count_uuids(at);
    const size_t suffix = 1 + sizeof(agent->key);
    coord_gpus *gpus;
    const char *uuid;
    size_t size;
    char *key;

    if (count == 0) {
        return TUTTI_OK;
    }
    gpus = calloc(1, sizeof(*gpus) + count * (sizeof(gpus->list[0]) + suffix) + strlen(at));
    if (gpus == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for an agent's GPUs");
    }
    key = (char *)&gpus->list[count];
    while ((size = next_uuid(&at, &uuid)) > 0) {
        coord_gpu *gpu = &gpus->list[gpus->count];

        memcpy(key, uuid, size);
        memcpy(key + size + 1, agent->key, sizeof(agent->key));
        gpu->agent = agent;
        gpu->node.key = (tutti_bytes){key, size + suffix};
        if (tutti_map_add(&agent->job->gpus, &gpu->node) == NULL) { /* else it is named twice */
            gpus->count++;
        }
        key += size + suffix;
    }
    agent->gpus = gpus;
    return TUTTI_OK;
}

void
coord_gpus_forget(coord_agent *agent)
{
    size_t i;

    for (i = 0; agent->gpus != NULL && i < agent->gpus->count; i++) {
        tutti_map_remove(&agent->job->gpus, &agent->gpus->list[i].node);
    }
    free(agent->gpus);
    agent->gpus = NULL;
}

/* An agent that has this GPU, is not lost and is not `replaced`; or NULL. */
static const coord_agent *
find_holder(const coord_job *job, const char *uuid, size_t size, const coord_agent *replaced)
{
    char key[TUTTI_COORDINATOR_GPUS_MAX + 1];
    tutti_map_node *node;

    memcpy(key, uuid, size);
    key[size] = '\0';
    node = tutti_map_from(&job->gpus, (tutti_bytes){key, size + 1});
    while (node != NULL && node->key.size > size && memcmp(node->key.data, key, size + 1) == 0) {
        const coord_agent *agent = tutti_container_of(node, coord_gpu, node)->agent;

        if (agent->state != TUTTI_COORDINATOR_LOST && agent != replaced) {
            return agent;
        }
        node = tutti_map_next(node);
    }
    return NULL;
}

tutti_code
coord_check_gpus(const coord_job *job, const tutti_coordinator_join_request *request,
                 const coord_agent *replaced, tutti_error *err)
{
    const char *at = request->agent.gpus;
    const char *uuid;
    size_t size;

    if (at == NULL || request->agent.allow_shared_gpu) {
        return TUTTI_OK;
    }
    while ((size = next_uuid(&at, &uuid)) > 0) {
        const coord_agent *other = find_holder(job, uuid, size, replaced);

        if (other != NULL) {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "SHARED_GPU",
                                  "%.*s has an agent already: the one of pid %" PRIu32
                                  " on host %s%s. Give each agent a GPU of its own by --device or "
                                  "CUDA_VISIBLE_DEVICES, or say --allow-shared-gpu",
                                  (int)(size < 64 ? size : 64), uuid, other->info.pid,
                                  other->info.host,
                                  other->seated ? "" : ", which waits for a rank");
        }
    }
    return TUTTI_OK;
}
