/*
 * How a job begins and ends.
 *
 * begun (first Join, epoch 0) -> formed (epoch >= 1) -> without agents, lingering for
 * --job-linger -> ended, its keys are deleted. A job that was never formed ends as soon as nobody
 * is in it. A Join into a lingering job replaces it by a new one (`ever_formed` is inherited,
 * because the keys are), under another id.
 *
 * Ending order matters: watches and Join calls are told first, since their texts name the job;
 * meshes and groups go before the events in which deleted groups live; agents last.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/kv/gc.h"
#include "server/coordinator/member/agent.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/join.h"
#include "server/coordinator/member/member_watch.h"
#include "server/coordinator/member/session.h"

/* Of a job that is in no map. */
static void
job_free(coord_job *job)
{
    tutti_coordinator *self = job->owner;
    tutti_map_node *node;

    tutti_timers_stop(&self->timers, &job->linger);
    tutti_timers_stop(&self->timers, &job->wanting);
    coord_member_watches_fini(job);
    coord_joins_fini(job);
    coord_sessions_fini(job);
    self->hooks->close_meshes(job);
    self->hooks->close_groups(job);
    coord_events_fini(job);
    while ((node = tutti_map_first(&job->agents)) != NULL) {
        coord_agent_free(tutti_container_of(node, coord_agent, node));
    }
    free(job->seats);
    free(job->asked);
    free(job);
}

static void
job_end(coord_job *job)
{
    tutti_coordinator *self = job->owner;

    tutti_map_remove(&self->jobs, &job->node);
    self->seat_count -= job->world_size;
    job_free(job);
}

static void
on_linger(tutti_timer *timer)
{
    coord_job *job = tutti_container_of(timer, coord_job, linger);

    /*
     * Somebody may have joined since the timer was started: then the job is used, and the timer
     * means nothing.
     */
    if (job->present == 0 && !job->owner->draining) {
        coord_note(job->owner, "job %s: ended, nobody is left", job->name);
        job->owner->hooks->unrecord_job(job);
        coord_keys_forget(job->owner, job->name);
        job_end(job);
    }
}

static void
job_init(coord_job *job, tutti_coordinator *self, const char *name, uint32_t world_size)
{
    job->owner = self;
    job->id = tutti_id_draw();
    job->since_ms = self->wall_ns / TUTTI_NS_PER_MS;
    job->world_size = world_size;
    job->min_world = world_size;
    (void)snprintf(job->name, sizeof(job->name), "%s", name);
    job->node.key = tutti_bytes_of(job->name);
    tutti_map_init(&job->agents);
    tutti_map_init(&job->gpus);
    tutti_list_init(&job->unassigned);
    tutti_map_init(&job->groups);
    tutti_map_init(&job->rosters);
    tutti_map_init(&job->meshes);
    tutti_list_init(&job->talking);
    tutti_list_init(&job->shrinking);
    coord_joins_init(job);
    coord_sessions_init(job);
    coord_member_watches_init(job);
    coord_events_init(job);
    job->linger.on_expiry = on_linger;
}

static tutti_code
job_new(tutti_coordinator *self, const char *name, uint32_t world_size, coord_job **ret_job,
        tutti_error *err)
{
    coord_job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        return coord_fail_memory(err, "a job");
    }
    job_init(job, self, name, world_size);
    job->seats = calloc(world_size, sizeof(coord_agent *));
    job->asked = calloc((world_size + 63) / 64, sizeof(uint64_t));
    if (job->seats == NULL || job->asked == NULL || self->hooks->open_world(job, err) != TUTTI_OK) {
        job_free(job);
        return coord_fail_memory(err, "the seats of a job");
    }
    *ret_job = job;
    return TUTTI_OK;
}

static tutti_code
check_job_limits(const tutti_coordinator *self, const coord_job *old, uint32_t world_size,
                 tutti_error *err)
{
    const uint64_t seats = self->seat_count - (old == NULL ? 0 : old->world_size);

    if (old == NULL && self->jobs.count >= self->options.job_limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "JOB_LIMIT",
                              "there are %zu jobs, the limit (--job-limit)", self->jobs.count);
    }
    if (seats + world_size > self->options.seat_limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "JOB_LIMIT",
                              "a world of %" PRIu32 " ranks and the %" PRIu64
                              " seats of other jobs together pass the limit of %" PRIu64
                              " (--seat-limit)",
                              world_size, seats, self->options.seat_limit);
    }
    return TUTTI_OK;
}

/* Put a new job in the place of `old`, NULL = of nothing. */
static tutti_code
job_replace(tutti_coordinator *self, coord_job *old, const char *name, uint32_t world_size,
            coord_job **ret_job, tutti_error *err)
{
    coord_job *job = NULL;
    tutti_map_node *there;
    tutti_code code = check_job_limits(self, old, world_size, err);

    if (code == TUTTI_OK) {
        code = job_new(self, name, world_size, &job, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    /* The new job exists before the old one goes, so a failure leaves the old one in place. */
    if (old != NULL) {
        job->ever_formed = true;
        old->owner->hooks->unrecord_job(old);
        job_end(old);
    }
    there = tutti_map_add(&self->jobs, &job->node);
    assert(there == NULL);
    self->seat_count += world_size;
    *ret_job = job;
    return TUTTI_OK;
}

tutti_code
coord_job_begin(tutti_coordinator *self, const char *name, uint32_t world_size, coord_job **ret_job,
                tutti_error *err)
{
    coord_job *job = coord_job_from(tutti_map_find(&self->jobs, tutti_bytes_of(name)));

    if (job == NULL || job->present == 0) {
        return job_replace(self, job, name, world_size, ret_job, err);
    }
    if (job->world_size != world_size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "job %s was begun with world size %" PRIu32 ", not %" PRIu32
                              ": let all agents give the same",
                              name, job->world_size, world_size);
    }
    *ret_job = job;
    return TUTTI_OK;
}

void
coord_job_settle(coord_job *job)
{
    tutti_coordinator *self = job->owner;

    if (job->present > 0) {
        return;
    }
    if (job->ever_formed) {
        tutti_timers_start(&self->timers, &job->linger,
                           tutti_clock_add(self->now_ns, self->options.job_linger_ns));
    } else {
        job_end(job);
    }
}

void
coord_jobs_fini(tutti_coordinator *self)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&self->jobs)) != NULL) {
        job_end(coord_job_from(node));
    }
}
