/* Jobs that begin and go on without all of their ranks. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/id.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/metadata/exchange_round.h"

static bool
is_elastic(const coord_job *job)
{
    return job->min_world < job->world_size;
}

tutti_code
coord_elastic_check(coord_job *job, uint32_t min_world, tutti_error *err)
{
    const uint32_t wanted = min_world == 0 ? job->world_size : min_world;

    if (wanted > job->world_size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "a job of %" PRIu32 " ranks cannot need %" PRIu32, job->world_size,
                              wanted);
    }
    if (job->epoch == 0 && job->present == 0) {
        job->min_world = wanted;
    }
    if (job->min_world != wanted) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "job %s was begun to need %" PRIu32 " of %" PRIu32
                              " ranks, not %" PRIu32,
                              job->name, job->min_world, job->world_size, wanted);
    }
    return TUTTI_OK;
}

bool
coord_elastic_ripe(const coord_job *job)
{
    const tutti_coordinator *self = job->owner;

    return job->epoch == 0 && is_elastic(job) && job->attached >= job->min_world &&
           job->attached == job->present &&
           self->now_ns >= tutti_clock_add(job->grown_ns, self->options.elastic_wait_ns);
}

/* ------------------------------------------------------------------------------ free seats */

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

/* ------------------------------------------------------------------------------ world */

static coord_group *
world_of(coord_job *job)
{
    return coord_group_from(tutti_map_find(&job->groups, tutti_bytes_of("world")));
}

/* NULL = no memory. */
static uint32_t *
list_alive(const coord_job *job)
{
    uint32_t *ranks = malloc((job->alive_count + 1) * sizeof(*ranks));
    uint32_t count = 0;
    uint32_t rank;

    for (rank = 0; ranks != NULL && rank < job->world_size; rank++) {
        if (job->seats[rank] != NULL && job->seats[rank]->state == TUTTI_COORDINATOR_ALIVE) {
            ranks[count++] = rank;
        }
    }
    assert(ranks == NULL || count == job->alive_count);
    return ranks;
}

static bool
set_members(coord_group *world, const coord_job *job)
{
    uint32_t *old_ranks = world->ranks;
    uint32_t *old_order = world->order;
    const uint32_t old_count = world->count;
    uint32_t *ranks = list_alive(job);
    bool done;

    world->count = job->alive_count;
    done = ranks != NULL && coord_group_fill(world, ranks, NULL) == TUTTI_OK;
    if (done) {
        free(old_ranks);
        free(old_order);
    } else {
        if (ranks != NULL) { /* what was half made */
            free(world->ranks);
            free(world->order);
        }
        world->ranks = old_ranks;
        world->order = old_order;
        world->count = old_count;
    }
    free(ranks);
    return done;
}

void
coord_elastic_refresh(coord_job *job)
{
    coord_group *world = world_of(job);

    if (!is_elastic(job) || job->alive_count < job->min_world) {
        return; /* too few: world keeps who is gone, and its ops say so */
    }
    coord_meetings_delete(world);
    if (!set_members(world, job)) {
        coord_note(job->owner, "job %s: no memory for a world of %" PRIu32 " ranks", job->name,
                   job->alive_count);
        return;
    }
    world->id = ++job->group_ids;
}

void
coord_elastic_restore(coord_job *job, uint64_t world_id)
{
    coord_group *world = world_of(job);

    if (is_elastic(job) && job->alive_count >= job->min_world && set_members(world, job)) {
        world->id = world_id;
    }
}
