/* Who has which GPU: two agents on one are a mistake far more often than a wish. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "server/coordinator/job.h"

/* Is this UUID of `size` bytes in the list? */
static bool
has(const char *gpus, const char *uuid, size_t size)
{
    const char *at = gpus;

    while (*at != '\0') {
        const size_t length = strcspn(at, " ");

        if (length == size && memcmp(at, uuid, size) == 0) {
            return true;
        }
        at += length;
        at += strspn(at, " ");
    }
    return false;
}

/* The first UUID that both have; its size, 0 = none. */
static size_t
find_common(const char *left, const char *right, const char **ret_uuid)
{
    const char *at = left + strspn(left, " ");

    while (*at != '\0') {
        const size_t size = strcspn(at, " ");

        if (has(right, at, size)) {
            *ret_uuid = at;
            return size;
        }
        at += size;
        at += strspn(at, " ");
    }
    return 0;
}

tutti_code
coord_check_gpus(const coord_job *job, const tutti_coordinator_join_request *request,
                 tutti_error *err)
{
    const char *mine = request->agent.gpus;
    const char *uuid = NULL;
    tutti_map_node *node;
    size_t size;

    if (mine == NULL || request->agent.allow_shared_gpu) {
        return TUTTI_OK;
    }
    for (node = tutti_map_first(&job->agents); node != NULL; node = tutti_map_next(node)) {
        const coord_agent *other = tutti_container_of(node, coord_agent, node);

        size =
            other->state == TUTTI_COORDINATOR_LOST ? 0 : find_common(mine, other->info.gpus, &uuid);
        if (size > 0) {
            return TUTTI_FAIL_FOR(
                err, TUTTI_FAILED_PRECONDITION, "SHARED_GPU",
                "%.*s is there already: the agent of pid %" PRIu32 " on host %s has it%s. One "
                "agent has one GPU: let --device or CUDA_VISIBLE_DEVICES differ, or say "
                "--allow-shared-gpu",
                (int)(size < 64 ? size : 64), uuid, other->info.pid, other->info.host,
                other->seated ? "" : ", and waits for a rank");
        }
    }
    return TUTTI_OK;
}
