/*
 * Sessions: the stream by which an agent says that it lives, and by which it is told what
 * changes.
 *
 * A session is started (no agent yet, has heartbeat_timeout to say who it is), then open (`agent`
 * is set), then accepted (the first message has been sent). It ends by on_end, or by the owner's
 * withdrawal when its stream is gone. An agent has at most one session; a second one replaces the
 * first.
 *
 * Telling: a session is in its job's `idle` list, or in `behind` if it may have something to be
 * told; fan_out moves it and sends one message. One message is in flight at a time (`writing`).
 * What was told is kept in the agent, not in the session (`acked_event`), so a session that
 * breaks and comes again goes on where the last one was acknowledged.
 *
 * Silence: the session's timer looks at the last sign of life. A session that seems silent
 * becomes a suspect and is judged in an idle turn, when all that was received has been read;
 * without such a turn it is ended after twice the timeout. A broken stream is told by withdrawal:
 * the agent has lost_grace for a new session.
 */
#include "server/coordinator/member/session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/join.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/seats.h"

/*
 * An agent that has just learnt its rank gets this many heartbeat timeouts for its first session:
 * when a large job is formed all agents connect at once.
 */
#define FIRST_SESSION_TIMEOUTS 3

/*
 * The heartbeat timeout is cut in so many parts; an agent that was told nothing for one of them
 * gets an acknowledgement, by which it knows that it is heard (server/agent/member/partition.c).
 */
#define HEARD_PARTS 4

static tutti_coordinator_session *
session_from(tutti_list_node *link)
{
    return tutti_container_of(link, tutti_coordinator_session, link);
}

/* No longer parked, and out of its agent's hands. Returns the agent it had, or NULL. */
static coord_agent *
detach_session(tutti_coordinator_session *session)
{
    coord_agent *agent = session->agent;

    coord_wait_stop(&session->wait);
    tutti_list_remove(&session->link);
    tutti_list_remove(&session->suspect);
    session->agent = NULL;
    if (agent != NULL) {
        agent->session = NULL;
        agent->gone_ns = agent->job->owner->now_ns;
    }
    return agent;
}

void
coord_agent_await_session(coord_agent *agent)
{
    tutti_coordinator *self = agent->job->owner;
    const uint64_t wait = agent->had_session
                              ? self->options.lost_grace_ns
                              : FIRST_SESSION_TIMEOUTS * self->options.heartbeat_timeout_ns;

    tutti_timers_start(&self->timers, &agent->timer, tutti_clock_add(self->now_ns, wait));
}

/*
 * The order: the state and epoch first, then the session ends (its callback may look), then Join
 * calls, then the event for the others, then what needs the rank (exchange rounds), and last the
 * job, which may be gone behind this call.
 */
void
coord_agent_lose(coord_agent *agent, const char *reason, const tutti_error *err)
{
    coord_job *job = agent->job;
    tutti_coordinator_session *session = agent->session;
    tutti_error lost;

    tutti_timers_stop(&job->owner->timers, &agent->timer);
    coord_seat_lose(agent, reason);
    job->owner->lost_total++;
    if (session != NULL) {
        (void)detach_session(session);
        session->on_end(session, err);
    }
    (void)TUTTI_FAIL_FOR(&lost, TUTTI_UNAVAILABLE, "RANK_LOST", "rank %" PRIu32 " was lost: %s",
                         agent->rank, agent->reason);
    tutti_error_set_op(&lost, NULL, 0, (int32_t)agent->rank);
    coord_joins_fail(agent, &lost);
    coord_event_publish(job, &agent->event);
    agent->job->owner->hooks->rank_lost(agent);
    coord_job_settle(job);
}

/* ------------------------------------------------------------------------------ messages */

/*
 * The first message: the epoch, and who is lost now. If more ranks are lost than fit, acked_event
 * goes back to the last one that was told, and the others follow as events.
 */
static void
send_accepted(tutti_coordinator_session *session)
{
    coord_job *job = session->agent->job;
    tutti_coordinator_event *lost = job->owner->told;
    coord_event *event = job->lost_count == 0 ? NULL : coord_event_after(job, 0);
    uint64_t last = 0;
    size_t count = 0;

    while (event != NULL && count < TUTTI_COORDINATOR_LOST_MAX) {
        coord_event_describe(event, &lost[count]);
        count += lost[count].kind == TUTTI_COORDINATOR_RANK_LOST ? 1 : 0;
        last = event->number;
        event = coord_event_after(job, last);
    }
    if (event != NULL && session->agent->acked_event > last) {
        session->agent->acked_event = last; /* the rest of them follows as events */
    }
    job->owner->last_told.job_id = 0; /* its events have made room for these */
    session->accepted = true;
    session->sending = session->agent->acked_event;
    session->on_accepted(session, job->epoch, lost, count);
}

/* The next event that the agent has not been told. Its own changes are no news to it. */
static coord_event *
find_news(const tutti_coordinator_session *session)
{
    const coord_agent *agent = session->agent;
    coord_event *event = coord_event_after(agent->job, agent->acked_event);

    while (event != NULL && event == &agent->event) {
        event = coord_event_after(agent->job, event->number);
    }
    return event;
}

/* The session is ended, not the agent: it may open another one and learn the state anew. */
static void
end_slow(tutti_coordinator_session *session, const char *why)
{
    coord_agent *agent = detach_session(session);
    tutti_error err;

    coord_agent_await_session(agent);
    (void)TUTTI_FAIL_FOR(&err, TUTTI_RESOURCE_EXHAUSTED, "SLOW_SESSION", "%s: connect again", why);
    session->on_end(session, &err);
}

/* Its own change would be in such a message, and is no news to it. */
static bool
has_own_change(const tutti_coordinator_session *session, const coord_last_told *last)
{
    const uint64_t own = session->agent->event.number;

    return own > last->from && own <= last->to;
}

/*
 * Is it to be told what the last session was told? When a thousand ranks are lost, thousands of
 * sessions are told of them, and looking for each change anew would be most of the work.
 */
static bool
is_told_alike(const tutti_coordinator_session *session, const coord_last_told *last)
{
    const coord_agent *agent = session->agent;

    return last->job_id == agent->job->id && last->moves == agent->job->event_moves &&
           last->epoch == agent->job->epoch && last->from == agent->acked_event &&
           !has_own_change(session, last);
}

/* Into `told`: from `event` on, as far as it goes into one message. */
static void
collect_changes(const tutti_coordinator_session *session, coord_event *event)
{
    const coord_job *job = session->agent->job;
    tutti_coordinator *self = job->owner;
    coord_last_told *last = &self->last_told;

    *last = (coord_last_told){.moves = job->event_moves,
                              .epoch = job->epoch,
                              .from = session->agent->acked_event,
                              .alike = last->alike + 1};
    for (; event != NULL && last->count < TUTTI_COORDINATOR_CHANGES_MAX;
         event = coord_event_after(job, event->number)) {
        last->to = event->number;
        if (event != &session->agent->event) {
            coord_event_describe(event, &self->told[last->count++]);
        }
    }
    last->job_id = has_own_change(session, last) ? 0 : job->id;
}

/* All that it has not been told, from `event` on, as far as it goes into one message. */
static void
send_changes(tutti_coordinator_session *session, coord_event *event)
{
    tutti_coordinator *self = session->agent->job->owner;
    coord_last_told *last = &self->last_told;

    if (!is_told_alike(session, last)) {
        collect_changes(session, event);
    }
    session->sending = last->to;
    session->on_changes(session, self->told, last->count, last->alike);
}

/* Send one message, when there is one and none is in flight. */
static void
push_session(tutti_coordinator_session *session)
{
    coord_agent *agent = session->agent;
    coord_event *event;

    if (session->writing) {
        return;
    }
    session->write_ns = agent->job->owner->now_ns;
    if (!session->accepted) {
        session->writing = true;
        send_accepted(session);
        return;
    }
    /* An event that it has not been told is gone. */
    if (agent->acked_event < agent->job->trimmed) {
        agent->acked_event = agent->job->trimmed;
        end_slow(session, "more groups were deleted than the coordinator remembers for a session");
        return;
    }
    event = find_news(session);
    if (event != NULL) {
        session->writing = true;
        send_changes(session, event);
    } else if (agent->told_wanted < agent->job->wanted) {
        session->writing = true;
        session->sending = agent->acked_event;
        agent->told_wanted = agent->job->wanted;
        session->on_wanted(session, agent->told_wanted);
    } else if (session->heartbeat_due) {
        session->writing = true;
        session->sending = agent->acked_event;
        session->on_heartbeat_ack(session);
    }
    session->heartbeat_due = false;
}

/*
 * Move the session to those that may have something to be told. Not sent from here: the caller
 * may be in a handler of this very session, and an event for 10 000 sessions has to be told in
 * slices.
 */
static void
fall_behind(tutti_coordinator_session *session)
{
    coord_job *job = session->agent->job;

    tutti_list_remove(&session->link);
    tutti_list_add(&job->behind, &session->link);
    coord_defer(job->owner, &job->fan_out);
}

static size_t
on_fan_out(coord_task *work, size_t budget)
{
    coord_job *job = tutti_container_of(work, coord_job, fan_out);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&job->behind)) {
        tutti_coordinator_session *session = session_from(tutti_list_pop(&job->behind));

        tutti_list_add(&job->idle, &session->link);
        push_session(session);
        done++;
    }
    if (!tutti_list_empty(&job->behind)) {
        coord_defer(job->owner, work);
    }
    return done;
}

/* ------------------------------------------------------------------------------ time */

static void
end_unopened(tutti_coordinator_session *session)
{
    tutti_error err;

    (void)detach_session(session);
    (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "BAD_ORDER",
                         "no first message came: begin a session with `open`");
    session->on_end(session, &err);
}

static void
end_silent(tutti_coordinator_session *session)
{
    coord_agent *agent = session->agent;
    const uint64_t seconds = agent->job->owner->options.heartbeat_timeout_ns / TUTTI_NS_PER_S;
    const uint64_t ms = agent->job->owner->options.heartbeat_timeout_ns / TUTTI_NS_PER_MS;
    char reason[COORD_REASON_MAX];
    tutti_error err;

    (void)snprintf(reason, sizeof(reason), "no heartbeat for %" PRIu64 " %s",
                   seconds * 1000 == ms ? seconds : ms, seconds * 1000 == ms ? "s" : "ms");
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "RANK_LOST", "rank %" PRIu32 " was lost: %s",
                         agent->rank, reason);
    coord_agent_lose(agent, reason, &err);
}

/*
 * The last sign of life, or the time at which this process came back from not running, whichever
 * is later.
 */
static uint64_t
seen_at(const tutti_coordinator_session *session)
{
    const uint64_t awake_ns = session->wait.owner->awake_ns;

    return session->seen_ns > awake_ns ? session->seen_ns : awake_ns;
}

/*
 * The session seems silent, but its heartbeats may lie unread in a socket: coord_sessions_judge
 * decides in an idle turn. The timer is the second limit, for a coordinator that is never idle.
 */
static void
suspect_session(tutti_coordinator_session *session)
{
    tutti_coordinator *self = session->wait.owner;

    tutti_list_remove(&session->suspect);
    tutti_list_add(&self->suspects, &session->suspect);
    tutti_timers_start(&self->timers, &session->wait.timer,
                       tutti_clock_add(self->now_ns, self->options.heartbeat_timeout_ns));
}

/*
 * Silent for twice the timeout: lost, whatever is unread. Silent for the timeout: a suspect. A
 * message that could not be sent for the whole timeout: the session is ended, because its agent
 * does not read. Else look again when the first of the two is due.
 */
static void
check_life(tutti_coordinator_session *session)
{
    tutti_coordinator *self = session->wait.owner;
    const uint64_t timeout = self->options.heartbeat_timeout_ns;
    const uint64_t silent_at = tutti_clock_add(seen_at(session), timeout);
    const uint64_t stuck_at =
        session->writing ? tutti_clock_add(session->write_ns, timeout) : TUTTI_TIMERS_NEVER;

    if (tutti_clock_add(silent_at, timeout) <= self->now_ns) {
        end_silent(session);
    } else if (silent_at <= self->now_ns) {
        suspect_session(session);
    } else if (stuck_at <= self->now_ns) {
        end_slow(session, "a message to it could not be sent for the whole heartbeat timeout");
    } else {
        tutti_timers_start(&self->timers, &session->wait.timer,
                           silent_at < stuck_at ? silent_at : stuck_at);
    }
}

void
coord_sessions_judge(tutti_coordinator *self, size_t budget)
{
    const uint64_t timeout = self->options.heartbeat_timeout_ns;
    tutti_list_node *link;

    while (budget-- > 0 && (link = tutti_list_pop(&self->suspects)) != NULL) {
        tutti_coordinator_session *session =
            tutti_container_of(link, tutti_coordinator_session, suspect);

        if (tutti_clock_add(seen_at(session), timeout) <= self->now_ns) {
            end_silent(session);
        } else {
            check_life(session);
        }
    }
}

static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    tutti_coordinator_session *session = tutti_container_of(wait, tutti_coordinator_session, wait);

    if (err != NULL) {
        (void)detach_session(session);
        session->on_end(session, err);
    } else if (session->agent == NULL) {
        end_unopened(session);
    } else {
        check_life(session);
    }
}

/* ------------------------------------------------------------------------------ door */

void
tutti_coordinator_session_start(tutti_coordinator *self, tutti_coordinator_session *session)
{
    session->wait.on_end = on_end;
    tutti_list_init(&session->link);
    tutti_list_init(&session->suspect);
    coord_wait_start(self, &session->wait, false,
                     tutti_clock_add(self->now_ns, self->options.heartbeat_timeout_ns));
}

static void
supersede_session(coord_agent *agent)
{
    tutti_coordinator_session *old = agent->session;
    tutti_error err;

    if (old == NULL) {
        return;
    }
    (void)detach_session(old);
    (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "SUPERSEDED",
                         "rank %" PRIu32 " opened another session", agent->rank);
    old->on_end(old, &err);
}

static tutti_code
check_open(const tutti_coordinator_session *session, tutti_error *err)
{
    if (session->wait.owner->draining) {
        return coord_fail_draining(err);
    }
    if (session->agent != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_ORDER",
                              "the session of rank %" PRIu32 " is open already",
                              session->agent->rank);
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_session_open(tutti_coordinator_session *session,
                               const tutti_coordinator_member *member, tutti_error *err)
{
    tutti_coordinator *self = session->wait.owner;
    coord_agent *agent = NULL;
    tutti_code code = check_open(session, err);

    if (code == TUTTI_OK) {
        code = coord_member_check(self, member, &agent, err);
    }
    if (code != TUTTI_OK) {
        tutti_coordinator_session_withdraw(session);
        return code;
    }
    supersede_session(agent);
    tutti_timers_stop(&self->timers, &agent->timer);
    agent->session = session;
    agent->had_session = true;
    agent->restored = false;
    /* A question that was sent on the last session may be lost with it. */
    agent->told_wanted = agent->answered;
    session->agent = agent;
    session->seen_ns = self->now_ns;
    fall_behind(session);
    check_life(session);
    return TUTTI_OK;
}

/*
 * Acknowledge a heartbeat if the agent has been told nothing for a while. By fan_out, not from
 * here: push_session may end the session, which its own message's handler does not expect.
 */
static void
answer_heartbeat(tutti_coordinator_session *session)
{
    tutti_coordinator *self = session->wait.owner;
    const uint64_t patience = self->options.heartbeat_timeout_ns / HEARD_PARTS;

    if (session->accepted && self->now_ns - session->write_ns >= patience) {
        session->heartbeat_due = true;
        fall_behind(session);
    }
}

tutti_code
tutti_coordinator_session_heartbeat(tutti_coordinator_session *session, tutti_error *err)
{
    if (session->agent == NULL) {
        (void)detach_session(session);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_ORDER",
                              "a heartbeat came first: begin a session with `open`");
    }
    session->seen_ns = session->wait.owner->now_ns;
    answer_heartbeat(session);
    return TUTTI_OK;
}

void
tutti_coordinator_session_written(tutti_coordinator_session *session)
{
    if (session->wait.owner == NULL || !session->writing) {
        return;
    }
    session->writing = false;
    session->agent->acked_event = session->sending;
    if (find_news(session) != NULL || session->agent->told_wanted < session->agent->job->wanted) {
        fall_behind(session);
    }
}

void
tutti_coordinator_session_withdraw(tutti_coordinator_session *session)
{
    coord_agent *agent;

    if (session->wait.owner == NULL) {
        return;
    }
    agent = detach_session(session);
    if (agent != NULL) {
        coord_agent_await_session(agent);
    }
}

void
coord_sessions_wake(coord_job *job)
{
    tutti_list_splice(&job->behind, &job->idle);
    if (!tutti_list_empty(&job->behind)) {
        coord_defer(job->owner, &job->fan_out);
    }
}

void
coord_sessions_init(coord_job *job)
{
    tutti_list_init(&job->idle);
    tutti_list_init(&job->behind);
    coord_task_init(&job->fan_out, on_fan_out);
}

void
coord_sessions_fini(coord_job *job)
{
    assert(tutti_list_empty(&job->idle) && tutti_list_empty(&job->behind));
    coord_task_stop(&job->fan_out);
}

tutti_coordinator_epoch_key
tutti_coordinator_session_key(const tutti_coordinator_session *session)
{
    return coord_job_key(session->agent->job);
}
