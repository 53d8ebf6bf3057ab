/*
 * Groups whose ranks stand at different ops though nothing runs there: a rank has called ops that
 * another rank has not, so their next calls will not meet. `tutti stall` shows an op only while it
 * waits; this is what it leaves when it has ended.
 *
 * A group is told only if every member has answered, nothing is pending there, and nothing has ended
 * for a while: else a difference is that of ranks that move, and were asked at different moments.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/stall/progress_private.h"

#define QUIET_MS 1000 /* nothing has ended for that long, or for older_than_ms if it is less */

typedef struct survey {
    coord_job *job;
    const tutti_coordinator_stall_query *query;
    uint64_t now_ns;
    coord_group *group;
    uint64_t epoch;
} survey;

/* What the rank has told of the group in its newest epoch; NULL = it has called nothing there. */
static const coord_progress_report *
told_by(const survey *self, uint32_t rank)
{
    const coord_progress_report *told =
        coord_progress_report_find(self->job->seats[rank], self->group->id);

    return told == NULL || told->epoch != self->epoch ? NULL : told;
}

/* A rank that has told of as many groups as are kept may have told of this one before. */
static bool
has_answered(const survey *self, uint32_t rank)
{
    const coord_agent *agent = self->job->seats[rank];

    return agent != NULL && agent->state == TUTTI_COORDINATOR_ALIVE &&
           agent->answered >= self->query->number &&
           (agent->told.count < TUTTI_COORDINATOR_GROUPS_REPORTED_MAX ||
            coord_progress_report_find(agent, self->group->id) != NULL);
}

static bool
is_quiet(const survey *self, uint32_t rank)
{
    const uint64_t older_ms = self->query->older_than_ms;
    const coord_progress_report *told = told_by(self, rank);

    return told == NULL || (told->pending_count == 0 &&
                            coord_progress_report_ms(told, told->last_ms, self->now_ns) >=
                                (older_ms < QUIET_MS ? older_ms : QUIET_MS));
}

/* The group of a report, if this rank is the first member that has told of it; its newest epoch. */
static bool
choose_group(survey *self, const coord_progress_report *told, uint32_t rank)
{
    uint32_t i;

    if (coord_group_find(self->job, told->group, rank, &self->group, NULL) != TUTTI_OK ||
        self->group->id != told->id) {
        return false;
    }
    self->epoch = 0;
    for (i = 0; i < self->group->count; i++) {
        const uint32_t other = coord_group_rank(self->group, i);
        const coord_progress_report *theirs;

        if (!has_answered(self, other)) {
            return false;
        }
        theirs = coord_progress_report_find(self->job->seats[other], told->id);
        if (theirs != NULL && self->epoch == 0 && other != rank) {
            return false; /* it was looked at with that rank */
        }
        if (theirs != NULL && theirs->epoch > self->epoch) {
            self->epoch = theirs->epoch;
        }
    }
    return true;
}

static tutti_coordinator_counted_rank
count_rank(const survey *self, uint32_t rank)
{
    const coord_progress_report *told = told_by(self, rank);

    if (told == NULL) {
        return (tutti_coordinator_counted_rank){.rank = rank, .last_op = ""};
    }
    return (tutti_coordinator_counted_rank){
        .rank = rank,
        .sequence = told->came,
        .last_op = told->last_op,
        .last_ms = coord_progress_report_ms(told, told->last_ms, self->now_ns)};
}

/* False: the ranks stand at the same op, or move. */
static bool
fill_uneven(const survey *self, tutti_coordinator_uneven *ret)
{
    const coord_group *group = self->group;
    uint32_t i;

    *ret = (tutti_coordinator_uneven){
        .group = group->name, .group_id = group->id, .epoch = self->epoch};
    for (i = 0; i < group->count; i++) {
        const uint32_t rank = coord_group_rank(group, i);
        const tutti_coordinator_counted_rank one = count_rank(self, rank);

        if (!is_quiet(self, rank)) {
            return false;
        }
        ret->ahead = i == 0 || one.sequence > ret->ahead.sequence ? one : ret->ahead;
    }
    for (i = 0; i < group->count; i++) {
        const tutti_coordinator_counted_rank one = count_rank(self, coord_group_rank(group, i));

        if (one.sequence == ret->ahead.sequence) {
            continue;
        }
        if (ret->behind_count < TUTTI_COORDINATOR_OTHERS_MAX) {
            ret->behind[ret->behind_count] = one;
        }
        ret->behind_count++;
    }
    return ret->behind_count > 0;
}

static void
survey_agent(survey *self, const coord_agent *agent, tutti_coordinator_stalls *ret)
{
    const char *only = self->query->group;
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->told);
         node != NULL && ret->uneven_count < TUTTI_COORDINATOR_UNEVEN_MAX;
         node = tutti_map_next(node)) {
        const coord_progress_report *told = tutti_container_of(node, coord_progress_report, node);

        if ((only[0] == '\0' || strcmp(only, told->group) == 0) &&
            choose_group(self, told, agent->rank) &&
            fill_uneven(self, &ret->uneven[ret->uneven_count])) {
            ret->uneven_count++;
        }
    }
}

tutti_code
coord_uneven_find(coord_job *job, const tutti_coordinator_stall_query *query,
                  tutti_coordinator_stalls *stalls, tutti_error *err)
{
    survey self = {.job = job, .query = query, .now_ns = job->owner->now_ns};
    uint32_t rank;

    stalls->uneven = calloc(TUTTI_COORDINATOR_UNEVEN_MAX, sizeof(*stalls->uneven));
    if (stalls->uneven == NULL) {
        return coord_fail_memory(err, "an answer");
    }
    for (rank = 0; rank < job->world_size; rank++) {
        const coord_agent *agent = job->seats[rank];

        if (agent != NULL && agent->state == TUTTI_COORDINATOR_ALIVE) {
            survey_agent(&self, agent, stalls);
        }
    }
    return TUTTI_OK;
}
