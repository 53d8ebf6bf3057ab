/*
 * CoordinatorService.WatchMembers. The core gives out one change after the other and waits for
 * on_written between them, so a watcher that reads slowly does not fill the memory.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/coordinator_service.pb-c.h"

typedef struct watch_call {
    tutti_coordinator_member_watch watch;
    tutti_rpc_call *call;
    bool finished;
} watch_call;

static tutti_rpc_call *
call_of(tutti_coordinator_member_watch *watch)
{
    return tutti_container_of(watch, watch_call, watch)->call;
}

static void
on_now(tutti_coordinator_member_watch *watch, const tutti_coordinator_job *job)
{
    Tutti__V1__WatchMembersResponse response = TUTTI__V1__WATCH_MEMBERS_RESPONSE__INIT;
    Tutti__V1__MembersNow now = TUTTI__V1__MEMBERS_NOW__INIT;

    now.job_id = job->id;
    now.epoch = job->epoch;
    now.world_size = job->world_size;
    now.alive_count = job->alive_count;
    response.event_case = TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_NOW;
    response.now = &now;
    tutti_rpc_call_write(call_of(watch), &response.base, NULL);
}

static void
on_event(tutti_coordinator_member_watch *watch, const tutti_coordinator_event *event)
{
    Tutti__V1__WatchMembersResponse response = TUTTI__V1__WATCH_MEMBERS_RESPONSE__INIT;
    coord_event_wire wire;

    coord_event_to_wire(event, &wire);
    switch (event->kind) {
    case TUTTI_COORDINATOR_RANK_LOST:
        response.event_case = TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_RANK_LOST;
        response.rank_lost = &wire.lost;
        break;
    case TUTTI_COORDINATOR_RANK_LEAVING:
        response.event_case = TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_RANK_LEAVING;
        response.rank_leaving = &wire.leaving;
        break;
    case TUTTI_COORDINATOR_RANK_JOINED:
        response.event_case = TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_RANK_JOINED;
        response.rank_joined = &wire.joined;
        break;
    case TUTTI_COORDINATOR_GROUP_ABORTED:
    case TUTTI_COORDINATOR_GROUP_DELETED: /* not told to watches of members */
        break;
    }
    tutti_rpc_call_write(call_of(watch), &response.base, NULL);
}

/* The core ends the watch; it does not use the struct after that. */
static void
on_over(tutti_coordinator_member_watch *watch, const tutti_error *err)
{
    watch_call *self = tutti_container_of(watch, watch_call, watch);

    self->finished = true;
    tutti_rpc_call_finish(self->call, err);
}

/* on_end frees the struct, also when the watch could not begin. */
static tutti_code
begin_watch(tutti_rpc_call *call, tutti_coordinator *core, tutti_error *err)
{
    const Tutti__V1__WatchMembersRequest *wire = tutti_rpc_call_request(call);
    watch_call *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a watch");
    }
    self->call = call;
    self->watch.on_now = on_now;
    self->watch.on_event = on_event;
    self->watch.on_end = on_over;
    tutti_rpc_call_set_user(call, self);
    code = tutti_coordinator_member_watch_start(core, wire->job, wire->job_id, wire->after_epoch,
                                                &self->watch, err);
    self->finished = code != TUTTI_OK;
    return code;
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    if (begin_watch(call, service_loop_enter(arg), &err) != TUTTI_OK) {
        tutti_rpc_call_finish(call, &err);
    }
    service_loop_leave(arg);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    watch_call *self = tutti_rpc_call_user(call);

    (void)service_loop_enter(arg);
    tutti_coordinator_member_watch_written(&self->watch);
    service_loop_leave(arg);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    watch_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self == NULL || self->finished) {
        return;
    }
    (void)service_loop_enter(arg);
    tutti_coordinator_member_watch_withdraw(&self->watch);
    self->finished = true;
    tutti_rpc_call_finish(call, service_loop_say_gone(call, &err));
    service_loop_leave(arg);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    free(tutti_rpc_call_user(call));
}

const tutti_rpc_stream_ops coord_members_stream = {
    .on_open = on_open,
    .on_written = on_written,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
