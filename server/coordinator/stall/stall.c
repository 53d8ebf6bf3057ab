/*
 * Which op waits for which rank: the reports of all agents of a job side by side.
 *
 * Agents count ops of a group alike (sequence numbers), so the oldest op that any member is in is
 * the one that the group is at; every member whose `entered` is below its number is missing. What
 * a missing rank does instead follows from its own report: it is in an older op or has just ended
 * one (slow), has called the op and waits for its tensors (queued), has not called it (absent),
 * did not answer the question (silent), or is lost (gone).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/stall/progress.h"
#include "server/coordinator/stall/progress_private.h"

#define SLOW_MS 1000 /* who ended an op less than that ago moves */

/* An op that somebody is in. */
typedef struct found {
    const coord_progress_report *told; /* of that rank */
    const coord_pending *pending;
    uint32_t rank;
    uint64_t waited_ms;
} found;

typedef struct search {
    coord_job *job;
    const tutti_coordinator_stall_query *query;
    uint64_t now_ns;
    size_t count;
    found founds[TUTTI_COORDINATOR_STALLS_MAX];
} search;

/* ------------------------------------------------------------------------------ finding */

/*
 * Two ranks are in ops of one group: the newer epoch counts, in it the older op, and of one op
 * the longer wait. Sends and receives (sequence 0) are not merged.
 */
static void
merge_reports(found *one, const found *other)
{
    const uint64_t waited_ms =
        one->waited_ms > other->waited_ms ? one->waited_ms : other->waited_ms;

    if (other->told->epoch != one->told->epoch) {
        *one = other->told->epoch > one->told->epoch ? *other : *one;
    } else if (other->pending->sequence != one->pending->sequence) {
        *one = other->pending->sequence < one->pending->sequence ? *other : *one;
    } else {
        *one = one->pending->queued ? *other : *one; /* words of who is in it */
        one->waited_ms = waited_ms;
    }
}

static void
add_found(search *self, const found *one)
{
    size_t i;

    for (i = 0; i < self->count && one->pending->sequence != 0; i++) {
        if (self->founds[i].told->id == one->told->id && self->founds[i].pending->sequence != 0) {
            merge_reports(&self->founds[i], one);
            return;
        }
    }
    if (self->count < TUTTI_COORDINATOR_STALLS_MAX) {
        self->founds[self->count++] = *one;
    }
}

static void
search_agent(search *self, const coord_agent *agent)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->told); node != NULL; node = tutti_map_next(node)) {
        const coord_progress_report *told = tutti_container_of(node, coord_progress_report, node);
        size_t i;

        if (self->query->group[0] != '\0' && strcmp(self->query->group, told->group) != 0) {
            continue;
        }
        for (i = 0; i < told->pending_count; i++) {
            const found one = {.told = told,
                               .pending = &told->pending[i],
                               .rank = agent->rank,
                               .waited_ms = coord_progress_report_ms(
                                   told, told->pending[i].waited_ms, self->now_ns)};

            add_found(self, &one);
        }
    }
}

static int
compare_stall(const void *left, const void *right)
{
    const found *a = left;
    const found *b = right;

    return a->waited_ms == b->waited_ms ? 0 : a->waited_ms > b->waited_ms ? -1 : 1;
}

static void
find_all(search *self)
{
    const coord_job *job = self->job;
    uint32_t rank;

    for (rank = 0; rank < job->world_size; rank++) {
        const coord_agent *agent = job->seats[rank];

        if (agent != NULL && agent->state == TUTTI_COORDINATOR_ALIVE) {
            search_agent(self, agent);
        }
    }
    qsort(self->founds, self->count, sizeof(self->founds[0]), compare_stall);
    while (self->count > 0 &&
           self->founds[self->count - 1].waited_ms < self->query->older_than_ms) {
        self->count--;
    }
}

/* ------------------------------------------------------------------------------ standing */

static void
stand_without_word(const search *self, uint32_t rank, tutti_coordinator_stalled_rank *ret)
{
    const coord_agent *agent = self->job->seats[rank];
    uint64_t seen_ns;

    *ret = (tutti_coordinator_stalled_rank){
        .rank = rank, .standing = TUTTI_COORDINATOR_ABSENT, .last_op = "", .reason = ""};
    if (agent == NULL || agent->state != TUTTI_COORDINATOR_ALIVE) {
        ret->standing = TUTTI_COORDINATOR_GONE;
        ret->reason = agent == NULL ? "nobody has its seat" : agent->reason;
        return;
    }
    if (agent->answered < self->query->number) {
        ret->standing = TUTTI_COORDINATOR_SILENT;
        seen_ns = agent->session != NULL ? agent->session->seen_ns : agent->gone_ns;
        ret->silent_ms = seen_ns == 0 ? 0 : (self->now_ns - seen_ns) / TUTTI_NS_PER_MS;
        ret->reason = agent->session == NULL ? "its connection broke" : "";
    }
}

/* What the rank did last on the group. */
static void
take_words(const search *self, const coord_progress_report *told,
           tutti_coordinator_stalled_rank *ret)
{
    ret->last_op = told->last_op;
    ret->last_sequence = told->last_sequence;
    ret->last_ms = coord_progress_report_ms(told, told->last_ms, self->now_ns);
}

/* The rank answers and is not in the op: what does it do instead? */
static void
stand_beside(const search *self, const coord_progress_report *told, uint64_t sequence,
             tutti_coordinator_stalled_rank *ret)
{
    size_t i;

    for (i = 0; i < told->pending_count; i++) {
        const coord_pending *pending = &told->pending[i];

        if (sequence == 0 || pending->sequence == 0 || pending->sequence > sequence) {
            continue;
        }
        ret->standing =
            pending->sequence < sequence ? TUTTI_COORDINATOR_SLOW : TUTTI_COORDINATOR_QUEUED;
        ret->last_sequence = pending->sequence;
        ret->last_op = pending->op;
        ret->last_ms = coord_progress_report_ms(told, pending->waited_ms, self->now_ns);
        return;
    }
    if (told->last_op[0] != '\0' && ret->last_ms < SLOW_MS) {
        ret->standing = TUTTI_COORDINATOR_SLOW;
    }
}

static void
get_rank_state(const search *self, const found *one, uint32_t rank,
               tutti_coordinator_stalled_rank *ret)
{
    const coord_agent *agent = self->job->seats[rank];
    const coord_progress_report *told = NULL;
    const uint64_t sequence = one->pending->sequence;

    stand_without_word(self, rank, ret);
    if (agent == NULL || ret->standing == TUTTI_COORDINATOR_GONE) {
        return;
    }
    told = coord_progress_report_find(agent, one->told->id);
    if (told == NULL || told->epoch != one->told->epoch) {
        return;
    }
    take_words(self, told, ret);
    ret->arrived = sequence != 0 ? told->entered >= sequence : rank == one->rank;
    if (ret->standing == TUTTI_COORDINATOR_SILENT) {
        return;
    }
    if (ret->arrived) {
        ret->standing = TUTTI_COORDINATOR_ARRIVED;
    } else {
        stand_beside(self, told, sequence, ret);
    }
}

static void
add_stall_rank(const search *self, const found *one, uint32_t rank, tutti_coordinator_stall *ret)
{
    tutti_coordinator_stalled_rank standing;

    get_rank_state(self, one, rank, &standing);
    if (standing.arrived) {
        if (ret->arrived_count < TUTTI_COORDINATOR_ARRIVED_MAX) {
            ret->arrived[ret->arrived_count] = rank;
        }
        ret->arrived_count++;
    } else {
        ret->missing_count++;
    }
    if (standing.standing != TUTTI_COORDINATOR_ARRIVED &&
        ret->other_count < TUTTI_COORDINATOR_OTHERS_MAX) {
        ret->others[ret->other_count++] = standing;
    }
}

/* False: the group is gone, or another one has its name. */
static bool
fill_stall(const search *self, const found *one, tutti_coordinator_stall *ret)
{
    coord_group *group = NULL;
    uint32_t i;

    *ret = (tutti_coordinator_stall){.group = one->told->group,
                                     .group_id = one->told->id,
                                     .epoch = one->told->epoch,
                                     .sequence = one->pending->sequence,
                                     .op = one->pending->op,
                                     .waited_ms = one->waited_ms};
    if (coord_group_find(self->job, one->told->group, one->rank, &group, NULL) != TUTTI_OK ||
        group->id != one->told->id) {
        return false;
    }
    ret->group_size = group->count;
    if (ret->sequence == 0) {
        add_stall_rank(self, one, one->rank, ret);
        if (one->pending->peer >= 0 && one->pending->peer < self->job->world_size) {
            add_stall_rank(self, one, (uint32_t)one->pending->peer, ret);
        }
        return true;
    }
    for (i = 0; i < group->count; i++) {
        add_stall_rank(self, one, coord_group_rank(group, i), ret);
    }
    return true;
}

static void
find_troubled(const search *self, tutti_coordinator_stalls *ret)
{
    uint32_t rank;

    for (rank = 0; rank < self->job->world_size; rank++) {
        tutti_coordinator_stalled_rank one;

        stand_without_word(self, rank, &one);
        if (one.standing == TUTTI_COORDINATOR_ABSENT) {
            continue;
        }
        ret->silent_count += one.standing == TUTTI_COORDINATOR_SILENT ? 1 : 0;
        ret->lost_count += one.standing == TUTTI_COORDINATOR_GONE ? 1 : 0;
        if (ret->other_count < TUTTI_COORDINATOR_OTHERS_MAX) {
            ret->others[ret->other_count++] = one;
        }
    }
}

tutti_code
coord_stalls_find(coord_job *job, const tutti_coordinator_stall_query *query,
                  tutti_coordinator_stalls *ret_stalls, tutti_error *err)
{
    search *self = calloc(1, sizeof(*self));
    size_t i;

    if (self == NULL) {
        return coord_fail_memory(err, "an answer");
    }
    self->job = job;
    self->query = query;
    self->now_ns = job->owner->now_ns;
    find_all(self);
    *ret_stalls = (tutti_coordinator_stalls){
        .job = job->name, .epoch = job->epoch, .world_size = job->world_size};
    ret_stalls->stalls = calloc(self->count + 1, sizeof(*ret_stalls->stalls));
    if (ret_stalls->stalls == NULL) {
        free(self);
        return coord_fail_memory(err, "an answer");
    }
    for (i = 0; i < self->count; i++) {
        ret_stalls->count +=
            fill_stall(self, &self->founds[i], &ret_stalls->stalls[ret_stalls->count]) ? 1 : 0;
    }
    find_troubled(self, ret_stalls);
    free(self);
    return TUTTI_OK;
}
