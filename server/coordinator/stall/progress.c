/*
 * What agents tell of their ops (with heartbeats), and questions about it (DescribeStall).
 *
 * Of each agent the last report on each group is kept, up to a limit; a report without pending
 * ops makes room for a new one. A question gets the job's next number; all questions that come
 * before the agents are asked have the same one. The agents are asked by their sessions
 * (on_wanted), not more than ten times a second, and answer with their next heartbeats. A
 * question ends when all sessions have answered or its time is up: ranks that did not answer are
 * "silent".
 */
#include "server/coordinator/stall/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/session.h"
#include "server/coordinator/stall/progress_private.h"

#define ASK_MS 500
#define BETWEEN_NS (100 * TUTTI_NS_PER_MS) /* one time that all agents are asked and the next */

/* ------------------------------------------------------------------------------ what was told */

coord_progress_report *
coord_progress_report_find(const coord_agent *agent, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&agent->told, tutti_map_key_u64(key, id));

    return node == NULL ? NULL : tutti_container_of(node, coord_progress_report, node);
}

uint64_t
coord_progress_report_ms(const coord_progress_report *told, uint64_t ms, uint64_t now_ns)
{
    return ms + (now_ns - told->at_ns) / TUTTI_NS_PER_MS;
}

static void
forget_progress(coord_agent *agent, coord_progress_report *told)
{
    tutti_map_remove(&agent->told, &told->node);
    free(told->pending);
    free(told);
}

void
coord_progress_report_fini(coord_agent *agent)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&agent->told)) != NULL) {
        forget_progress(agent, tutti_container_of(node, coord_progress_report, node));
    }
}

/* Make room for one more group, by forgetting one in which nothing is pending. */
static bool
make_room_progress(coord_agent *agent)
{
    tutti_map_node *node;

    if (agent->told.count < TUTTI_COORDINATOR_GROUPS_REPORTED_MAX) {
        return true;
    }
    for (node = tutti_map_first(&agent->told); node != NULL; node = tutti_map_next(node)) {
        coord_progress_report *told = tutti_container_of(node, coord_progress_report, node);

        if (told->pending_count == 0) {
            forget_progress(agent, told);
            return true;
        }
    }
    return false;
}

/* NULL: no memory, or no room. */
static coord_progress_report *
told_of(coord_agent *agent, uint64_t id)
{
    coord_progress_report *told = coord_progress_report_find(agent, id);

    if (told != NULL || !make_room_progress(agent)) {
        return told;
    }
    told = calloc(1, sizeof(*told));
    if (told != NULL) {
        told->id = id;
        told->node.key = tutti_map_key_u64(told->key, id);
        (void)tutti_map_add(&agent->told, &told->node);
    }
    return told;
}

/* Others will read it: printable, and not too long. */
static void
keep_words(char *ret_words, size_t size, const char *words)
{
    size_t i;

    for (i = 0; words != NULL && words[i] != '\0' && i + 1 < size; i++) {
        ret_words[i] = words[i] >= 0x20 && words[i] <= 0x7e ? words[i] : '?';
    }
    ret_words[i] = '\0';
}

static void
keep_pending(coord_progress_report *told, const tutti_coordinator_pending *pending, size_t count)
{
    size_t i;

    free(told->pending);
    told->pending_count = 0;
    count = count < TUTTI_COORDINATOR_PENDING_MAX ? count : TUTTI_COORDINATOR_PENDING_MAX;
    told->pending = count == 0 ? NULL : calloc(count, sizeof(*told->pending));
    for (i = 0; i < count && told->pending != NULL; i++) {
        told->pending[i] = (coord_pending){.sequence = pending[i].sequence,
                                           .queued = pending[i].queued,
                                           .waited_ms = pending[i].waited_ms,
                                           .peer = pending[i].peer};
        keep_words(told->pending[i].op, sizeof(told->pending[i].op), pending[i].op);
        told->pending_count++;
    }
}

void
tutti_coordinator_session_report(tutti_coordinator_session *session,
                                 const tutti_coordinator_progress_report *told)
{
    coord_progress_report *kept = session->agent == NULL ? NULL : told_of(session->agent, told->id);

    if (kept == NULL) {
        return;
    }
    kept->epoch = told->epoch;
    kept->came = told->came;
    kept->entered = told->entered;
    kept->left = told->left;
    kept->last_ms = told->last_ms;
    kept->last_sequence = told->last_sequence;
    kept->at_ns = session->wait.owner->now_ns;
    keep_words(kept->group, sizeof(kept->group), told->group);
    keep_words(kept->last_op, sizeof(kept->last_op), told->last_op);
    keep_pending(kept, told->pending, told->pending_count);
}

/* ------------------------------------------------------------------------------ questions */

static void
end_query(tutti_coordinator_stall_query *query, const tutti_error *err)
{
    tutti_coordinator *self = query->wait.owner;
    tutti_coordinator_stalls stalls = {0};
    coord_job *job = NULL;
    tutti_error inner;
    tutti_code code = TUTTI_OK;

    coord_wait_stop(&query->wait);
    tutti_list_remove(&query->link);
    if (err == NULL) {
        code = coord_job_find(self, query->job, &job, &inner);
        if (code == TUTTI_OK) {
            code = coord_stalls_find(job, query, &stalls, &inner);
        }
        if (code == TUTTI_OK) {
            code = coord_uneven_find(job, query, &stalls, &inner);
        }
    }
    query->on_answer(query, code == TUTTI_OK && err == NULL ? &stalls : NULL,
                     err != NULL        ? err
                     : code != TUTTI_OK ? &inner
                                        : NULL);
    free(stalls.stalls);
    free(stalls.uneven);
}

static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    end_query(tutti_container_of(wait, tutti_coordinator_stall_query, wait), err);
}

void
tutti_coordinator_session_count(tutti_coordinator_session *session, uint64_t ops, uint64_t bytes)
{
    coord_agent *agent = session->agent;

    if (agent == NULL) {
        return;
    }
    if (agent->counted && ops >= agent->ops && bytes >= agent->bytes) {
        agent->job->ops_total += ops - agent->ops;
        agent->job->bytes_total += bytes - agent->bytes;
    }
    agent->counted = true;
    agent->counted_ns = agent->job->owner->now_ns;
    agent->ops = ops;
    agent->bytes = bytes;
}

void
tutti_coordinator_session_answered(tutti_coordinator_session *session, uint64_t number)
{
    coord_agent *agent = session->agent;
    tutti_list_node *link;
    tutti_list_node *spare;
    uint64_t before;

    if (agent == NULL || number <= agent->answered || number > agent->job->wanted) {
        return;
    }
    before = agent->answered;
    agent->answered = number;
    tutti_list_each(link, spare, &agent->job->owner->queries)
    {
        tutti_coordinator_stall_query *one =
            tutti_container_of(link, tutti_coordinator_stall_query, link);

        if (one->job_id == agent->job->id && one->number > before && one->number <= number &&
            one->awaited > 0 && --one->awaited == 0) {
            end_query(one, NULL);
        }
    }
}

static uint32_t
count_sessions(const coord_job *job)
{
    tutti_map_node *node;
    uint32_t count = 0;

    for (node = tutti_map_first(&job->agents); node != NULL; node = tutti_map_next(node)) {
        count += tutti_container_of(node, coord_agent, node)->session != NULL ? 1 : 0;
    }
    return count;
}

/*
 * Ask all agents now. The questions that have come since the last time have the number that is
 * asked for now; their own waiting time begins.
 */
static void
ask_all_progress(coord_job *job)
{
    tutti_coordinator *self = job->owner;
    const uint32_t count = count_sessions(job);
    tutti_list_node *link;

    job->wanted++;
    job->wanted_ns = self->now_ns;
    for (link = self->queries.next; link != &self->queries; link = link->next) {
        tutti_coordinator_stall_query *one =
            tutti_container_of(link, tutti_coordinator_stall_query, link);

        if (one->job_id == job->id && one->number == job->wanted) {
            one->awaited = count;
            tutti_timers_start(&self->timers, &one->wait.timer,
                               count == 0 ? self->now_ns
                                          : tutti_clock_add(self->now_ns, one->wait_ns));
        }
    }
    coord_sessions_wake(job);
}

static void
on_wanting(tutti_timer *timer)
{
    ask_all_progress(tutti_container_of(timer, coord_job, wanting));
}

/* A question is a message to every agent: not more than ten times a second. */
static void
ask_soon(coord_job *job)
{
    tutti_coordinator *self = job->owner;

    if (job->wanted == 0 || self->now_ns - job->wanted_ns >= BETWEEN_NS) {
        ask_all_progress(job);
    } else if (!job->wanting.running) {
        job->wanting.on_expiry = on_wanting;
        tutti_timers_start(&self->timers, &job->wanting, job->wanted_ns + BETWEEN_NS);
    }
}

static tutti_code
check_progress_request(tutti_coordinator *self,
                       const tutti_coordinator_stall_query_request *request, coord_job **ret_job,
                       tutti_error *err)
{
    TUTTI_TRY(coord_wait_check(self, err));

    if (request->wait_ms > TUTTI_COORDINATOR_QUERY_MS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_WAIT",
                              "wait_ms of %" PRIu32 ", at most %d", request->wait_ms,
                              TUTTI_COORDINATOR_QUERY_MS_MAX);
    }
    if (request->group != NULL && request->group[0] != '\0') {
        TUTTI_TRY(tutti_check_group_name(request->group, err));
    }
    return coord_job_find(self, request->job, ret_job, err);
}

tutti_code
tutti_coordinator_stall_query_start(tutti_coordinator *self,
                                    const tutti_coordinator_stall_query_request *request,
                                    tutti_coordinator_stall_query *query, tutti_error *err)
{
    const uint64_t wait_ms = request->wait_ms == 0 ? ASK_MS : request->wait_ms;
    coord_job *job = NULL;

    TUTTI_TRY(check_progress_request(self, request, &job, err));
    (void)snprintf(query->job, sizeof(query->job), "%s", job->name);
    (void)snprintf(query->group, sizeof(query->group), "%s",
                   request->group == NULL ? "" : request->group);
    query->job_id = job->id;
    query->older_than_ms = request->older_than_ms;
    query->number = job->wanted + 1;
    query->wait_ns = wait_ms * TUTTI_NS_PER_MS;
    query->awaited = 0;
    query->wait.on_end = on_end;
    tutti_list_add(&self->queries, &query->link);
    /*
     * Until the agents are asked, for at most BETWEEN_NS; ask_all_progress sets the deadline
     * anew.
     */
    coord_wait_start(self, &query->wait, true,
                     tutti_clock_add(self->now_ns, query->wait_ns + BETWEEN_NS));
    ask_soon(job);
    return TUTTI_OK;
}

void
tutti_coordinator_stall_query_withdraw(tutti_coordinator_stall_query *query)
{
    if (query->wait.owner != NULL) {
        coord_wait_stop(&query->wait);
        tutti_list_remove(&query->link);
    }
}
