/* CoordinatorService.WatchMembers. */
#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "client/group/members.h"
#include "tutti/v1/coordinator_service.pb-c.h"

static const tutti_rpc_stub stub_watch = {&tutti__v1__coordinator_service__descriptor,
                                          "WatchMembers"};

/* The stream has no deadline: it lasts until it is cancelled. */
tutti_code
client_wire_members_open(tutti_client *client, client_conn *conn, uint64_t after_epoch,
                         uint64_t job_id, tutti_rpc_stream **ret_stream, tutti_error *err)
{
    Tutti__V1__WatchMembersRequest request = TUTTI__V1__WATCH_MEMBERS_REQUEST__INIT;
    const tutti_rpc_call_options options = {.deadline_ns = 0};
    tutti_rpc_stream *stream = NULL;
    tutti_code code;

    TUTTI_TRY(tutti_rpc_stream_open(conn->channel, &stub_watch, &options, &stream, err));
    request.job = client_write_text(client_job(client));
    request.after_epoch = after_epoch;
    request.job_id = job_id;
    code = tutti_rpc_stream_write(stream, &request.base, NULL, err);
    if (code == TUTTI_OK) {
        code = tutti_rpc_stream_writes_done(stream, err);
    }
    if (code != TUTTI_OK && code != TUTTI_ABORTED) { /* ABORTED: the reader hears why */
        tutti_rpc_stream_cancel(stream);
        (void)tutti_rpc_stream_finish(stream, NULL);
        return code;
    }
    *ret_stream = stream;
    return TUTTI_OK;
}

/* A kind that this library does not know leaves the event as it was begun. */
static void
read_event(const Tutti__V1__WatchMembersResponse *message, tutti_member_event *ret)
{
    *ret = (tutti_member_event){.size = sizeof(*ret), .reason = ""};
    if (message->event_case == TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_NOW) {
        ret->kind = TUTTI_MEMBERS_NOW;
        ret->job_id = message->now->job_id;
        ret->epoch = message->now->epoch;
        ret->world_size = message->now->world_size;
        ret->alive_count = message->now->alive_count;
    } else if (message->event_case == TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_RANK_LOST) {
        ret->kind = TUTTI_MEMBER_LOST;
        ret->rank = message->rank_lost->rank;
        ret->incarnation = message->rank_lost->incarnation;
        ret->epoch = message->rank_lost->epoch;
        ret->reason = message->rank_lost->reason;
        ret->left = message->rank_lost->left;
    } else if (message->event_case == TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_RANK_LEAVING) {
        ret->kind = TUTTI_MEMBER_LEAVING;
        ret->rank = message->rank_leaving->rank;
        ret->incarnation = message->rank_leaving->incarnation;
        ret->epoch = message->rank_leaving->epoch;
        ret->reason = message->rank_leaving->reason;
    } else if (message->event_case == TUTTI__V1__WATCH_MEMBERS_RESPONSE__EVENT_RANK_JOINED) {
        ret->kind = TUTTI_MEMBER_JOINED;
        ret->rank = message->rank_joined->rank;
        ret->incarnation = message->rank_joined->incarnation;
        ret->epoch = message->rank_joined->epoch;
    }
}

tutti_code
client_wire_members_read(tutti_rpc_stream *stream, tutti_rpc_message **ret_message,
                         tutti_member_event *ret_event, tutti_error *err)
{
    tutti_rpc_message *message = NULL;

    TUTTI_TRY(tutti_rpc_stream_read(stream, &message, err));
    if (message != NULL) {
        read_event(tutti_rpc_message_get(message), ret_event);
    }
    *ret_message = message;
    return TUTTI_OK;
}
