/*
 * CoordinatorService.Session: heartbeats up, events down. One stream for each agent, for as long
 * as it lives. What it tells is worth having in time, so several changes go into one message, and
 * each message has the key of the epoch that it leads to.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/groups_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/progress_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/v1/coordinator_service.pb-c.h"

typedef struct session_call {
    tutti_coordinator_session session;
    tutti_rpc_call *call;
    tutti_service_loop *service_loop;
    bool finished; /* the last word has been said */
} session_call;

/* Lost ranks on their way into the first message. */
typedef struct lost_list {
    Tutti__V1__RankLost wires[TUTTI_COORDINATOR_LOST_MAX];
    Tutti__V1__RankLost *pointers[TUTTI_COORDINATOR_LOST_MAX];
} lost_list;

/* What is told of a group. */
typedef struct group_news {
    Tutti__V1__GroupDeleted deleted;
    Tutti__V1__GroupAborted aborted;
    Tutti__V1__GroupAbort abort;
} group_news;

/* Changes on their way into one message. */
typedef struct change_list {
    coord_event_wire wires[TUTTI_COORDINATOR_CHANGES_MAX];
    group_news groups[TUTTI_COORDINATOR_CHANGES_MAX];
    Tutti__V1__SessionChange changes[TUTTI_COORDINATOR_CHANGES_MAX];
    Tutti__V1__SessionChange *pointers[TUTTI_COORDINATOR_CHANGES_MAX];
} change_list;

static session_call *
get_session_call(tutti_coordinator_session *session)
{
    return tutti_container_of(session, session_call, session);
}

static void
finish_session(session_call *self, const tutti_error *err)
{
    self->finished = true;
    tutti_rpc_call_finish(self->call, err);
}

/* For its agent to remember: the next coordinator knows by it whether the store has gone back. */
static Tutti__V1__StoreMark
mark_store(const tutti_coordinator_session *session)
{
    const tutti_coordinator *core = session->wait.owner;
    Tutti__V1__StoreMark wire = TUTTI__V1__STORE_MARK__INIT;

    wire.version = core->options.durable ? tutti_store_durable(core->store) : 0;
    wire.teller = core->number;
    return wire;
}

/* It is said once and goes on (docs/decisions/0034-etcd.md). */
static void
check_store(tutti_coordinator *core, const Tutti__V1__SessionOpen *open)
{
    const Tutti__V1__StoreMark *seen = open->seen;

    if (seen == NULL || core->went_back || !core->options.durable || seen->teller == core->number ||
        seen->version <= core->begun_version) {
        return;
    }
    core->went_back = true;
    TUTTI_LOG("coordinator", ERROR,
              "STORE_WENT_BACK: the store had version %" PRIu64 " when this coordinator began, and "
              "rank %" PRIu32 " has heard of version %" PRIu64
              " from an earlier one: was it restored from a "
              "snapshot or a backup, or is it another one? Going on with what is there",
              core->begun_version, open->member == NULL ? 0 : open->member->rank, seen->version);
}

/* The key of the epoch that a message tells of. Borrows from `key`. */
static Tutti__V1__EpochKey
key_to_wire(const tutti_coordinator_epoch_key *key)
{
    Tutti__V1__EpochKey wire = TUTTI__V1__EPOCH_KEY__INIT;

    wire.epoch = key->epoch;
    wire.key = bytes_to_wire((tutti_bytes){key->bytes, sizeof(key->bytes)});
    return wire;
}

static void
lost_to_wire(const tutti_coordinator_event *event, Tutti__V1__RankLost *ret_wire)
{
    coord_event_wire wire;

    coord_event_to_wire(event, &wire);
    *ret_wire = wire.lost;
}

/*
 * The first message. It has the ranks that are lost already, since this agent may have missed the
 * changes.
 */
static void
on_accepted(tutti_coordinator_session *session, uint64_t epoch, const tutti_coordinator_event *lost,
            size_t lost_count)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__SessionAccepted accepted = TUTTI__V1__SESSION_ACCEPTED__INIT;
    const tutti_coordinator_epoch_key key = tutti_coordinator_session_key(session);
    Tutti__V1__EpochKey wire = key_to_wire(&key);
    Tutti__V1__StoreMark store = mark_store(session);
    lost_list list;
    size_t i;

    for (i = 0; i < lost_count; i++) {
        lost_to_wire(&lost[i], &list.wires[i]);
        list.pointers[i] = &list.wires[i];
    }
    accepted.epoch = epoch;
    accepted.lost = list.pointers;
    accepted.n_lost = lost_count;
    accepted.store = &store;
    accepted.leader =
        text_to_wire(service_loop_own_address(get_session_call(session)->service_loop));
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_ACCEPTED;
    response.accepted = &accepted;
    response.key = &wire;
    tutti_rpc_call_write(get_session_call(session)->call, &response.base, NULL);
}

static void
change_to_wire(const tutti_coordinator_event *event, coord_event_wire *ret_wire,
               group_news *ret_news, Tutti__V1__SessionChange *ret_change)
{
    tutti__v1__session_change__init(ret_change);
    coord_event_to_wire(event, ret_wire);
    switch (event->kind) {
    case TUTTI_COORDINATOR_RANK_LOST:
        ret_change->what_case = TUTTI__V1__SESSION_CHANGE__WHAT_RANK_LOST;
        ret_change->rank_lost = &ret_wire->lost;
        break;
    case TUTTI_COORDINATOR_RANK_LEAVING:
        ret_change->what_case = TUTTI__V1__SESSION_CHANGE__WHAT_RANK_LEAVING;
        ret_change->rank_leaving = &ret_wire->leaving;
        break;
    case TUTTI_COORDINATOR_RANK_JOINED:
        ret_change->what_case = TUTTI__V1__SESSION_CHANGE__WHAT_RANK_JOINED;
        ret_change->rank_joined = &ret_wire->joined;
        break;
    case TUTTI_COORDINATOR_GROUP_DELETED:
        tutti__v1__group_deleted__init(&ret_news->deleted);
        ret_news->deleted.id = event->group_id;
        ret_news->deleted.name = text_to_wire(event->group_name);
        ret_change->what_case = TUTTI__V1__SESSION_CHANGE__WHAT_GROUP_DELETED;
        ret_change->group_deleted = &ret_news->deleted;
        break;
    case TUTTI_COORDINATOR_GROUP_ABORTED:
        tutti__v1__group_aborted__init(&ret_news->aborted);
        ret_news->aborted.id = event->group_id;
        ret_news->aborted.name = text_to_wire(event->group_name);
        coord_abort_to_wire(event->abort, &ret_news->abort);
        ret_news->aborted.abort = &ret_news->abort;
        ret_change->what_case = TUTTI__V1__SESSION_CHANGE__WHAT_GROUP_ABORTED;
        ret_change->group_aborted = &ret_news->aborted;
        break;
    }
}

/*
 * All in one message, so that an agent sees an epoch as a whole. False: it could not be packed, and
 * the call ends by that.
 */
static bool
pack_changes(session_call *self, const tutti_coordinator_event *events, size_t count,
             tutti_rpc_packed **ret_packed)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__SessionChanges changes = TUTTI__V1__SESSION_CHANGES__INIT;
    const tutti_coordinator_epoch_key key = tutti_coordinator_session_key(&self->session);
    Tutti__V1__EpochKey wire = key_to_wire(&key);
    change_list list;
    tutti_error err;
    size_t i;

    for (i = 0; i < count; i++) {
        change_to_wire(&events[i], &list.wires[i], &list.groups[i], &list.changes[i]);
        list.pointers[i] = &list.changes[i];
    }
    changes.changes = list.pointers;
    changes.n_changes = count;
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_CHANGES;
    response.changes = &changes;
    response.key = &wire;
    if (tutti_rpc_pack(&response.base, NULL, ret_packed, &err) != TUTTI_OK) {
        tutti_rpc_call_write(self->call, &response.base, NULL); /* which says why it cannot */
        return false;
    }
    return true;
}

/* Packed once for all sessions in a row that are told the same. */
static void
on_changes(tutti_coordinator_session *session, const tutti_coordinator_event *events, size_t count,
           uint64_t alike)
{
    session_call *self = get_session_call(session);
    service_loop_kept *kept = service_loop_kept_of(self->service_loop);

    if (kept->alike != alike) {
        tutti_rpc_packed_free(kept->packed);
        *kept = (service_loop_kept){0};
        if (!pack_changes(self, events, count, &kept->packed)) {
            return;
        }
        kept->alike = alike;
    }
    (void)tutti_rpc_call_write_packed(self->call, tutti_rpc_packed_copy(kept->packed), false);
}

/* Asks for an answer with the next heartbeat, with this number. */
static void
on_wanted(tutti_coordinator_session *session, uint64_t number)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__ProgressWanted wanted = TUTTI__V1__PROGRESS_WANTED__INIT;

    wanted.number = number;
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_PROGRESS_WANTED;
    response.progress_wanted = &wanted;
    tutti_rpc_call_write(get_session_call(session)->call, &response.base, NULL);
}

/* The agent knows by this that the coordinator hears it. That need not wait for the store. */
static void
on_heartbeat_ack(tutti_coordinator_session *session)
{
    Tutti__V1__SessionResponse response = TUTTI__V1__SESSION_RESPONSE__INIT;
    Tutti__V1__HeartbeatHeard acked_event = TUTTI__V1__HEARTBEAT_HEARD__INIT;
    Tutti__V1__StoreMark store = mark_store(session);

    acked_event.store = &store;
    response.event_case = TUTTI__V1__SESSION_RESPONSE__EVENT_HEARTBEAT_HEARD;
    response.heartbeat_heard = &acked_event;
    tutti_rpc_call_write_now(get_session_call(session)->call, &response.base);
}

static void
on_session_end(tutti_coordinator_session *session, const tutti_error *err)
{
    finish_session(get_session_call(session), err);
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    session_call *self = calloc(1, sizeof(*self));
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_error err;

    tutti_rpc_call_set_user(call, self);
    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a session");
        tutti_rpc_call_finish(call, &err);
    } else {
        self->call = call;
        self->service_loop = arg;
        self->session.on_accepted = on_accepted;
        self->session.on_changes = on_changes;
        self->session.on_wanted = on_wanted;
        self->session.on_heartbeat_ack = on_heartbeat_ack;
        self->session.on_end = on_session_end;
        tutti_coordinator_session_start(core, &self->session);
        tutti_rpc_call_read(call);
    }
    service_loop_leave(arg);
}

static tutti_code
take_heartbeat(tutti_coordinator_session *session, const Tutti__V1__Heartbeat *wire,
               tutti_error *err)
{
    TUTTI_TRY(tutti_coordinator_session_heartbeat(session, err));

    if (wire != NULL) {
        coord_take_progress(session, wire);
    }
    return TUTTI_OK;
}

/* `open` comes first, then heartbeats. Anything else ends the session. */
static tutti_code
take_message(session_call *self, const Tutti__V1__SessionRequest *wire, tutti_error *err)
{
    tutti_coordinator_member member;

    if (wire->kind_case == TUTTI__V1__SESSION_REQUEST__KIND_HEARTBEAT) {
        return take_heartbeat(&self->session, wire->heartbeat, err);
    }
    if (wire->kind_case == TUTTI__V1__SESSION_REQUEST__KIND_OPEN && wire->open != NULL) {
        check_store(self->session.wait.owner, wire->open);
        member = member_from_wire(wire->open->member);
        return tutti_coordinator_session_open(&self->session, &member, err);
    }
    tutti_coordinator_session_withdraw(&self->session);
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
                          "a message of a session is neither `open` nor `heartbeat`");
}

/* The next message is asked for only when this one has been taken. */
static void
on_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    session_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self->finished) {
        return;
    }
    (void)service_loop_enter(arg);
    if (take_message(self, tutti_rpc_message_get(message), &err) != TUTTI_OK) {
        finish_session(self, &err);
    } else {
        tutti_rpc_call_read(call);
    }
    service_loop_leave(arg);
}

/* The stream ends on the agent's side, without Leave: it counts as broken. */
static void
on_half_close(tutti_rpc_call *call, void *arg)
{
    session_call *self = tutti_rpc_call_user(call);

    if (self->finished) {
        return;
    }
    (void)service_loop_enter(arg);
    tutti_coordinator_session_withdraw(&self->session);
    finish_session(self, NULL);
    service_loop_leave(arg);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    session_call *self = tutti_rpc_call_user(call);

    (void)service_loop_enter(arg);
    tutti_coordinator_session_written(&self->session);
    service_loop_leave(arg);
}

/*
 * The connection broke or the server is drained; the core then waits for the agent to come back.
 */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    session_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self == NULL || self->finished) {
        return;
    }
    (void)service_loop_enter(arg);
    tutti_coordinator_session_withdraw(&self->session);
    finish_session(self, service_loop_say_gone(call, &err));
    service_loop_leave(arg);
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
