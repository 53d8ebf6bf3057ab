/*
 * Who has which rank. All moves of an agent between states are here:
 *
 * - newcomer, job not formed: WAITING, with the rank it asked for or among `unassigned`;
 * - the job is formed: all waiting agents become ALIVE, in one epoch (1); those without a rank
 *   get the free ones in order of host, local rank and pid, so ranks of a host are neighbours;
 * - newcomer, job formed: it takes a lost rank's seat and is ALIVE, in a new epoch;
 * - ALIVE -> LOST, in a new epoch; the agent stays in its seat so that others can be told of it.
 *
 * Each move keeps the counts (present, attached, alive_count, lost_count), the bits of `asked`,
 * the record in the store, and the world of an elastic job.
 */
#include "server/coordinator/member/seats.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/member/agent.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/gpus.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/session.h"

static void
set_asked(coord_job *job, uint32_t rank, bool asked)
{
    const uint64_t bit = 1ULL << (rank % 64);

    if (asked) {
        job->asked[rank / 64] |= bit;
    } else {
        job->asked[rank / 64] &= ~bit;
    }
}

/*
 * Ranks whose bit in `asked` is not set; whole words of set bits are skipped, since worlds are
 * large.
 */
uint32_t
coord_seats_missing(const coord_job *job, uint32_t *ret_ranks, uint32_t most)
{
    uint32_t count = 0;
    uint32_t rank = 0;

    while (rank < job->world_size && count < most) {
        const uint64_t word = job->asked[rank / 64];

        if (rank % 64 == 0 && word == UINT64_MAX) {
            rank += 64;
            continue;
        }
        if ((word >> (rank % 64) & 1) == 0) {
            ret_ranks[count++] = rank;
        }
        rank++;
    }
    return count;
}

/*
 * Was the seat given a moment ago? Its agent may be on its way to its first session. If another
 * process asks for that seat later than lost_grace, the first one is dead, or two processes want
 * one rank.
 */
static bool
is_fresh(const coord_agent *agent)
{
    const tutti_coordinator *self = agent->job->owner;
    const uint64_t now_ms = self->wall_ns / TUTTI_NS_PER_MS;

    return now_ms < agent->since_ms + self->options.lost_grace_ns / TUTTI_NS_PER_MS;
}

/*
 * Does the agent's process live, as far as is known? A waiting agent lives while a call of it
 * waits. An alive one lives while it has a session; before its first session while it is still
 * waiting for its answer, or fresh. An agent whose session broke does not count as living: a
 * restarted process need not wait for the grace.
 */
static bool
is_live(const coord_agent *agent)
{
    if (agent->state == TUTTI_COORDINATOR_WAITING) {
        return !tutti_list_empty(&agent->joins);
    }
    if (agent->state != TUTTI_COORDINATOR_ALIVE || agent->session != NULL) {
        return agent->state == TUTTI_COORDINATOR_ALIVE;
    }
    return !agent->had_session && (!tutti_list_empty(&agent->joins) || is_fresh(agent));
}

/* A newcomer that replaces an agent brings its own room. */
static tutti_code
check_room(const coord_job *job, const coord_agent *occupant, tutti_error *err)
{
    const bool makes_room = occupant != NULL && occupant->state != TUTTI_COORDINATOR_LOST;

    if (job->present == job->world_size && !makes_room) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "WORLD_FULL",
                              "all %" PRIu32
                              " seats of job %s are taken: join another --job, or begin "
                              "this one anew with a larger --world-size",
                              job->world_size, job->name);
    }
    return TUTTI_OK;
}

static tutti_code
check_wish(const coord_job *job, const tutti_coordinator_join_request *request,
           coord_agent **ret_occupant, tutti_error *err)
{
    coord_agent *occupant = request->has_rank ? job->seats[request->rank] : NULL;

    if (occupant != NULL && is_live(occupant)) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "ALREADY_JOINED",
                             "rank %" PRIu32 " of job %s is taken by host %s, pid %" PRIu32,
                             request->rank, job->name, occupant->info.host, occupant->info.pid);
        tutti_error_set_op(err, NULL, 0, (int32_t)request->rank);
        return TUTTI_ALREADY_EXISTS;
    }
    *ret_occupant = occupant;
    return check_room(job, occupant, err);
}

/* Forget an agent that waits. */
static void
drop_seat(coord_agent *agent)
{
    coord_job *job = agent->job;

    assert(agent->state == TUTTI_COORDINATOR_WAITING);
    if (agent->seated) {
        set_asked(job, agent->rank, false);
    } else {
        job->unassigned_count--;
    }
    job->present--;
    job->changed = true;
    coord_agent_free(agent);
}

/*
 * The agent that had the seat and does not live any more goes. In a formed job it is declared
 * lost first, with its own epoch and event, so the others hear of both changes.
 */
static void
vacate_seat(coord_agent *occupant)
{
    if (occupant != NULL && occupant->state == TUTTI_COORDINATOR_WAITING) {
        drop_seat(occupant);
    } else if (occupant != NULL && occupant->state == TUTTI_COORDINATOR_ALIVE) {
        coord_agent_lose(occupant, "another process took its place", NULL);
    }
}

static void
begin_waiting(coord_agent *agent, const tutti_coordinator_join_request *request)
{
    coord_job *job = agent->job;

    if (request->has_rank) {
        agent->seated = true;
        agent->rank = request->rank;
        job->seats[agent->rank] = agent;
        set_asked(job, agent->rank, true);
    } else {
        tutti_list_add(&job->unassigned, &agent->unassigned);
        job->unassigned_count++;
    }
}

static void
make_alive(coord_agent *agent, uint32_t rank)
{
    coord_job *job = agent->job;

    agent->state = TUTTI_COORDINATOR_ALIVE;
    agent->seated = true;
    agent->rank = rank;
    agent->joined_epoch = job->epoch;
    agent->changed_epoch = job->epoch;
    agent->since_ms = job->owner->wall_ns / TUTTI_NS_PER_MS;
    agent->acked_event = job->event_count;
    job->seats[rank] = agent;
    job->last_joined_epoch = job->epoch;
    job->alive_count++;
    set_asked(job, rank, true);
    coord_agent_await_session(agent);
}

/*
 * A newcomer takes the seat of a lost rank in a formed job. The order: the epoch rises, then the
 * agent is made alive in it, then the world, the record and the event follow, so that whoever
 * hears of the event finds everything as it says.
 */
static void
come_back(coord_agent *agent, const tutti_coordinator_join_request *request)
{
    coord_job *job = agent->job;
    uint32_t rank = request->rank;

    if (!request->has_rank) {
        const uint32_t found = coord_seats_missing(job, &rank, 1);

        assert(found == 1); /* check_room has made sure */
    }
    assert(job->seats[rank]->state == TUTTI_COORDINATOR_LOST);
    coord_agent_free(job->seats[rank]);
    job->lost_count--;
    coord_job_next_epoch(job);
    make_alive(agent, rank);
    coord_note(job->owner, "job %s: rank %" PRIu32 " is back on host %s, epoch %" PRIu64, job->name,
               rank, agent->info.host, job->epoch);
    job->owner->hooks->refresh_world(job);
    agent->job->owner->hooks->record_agent(agent);
    coord_event_publish(job, &agent->event);
}

/*
 * Everything that can fail comes before vacate_seat: a newcomer that is refused changes nothing.
 */
tutti_code
coord_seat_newcomer(coord_job *job, const tutti_coordinator_join_request *request,
                    coord_agent **ret_agent, tutti_error *err)
{
    coord_agent *occupant = NULL;
    coord_agent *agent = NULL;
    tutti_code code = check_wish(job, request, &occupant, err);

    code = code == TUTTI_OK ? coord_check_gpus(job, request, occupant, err) : code;
    if (code == TUTTI_OK) {
        code = coord_agent_new(job, request->incarnation, &request->agent, &agent, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    vacate_seat(occupant);
    agent->former = request->former;
    job->present++;
    agent->since_ms = job->owner->wall_ns / TUTTI_NS_PER_MS;
    if (job->epoch == 0) {
        begin_waiting(agent, request);
    } else {
        come_back(agent, request);
    }
    *ret_agent = agent;
    return TUTTI_OK;
}

void
coord_seat_return(coord_agent *agent)
{
    coord_job *job = agent->job;

    drop_seat(agent);
    coord_job_settle(job);
}

void
coord_seat_announce(coord_agent *agent, const char *reason)
{
    coord_job *job = agent->job;

    (void)snprintf(agent->reason, sizeof(agent->reason), "%s", reason);
    coord_job_next_epoch(job);
    agent->changed_epoch = job->epoch;
    coord_note(job->owner, "job %s: rank %" PRIu32 " on host %s is leaving: %s, epoch %" PRIu64,
               job->name, agent->rank, agent->info.host, reason, job->epoch);
    agent->job->owner->hooks->record_agent(agent);
}

void
coord_seat_lose(coord_agent *agent, const char *reason)
{
    coord_job *job = agent->job;

    assert(agent->state == TUTTI_COORDINATOR_ALIVE);
    agent->state = TUTTI_COORDINATOR_LOST;
    (void)snprintf(agent->reason, sizeof(agent->reason), "%s", reason);
    agent->since_ms = job->owner->wall_ns / TUTTI_NS_PER_MS;
    coord_job_next_epoch(job);
    agent->changed_epoch = job->epoch;
    set_asked(job, agent->rank, false);
    job->present--;
    job->alive_count--;
    job->lost_count++;
    coord_note(job->owner, "job %s: rank %" PRIu32 " on host %s is lost: %s, epoch %" PRIu64,
               job->name, agent->rank, agent->info.host, reason, job->epoch);
    job->owner->hooks->refresh_world(job);
    agent->job->owner->hooks->record_agent(agent);
}

void
coord_seat_restore(coord_agent *agent, uint32_t rank, tutti_coordinator_state state)
{
    coord_job *job = agent->job;
    tutti_coordinator *self = job->owner;

    agent->state = state;
    agent->seated = true;
    agent->rank = rank;
    agent->restored = true;
    agent->had_session = true; /* so is_live lets a fresh process take its place */
    job->seats[rank] = agent;
    if (agent->changed_epoch > job->epoch) {
        job->epoch = agent->changed_epoch; /* the process died before it wrote the job's record */
        coord_job_draw_key(job);
    }
    if (state == TUTTI_COORDINATOR_LOST) {
        job->lost_count++;
        return;
    }
    if (agent->joined_epoch > job->last_joined_epoch) {
        job->last_joined_epoch = agent->joined_epoch;
    }
    job->present++;
    job->alive_count++;
    set_asked(job, rank, true);
    tutti_timers_start(&self->timers, &agent->timer,
                       tutti_clock_add(self->now_ns, self->options.heartbeat_timeout_ns));
}

/* ------------------------------------------------------------------------------ assigned ranks */

static int
compare_seat(const tutti_list_node *left, const tutti_list_node *right)
{
    const coord_agent *a = tutti_container_of(left, coord_agent, unassigned);
    const coord_agent *b = tutti_container_of(right, coord_agent, unassigned);
    const int order = tutti_compare_numeric(a->info.host, b->info.host);

    if (order != 0) {
        return order;
    }
    if (a->info.local_rank != b->info.local_rank) {
        return a->info.local_rank < b->info.local_rank ? -1 : 1;
    }
    return a->info.pid == b->info.pid ? 0 : a->info.pid < b->info.pid ? -1 : 1;
}

/*
 * Merge sort of a list: it needs no memory, so forming a job cannot fail, and it is stable, so
 * equals keep their order of arrival.
 */
static void
sort_seats(tutti_list_node *head, uint32_t count)
{
    const uint32_t half = count / 2;
    tutti_list_node left;
    tutti_list_node sorted;
    uint32_t i;

    if (count < 2) {
        return;
    }
    tutti_list_init(&left);
    tutti_list_init(&sorted);
    for (i = 0; i < half; i++) {
        tutti_list_add(&left, tutti_list_pop(head));
    }
    sort_seats(&left, half);
    sort_seats(head, count - half);
    while (!tutti_list_empty(&left) && !tutti_list_empty(head)) {
        tutti_list_add(&sorted,
                       tutti_list_pop(compare_seat(left.next, head->next) <= 0 ? &left : head));
    }
    tutti_list_splice(&sorted, &left);
    tutti_list_splice(&sorted, head);
    tutti_list_splice(head, &sorted);
}

/*
 * Is it the job of a coordinator that was started again without a store? Then all its processes come back, each in its
 * seat, and have heard of the same changes. If one is another, or has missed a change, it is another job: those who
 * stayed know the others as they were, and have counted ops that the new one has not.
 */
static bool
is_known_job(const coord_job *job)
{
    const tutti_coordinator_former *first;
    uint32_t rank;

    for (rank = 0; rank < job->world_size; rank++) {
        if (job->seats[rank] == NULL || job->seats[rank]->former.job_id == 0) {
            return false;
        }
    }
    first = &job->seats[0]->former;
    for (rank = 1; rank < job->world_size; rank++) {
        const tutti_coordinator_former *former = &job->seats[rank]->former;

        if (former->job_id != first->job_id || former->epoch != first->epoch) {
            return false;
        }
    }
    return true;
}

/* Groups count from the last member that came: as their members have it. Later groups get numbers that no
 * former one had. */
static void
go_on_as_before(coord_job *job)
{
    uint32_t rank;

    job->last_joined_epoch = 0;
    for (rank = 0; rank < job->world_size; rank++) {
        coord_agent *agent = job->seats[rank];

        agent->joined_epoch = agent->former.joined_epoch;
        if (agent->joined_epoch > job->last_joined_epoch) {
            job->last_joined_epoch = agent->joined_epoch;
        }
    }
    job->group_ids += tutti_id_draw() >> 16;
}

void
coord_seats_form(coord_job *job)
{
    const bool known = is_known_job(job);
    uint32_t rank;

    assert(job->epoch == 0 && job->attached == job->present);
    if (known) {
        job->id = job->seats[0]->former.job_id;
        job->epoch = job->seats[0]->former.epoch;
    }
    sort_seats(&job->unassigned, job->unassigned_count);
    coord_job_next_epoch(job);
    job->ever_formed = true;
    job->attached = 0;
    job->unassigned_count = 0;
    for (rank = 0; rank < job->world_size; rank++) {
        if (job->seats[rank] == NULL) {
            make_alive(
                tutti_container_of(tutti_list_pop(&job->unassigned), coord_agent, unassigned),
                rank);
        } else if (job->seats[rank]->state == TUTTI_COORDINATOR_WAITING) {
            make_alive(job->seats[rank], rank);
        }
    }
    assert(tutti_list_empty(&job->unassigned));
    if (known) {
        go_on_as_before(job);
    }
    job->owner->hooks->refresh_world(job);
    job->owner->hooks->record_formed(job);
    job->owner->hooks->wake_member_watches(job);
    coord_note(job->owner, "job %s: %s with %" PRIu32 " rank%s", job->name,
               known ? "goes on" : "formed", job->alive_count, job->alive_count == 1 ? "" : "s");
}
