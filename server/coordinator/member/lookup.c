/*
 * Looking up jobs and ranks, for the calls of clients. Reads only; what is lent is good until the
 * next call that changes something.
 */
#include <inttypes.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

static void
describe_rank(const coord_job *job, uint32_t rank, tutti_coordinator_rank *ret_rank)
{
    const coord_agent *agent = job->seats[rank];

    *ret_rank =
        (tutti_coordinator_rank){.rank = rank, .state = TUTTI_COORDINATOR_FREE, .reason = ""};
    if (agent != NULL) {
        ret_rank->state = agent->state;
        ret_rank->incarnation = agent->incarnation;
        ret_rank->joined_epoch = agent->joined_epoch;
        ret_rank->reason = agent->reason;
        ret_rank->since_ms = agent->since_ms;
        ret_rank->ops = agent->ops;
        ret_rank->bytes = agent->bytes;
        ret_rank->counted_ms =
            agent->counted ? 1 + (job->owner->now_ns - agent->counted_ns) / 1000000 : 0;
        ret_rank->agent = &agent->info;
    }
}

static tutti_code
check_ranks(const coord_job *job, const uint32_t *ranks, size_t count, tutti_error *err)
{
    size_t i;

    if (count > TUTTI_COORDINATOR_LOOKUP_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LOOKUP_LIMIT",
                              "%zu ranks in one call, at most %d", count,
                              TUTTI_COORDINATOR_LOOKUP_MAX);
    }
    for (i = 0; i < count; i++) {
        if (ranks[i] >= job->world_size) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                                  "rank %" PRIu32 " in a world of %" PRIu32
                                  ", need a rank below the world size",
                                  ranks[i], job->world_size);
        }
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_lookup(tutti_coordinator *self, const char *job, const uint32_t *ranks,
                         size_t count, tutti_coordinator_rank *ret_ranks, size_t *ret_count,
                         tutti_error *err)
{
    coord_job *found = NULL;
    tutti_code code = coord_job_find(self, job, &found, err);
    const bool all = count == 0;
    size_t i;

    if (code == TUTTI_OK) {
        code = check_ranks(found, ranks, count, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (all) {
        count = found->world_size < TUTTI_COORDINATOR_LOOKUP_MAX ? found->world_size
                                                                 : TUTTI_COORDINATOR_LOOKUP_MAX;
    }
    for (i = 0; i < count; i++) {
        describe_rank(found, all ? (uint32_t)i : ranks[i], &ret_ranks[i]);
    }
    *ret_count = count;
    return TUTTI_OK;
}

static void
describe_job(const coord_job *job, tutti_coordinator_job *ret_job)
{
    *ret_job = (tutti_coordinator_job){
        .name = job->name,
        .id = job->id,
        .world_size = job->world_size,
        .epoch = job->epoch,
        .alive_count = job->alive_count,
        .lost_count = job->lost_count,
        .group_count = job->epoch == 0 ? 0 : (uint32_t)job->groups.count,
        .since_ms = job->since_ms,
        .ops = job->ops_total,
        .bytes = job->bytes_total,
    };
}

tutti_code
tutti_coordinator_job_get(tutti_coordinator *self, const char *name, tutti_coordinator_job *ret_job,
                          tutti_error *err)
{
    coord_job *job = NULL;

    TUTTI_TRY(coord_job_find(self, name, &job, err));

    describe_job(job, ret_job);
    return TUTTI_OK;
}

bool
tutti_coordinator_job_next(tutti_coordinator *self, const char *after,
                           tutti_coordinator_job *ret_job)
{
    const tutti_bytes name = tutti_bytes_of(after);
    tutti_map_node *node = tutti_map_from(&self->jobs, name);

    if (node != NULL && tutti_bytes_equal(node->key, name)) {
        node = tutti_map_next(node);
    }
    if (node == NULL) {
        return false;
    }
    describe_job(tutti_container_of(node, coord_job, node), ret_job);
    return true;
}
