/* The life of a session: opening, reading, the end. */
#include "server/agent/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/function/value.h"
#include "server/agent/session/sessions.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/* The coordinator and all workers have this long to answer while a session opens. */
#define OPEN_NS (15 * TUTTI_NS_PER_S)
#define QUEUED_BYTES_MAX ((uint64_t)64 << 20)

static void run_end(tutti_rpc_task *task);

static bool
make_commands(agent_session *self)
{
    const uint32_t count = (uint32_t)self->agent->options->commands_max;
    uint32_t i;

    self->registers_max = (uint32_t)self->agent->options->registers_max;
    self->commands = calloc(count, sizeof(*self->commands));
    if (self->commands == NULL) {
        return false;
    }
    for (i = 0; i < count; i++) {
        self->commands[i].session = self;
        self->commands[i].slot = i;
        tutti_list_add(&self->free, &self->commands[i].link);
    }
    return true;
}

static void
free_session(agent_session *self)
{
    uint32_t i;

    for (i = 0; i < self->worker_count; i++) {
        agent_worker_free(&self->workers[i]);
    }
    free(self->workers);
    free(self->chosen);
    free(self->commands);
    if (self->token != NULL) {
        explicit_bzero(self->token, strlen(self->token));
    }
    free(self->token);
    explicit_bzero(self->secret, sizeof(self->secret));
    free(self->found);
    free(self);
}

agent_session *
agent_session_new(tutti_agent *agent, tutti_rpc_call *call)
{
    agent_session *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->agent = agent;
    self->call = call;
    self->end.on_run = run_end;
    tutti_id_format(tutti_id_draw(), self->id);
    tutti_map_init(&self->by_id);
    tutti_list_init(&self->link);
    tutti_list_init(&self->asks);
    tutti_list_init(&self->free);
    tutti_list_init(&self->running);
    tutti_list_init(&self->answered);
    if (!make_commands(self)) {
        free_session(self);
        return NULL;
    }
    tutti_list_add(&agent->sessions, &self->link);
    agent->session_count++;
    return self;
}

static bool
make_worker(agent_session *self, uint32_t number, uint32_t rank)
{
    const uint32_t commands = (uint32_t)self->agent->options->commands_max;
    agent_worker *worker = &self->workers[number];
    uint32_t i;

    worker->session = self;
    worker->number = number;
    worker->rank = rank;
    tutti_list_init(&worker->parts);
    worker->queue = calloc(commands, sizeof(worker->queue[0]));
    worker->by_slot = calloc(commands, sizeof(*worker->by_slot));
    if (worker->queue == NULL || worker->by_slot == NULL) {
        return false;
    }
    for (i = 0; i < commands; i++) {
        worker->by_slot[i].worker = worker;
        worker->by_slot[i].command = &self->commands[i];
        tutti_list_init(&worker->by_slot[i].link);
    }
    return true;
}

tutti_code
agent_session_hire(agent_session *session, const uint32_t *ranks, uint32_t count, tutti_error *err)
{
    bool made;
    uint32_t i;

    session->workers = calloc(count, sizeof(*session->workers));
    session->chosen = calloc(count, 1);
    made = session->workers != NULL && session->chosen != NULL;
    session->worker_count = session->workers == NULL ? 0 : count;
    for (i = 0; i < count && made; i++) {
        made = make_worker(session, i, ranks[i]);
    }
    session->group_size = count / session->group_count;
    return made ? TUTTI_OK
                : TUTTI_FAIL_MEMORY(err, "no memory for a session of %" PRIu32 " workers", count);
}

/* ------------------------------------------------------------------------------ opening */

static void
on_limit(tutti_timer *timer)
{
    agent_session *self = tutti_container_of(timer, agent_session, limit);
    tutti_error err;
    uint32_t i;

    for (i = 0; i < self->worker_count && self->workers[i].ready; i++) {
    }
    if (i < self->worker_count) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "UNREACHABLE",
                             "rank %" PRIu32 " at %s did not answer the session in %u s",
                             self->workers[i].rank, self->workers[i].address,
                             (unsigned)(OPEN_NS / TUTTI_NS_PER_S));
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "UNREACHABLE",
                             "the coordinator did not answer the session in %u s",
                             (unsigned)(OPEN_NS / TUTTI_NS_PER_S));
    }
    agent_session_close(self, &err);
}

static tutti_code
take_former(agent_session *self, const agent_session_request *request, tutti_error *err)
{
    uint64_t id = 0;

    if (tutti_id_parse(request->resume, &id, NULL) != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "\"%.40s\" is no session, need 16 hex digits", request->resume);
    }
    if (request->secret.size != sizeof(self->secret)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_SECRET",
            "a secret of %zu bytes, need the %zu that the session was opened with",
            request->secret.size, sizeof(self->secret));
    }
    self->resumes = true;
    self->found = calloc(self->registers_max / 8 + 1, 1);
    if (self->found == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to resume a session");
    }
    memcpy(self->id, request->resume, sizeof(self->id));
    memcpy(self->secret, request->secret.data, sizeof(self->secret));
    return TUTTI_OK;
}

/* A look at register 0 of a session that is to be resumed. */
typedef struct former_look {
    tutti_lock_set lock_set;
    tutti_table *table;
} former_look;

static void
end_look(former_look *self)
{
    tutti_table_release(self->table, &self->lock_set);
    free(self);
}

/* The table has granted it when nobody waited any more. */
static void
on_late(tutti_lock_set *lock_set)
{
    end_look(tutti_container_of(lock_set, former_look, lock_set));
}

static void
read_about(agent_session *session, former_look *self)
{
    const agent_value *value =
        agent_value_of(tutti_table_value_of(self->table, &self->lock_set.locks[0]));

    if (value != NULL && value->any.kind == TUTTI_ANY_TEXT) {
        (void)snprintf(session->about, sizeof(session->about), "%s", value->any.u.text);
    }
}

/* Who opens a session writes register 0, and nobody afterwards: a lock that has to be waited for is
 * somebody else's doing, and as good as none. */
static void
look_for_former(agent_session *session)
{
    former_look *self = calloc(1, sizeof(*self));
    char name[AGENT_SESSION_NAME_SIZE];

    if (self == NULL) {
        return;
    }
    self->table = session->agent->table;
    self->lock_set.loop = session->agent->control;
    self->lock_set.on_ready = on_late;
    agent_session_register(session, 0, name);
    if (tutti_table_lock_by_name(self->table, &self->lock_set, name, false, NULL) != TUTTI_OK) {
        end_look(self);
    } else if (tutti_table_acquire(self->table, &self->lock_set)) {
        read_about(session, self);
        end_look(self);
    }
}

/* One text for all cases: a stranger who guesses does not learn which sessions there are. */
tutti_code
agent_session_fail_unknown(const agent_session *session, tutti_error *err)
{
    return TUTTI_FAIL_FOR(
        err, TUTTI_NOT_FOUND, "NO_SESSION",
        "session %s cannot be resumed at rank %" PRIu32
        ": it is over, did not linger, has other ranks, or this is not its secret",
        session->id, session->agent->rank);
}

/* What is left of it on this agent: "2 world". */
static tutti_code
find_former(agent_session *self, const char **ret_group, tutti_error *err)
{
    char *end = self->about;

    look_for_former(self);
    self->group_count = (uint32_t)strtoul(self->about, &end, 10);
    if (self->group_count == 0 || *end != ' ') {
        return agent_session_fail_unknown(self, err);
    }
    *ret_group = end + 1;
    return TUTTI_OK;
}

static void
draw_secret(agent_session *self)
{
    const uint64_t words[] = {tutti_id_draw(), tutti_id_draw()};

    memcpy(self->secret, words, sizeof(self->secret));
}

static void
name_groups(agent_session *self)
{
    char id[TUTTI_ID_TEXT_SIZE];

    tutti_id_format(tutti_id_draw(), id);
    (void)snprintf(self->mesh, sizeof(self->mesh), "session/%s", id);
    (void)snprintf(self->all, sizeof(self->all), "mesh:session/%s/g+w", id);
    (void)snprintf(self->each, sizeof(self->each), "mesh:session/%s/w", id);
    (void)snprintf(self->own, sizeof(self->own), "mesh:session/%s/g+w+f", id);
}

/* The workers may have another limit, and check theirs. */
static tutti_code
check_linger(const agent_session *self, const agent_session_request *request, tutti_error *err)
{
    const uint64_t most_ms = self->agent->options->session_linger_ns / TUTTI_NS_PER_MS;

    if (request->linger && request->linger_ms > most_ms) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LINGER_LIMIT",
                              "linger_ms is %" PRIu32 ", at most %" PRIu64 " (--session-linger)",
                              request->linger_ms, most_ms);
    }
    return TUTTI_OK;
}

tutti_code
agent_session_start(agent_session *session, const agent_session_request *request, tutti_error *err)
{
    const char *group = request->group[0] == '\0' ? "world" : request->group;

    session->group_count = request->group_count == 0 ? 1 : request->group_count;
    TUTTI_TRY(check_linger(session, request, err));
    session->linger = request->linger && session->agent->options->session_linger_ns > 0;
    session->linger_ms = request->linger_ms;
    if (request->resume[0] != '\0') {
        TUTTI_TRY(take_former(session, request, err));
        TUTTI_TRY(find_former(session, &group, err));
    } else if (session->linger) {
        draw_secret(session);
        (void)snprintf(session->about, sizeof(session->about), "%" PRIu32 " %s",
                       session->group_count, group);
    }
    name_groups(session);
    session->limit.on_expiry = on_limit;
    tutti_rpc_loop_timer_start(session->agent->control, &session->limit,
                               tutti_clock_ns() + OPEN_NS);
    agent_session_ask_group(session, group);
    return TUTTI_OK;
}

/*
 * Until now a resume that failed would have left the session as it was. From here on it does not
 * linger any more, which each worker has to confirm before the session is open: if it were closed
 * before a worker had heard, that worker would keep what it holds for --session-linger.
 *
 * Returns whether the opening waits for that.
 */
static bool
end_lingering(agent_session *self)
{
    uint32_t i;

    if (!self->resumes || self->linger || self->unlingered) {
        return false;
    }
    self->unlingered = true;
    self->opening += self->worker_count;
    for (i = 0; i < self->worker_count && self->state == AGENT_SESSION_OPENING; i++) {
        agent_worker_unlinger(&self->workers[i]);
    }
    return true;
}

void
agent_session_step(agent_session *session)
{
    agent_drive *command = session->open;

    session->opening--;
    if (session->state != AGENT_SESSION_OPENING || session->opening > 0 || end_lingering(session)) {
        return;
    }
    tutti_rpc_loop_timer_stop(session->agent->control, &session->limit);
    session->state = AGENT_SESSION_OPEN;
    session->open = NULL;
    tutti_count(&session->agent->numbers.drives, 1);
    TUTTI_LOG("agent", DEBUG, "session %s of %s drives %" PRIu32 " workers", session->id,
              tutti_rpc_call_peer(session->call), session->worker_count);
    agent_drive_sent(command);
    agent_session_read(session);
}

void
agent_session_read(agent_session *session)
{
    const bool may = session->call != NULL && session->state != AGENT_SESSION_CLOSING &&
                     !session->reading && !session->closed &&
                     (session->state == AGENT_SESSION_OPEN || !session->began) &&
                     !tutti_list_empty(&session->free) && session->queued_bytes < QUEUED_BYTES_MAX;

    if (may) {
        session->reading = true;
        tutti_rpc_call_read(session->call);
    }
}

bool
agent_session_is_calm(const agent_session *session)
{
    return tutti_list_empty(&session->running) || session->running.next->next == &session->running;
}

/* ------------------------------------------------------------------------------ the end */

static bool
is_idle(const agent_session *self)
{
    bool idle = self->call == NULL && tutti_list_empty(&self->asks);
    uint32_t i;

    for (i = 0; i < self->worker_count && idle; i++) {
        idle = agent_worker_is_idle(&self->workers[i]);
    }
    return idle;
}

/* In an event of its own: the last stream's end still looks at its worker. */
static void
run_end(tutti_rpc_task *task)
{
    agent_session *self = tutti_container_of(task, agent_session, end);

    self->agent->sessions_ending--;
    tutti_list_remove(&self->link);
    free_session(self);
}

void
agent_session_look(agent_session *session)
{
    if (session->state == AGENT_SESSION_CLOSING && !session->ending && is_idle(session)) {
        session->ending = true;
        tutti_rpc_loop_post(session->agent->control, &session->end);
    }
}

void
agent_session_close(agent_session *session, const tutti_error *err)
{
    uint32_t i;

    if (session->state == AGENT_SESSION_CLOSING) {
        return;
    }
    session->state = AGENT_SESSION_CLOSING;
    /* Before the stream ends: a controller that was told that its session is over may open the next
     * one at once. */
    session->agent->session_count--;
    session->agent->sessions_ending++;
    tutti_rpc_loop_timer_stop(session->agent->control, &session->limit);
    agent_session_stop_asking(session);
    for (i = 0; i < session->worker_count; i++) {
        agent_worker_cancel(&session->workers[i]);
    }
    agent_drives_drop(session);
    agent_session_forget_mesh(session);
    if (session->call != NULL && !session->finished) {
        session->finished = true;
        tutti_rpc_call_finish(session->call, err);
    }
    agent_session_look(session);
}

void
agent_sessions_lose_rank(tutti_agent *agent, uint32_t rank, const char *reason)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_error err;
    uint32_t i;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "RANK_LOST", "rank %" PRIu32 " is gone: %.700s",
                         rank, reason);
    tutti_error_set_op(&err, "", 0, (int32_t)rank);
    tutti_list_each(link, spare, &agent->sessions)
    {
        agent_session *session = tutti_container_of(link, agent_session, link);

        for (i = 0; i < session->worker_count; i++) {
            if (session->workers[i].rank == rank && session->workers[i].channel != NULL) {
                agent_worker_lose(&session->workers[i], &err);
            }
        }
    }
}

/*
 * The coordinator has dropped the meshes of what it took for dead, so nothing of these sessions
 * would work any more; and the controller shall hear why instead of what is missing.
 */
void
agent_sessions_lose_seat(tutti_agent *agent, const tutti_error *err)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_error lost;

    (void)TUTTI_FAIL_FOR(&lost, TUTTI_UNAVAILABLE, "RANK_LOST",
                         "rank %" PRIu32 ", which led the session, lost its seat: %.600s; open "
                         "the session again",
                         agent->rank, err->text);
    tutti_error_set_op(&lost, "", 0, (int32_t)agent->rank);
    tutti_list_each(link, spare, &agent->sessions)
    {
        agent_session_close(tutti_container_of(link, agent_session, link), &lost);
    }
}

uint64_t
agent_sessions_command_count(const tutti_agent *agent)
{
    const tutti_list_node *link;
    uint64_t count = 0;

    for (link = agent->sessions.next; link != &agent->sessions; link = link->next) {
        count += tutti_container_of(link, agent_session, link)->by_id.count;
    }
    return count;
}

/* ------------------------------------------------------------------------------ registers */

void
agent_session_register(const agent_session *session, uint32_t number,
                       char ret_name[AGENT_SESSION_NAME_SIZE])
{
    (void)snprintf(ret_name, AGENT_SESSION_NAME_SIZE, "reg:%s/%" PRIu32, session->id, number);
}

void
agent_session_find(agent_session *session, const char *name)
{
    char prefix[AGENT_SESSION_NAME_SIZE];
    const int size = snprintf(prefix, sizeof(prefix), "reg:%s/", session->id);
    uint64_t number = 0;

    if (strncmp(name, prefix, (size_t)size) == 0 &&
        tutti_parse_uint(name + size, session->registers_max, &number, NULL) == TUTTI_OK) {
        session->found[number / 8] |= (unsigned char)(1u << number % 8);
    }
}
