/*
 * The coordinator as a whole: the table by which rooms call rooms above them, time, turns, and
 * the drain.
 *
 * One thread, its owner's (service/service_loop.c). Nothing here blocks and nothing here knows a
 * clock: `now_ns` is what the owner said last. Work that may be long (answers to 10 000 joins, an
 * event for all sessions) is a coord_task in `work` and is done in slices by
 * tutti_coordinator_turn.
 *
 * Order at the end: jobs first, since their groups fail exchange rounds and their agents leave
 * lists of the coordinator; then the exchange rounds and keys, which assert that nothing waits
 * any more.
 */
#include "server/coordinator/coordinator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/hold.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/shrink.h"
#include "server/coordinator/group/world.h"
#include "server/coordinator/kv/gc.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/member_watch.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/session.h"
#include "server/coordinator/metadata/exchange_round.h"
#include "server/coordinator/record/records.h"
#include "server/coordinator/rendezvous/rendezvous_private.h"
#include "server/coordinator/stall/progress.h"

/*
 * A timer that always runs, each heartbeat interval. Without it the next timer might be far away,
 * and notice_stall could not see that the process was stopped in between.
 */
static void
on_pulse(tutti_timer *timer)
{
    tutti_coordinator *self = tutti_container_of(timer, tutti_coordinator, pulse);

    tutti_timers_start(&self->timers, timer,
                       tutti_clock_add(self->now_ns, self->options.heartbeat_interval_ns));
}

/*
 * End all that waits, in slices. on_end takes the call out of `waits`, so the list shrinks; new
 * calls are refused by coord_wait_check meanwhile.
 */
static size_t
on_drain(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, drain);
    tutti_error err;
    size_t done = 0;

    (void)coord_fail_draining(&err);
    while (done < budget && !tutti_list_empty(&self->waits)) {
        tutti_coordinator_pending_call *wait =
            tutti_container_of(self->waits.next, tutti_coordinator_pending_call, link);

        wait->on_end(wait, &err);
        done++;
    }
    if (!tutti_list_empty(&self->waits)) {
        coord_defer(self, work);
    }
    return done;
}

static void
lose_agent(const coord_agent *agent)
{
    coord_meshes_lose(agent);
    coord_meetings_lose(agent);
    coord_shrinks_lose(agent);
    coord_groups_lose(agent);
}

static const struct coord_hooks hooks_of_rooms = {
    .finish_gc = coord_gc_finish,
    .key_changed = coord_kv_changed,
    .wake_sessions = coord_sessions_wake,
    .wake_member_watches = coord_member_watches_wake,
    .open_world = coord_group_add_world,
    .refresh_world = coord_world_refresh,
    .drop_deleted = coord_group_drop_deleted,
    .close_groups = coord_groups_fini,
    .close_meshes = coord_meshes_fini,
    .group_deleted = coord_meetings_delete,
    .rank_lost = lose_agent,
    .agent_freed = coord_progress_report_fini,
    .record_agent = coord_record_agent,
    .record_formed = coord_record_formed,
    .record_group = coord_record_group,
    .record_mesh = coord_record_mesh,
    .record_registry = coord_record_registry,
    .unrecord_job = coord_unrecord_job,
    .unrecord_group = coord_unrecord_group,
    .unrecord_mesh = coord_unrecord_mesh,
    .unrecord_registry = coord_unrecord_registry,
};

tutti_code
tutti_coordinator_new(const tutti_coordinator_options *options, tutti_store *store,
                      tutti_coordinator **ret_self, tutti_error *err)
{
    tutti_coordinator *self;

    assert(options != NULL && store != NULL && ret_self != NULL);
    assert(tutti_coordinator_options_check(options, NULL) == TUTTI_OK);
    self = calloc(1, sizeof(*self));
    if (self != NULL) {
        self->told = calloc(TUTTI_COORDINATOR_LOST_MAX, sizeof(*self->told));
    }
    if (self == NULL || self->told == NULL) {
        free(self);
        return coord_fail_memory(err, "a coordinator");
    }
    self->options = *options;
    self->store = store;
    self->begun_version = tutti_store_version(store);
    self->number = tutti_id_draw();
    self->hooks = &hooks_of_rooms;
    tutti_timers_init(&self->timers);
    self->pulse.on_expiry = on_pulse;
    tutti_list_init(&self->work);
    tutti_list_init(&self->suspects);
    tutti_list_init(&self->waits);
    coord_task_init(&self->drain, on_drain);
    tutti_map_init(&self->jobs);
    tutti_list_init(&self->queries);
    coord_meetings_init(self);
    coord_keys_init(self);
    coord_rendezvous_init(self);
    *ret_self = self;
    return TUTTI_OK;
}

void
tutti_coordinator_free(tutti_coordinator *self)
{
    if (self == NULL) {
        return;
    }
    assert(self->parked == 0);
    coord_jobs_fini(self);
    coord_meetings_fini(self);
    coord_keys_fini(self);
    free(self->told);
    free(self);
}

void
tutti_coordinator_set_observer(tutti_coordinator *self,
                               void (*on_note)(void *arg, const char *sentence), void *arg)
{
    self->on_note = on_note;
    self->note_arg = arg;
}

void
tutti_coordinator_set_lost(tutti_coordinator *self,
                           void (*on_lost)(void *arg, const tutti_error *why), void *arg)
{
    self->on_lost = on_lost;
    self->lost_arg = arg;
}

void
tutti_coordinator_set_time(tutti_coordinator *self, uint64_t now_ns, uint64_t wall_ns)
{
    assert(now_ns >= self->now_ns);
    self->now_ns = now_ns;
    self->wall_ns = wall_ns;
    if (!self->pulse.running) {
        on_pulse(&self->pulse); /* the first time */
    }
}

uint64_t
tutti_coordinator_next(const tutti_coordinator *self)
{
    return tutti_timers_next(&self->timers);
}

/*
 * The process runs much later than its timers were due, so the machine did not let it run
 * (stopped, swapped, suspended). Nobody's silence in that time says anything: heartbeats may lie
 * unread. Silence counts from `awake_ns` on.
 */
static void
notice_stall(tutti_coordinator *self)
{
    const uint64_t due = tutti_timers_next(&self->timers);

    if (due < self->now_ns && self->now_ns - due > self->options.heartbeat_interval_ns) {
        self->awake_ns = self->now_ns;
    }
}

void
tutti_coordinator_run(tutti_coordinator *self)
{
    notice_stall(self);
    tutti_timers_run(&self->timers, self->now_ns);
}

bool
tutti_coordinator_busy(const tutti_coordinator *self)
{
    return !tutti_list_empty(&self->work) || !tutti_list_empty(&self->suspects) ||
           !tutti_list_empty(&self->leases_due);
}

void
tutti_coordinator_turn(tutti_coordinator *self, bool idle)
{
    size_t budget = COORD_SLICE;
    tutti_list_node *link;

    /*
     * Only in an idle turn: everything that was received has been handed over, so a silent
     * session, or a client with a lease, really is silent.
     */
    if (idle) {
        coord_sessions_judge(self, COORD_SLICE);
        coord_leases_judge(self, COORD_SLICE);
    }
    while (budget > 0 && (link = tutti_list_pop(&self->work)) != NULL) {
        coord_task *work = tutti_container_of(link, coord_task, link);
        const size_t done = work->on_run(work, budget);

        budget -= done >= budget ? budget : done + 1; /* a turn that did nothing is one, too */
    }
}

void
tutti_coordinator_drain(tutti_coordinator *self)
{
    self->draining = true;
    coord_defer(self, &self->drain);
}

size_t
tutti_coordinator_parked(const tutti_coordinator *self)
{
    return self->parked;
}
