/*
 * Join: the call by which an agent asks for a seat, from the request to the answer.
 *
 * A Join waits in `joins` until the job is complete (every seat has an agent with a call; see
 * elastic.c for less), then moves to `answers` with all others and is answered in slices by
 * join_task. Meanwhile a tick each second sends `progress` (who is missing) by way of `due`. In a
 * formed job a Join is answered at once: its agent is alive already.
 *
 * `attached` counts the waiting agents that have a call. Only when it is the world size may the
 * job be formed: an agent whose caller is gone would get a rank that nobody uses. If the caller
 * goes away, its agent keeps the seat for lost_grace, in which the same incarnation may call
 * again.
 */
#include "server/coordinator/member/join.h"

#include <assert.h>
#include <inttypes.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/agent.h"
#include "server/coordinator/member/elastic.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/seats.h"
#include "server/coordinator/member/session.h"

#define HEARTBEATS_MAX 2500 /* a second, of all agents of a job: 2 s in a job of 5000 */

#define TICK_NS TUTTI_NS_PER_S
#define QUIET_NS (5 * TUTTI_NS_PER_S) /* a progress message comes at least that often ... */
#define PROGRESS_MAX 2500 /* ... in jobs of 12 500; and so many a second go to all that wait */

static tutti_coordinator_join *
join_from(tutti_list_node *link)
{
    return tutti_container_of(link, tutti_coordinator_join, link);
}

static tutti_code
check_join_request(const tutti_coordinator_join_request *request, tutti_error *err)
{
    if (request->world_size == 0 || request->world_size > TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "world size %" PRIu32 ", need 1 to %d", request->world_size,
                              TUTTI_RANKS_MAX);
    }
    if (request->has_rank && request->rank >= request->world_size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                              "rank %" PRIu32 " in a world of %" PRIu32
                              ", need a rank below the world size",
                              request->rank, request->world_size);
    }
    if (request->incarnation == 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_INCARNATION",
            "incarnation 0: need a random number other than 0, drawn when the agent starts");
    }
    return coord_agent_check(&request->agent, err);
}

/*
 * A further call of an incarnation that is known: it waits for the same seat, unless the process
 * was lost in the meantime, or asks for another rank than before (two processes with one
 * incarnation).
 */
static tutti_code
check_again(const coord_agent *agent, const tutti_coordinator_join_request *request,
            tutti_error *err)
{
    if (agent->state == TUTTI_COORDINATOR_LOST) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_INCARNATION",
            "this incarnation of rank %" PRIu32 " was lost at epoch %" PRIu64
            ": %s; start the agent again: with a new incarnation it takes the seat",
            agent->rank, agent->changed_epoch, agent->reason);
    }
    if (request->has_rank && (!agent->seated || agent->rank != request->rank)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_INCARNATION",
            "this incarnation asks for rank %" PRIu32
            " and has not asked for it before: let each process draw an incarnation of its own",
            request->rank);
    }
    return TUTTI_OK;
}

static tutti_code
find_seat(tutti_coordinator *self, const tutti_coordinator_join_request *request,
          coord_agent **ret_agent, tutti_error *err)
{
    const char *name;
    coord_job *job = NULL;
    tutti_code code = coord_check_job(request->job, &name, err);

    if (code == TUTTI_OK) {
        code = coord_job_begin(self, name, request->world_size, &job, err);
    }
    if (code == TUTTI_OK) {
        code = coord_elastic_check(job, request->min_world_size, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_agent = coord_agent_find(job, request->incarnation);
    if (*ret_agent != NULL) {
        code = check_again(*ret_agent, request, err);
    } else {
        code = coord_seat_newcomer(job, request, ret_agent, err);
    }
    if (code != TUTTI_OK) {
        coord_job_settle(job); /* it may have begun for nothing */
    }
    return code;
}

/* ------------------------------------------------------------------------------ parked */

static void
attach_join(coord_agent *agent, tutti_coordinator_join *join)
{
    coord_job *job = agent->job;

    if (agent->state == TUTTI_COORDINATOR_WAITING && tutti_list_empty(&agent->joins)) {
        tutti_timers_stop(&job->owner->timers, &agent->timer);
        job->attached++;
    }
    join->agent = agent;
    tutti_list_add(&agent->joins, &join->peer);
    tutti_list_add(&job->joins, &join->link);
    job->changed = true;
}

static void
detach_join(tutti_coordinator_join *join)
{
    coord_agent *agent = join->agent;
    coord_job *job = agent->job;

    coord_wait_stop(&join->wait);
    tutti_list_remove(&join->link);
    tutti_list_remove(&join->peer);
    join->agent = NULL;
    /* The last call of a waiting agent is gone: its seat is free again after the grace. */
    if (agent->state == TUTTI_COORDINATOR_WAITING && tutti_list_empty(&agent->joins)) {
        tutti_coordinator *self = job->owner;

        job->attached--;
        tutti_timers_start(&self->timers, &agent->timer,
                           tutti_clock_add(self->now_ns, self->options.lost_grace_ns));
    }
}

static void
add_missing(tutti_text *text, const coord_job *job)
{
    uint32_t ranks[TUTTI_COORDINATOR_MISSING_MAX];
    const uint32_t shown = coord_seats_missing(job, ranks, TUTTI_COORDINATOR_MISSING_MAX);
    const uint32_t unasked = job->world_size - job->present + job->unassigned_count;

    if (job->unassigned_count > 0) {
        tutti_text_add(text, "%" PRIu32 " of them without asking for a rank, ",
                       job->unassigned_count);
    }
    tutti_text_add(text, "nobody asked for rank%s ", shown == 1 ? "" : "s");
    tutti_text_add_ranks(text, ranks, shown, 16);
    if (unasked > shown) {
        tutti_text_add(text, " ... (%" PRIu32 " in all)", unasked);
    }
}

static void
say_join_missing(const coord_job *job, tutti_error *err)
{
    char buffer[512];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    if (job->present < job->world_size) {
        add_missing(&text, job);
    } else {
        tutti_text_add(&text, "%" PRIu32 " of them may have gone again",
                       job->present - job->attached);
    }
    (void)TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "JOIN_TIMEOUT",
                         "%" PRIu32 " of %" PRIu32 " agents joined job %s in time, %s",
                         job->present, job->world_size, job->name, buffer);
}

/* Its time is up, or we drain. */
static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    tutti_coordinator_join *join = tutti_container_of(wait, tutti_coordinator_join, wait);
    tutti_error late;

    if (err == NULL) {
        say_join_missing(join->agent->job, &late);
        err = &late;
    }
    detach_join(join);
    join->on_answer(join, NULL, err);
}

static void
start_ticking(coord_job *job)
{
    tutti_coordinator *self = job->owner;

    if (!job->tick.running) {
        tutti_timers_start(&self->timers, &job->tick, tutti_clock_add(self->now_ns, TICK_NS));
    }
}

/* All calls get their answer, those that were about to get a progress message, too. */
static void
form_join(coord_job *job)
{
    coord_seats_form(job);
    tutti_timers_stop(&job->owner->timers, &job->tick);
    tutti_list_splice(&job->answers, &job->joins);
    tutti_list_splice(&job->answers, &job->due);
    coord_defer(job->owner, &job->join_task);
}

tutti_code
tutti_coordinator_join_start(tutti_coordinator *self, const tutti_coordinator_join_request *request,
                             tutti_coordinator_join *join, tutti_error *err)
{
    coord_agent *agent = NULL;
    tutti_code code = coord_wait_check(self, err);

    if (code == TUTTI_OK) {
        code = check_join_request(request, err);
    }
    if (code == TUTTI_OK) {
        code = find_seat(self, request, &agent, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    attach_join(agent, join);
    join->wait.on_end = on_end;
    coord_wait_start(self, &join->wait, true, request->deadline_ns);
    if (agent->state == TUTTI_COORDINATOR_ALIVE) {
        tutti_list_remove(&join->link);
        tutti_list_add(&agent->job->answers, &join->link);
        coord_defer(self, &agent->job->join_task);
    } else if (agent->job->attached == agent->job->world_size) {
        form_join(agent->job);
    } else {
        agent->job->grown_ns = self->now_ns;
        start_ticking(agent->job);
    }
    return TUTTI_OK;
}

void
tutti_coordinator_join_withdraw(tutti_coordinator_join *join)
{
    if (join->wait.owner != NULL) {
        detach_join(join);
    }
}

void
coord_joins_fail(coord_agent *agent, const tutti_error *err)
{
    while (!tutti_list_empty(&agent->joins)) {
        tutti_coordinator_join *join =
            tutti_container_of(agent->joins.next, tutti_coordinator_join, peer);

        detach_join(join);
        join->on_answer(join, NULL, err);
    }
}

/* ------------------------------------------------------------------------------ messages */

/*
 * How often the agents of a job beat: all of them together HEARTBEATS_MAX times a second at most,
 * and three times within the heartbeat timeout at least.
 */
static uint64_t
heartbeat_interval(const tutti_coordinator_options *options, uint32_t world_size)
{
    const uint64_t paced_ns = world_size * (TUTTI_NS_PER_S / HEARTBEATS_MAX);
    const uint64_t most_ns = options->heartbeat_timeout_ns / 3;
    const uint64_t wanted_ns = paced_ns < most_ns ? paced_ns : most_ns;

    return wanted_ns > options->heartbeat_interval_ns ? wanted_ns : options->heartbeat_interval_ns;
}

static void
answer_join(tutti_coordinator_join *join)
{
    const coord_agent *agent = join->agent;
    const tutti_coordinator_options *options = &agent->job->owner->options;
    const tutti_coordinator_seat seat = {
        .rank = agent->rank,
        .world_size = agent->job->world_size,
        .min_world_size = agent->job->min_world,
        .epoch = agent->job->epoch,
        .joined_epoch = agent->joined_epoch,
        .job_id = agent->job->id,
        .heartbeat_interval_ms =
            (uint32_t)(heartbeat_interval(options, agent->job->world_size) / TUTTI_NS_PER_MS),
        .heartbeat_timeout_ms = (uint32_t)(options->heartbeat_timeout_ns / TUTTI_NS_PER_MS),
        .key = coord_job_key(agent->job),
    };

    if (agent->session == NULL) {
        coord_agent_await_session(join->agent); /* its time begins with the answer */
    }
    detach_join(join);
    join->on_answer(join, &seat, NULL);
}

static size_t
on_join_task(coord_task *work, size_t budget)
{
    coord_job *job = tutti_container_of(work, coord_job, join_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&job->answers)) {
        answer_join(join_from(job->answers.next));
        done++;
    }
    while (done < budget && !tutti_list_empty(&job->due)) {
        tutti_coordinator_join *join = join_from(tutti_list_pop(&job->due));

        tutti_list_add(&job->joins, &join->link);
        join->on_progress(join, &job->progress);
        done++;
    }
    if (!tutti_list_empty(&job->answers) || !tutti_list_empty(&job->due)) {
        coord_defer(job->owner, work);
    }
    return done;
}

/*
 * Are those who wait to be told how many have come? If 20 000 come slowly, telling all of them each
 * second is more work than their joining, and makes it slower still.
 */
static bool
is_progress_due(const coord_job *job)
{
    const uint64_t since_ns = job->owner->now_ns - job->progress_ns;

    return since_ns >= job->present * (TUTTI_NS_PER_S / PROGRESS_MAX) &&
           (job->changed || since_ns >= QUIET_NS);
}

static void
on_tick(tutti_timer *timer)
{
    coord_job *job = tutti_container_of(timer, coord_job, tick);
    tutti_coordinator *self = job->owner;

    if (tutti_list_empty(&job->joins) && tutti_list_empty(&job->due)) {
        return; /* the next Join starts it again */
    }
    if (is_progress_due(job)) {
        job->progress.joined_count = job->present;
        job->progress.world_size = job->world_size;
        job->progress.missing_count =
            coord_seats_missing(job, job->progress.missing_ranks, TUTTI_COORDINATOR_MISSING_MAX);
        job->progress_ns = self->now_ns;
        job->changed = false;
        tutti_list_splice(&job->due, &job->joins);
        coord_defer(self, &job->join_task);
    }
    /* Without memory for the free seats the job waits for the next tick. */
    if (coord_elastic_ripe(job) && coord_elastic_fill(job)) {
        form_join(job);
        return;
    }
    start_ticking(job);
}

void
coord_joins_init(coord_job *job)
{
    tutti_list_init(&job->joins);
    tutti_list_init(&job->due);
    tutti_list_init(&job->answers);
    job->tick.on_expiry = on_tick;
    coord_task_init(&job->join_task, on_join_task);
}

void
coord_joins_fini(coord_job *job)
{
    assert(tutti_list_empty(&job->joins) && tutti_list_empty(&job->due) &&
           tutti_list_empty(&job->answers));
    tutti_timers_stop(&job->owner->timers, &job->tick);
    coord_task_stop(&job->join_task);
}
