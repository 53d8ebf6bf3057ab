/*
 * Watches of a job's ranks (the rpc WatchMembers). As a session, a watch has no queue: it has the
 * number of the last event that it was told (`acked_event`), and the job's events are the queue.
 * So a slow client costs no memory, and of a rank that changed twice it hears the last change
 * only.
 *
 * A watch is in `watches` (nothing to tell, as far as is known) or in `watches_behind` (has to
 * look); the job's watch_task moves it. One message is in flight at a time (`writing`).
 */
#include "server/coordinator/member/member_watch.h"

#include <assert.h>

#include "base/error/fail.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

static tutti_coordinator_member_watch *
watch_from(tutti_list_node *link)
{
    return tutti_container_of(link, tutti_coordinator_member_watch, link);
}

static void
detach_member_watch(tutti_coordinator_member_watch *watch)
{
    watch->wait.owner->watcher_count--;
    coord_wait_stop(&watch->wait);
    tutti_list_remove(&watch->link);
    watch->job = NULL;
}

static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    tutti_coordinator_member_watch *watch =
        tutti_container_of(wait, tutti_coordinator_member_watch, wait);

    assert(err != NULL); /* a watch has no deadline, so only a drain ends it here */
    detach_member_watch(watch);
    watch->on_end(watch, err);
}

/*
 * Is this event to be told? Not those of groups, not what the caller said it knows, and not seats
 * of an elastic job that nobody has ever taken.
 */
static bool
is_news(const tutti_coordinator_member_watch *watch, const coord_event *event)
{
    const coord_agent *agent;

    if (event->of_group) {
        return false;
    }
    agent = tutti_container_of(event, coord_agent, event);
    return agent->changed_epoch > watch->after_epoch && agent->joined_epoch > 0;
}

static coord_event *
find_news(const tutti_coordinator_member_watch *watch)
{
    coord_event *event = coord_event_after(watch->job, watch->acked_event);

    while (event != NULL && !is_news(watch, event)) {
        event = coord_event_after(watch->job, event->number);
    }
    return event;
}

static void
send_now(tutti_coordinator_member_watch *watch)
{
    tutti_coordinator_job now;

    watch->begun = true;
    watch->formed = watch->job->epoch > 0;
    watch->writing = true;
    if (tutti_coordinator_job_get(watch->wait.owner, watch->job->name, &now, NULL) == TUTTI_OK) {
        watch->on_now(watch, &now);
    }
}

/* Send one message, when there is one and none is in flight. */
static void
push_member_watch(tutti_coordinator_member_watch *watch)
{
    tutti_coordinator_event told;
    coord_event *event;

    if (watch->writing) {
        return;
    }
    watch->sending = watch->acked_event;
    /* The state of the job comes first, and once more when the job is formed. */
    if (!watch->begun || (!watch->formed && watch->job->epoch > 0)) {
        send_now(watch);
        return;
    }
    event = find_news(watch);
    if (event != NULL) {
        watch->writing = true;
        watch->sending = event->number;
        coord_event_describe(event, &told);
        watch->on_event(watch, &told);
    }
}

static size_t
on_work(coord_task *work, size_t budget)
{
    coord_job *job = tutti_container_of(work, coord_job, watch_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&job->watches_behind)) {
        tutti_coordinator_member_watch *watch = watch_from(tutti_list_pop(&job->watches_behind));

        tutti_list_add(&job->watches, &watch->link);
        push_member_watch(watch);
        done++;
    }
    if (!tutti_list_empty(&job->watches_behind)) {
        coord_defer(job->owner, work);
    }
    return done;
}

void
coord_member_watches_wake(coord_job *job)
{
    tutti_list_splice(&job->watches_behind, &job->watches);
    if (!tutti_list_empty(&job->watches_behind)) {
        coord_defer(job->owner, &job->watch_task);
    }
}

void
coord_member_watches_init(coord_job *job)
{
    tutti_list_init(&job->watches);
    tutti_list_init(&job->watches_behind);
    coord_task_init(&job->watch_task, on_work);
}

void
coord_member_watches_fini(coord_job *job)
{
    tutti_error err;

    tutti_list_splice(&job->watches, &job->watches_behind);
    while (!tutti_list_empty(&job->watches)) {
        tutti_coordinator_member_watch *watch = watch_from(job->watches.next);

        detach_member_watch(watch);
        (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_JOB",
                             "job %s has ended, or was begun anew: watch again", job->name);
        watch->on_end(watch, &err);
    }
    coord_task_stop(&job->watch_task);
}

/* ------------------------------------------------------------------------------ door */

tutti_code
tutti_coordinator_member_watch_start(tutti_coordinator *self, const char *job, uint64_t job_id,
                                     uint64_t after_epoch, tutti_coordinator_member_watch *watch,
                                     tutti_error *err)
{
    coord_job *found = NULL;
    tutti_code code = coord_watch_check(self, err);

    if (code == TUTTI_OK) {
        code = coord_job_find(self, job, &found, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    watch->job = found;
    watch->after_epoch = job_id == 0 || job_id == found->id ? after_epoch : 0;
    watch->wait.on_end = on_end;
    coord_wait_start(self, &watch->wait, false, TUTTI_TIMERS_NEVER);
    self->watcher_count++;
    tutti_list_add(&found->watches_behind, &watch->link);
    coord_defer(self, &found->watch_task);
    return TUTTI_OK;
}

void
tutti_coordinator_member_watch_written(tutti_coordinator_member_watch *watch)
{
    if (watch->wait.owner != NULL && watch->writing) {
        watch->writing = false;
        watch->acked_event = watch->sending;
        push_member_watch(watch);
    }
}

void
tutti_coordinator_member_watch_withdraw(tutti_coordinator_member_watch *watch)
{
    if (watch->wait.owner != NULL) {
        detach_member_watch(watch);
    }
}
