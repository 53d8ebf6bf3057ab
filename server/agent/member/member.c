/*
 * The seat of this agent: join the job, keep a session with the coordinator, hear who comes and
 * goes. Control loop.
 *
 *   AGENT_JOINING  Join is called again and again, until it is answered, refused for good, or
 *                  --join-timeout is over
 *   AGENT_JOINED   a session is kept open; when it breaks it is opened again, for ever. Ops go on
 *                  meanwhile with the peers that are known (partition.c says when they may not)
 *   AGENT_LEAVING  leave.c; nothing is tried again
 *
 * Joined goes back to joining in one case: the coordinator does not know this agent (NOT_FOUND), as
 * it was started again without its store. The agent then asks for the rank it had.
 *
 * `flow` is the one stream that may be open, a Join or a Session. Its callbacks point to the
 * agent_member, so the agent ends only when flow is NULL (agent_member_idle). Every end of a flow
 * leads to exactly one of: the next flow, a retry timer, giving up, or nothing because the agent
 * leaves.
 */
#include "server/agent/member/member.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "rpc/follow.h"
#include "server/agent/member/member_private.h"
#include "server/agent/op/group.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/* Start --join-timeout, for all attempts together. `waits` says what the agent waits for. */
static void limit_join(struct agent_member *self);

/* Advice to add to the text of a join error; NULL: there is none. */
static const char *advise_joiner(const tutti_error *err);

/*
 * Waits before another attempt. SEAT_WAIT_NS: how long a taken seat or GPU is asked for, as the
 * process that had it may be dead and the coordinator about to notice. SETTLE_NS: a process that joins a
 * job in progress holds its first ops, since other ranks hear of it at different moments
 * (docs/decisions/0014).
 */
#define RETRY_MIN_NS (200 * TUTTI_NS_PER_MS)
#define RETRY_MAX_NS (5 * TUTTI_NS_PER_S)
#define RETRY_OTHERS_NS (400 * TUTTI_NS_PER_MS)
#define SEAT_WAIT_NS (2 * TUTTI_NS_PER_S)
#define SETTLE_NS (200 * TUTTI_NS_PER_MS)
#define SAY_AGAIN_NS (5 * TUTTI_NS_PER_S)
#define SAY_OFTEN 3 /* times; then it is known, and a line a minute will do */
#define SAY_SELDOM_NS (60 * TUTTI_NS_PER_S)
#define PACED_WORLD 1000                 /* ranks: fewer may come at one instant */
#define PACE_NS (200 * (uint64_t)1000)   /* for each rank: 2 s for 10 000 */
#define PACE_MAX_NS (4 * TUTTI_NS_PER_S) /* a new coordinator waits 10 s for its ranks */

static void begin_join(struct agent_member *self);
static void begin_session(struct agent_member *self);

tutti_code
agent_member_open(tutti_agent *agent, tutti_error *err)
{
    struct agent_member *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the session");
    }
    self->agent = agent;
    self->wait_ns = RETRY_MIN_NS;
    agent->member = self;
    return TUTTI_OK;
}

bool
agent_member_idle(const tutti_agent *agent)
{
    return agent->member->flow == NULL;
}

void
agent_member_close(tutti_agent *agent)
{
    free(agent->member);
    agent->member = NULL;
}

/* ------------------------------------------------------------------------------ trying again */

/*
 * What is tried depends on the state now, not on what failed: the coordinator may have refused the
 * session meanwhile.
 */
static void
on_retry(tutti_timer *timer)
{
    struct agent_member *self = tutti_container_of(timer, struct agent_member, retry);

    if (self->agent->state == AGENT_JOINED) {
        begin_session(self);
    } else if (self->agent->state == AGENT_JOINING) {
        begin_join(self);
    }
}

/*
 * A random part of the time in which the coordinator takes the agents of a large job. A launcher
 * starts all of them at one instant, and a coordinator that comes back is missed by all of them:
 * their handshakes would wait for each other until they time out.
 */
static uint64_t
draw_pace(const tutti_agent *agent)
{
    const uint64_t wanted_ns = agent->options->world_size * PACE_NS;

    if (agent->options->world_size < PACED_WORLD) {
        return 0;
    }
    return tutti_id_draw() % (wanted_ns < PACE_MAX_NS ? wanted_ns : PACE_MAX_NS);
}

/*
 * The first time it is tried again at once, as this connection alone may have broken, and the seat
 * is held no longer than the coordinator's --lost-grace. If that fails too, the coordinator is
 * probably away, and all agents of the job are trying.
 */
static uint64_t
draw_pace_again(const struct agent_member *self)
{
    return self->wait_ns > RETRY_MIN_NS ? draw_pace(self->agent) : 0;
}

/*
 * With several coordinators somebody leads again soon, and each has to be asked. One that is started
 * again waits for its ranks for the heartbeat timeout: there must be some attempts in that time.
 */
static uint64_t
longest_wait(const struct agent_member *self)
{
    const uint64_t some_ns = atomic_load(&self->patience_ns) / 4;

    if (tutti_rpc_channel_has_others(self->agent->coordinator)) {
        return RETRY_OTHERS_NS;
    }
    return some_ns != 0 && some_ns < RETRY_MAX_NS ? some_ns : RETRY_MAX_NS;
}

/* Waits double up to a limit; a random half keeps agents from coming at once. */
static void
try_later(struct agent_member *self)
{
    const uint64_t half = self->wait_ns / 2;

    if (self->agent->state == AGENT_LEAVING) {
        return;
    }
    self->state = MEMBER_IDLE;
    self->retry.on_expiry = on_retry;
    tutti_rpc_loop_timer_start(self->agent->control, &self->retry,
                               tutti_clock_ns() + half + tutti_id_draw() % (half + 1) +
                                   draw_pace_again(self));
    self->wait_ns = self->wait_ns * 2 < longest_wait(self) ? self->wait_ns * 2 : longest_wait(self);
}

/*
 * At most one line every 5 s, and after three lines one a minute: thousands of agents write logs.
 */
static bool
may_say(struct agent_member *self)
{
    const uint64_t now = tutti_clock_ns();

    if (self->said_ns == 0) {
        self->said_count = 0;
    } else if (now - self->said_ns <
               (self->said_count < SAY_OFTEN ? SAY_AGAIN_NS : SAY_SELDOM_NS)) {
        return false;
    }
    self->said_ns = now;
    self->said_count++;
    return true;
}

/* ------------------------------------------------------------------------------ joining */

void
agent_join_waits(tutti_agent *agent, uint32_t joined, uint32_t world_size, const uint32_t *missing,
                 size_t missing_count)
{
    struct agent_member *self = agent->member;
    tutti_text text = tutti_text_in(self->waits, sizeof(self->waits));

    self->wait_ns = RETRY_MIN_NS;
    tutti_text_add(&text, "job %s: %" PRIu32 " of %" PRIu32 " ranks are here", agent_job(agent),
                   joined, world_size);
    if (missing_count > 0 && missing_count == world_size - joined) {
        tutti_text_add(&text, ", missing: rank ");
        tutti_text_add_ranks(&text, missing, missing_count, 8);
    }
    if (may_say(self)) {
        TUTTI_LOG("agent", INFO, "%s", self->waits);
    }
}

/*
 * Also called when an agent joins again. Heartbeats and the silence timeout follow the
 * coordinator's answer; handles that the table makes from now on have the rank.
 */
void
agent_joined(tutti_agent *agent, uint32_t rank, uint32_t world_size, uint64_t epoch,
             uint64_t job_id, uint32_t heartbeat_ms, uint32_t timeout_ms)
{
    const bool anew = agent->job_id != 0 && agent->job_id != job_id;
    char context[64];

    agent->member->heartbeat_ns = heartbeat_ms * TUTTI_NS_PER_MS;
    agent_partition_watch(agent->member, timeout_ms * TUTTI_NS_PER_MS);
    agent->member->wait_ns = RETRY_MIN_NS;
    agent->member->said_ns = 0;
    if (anew) {
        TUTTI_LOG("agent", WARN, "job %s was begun anew by the coordinator", agent_job(agent));
    }
    agent->rank = rank;
    if (agent->on_joined != NULL) {
        agent->on_joined(agent->on_joined_arg, rank);
    }
    agent->world_size = world_size;
    agent->epoch = epoch;
    agent->job_id = job_id;
    (void)snprintf(context, sizeof(context), "rank=%" PRIu32, rank);
    tutti_log_set_context(context);
    tutti_table_set_rank(agent->table, rank);
    if (agent->state == AGENT_JOINING) {
        agent->state = AGENT_JOINED;
        agent->settled_ns = epoch > 1 ? tutti_clock_ns() + SETTLE_NS : 0;
        TUTTI_LOG("agent", INFO, "joined job %s as rank %" PRIu32 " of %" PRIu32 ", epoch %" PRIu64,
                  agent_job(agent), rank, world_size, epoch);
    }
    if (anew) { /* members that are new processes count its ops from 1, and know it by its new id */
        agent_world_changed(agent, 0, "the coordinator has begun the job anew");
    }
}

static void
on_join_message(void *arg, tutti_rpc_message *message)
{
    struct agent_member *self = arg;

    agent_wire_join_message(self->agent, message);
}

/* The process that had this seat, or this GPU, may be dead, and the coordinator about to notice. */
static bool
may_be_freed(const struct agent_member *self, const tutti_error *err)
{
    const bool is_held =
        err->code == TUTTI_ALREADY_EXISTS || strcmp(err->reason, "SHARED_GPU") == 0;

    return is_held && tutti_clock_ns() - self->began_ns < SEAT_WAIT_NS;
}

/* How long the attempts may go on: told with the first line only. */
static const char *
say_limit(const struct agent_member *self)
{
    return self->said_count > 1 || self->agent->state != AGENT_JOINING ||
                   self->agent->options->join_timeout_ns != 0
               ? ""
               : " (tried for ever; --join-timeout says how long)";
}

/* A Join was refused or broke. A refusal that another attempt cannot change ends the agent. */
static void
join_failed(struct agent_member *self, const tutti_error *err)
{
    tutti_error all = *err;
    const char *advice;
    bool same;

    if (self->agent->state == AGENT_JOINING && self->said_count == 0) {
        /* Once, while this loop has nothing else to do than to wait for the coordinator. */
        tutti_rpc_channel_name_certificate(self->agent->coordinator, &all);
    }
    advice = advise_joiner(&all);
    if (advice != NULL) {
        char text[sizeof(all.text)];

        (void)snprintf(text, sizeof(text), "%.800s: %s", all.text, advice);
        memcpy(all.text, text, sizeof(text));
    }
    if (agent_wire_is_final(err->code) && !may_be_freed(self, err)) {
        self->agent->hooks->give_up(self->agent, &all);
        return;
    }
    same = strncmp(self->waits, all.text, sizeof(self->waits) - 1) == 0;
    (void)snprintf(self->waits, sizeof(self->waits), "%.*s", (int)sizeof(self->waits) - 1,
                   all.text);
    if (may_say(self)) {
        same = same && self->said_count > 1;
        TUTTI_LOG("agent", WARN, "%swaiting for the coordinator at %s%s%s%s", same ? "still " : "",
                  self->agent->options->coordinator, same ? "" : ": ", same ? "" : all.text,
                  same ? "" : say_limit(self));
    }
    try_later(self);
}

static void
on_join_end(void *arg, const tutti_error *err)
{
    struct agent_member *self = arg;
    tutti_error none;

    self->flow = NULL;
    if (self->agent->state == AGENT_LEAVING) {
        return;
    }
    if (self->agent->state == AGENT_JOINED) {
        begin_session(self);
        return;
    }
    (void)TUTTI_FAIL_FOR(&none, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                         "the coordinator ended the call without an answer");
    join_failed(self, err != NULL ? err : &none);
}

/* began_ns is 0 at the first attempt of a join: then the limit for all attempts together starts. */
static void
begin_join(struct agent_member *self)
{
    static const tutti_rpc_flow_ops ops = {.on_message = on_join_message, .on_end = on_join_end};
    tutti_error err;

    if (self->began_ns == 0) {
        self->began_ns = tutti_clock_ns();
        limit_join(self);
    }
    self->state = MEMBER_JOIN;
    if (agent_wire_join(self->agent, &ops, &self->flow, &err) != TUTTI_OK) {
        self->flow = NULL;
        join_failed(self, &err);
    }
}

void
agent_member_start(tutti_agent *agent)
{
    struct agent_member *self = agent->member;
    const uint64_t pace_ns = draw_pace(agent);

    if (pace_ns == 0) {
        begin_join(self);
        return;
    }
    self->retry.on_expiry = on_retry;
    tutti_rpc_loop_timer_start(agent->control, &self->retry, tutti_clock_ns() + pace_ns);
}

/* ------------------------------------------------------------------------------ the session */

/*
 * The order matters: the engine fails ops that need the rank, then groups are marked so that new
 * ops wait for news, then the world of an elastic job changes. A polite leave lets running ops end
 * first.
 */
void
agent_rank_lost(tutti_agent *agent, uint32_t rank, uint64_t incarnation, uint64_t epoch,
                const char *reason, bool left)
{
    agent->epoch = epoch > agent->epoch ? epoch : agent->epoch;
    if (rank == agent->rank || agent->state == AGENT_LEAVING) {
        return; /* the old news of our own reconnection, or news too late */
    }
    TUTTI_LOG("agent", WARN, "rank %" PRIu32 " is lost: %s (epoch %" PRIu64 ")", rank, reason,
              epoch);
    tutti_coll_lose_peer(agent->engine, rank, incarnation, reason);
    agent_groups_note_lost(agent, rank);
    agent->hooks->rank_lost(agent, rank, reason);
    if (!left || !agent_world_settles(agent, epoch)) {
        agent_world_changed(agent, epoch, "a member is gone");
    }
}

/*
 * For the log and the epoch alone: the leaver has told the members of each group over the data
 * plane which ops still go on (lib/coll/engine/abort.c).
 */
void
agent_rank_leaving(tutti_agent *agent, uint32_t rank, uint64_t epoch, const char *reason)
{
    agent->epoch = epoch > agent->epoch ? epoch : agent->epoch;
    if (rank != agent->rank && agent->state != AGENT_LEAVING) {
        TUTTI_LOG("agent", INFO, "rank %" PRIu32 " is leaving: %s (epoch %" PRIu64 ")", rank,
                  reason, epoch);
    }
}

bool
agent_rank_joined(tutti_agent *agent, uint32_t rank, uint64_t epoch)
{
    agent->epoch = epoch > agent->epoch ? epoch : agent->epoch;
    if (rank == agent->rank || agent->state == AGENT_LEAVING) {
        return false;
    }
    TUTTI_LOG("agent", INFO, "rank %" PRIu32 " is back (epoch %" PRIu64 ")", rank, epoch);
    return true;
}

/* A heartbeat is skipped while the one before has not left: it would only wait behind it. */
static void
on_beat(tutti_timer *timer)
{
    struct agent_member *self = tutti_container_of(timer, struct agent_member, beat);

    if (self->flow != NULL && self->state == MEMBER_SESSION) {
        if (tutti_rpc_flow_writable(self->flow)) {
            agent_wire_heartbeat(self->agent, self->flow, ++self->beats);
        }
        tutti_rpc_loop_timer_start(self->agent->control, &self->beat,
                                   tutti_clock_ns() + self->heartbeat_ns);
    }
}

/* Somebody asks where ops stand: the heartbeat that is due later comes now. */
void
agent_beat_now(tutti_agent *agent)
{
    if (agent->member->beat.running) {
        tutti_rpc_loop_timer_start(agent->control, &agent->member->beat, tutti_clock_ns());
    }
}

/* What its ops need of the coordinator is asked for now, when it is there: it may be gone at the first op. */
static void
open_world(tutti_agent *agent)
{
    if (agent->world_size > 1 && agent->world_size <= AGENT_MEET_MAX) {
        agent_group_want(agent, "world");
    }
}

/*
 * Every message ends the silence. The first one that accepts the session resets the waits. After a
 * break, groups are asked for again: news of a deleted group may have been lost with the old
 * session.
 */
static void
on_session_message(void *arg, tutti_rpc_message *message)
{
    struct agent_member *self = arg;

    agent_partition_end(self);
    if (agent_wire_session_message(self->agent, message)) {
        self->accepted = true;
        self->agent->in_session = true;
        tutti_count(&self->agent->numbers.sessions, 1);
        self->wait_ns = RETRY_MIN_NS;
        self->said_ns = 0;
        agent_say_serving(self->agent);
        open_world(self->agent);
        if (self->broke) {
            TUTTI_LOG("agent", INFO, "in touch with the coordinator again");
            agent_groups_check(self->agent);
        }
        if (self->agent->draining) { /* a coordinator that was started again may not know */
            self->agent->announcements_pending++;
            agent_member_announce(self->agent);
        }
        self->broke = true;
    }
}

/*
 * NOT_FOUND: this coordinator never knew the seat, as it was started again without its store: join
 * again. Any other final answer means that the seat is another process's: the agent ends.
 */
static void
session_refused(struct agent_member *self, const tutti_error *err)
{
    tutti_agent *agent = self->agent;

    if (err->code == TUTTI_NOT_FOUND) {
        TUTTI_LOG("agent", WARN,
                  "the coordinator does not know this rank any more (%s): joining again",
                  err->text);
        agent->state = AGENT_JOINING;
        agent->hooks->seat_lost(agent, err);
        self->began_ns = 0;
        try_later(self);
        return;
    }
    agent->hooks->give_up(agent, err);
}

static void
on_session_end(void *arg, const tutti_error *err)
{
    struct agent_member *self = arg;

    self->flow = NULL;
    self->agent->in_session = false;
    tutti_rpc_loop_timer_stop(self->agent->control, &self->beat);
    agent_partition_check(self, err);
    if (self->agent->state == AGENT_LEAVING) {
        return;
    }
    /*
     * UNAUTHENTICATED is not final here: tokens and the coordinator's keys are renewed by others,
     * and not at one moment.
     */
    if (err != NULL && err->code != TUTTI_UNAUTHENTICATED &&
        (err->code == TUTTI_NOT_FOUND || agent_wire_is_final(err->code))) {
        session_refused(self, err);
        return;
    }
    self->moving = false;
    if (self->accepted || may_say(self)) {
        TUTTI_LOG("agent", WARN, "lost the coordinator at %s (%s): going on, trying again",
                  self->agent->options->coordinator, err == NULL ? "it ended" : err->text);
    }
    self->accepted = false;
    try_later(self);
}

/* A new session has been told nothing of the groups' progress, so all of it is told again. */
static void
begin_session(struct agent_member *self)
{
    static const tutti_rpc_flow_ops ops = {.on_message = on_session_message,
                                           .on_end = on_session_end};
    tutti_error err;

    self->state = MEMBER_SESSION;
    self->session_ns = tutti_clock_ns();
    agent_progress_again(self->agent);
    if (agent_wire_session(self->agent, &ops, &self->flow, &err) != TUTTI_OK) {
        self->flow = NULL;
        TUTTI_LOG("agent", WARN, "no session with the coordinator: %s", err.text);
        try_later(self);
        return;
    }
    self->beat.on_expiry = on_beat;
    tutti_rpc_loop_timer_start(self->agent->control, &self->beat,
                               tutti_clock_ns() + self->heartbeat_ns);
}

/* ------------------------------------------------------------------------------ join advice */

typedef struct piece {
    const char *reason; /* of the error; NULL = any */
    const char *words;  /* in its text; NULL = any */
    const char *advice;
} piece;

/* The first that fits. */
static const piece pieces[] = {
    {"UNREACHABLE", "its certificate is for",
     "name it as its certificate does (--coordinator), or say that name (--coordinator-name)"},
    {"UNREACHABLE", "its certificate is not signed",
     "give the authority that signed it (--coordinator-ca)"},
    {"UNREACHABLE", "it wants a client certificate",
     "give one (--coordinator-cert, --coordinator-key)"},
    {"UNREACHABLE", "perhaps it wants TLS",
     "see --coordinator-ca for TLS, --coordinator-cert and --coordinator-key for a certificate"},
    {"UNREACHABLE", "does not speak TLS", "leave --coordinator-ca out"},
    {"UNREACHABLE", "nothing listens there",
     "start tutti-coordinator there, or say where it is (--coordinator)"},
    {"UNREACHABLE", "there is no such socket",
     "start tutti-coordinator there, or say where it is (--coordinator)"},
    {"NO_TOKEN", NULL, "give one (--coordinator-token)"},
    {NULL, "there is no method /tutti.v1.CoordinatorService",
     "this is no coordinator: say where it is (--coordinator)"},
};

/*
 * The first entry that fits. Texts of errors are compared, since the rooms below do not know the
 * names of this program's options.
 */
static const char *
advise_joiner(const tutti_error *err)
{
    size_t i;

    for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        if ((pieces[i].reason == NULL || strcmp(err->reason, pieces[i].reason) == 0) &&
            (pieces[i].words == NULL || strstr(err->text, pieces[i].words) != NULL)) {
            return pieces[i].advice;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------ join deadline */

static void
on_limit(tutti_timer *timer)
{
    struct agent_member *self = tutti_container_of(timer, struct agent_member, limit);
    tutti_error late;

    if (self->agent->state != AGENT_JOINING) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&late, TUTTI_DEADLINE_EXCEEDED, "JOIN_TIMEOUT",
                         "not joined within %.3g s (--join-timeout): %s",
                         (double)self->agent->options->join_timeout_ns / TUTTI_NS_PER_S,
                         self->waits[0] != '\0' ? self->waits : "the coordinator has not answered");
    self->agent->hooks->give_up(self->agent, &late);
}

static void
limit_join(struct agent_member *self)
{
    const uint64_t limit = self->agent->options->join_timeout_ns;

    self->limit.on_expiry = on_limit;
    tutti_rpc_loop_timer_start(self->agent->control, &self->limit,
                               limit == 0 ? TUTTI_TIMERS_NEVER : tutti_clock_ns() + limit);
}
