/*
 * Shrink: the survivors of a group agree on who they are, and get a group of that list. All of them
 * call; the round ends when every rank that is alive has called, or when the time of one caller is
 * over. Whoever has not called by then is left out: it may be stuck, and nobody can wait for it.
 *
 * The new group has a name that follows from the old one's, NAME.2, and the old one is aborted, so
 * ops of the two never meet. The result stays with the old group: an answer that was lost is given
 * again, and a rank that comes late reads which list it has missed.
 *
 *   round, callers wait    before the end
 *   done, callers wait     in the queue of tasks: each is answered there
 *   done, no callers       the result alone, as long as the old group
 */
#include "server/coordinator/group/shrink.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/elastic.h"
#include "server/coordinator/member/job.h"

#define LEFT_OUT_MAX 512
#define SHOWN_MAX 16

struct coord_shrink {
    coord_group *group;
    tutti_list_node link; /* in the job's list of rounds that are not done */
    tutti_list_node callers;
    bool *came; /* by position */
    uint32_t arrived;
    uint32_t first; /* the rank that called first */
    uint64_t begun_ns;
    tutti_timer timer; /* the earliest time of a caller */
    uint64_t until_ns;
    coord_task answer;
    bool done;
    bool failed;
    tutti_error why;
    uint64_t new_id;
    uint64_t epoch; /* of the old group at the end */
    char new_name[TUTTI_NAME_MAX + 1];
    uint32_t *ranks; /* [owned] */
    uint32_t count;
    char left_out[LEFT_OUT_MAX];
};

static bool
is_there(const coord_group *group, uint32_t position)
{
    const coord_agent *agent = group->job->seats[coord_group_rank(group, position)];

    return agent != NULL && agent->state == TUTTI_COORDINATOR_ALIVE;
}

static coord_orphan *
find_orphan(const coord_group *group, uint32_t rank)
{
    tutti_list_node *link;

    for (link = group->orphans.next; link != &group->orphans; link = link->next) {
        coord_orphan *one = tutti_container_of(link, coord_orphan, link);

        if (one->rank == rank) {
            return one;
        }
    }
    return NULL;
}

/* An agent that came later has programs of its own. */
static bool
is_orphan(const coord_group *group, uint32_t position)
{
    const uint32_t rank = coord_group_rank(group, position);
    const coord_orphan *found = find_orphan(group, rank);
    const coord_agent *agent = group->job->seats[rank];

    return found != NULL && agent != NULL && agent->incarnation == found->incarnation;
}

/* Has everybody called who can? Looked at in full only when the numbers permit it. */
static bool
is_complete(const coord_shrink *self)
{
    const coord_group *group = self->group;
    uint32_t i;

    if (self->arrived + group->job->lost_count + group->orphan_count < group->count) {
        return false;
    }
    for (i = 0; i < group->count; i++) {
        if (!self->came[i] && is_there(group, i) && !is_orphan(group, i)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------ the end */

/* NAME.2, or NAME.3 for what is NAME.2 already. A name that is taken is passed over. */
static void
draw_name(const coord_group *group, char ret_name[TUTTI_NAME_MAX + 1])
{
    const char *dot = strrchr(group->name, '.');
    char *end = NULL;
    unsigned long number = dot == NULL ? 0 : strtoul(dot + 1, &end, 10);
    int stem = (int)strlen(group->name);

    if (number >= 2 && number < UINT32_MAX && *end == '\0') {
        stem = (int)(dot - group->name);
    } else {
        number = 1;
    }
    stem = stem > TUTTI_NAME_MAX - 11 ? TUTTI_NAME_MAX - 11 : stem;
    do {
        number++;
        (void)snprintf(ret_name, TUTTI_NAME_MAX + 1, "%.*s.%lu", stem, group->name, number);
    } while (tutti_map_find(&group->job->groups, tutti_bytes_of(ret_name)) != NULL);
}

static void
word_left_out(coord_shrink *self)
{
    tutti_text text = tutti_text_in(self->left_out, sizeof(self->left_out));
    const coord_group *group = self->group;
    const uint64_t waited_ms =
        (group->job->owner->now_ns - self->begun_ns) / 1000000; /* of the clock that is told */
    uint32_t shown = 0;
    uint32_t i;

    for (i = 0; i < group->count && shown < SHOWN_MAX; i++) {
        const uint32_t rank = coord_group_rank(group, i);
        const coord_agent *agent = group->job->seats[rank];

        if (self->came[i]) {
            continue;
        }
        tutti_text_add(&text, "%srank %" PRIu32, shown++ == 0 ? "" : "; ", rank);
        if (is_there(group, i) && is_orphan(group, i)) {
            tutti_text_add(&text, " has no program any more");
        } else if (is_there(group, i)) {
            tutti_text_add(&text, " did not call within %" PRIu64 " ms", waited_ms);
        } else {
            tutti_text_add(&text, " is lost: %.100s", agent == NULL ? "" : agent->reason);
        }
    }
}

static tutti_code
list_callers(coord_shrink *self, tutti_error *err)
{
    const coord_group *group = self->group;
    uint32_t i;

    self->ranks = malloc(group->count * sizeof(*self->ranks));
    self->count = 0;
    if (self->ranks == NULL) {
        return coord_fail_memory(err, "a group's ranks");
    }
    for (i = 0; i < group->count; i++) {
        if (self->came[i]) {
            self->ranks[self->count++] = coord_group_rank(group, i);
        }
    }
    return TUTTI_OK;
}

/* The list is in the order of the old group ranks. The group is recorded before anybody is told. */
static tutti_code
make_survivors(coord_shrink *self, tutti_error *err)
{
    coord_job *job = self->group->job;
    char reason[TUTTI_NAME_MAX + 32];
    const tutti_coordinator_abort_request abort = {.reason = reason};
    coord_group *made;

    TUTTI_TRY(list_callers(self, err));
    TUTTI_TRY(coord_group_check_limits(job, self->count, err));
    draw_name(self->group, self->new_name);
    made = coord_group_new(job, self->new_name, self->count);
    if (made == NULL) {
        return coord_fail_memory(err, "a group");
    }
    if (coord_group_fill(made, self->ranks, err) != TUTTI_OK ||
        coord_group_inherit_end(made, self->group, err) != TUTTI_OK) {
        coord_group_destroy(made);
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    made->timeout_ms = self->group->timeout_ms;
    coord_group_add(made);
    job->owner->hooks->record_group(made);
    self->new_id = made->id;
    (void)snprintf(reason, sizeof(reason), "it was shrunk to %s", self->new_name);
    return coord_group_abort_of(self->group) != NULL
               ? TUTTI_OK
               : coord_group_abort(self->group, self->first, &abort, err);
}

static void
end_round(coord_shrink *self)
{
    coord_job *job = self->group->job;

    tutti_timers_stop(&job->owner->timers, &self->timer);
    tutti_list_remove(&self->link);
    self->done = true;
    self->epoch = coord_group_epoch(self->group);
    word_left_out(self);
    self->failed = make_survivors(self, &self->why) != TUTTI_OK;
    if (!self->failed) {
        coord_note(job->owner, "job %s: group %s was shrunk to %s with %" PRIu32 " ranks%s%s",
                   job->name, self->group->name, self->new_name, self->count,
                   self->left_out[0] == '\0' ? "" : ": ", self->left_out);
    }
    coord_defer(job->owner, &self->answer);
}

static void
free_round(coord_shrink *self)
{
    tutti_timers_stop(&self->group->job->owner->timers, &self->timer);
    coord_task_stop(&self->answer);
    tutti_list_remove(&self->link);
    self->group->shrink = NULL;
    free(self->came);
    free(self->ranks);
    free(self);
}

/* ------------------------------------------------------------------------------ answering */

static void
leave_round(tutti_coordinator_shrink *call)
{
    tutti_list_remove(&call->link);
    call->round = NULL;
    coord_wait_stop(&call->wait);
}

static tutti_code
fail_late(const coord_shrink *self, uint32_t rank, tutti_error *err)
{
    char list[256];
    tutti_text text = tutti_text_in(list, sizeof(list));

    tutti_text_add_ranks(&text, self->ranks, self->count, SHOWN_MAX);
    (void)TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "SHRUNK_WITHOUT",
                         "rank %" PRIu32 " came too late: group %s was shrunk to %s with ranks "
                         "%s (%s)",
                         rank, self->group->name, self->new_name, list, self->left_out);
    tutti_error_set_op(err, self->group->name, 0, (int32_t)rank);
    return TUTTI_FAILED_PRECONDITION;
}

/* The result for a rank, now or when it asks again. */
static tutti_code
find_result(const coord_shrink *self, uint32_t rank, tutti_coordinator_shrunk *ret_shrunk,
            tutti_error *err)
{
    coord_group *made = NULL;
    uint32_t position;

    if (self->failed) {
        *err = self->why;
        return err->code;
    }
    made =
        coord_group_from(tutti_map_find(&self->group->job->groups, tutti_bytes_of(self->new_name)));
    if (made == NULL || made->id != self->new_id) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_GROUP",
                              "group %s, to which %s was shrunk, was deleted", self->new_name,
                              self->group->name);
    }
    if (!coord_group_position(made, rank, &position)) {
        return fail_late(self, rank, err);
    }
    coord_group_describe(made, &ret_shrunk->group);
    ret_shrunk->group.rank = position;
    ret_shrunk->left_out = self->left_out;
    return TUTTI_OK;
}

/* A round that has failed is gone with its last answer: the next call begins another one. */
static size_t
on_answer_task(coord_task *work, size_t budget)
{
    coord_shrink *self = tutti_container_of(work, coord_shrink, answer);
    tutti_coordinator *owner = self->group->job->owner;
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&self->callers)) {
        tutti_coordinator_shrink *call =
            tutti_container_of(self->callers.next, tutti_coordinator_shrink, link);
        tutti_coordinator_shrunk shrunk;
        tutti_error err;
        const tutti_code code = find_result(self, call->rank, &shrunk, &err);

        leave_round(call);
        call->on_answer(call, code == TUTTI_OK ? &shrunk : NULL, code == TUTTI_OK ? NULL : &err);
        done++;
    }
    if (!tutti_list_empty(&self->callers)) {
        coord_defer(owner, work);
    } else if (self->failed) {
        free_round(self);
    }
    return done;
}

static void
on_round_expiry(tutti_timer *timer)
{
    end_round(tutti_container_of(timer, coord_shrink, timer));
}

/* It does not count any more; a round without callers is forgotten. */
static void
withdraw_shrink(tutti_coordinator_shrink *call)
{
    coord_shrink *self = call->round;

    if (!self->done) {
        self->came[call->position] = false;
        self->arrived--;
    }
    leave_round(call);
    if (!self->done && self->arrived == 0) {
        free_round(self);
    }
}

static void
on_end(tutti_coordinator_pending_call *base, const tutti_error *err)
{
    tutti_coordinator_shrink *call = tutti_container_of(base, tutti_coordinator_shrink, wait);

    if (err != NULL) { /* its own time is that of the round */
        withdraw_shrink(call);
        call->on_answer(call, NULL, err);
    }
}

/* ------------------------------------------------------------------------------ door */

static tutti_code
check_shrinkable(const coord_group *group, tutti_error *err)
{
    if (group->mesh != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "MESH_GROUP",
                              "group %s is of a mesh, which has all its ranks: create a mesh of "
                              "those that are left",
                              group->name);
    }
    if (coord_group_is_world(group) && coord_elastic_is(group->job)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "WORLD_GROUP",
                              "group world of an elastic job shrinks by itself: call again");
    }
    return TUTTI_OK;
}

static tutti_code
find_to_shrink(const coord_agent *agent, const tutti_coordinator_shrink_request *request,
               coord_group **ret_group, uint32_t *ret_position, tutti_error *err)
{
    coord_group *group = NULL;

    TUTTI_TRY(coord_group_find(agent->job, request->name, agent->rank, &group, err));
    if (request->id != 0 && group->id != request->id) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_GROUP",
                              "group %s has id %" PRIu64 " now, the group with id %" PRIu64
                              " was deleted",
                              group->name, group->id, request->id);
    }
    TUTTI_TRY(check_shrinkable(group, err));
    if (!coord_group_position(group, agent->rank, ret_position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s", agent->rank, group->name);
    }
    *ret_group = group;
    return TUTTI_OK;
}

static coord_shrink *
begin_round(coord_group *group, uint32_t rank)
{
    coord_shrink *self = calloc(1, sizeof(*self));

    if (self != NULL) {
        self->came = calloc(group->count, sizeof(*self->came));
    }
    if (self == NULL || self->came == NULL) {
        free(self);
        return NULL;
    }
    self->group = group;
    self->first = rank;
    self->begun_ns = group->job->owner->now_ns;
    self->until_ns = TUTTI_TIMERS_NEVER;
    self->timer.on_expiry = on_round_expiry;
    tutti_list_init(&self->callers);
    coord_task_init(&self->answer, on_answer_task);
    tutti_list_add(&group->job->shrinking, &self->link);
    group->shrink = self;
    return self;
}

static void
fail_call_of(coord_shrink *self, uint32_t position, const tutti_error *err)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &self->callers)
    {
        tutti_coordinator_shrink *call = tutti_container_of(link, tutti_coordinator_shrink, link);

        if (call->position == position) {
            leave_round(call);
            call->on_answer(call, NULL, err);
        }
    }
}

/* A second call of a rank takes the place of the first, whose answer may have been lost. */
static void
replace_call(coord_shrink *self, uint32_t position)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "SUPERSEDED",
                         "another call of this rank took this one's place");
    fail_call_of(self, position, &err);
}

static void
enter_round(coord_shrink *self, tutti_coordinator_shrink *call, uint64_t deadline_ns)
{
    tutti_coordinator *owner = self->group->job->owner;

    call->round = self;
    call->wait.on_end = on_end;
    tutti_list_add(&self->callers, &call->link);
    coord_wait_start(owner, &call->wait, true, TUTTI_TIMERS_NEVER);
    if (self->done) {
        coord_defer(owner, &self->answer);
        return;
    }
    if (self->came[call->position]) {
        self->arrived--; /* the call before was replaced */
    }
    self->came[call->position] = true;
    self->arrived++;
    if (deadline_ns < self->until_ns) {
        self->until_ns = deadline_ns;
        tutti_timers_start(&owner->timers, &self->timer, deadline_ns);
    }
    if (is_complete(self)) {
        end_round(self);
    }
}

tutti_code
tutti_coordinator_shrink_start(tutti_coordinator *self,
                               const tutti_coordinator_shrink_request *request,
                               tutti_coordinator_shrink *call, tutti_error *err)
{
    coord_agent *agent = NULL;
    coord_group *group = NULL;

    TUTTI_TRY(coord_wait_check(self, err));
    TUTTI_TRY(coord_member_check(self, &request->member, &agent, err));
    TUTTI_TRY(find_to_shrink(agent, request, &group, &call->position, err));
    if (group->shrink != NULL && group->shrink->done && coord_group_is_world(group) &&
        group->shrink->epoch < coord_group_epoch(group) &&
        tutti_list_empty(&group->shrink->callers)) {
        free_round(group->shrink); /* a member has come since: it is made anew */
    }
    if (group->shrink == NULL && begin_round(group, agent->rank) == NULL) {
        return coord_fail_memory(err, "the shrinking of a group");
    }
    call->rank = agent->rank;
    replace_call(group->shrink, call->position);
    enter_round(group->shrink, call, request->deadline_ns);
    return TUTTI_OK;
}

void
tutti_coordinator_shrink_withdraw(tutti_coordinator_shrink *call)
{
    if (call->round != NULL) {
        withdraw_shrink(call);
    }
}

/* ------------------------------------------------------------------------------ from outside */

/* Its calls end, and its rank is not waited for any more. */
void
coord_shrinks_lose(const coord_agent *agent)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    uint32_t position;

    tutti_list_each(link, spare, &agent->job->shrinking)
    {
        coord_shrink *self = tutti_container_of(link, coord_shrink, link);

        if (!coord_group_position(self->group, agent->rank, &position)) {
            continue;
        }
        if (self->came[position]) {
            tutti_error err;

            (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "RANK_LOST",
                                 "rank %" PRIu32 " was lost: %s", agent->rank, agent->reason);
            self->came[position] = false;
            self->arrived--;
            fail_call_of(self, position, &err);
        }
        if (self->arrived == 0) {
            free_round(self);
        } else if (is_complete(self)) {
            end_round(self);
        }
    }
}

static void
set_orphan(coord_group *group, const coord_agent *agent)
{
    coord_orphan *one = find_orphan(group, agent->rank);

    if (one == NULL) {
        one = calloc(1, sizeof(*one));
        if (one == NULL) {
            return; /* a shrink waits for it until its time is over */
        }
        one->rank = agent->rank;
        tutti_list_init(&one->link);
        tutti_list_add(&group->orphans, &one->link);
        group->orphan_count++;
    }
    one->incarnation = agent->incarnation;
}

static void
unset_orphan(coord_group *group, const coord_agent *agent)
{
    coord_orphan *one = find_orphan(group, agent->rank);

    if (one != NULL) {
        tutti_list_remove(&one->link);
        group->orphan_count--;
        free(one);
    }
}

void
coord_session_tell_orphan(const tutti_coordinator_session *session, const char *group, uint64_t id,
                          bool orphan)
{
    const coord_agent *agent = session->agent;
    coord_group *found =
        agent == NULL
            ? NULL
            : coord_group_from(tutti_map_find(&agent->job->groups, tutti_bytes_of(group)));
    uint32_t position;

    if (found == NULL || found->id != id || (!orphan && found->orphan_count == 0) ||
        !coord_group_position(found, agent->rank, &position)) {
        return;
    }
    if (!orphan) {
        unset_orphan(found, agent);
        return;
    }
    set_orphan(found, agent);
    if (found->shrink != NULL && !found->shrink->done && is_complete(found->shrink)) {
        end_round(found->shrink);
    }
}

void
coord_group_end_shrink(coord_group *group)
{
    coord_shrink *self = group->shrink;
    tutti_error err;

    if (self == NULL) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_GROUP", "group %s was deleted", group->name);
    while (!tutti_list_empty(&self->callers)) {
        tutti_coordinator_shrink *call =
            tutti_container_of(self->callers.next, tutti_coordinator_shrink, link);

        leave_round(call);
        call->on_answer(call, NULL, &err);
    }
    free_round(self);
}
