/* RendezvousService. */
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "tutti/store.h"
#include "tutti/v1/rendezvous_service.pb-c.h"

static const tutti_rpc_stub stub_meet = {&tutti__v1__rendezvous_service__descriptor, "Meet"};

void
tutti_meeting_init(tutti_meeting *meeting)
{
    *meeting = (tutti_meeting){.size = sizeof(*meeting), .rank = -1, .name = "", .root_rank = -1};
}

static void
read_meeting(const Tutti__V1__RendezvousServiceMeetResponse *response, tutti_meeting *meeting)
{
    const bool rooted = response->opt_root_rank_case ==
                        TUTTI__V1__RENDEZVOUS_SERVICE_MEET_RESPONSE__OPT_ROOT_RANK_ROOT_RANK;

    meeting->group_rank = response->group_rank;
    meeting->root_rank = rooted ? (int64_t)response->root_rank : -1;
    meeting->group_hash = response->group_hash;
}

/* The only struct that goes both ways: it must be ours, byte by byte. */
static tutti_code
check_meeting(const tutti_meeting *meeting, tutti_error *err)
{
    if (meeting->size != sizeof(*meeting)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_STRUCT",
            "a meeting of %zu bytes, this library's has %zu bytes: call tutti_meeting_init first",
            meeting->size, sizeof(*meeting));
    }
    if (meeting->rank < -1 || meeting->rank >= TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                              "rank %lld among %u callers, need a rank below their number",
                              (long long)meeting->rank, (unsigned)meeting->count);
    }
    return TUTTI_OK;
}

/*
 * The call may be sent again after a connection broke, so it has a random token: the coordinator
 * knows by it that the same caller comes back, and does not count it twice.
 */
tutti_code
tutti_meet(tutti_client *client, const void *key, size_t key_size, tutti_meeting *meeting,
           tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(key, err);
    TUTTI_NEED(meeting, err);

    Tutti__V1__RendezvousServiceMeetRequest request =
        TUTTI__V1__RENDEZVOUS_SERVICE_MEET_REQUEST__INIT;
    client_call call = {.stub = &stub_meet, .kind = CLIENT_COORDINATOR};
    tutti_rpc_message *message = NULL;

    TUTTI_TRY(check_meeting(meeting, err));
    request.job = client_write_text(client_job(client));
    request.key = client_write_bytes(key, key_size);
    request.count = meeting->count;
    request.is_root = meeting->is_root;
    if (meeting->name != NULL) {
        request.name = client_write_bytes(meeting->name, strlen(meeting->name));
    }
    if (meeting->rank >= 0) {
        request.opt_group_rank_case =
            TUTTI__V1__RENDEZVOUS_SERVICE_MEET_REQUEST__OPT_GROUP_RANK_GROUP_RANK;
        request.group_rank = (uint32_t)meeting->rank;
    }
    request.timeout_ms =
        meeting->timeout_ms != 0 ? meeting->timeout_ms : client->settings.timeout_ms;
    request.token = tutti_id_draw();
    call.deadline_ns = client_op_deadline(request.timeout_ms);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    read_meeting(tutti_rpc_message_get(message), meeting);
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}
