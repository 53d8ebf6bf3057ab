/*
 * Elastic jobs: their world begins and goes on without all of its ranks. The difference is small
 * on purpose: such a job is formed when at least `min_world` agents wait and nobody has come for
 * --elastic-wait; its free seats are then filled with agents that count as lost, so the rest of
 * the code sees a formed job with some lost ranks.
 */
#include "server/coordinator/member/elastic.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/agent.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

bool
coord_elastic_is(const coord_job *job)
{
    return job->min_world < job->world_size;
}

tutti_code
coord_elastic_check(coord_job *job, uint32_t min_world, tutti_error *err)
{
    const uint32_t wanted = min_world == 0 ? job->world_size : min_world;

    if (wanted > job->world_size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "a job of %" PRIu32 " ranks needs at least %" PRIu32
                              " of them to begin (--min-world), need at most the world size",
                              job->world_size, wanted);
    }
    /* Nobody has joined yet: the first one decides. */
    if (job->epoch == 0 && job->present == 0) {
        job->min_world = wanted;
    }
    if (job->min_world != wanted) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "job %s was begun with --min-world %" PRIu32 " of %" PRIu32
                              " ranks, not %" PRIu32 ": let all agents give the same",
                              job->name, job->min_world, job->world_size, wanted);
    }
    return TUTTI_OK;
}

bool
coord_elastic_ripe(const coord_job *job)
{
    const tutti_coordinator *self = job->owner;

    return job->epoch == 0 && coord_elastic_is(job) && job->attached >= job->min_world &&
           job->attached == job->present &&
           self->now_ns >= tutti_clock_add(job->grown_ns, self->options.elastic_wait_ns);
}

/* ------------------------------------------------------------------------------ free seats */

/*
 * A random incarnation, since the map of agents is by incarnation. joined_epoch stays 0, by which
 * watches see that nobody was ever there.
 */
static bool
fill_seat(coord_job *job, uint32_t rank)
{
    const tutti_coordinator_agent nobody = {0};
    coord_agent *agent = NULL;

    if (coord_agent_new(job, tutti_id_draw(), &nobody, &agent, NULL) != TUTTI_OK) {
        return false;
    }
    agent->state = TUTTI_COORDINATOR_LOST;
    agent->seated = true;
    agent->rank = rank;
    agent->changed_epoch = 1;
    (void)snprintf(agent->reason, sizeof(agent->reason), "it has not joined yet");
    job->seats[rank] = agent;
    job->lost_count++;
    return true;
}

/* Those without a rank get the first seats that are left. */
bool
coord_elastic_fill(coord_job *job)
{
    uint32_t waiting = job->unassigned_count;
    uint32_t rank;

    for (rank = 0; rank < job->world_size; rank++) {
        if (job->seats[rank] != NULL) {
            continue;
        }
        if (waiting > 0) {
            waiting--;
        } else if (!fill_seat(job, rank)) {
            return false; /* the next time goes on from here */
        }
    }
    return true;
}
