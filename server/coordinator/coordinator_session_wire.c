/* CoordinatorService.Session: heartbeats up, events down. */
#include <stdlib.h>

#include "base/fail.h"
#include "server/coordinator/coordinator_wire.h"
#include "server/coordinator/front.h"
#include "server/coordinator/member_wire.h"
#include "server/coordinator/members.h"
#include "server/coordinator/progress_wire.h"
#include "tutti/v1/coordinator_service.pb-c.h"

typedef struct session_call {
    tutti_coordinator_session session;
    tutti_rpc_call *call;
    bool finished; /* the last word has been said */
} session_call;

/* Lost ranks on their way into the first message. */
typedef struct lost_list {
    Tutti__V1__RankLost wires[TUTTI_COORDINATOR_LOST_MAX];
    Tutti__V1__RankLost *pointers[TUTTI_COORDINATOR_LOST_MAX];
} lost_list;

static session_call *
call_from(tutti_coordinator_session *session)
{
    return tutti_container_of(session, session_call, session);
}

static void
finish(session_call *self, const tutti_error *err)
{
    self->finished = true;
    tutti_rpc_call_finish(self->call, err);
}

/* With the key of the epoch that it tells of. */
static void
send_keyed(session_call *self, Tutti__V1__SessionResponse *response)
{
    const tutti_coordinator_epoch_key key = tutti_coordinator_session_key(&self->session);
    Tutti__V1__EpochKey wire = TUTTI__V1__EPOCH_KEY__INIT;

    wire.epoch = key.epoch;
    wire.key = bytes_to_wire((tutti_bytes){key.bytes, sizeof(key.bytes)});
    response->key = &wire;
    tutti_rpc_call_write(self->call, &response->base, NULL);
}

static void
lost_to_wire(const tutti_coordinator_event *event, Tutti__V1__RankLost *ret_wire)
{
    coord_event_wire wire;

    coord_event_to_wire(event, &wire);
    *ret_wire = wire.lost;
}

static void
on_accepted(tutti_coordinator_session *session, uint64_t epoch, const tutti_coordinator_event *lost,
            size_t lost_count)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__SessionAccepted accepted = TUTTI__V1__SESSION_ACCEPTED__INIT;
    lost_list list;
    size_t i;

    for (i = 0; i < lost_count; i++) {
        lost_to_wire(&lost[i], &list.wires[i]);
        list.pointers[i] = &list.wires[i];
    }
    accepted.epoch = epoch;
    accepted.lost = list.pointers;
    accepted.n_lost = lost_count;
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_ACCEPTED;
    response.accepted = &accepted;
    send_keyed(call_from(session), &response);
}

/* What became of a rank. */
static void
send_rank(session_call *self, const tutti_coordinator_event *event)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    coord_event_wire wire;

    coord_event_to_wire(event, &wire);
    if (event->kind == TUTTI_COORDINATOR_RANK_LOST) {
        response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_RANK_LOST;
        response.rank_lost = &wire.lost;
    } else if (event->kind == TUTTI_COORDINATOR_RANK_LEAVING) {
        response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_RANK_LEAVING;
        response.rank_leaving = &wire.leaving;
    } else {
        response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_RANK_JOINED;
        response.rank_joined = &wire.joined;
    }
    send_keyed(self, &response);
}

static void
send_deleted(session_call *self, const tutti_coordinator_event *event)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__GroupDeleted deleted = TUTTI__V1__GROUP_DELETED__INIT;

    deleted.id = event->group_id;
    deleted.name = text_to_wire(event->group_name);
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_GROUP_DELETED;
    response.group_deleted = &deleted;
    tutti_rpc_call_write(self->call, &response.base, NULL);
}

static void
on_event(tutti_coordinator_session *session, const tutti_coordinator_event *event)
{
    session_call *self = call_from(session);

    if (event->kind == TUTTI_COORDINATOR_GROUP_DELETED) {
        send_deleted(self, event);
    } else {
        send_rank(self, event);
    }
}

static void
on_wanted(tutti_coordinator_session *session, uint64_t number)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__ProgressWanted wanted = TUTTI__V1__PROGRESS_WANTED__INIT;

    wanted.number = number;
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_PROGRESS_WANTED;
    response.progress_wanted = &wanted;
    tutti_rpc_call_write(call_from(session)->call, &response.base, NULL);
}

static void
on_heard(tutti_coordinator_session *session)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__HeartbeatHeard heard = TUTTI__V1__HEARTBEAT_HEARD__INIT;

    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_HEARTBEAT_HEARD;
    response.heartbeat_heard = &heard;
    tutti_rpc_call_write(call_from(session)->call, &response.base, NULL);
}

static void
on_session_end(tutti_coordinator_session *session, const tutti_error *err)
{
    finish(call_from(session), err);
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    session_call *self = calloc(1, sizeof(*self));
    tutti_coordinator *core = coord_front_enter(arg);
    tutti_error err;

    tutti_rpc_call_set_user(call, self);
    if (self == NULL) {
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a session");
        tutti_rpc_call_finish(call, &err);
    } else {
        self->call = call;
        self->session.on_accepted = on_accepted;
        self->session.on_event = on_event;
        self->session.on_wanted = on_wanted;
        self->session.on_heard = on_heard;
        self->session.on_end = on_session_end;
        tutti_coordinator_session_start(core, &self->session);
        tutti_rpc_call_read(call);
    }
    coord_front_leave(arg);
}

static tutti_code
take_heartbeat(tutti_coordinator_session *session, const Tutti__V1__Heartbeat *wire,
               tutti_error *err)
{
    const tutti_code code = tutti_coordinator_session_heartbeat(session, err);

    if (code == TUTTI_OK && wire != NULL) {
        coord_take_progress(session, wire);
    }
    return code;
}

static tutti_code
take_message(session_call *self, const Tutti__V1__SessionRequest *wire, tutti_error *err)
{
    tutti_coordinator_member member;

    if (wire->kind_case == TUTTI__V1__SESSION_REQUEST__KIND_HEARTBEAT) {
        return take_heartbeat(&self->session, wire->heartbeat, err);
    }
    if (wire->kind_case == TUTTI__V1__SESSION_REQUEST__KIND_OPEN && wire->open != NULL) {
        member = member_from_wire(wire->open->member);
        return tutti_coordinator_session_open(&self->session, &member, err);
    }
    tutti_coordinator_session_withdraw(&self->session);
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
                          "a message that is neither `open` nor `heartbeat`");
}

static void
on_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    session_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self->finished) {
        return;
    }
    (void)coord_front_enter(arg);
    if (take_message(self, tutti_rpc_message_get(message), &err) != TUTTI_OK) {
        finish(self, &err);
    } else {
        tutti_rpc_call_read(call);
    }
    coord_front_leave(arg);
}

/* The stream ends on the agent's side, without Leave: it counts as broken. */
static void
on_half_close(tutti_rpc_call *call, void *arg)
{
    session_call *self = tutti_rpc_call_user(call);

    if (self->finished) {
        return;
    }
    (void)coord_front_enter(arg);
    tutti_coordinator_session_withdraw(&self->session);
    finish(self, NULL);
    coord_front_leave(arg);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    session_call *self = tutti_rpc_call_user(call);

    (void)coord_front_enter(arg);
    tutti_coordinator_session_written(&self->session);
    coord_front_leave(arg);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    session_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self == NULL || self->finished) {
        return;
    }
    (void)coord_front_enter(arg);
    tutti_coordinator_session_withdraw(&self->session);
    finish(self, coord_front_say_gone(call, &err));
    coord_front_leave(arg);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    free(tutti_rpc_call_user(call));
}

const tutti_rpc_stream_ops coord_session_stream = {
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_written = on_written,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
