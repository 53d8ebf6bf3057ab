/*
 * The group "world" of an elastic job: its ranks that are alive. With each change of members it
 * becomes another group: new ranks and a new id, under the same name; exchange rounds of the old
 * one fail. If fewer than `min_world` ranks are alive it stays as it was, and its ops fail with
 * the rank that is lost.
 */
#include "server/coordinator/group/world.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/member/elastic.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

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
coord_world_refresh(coord_job *job)
{
    coord_group *world = world_of(job);

    if (!coord_elastic_is(job) || job->alive_count < job->min_world) {
        return; /* too few: world keeps who is gone, and its ops say so */
    }
    /* Before the members change: exchange rounds have places by the old group ranks. */
    job->owner->hooks->group_deleted(world);
    if (!set_members(world, job)) {
        coord_note(job->owner, "job %s: no memory for a world of %" PRIu32 " ranks", job->name,
                   job->alive_count);
        return;
    }
    coord_group_forget_abort(world);
    world->id = ++job->group_ids;
}

void
coord_world_restore(coord_job *job, uint64_t world_id)
{
    coord_group *world = world_of(job);

    if (coord_elastic_is(job) && job->alive_count >= job->min_world && set_members(world, job)) {
        world->id = world_id;
    }
}
