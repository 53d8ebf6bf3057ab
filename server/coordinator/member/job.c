/*
 * Finding jobs and their members, and the keys of epochs. coord_member_check is the gate of every
 * call that speaks for a rank: the seat's agent must have the caller's incarnation and be alive,
 * so a process that was declared lost cannot act any more, even if it still runs.
 */
#include "server/coordinator/member/job.h"

#include <inttypes.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/members.h"

coord_job *
coord_job_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, coord_job, node);
}

tutti_code
coord_job_find(tutti_coordinator *self, const char *job, coord_job **ret_job, tutti_error *err)
{
    const char *name;
    coord_job *found;

    TUTTI_TRY(coord_check_job(job, &name, err));
    found = coord_job_from(tutti_map_find(&self->jobs, tutti_bytes_of(name)));
    if (found == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_JOB", "there is no job %s", name);
    }
    *ret_job = found;
    return TUTTI_OK;
}

void
coord_job_draw_key(coord_job *job)
{
    size_t i;

    /* From the system's random numbers (tutti_id_draw), 64 bits at a time. */
    for (i = 0; i < sizeof(job->epoch_key); i += sizeof(uint64_t)) {
        const uint64_t part = tutti_id_draw();

        memcpy(job->epoch_key + i, &part, sizeof(part));
    }
}

void
coord_job_next_epoch(coord_job *job)
{
    job->epoch++;
    coord_job_draw_key(job);
}

tutti_coordinator_epoch_key
coord_job_key(const coord_job *job)
{
    tutti_coordinator_epoch_key key = {.epoch = job->epoch};

    memcpy(key.bytes, job->epoch_key, sizeof(key.bytes));
    return key;
}

static tutti_code
check_job_seat(const coord_job *job, const tutti_coordinator_member *member,
               coord_agent **ret_agent, tutti_error *err)
{
    coord_agent *agent = member->rank < job->world_size ? job->seats[member->rank] : NULL;

    if (agent == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_RANK",
                              "rank %" PRIu32 " has not joined job %s", member->rank, job->name);
    }
    if (agent->incarnation != member->incarnation) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STALE_INCARNATION",
                              "rank %" PRIu32
                              " of job %s belongs to another process now: host %s, pid %" PRIu32,
                              member->rank, job->name, agent->info.host, agent->info.pid);
    }
    if (agent->state == TUTTI_COORDINATOR_WAITING) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_RANK",
                              "rank %" PRIu32 " still waits until job %s is complete", member->rank,
                              job->name);
    }
    if (agent->state == TUTTI_COORDINATOR_LOST) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_RANK",
                              "rank %" PRIu32 " of job %s was lost: %s; join again with a new "
                              "incarnation",
                              member->rank, job->name, agent->reason);
    }
    *ret_agent = agent;
    return TUTTI_OK;
}

tutti_code
coord_member_check(tutti_coordinator *self, const tutti_coordinator_member *member,
                   coord_agent **ret_agent, tutti_error *err)
{
    coord_job *job = NULL;
    tutti_code code;

    if (member->incarnation == 0) { /* first, so that the answer says nothing of the job */
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_MEMBER",
                              "the request does not say who calls: set `member`, with the "
                              "incarnation with which its agent joined");
    }
    code = coord_job_find(self, member->job, &job, err);
    if (code == TUTTI_OK) {
        code = check_job_seat(job, member, ret_agent, err);
        if (code != TUTTI_OK && member->rank < job->world_size) {
            tutti_error_set_op(err, NULL, 0, (int32_t)member->rank);
        }
    }
    return code;
}
