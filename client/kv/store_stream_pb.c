/* StoreService.Run, as client/conn/command_stream.h wants to know it. */
#include "client/kv/store_stream.h"

#include "base/error/fail.h"
#include "client/conn/command_stream.h"
#include "client/conn/coordinator.h"
#include "client/conn/types_pb.h"
#include "tutti/v1/store_service.pb-c.h"

#define SERVICE (&tutti__v1__store_service__descriptor)

static const tutti_rpc_stub stub_run = {SERVICE, "Run"};
static const tutti_rpc_stub stub_open_lane = {SERVICE, "OpenLane"};

static tutti_code
pack_store_command(uint64_t id, uint32_t number, const ProtobufCMessage *request,
                   const tutti_rpc_blob *payload, tutti_rpc_packed **ret_packed, tutti_error *err)
{
    Tutti__V1__StoreServiceRunRequest message = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__INIT;

    message.id = id;
    message.command_case = (Tutti__V1__StoreServiceRunRequest__CommandCase)number;
    message.get = (void *)(uintptr_t)request; /* all of the oneof share their place */
    return tutti_rpc_pack(&message.base, payload, ret_packed, err);
}

static client_command_answer
read_store_answer(const void *message)
{
    const Tutti__V1__StoreServiceRunResponse *answer = message;

    if (answer->result_case == TUTTI__V1__STORE_SERVICE_RUN_RESPONSE__RESULT_ERROR) {
        return (client_command_answer){.id = answer->id, .error = answer->error};
    }
    return (client_command_answer){
        .id = answer->id,
        .number = (uint32_t)answer->result_case,
        .response = (const ProtobufCMessage *)answer->get, /* whichever it is */
    };
}

static tutti_code ask_for_store_lane(tutti_client *client, const char *host_id, uint32_t wait_ms,
                                     client_lane_offer *ret_offer, tutti_error *err);

static const client_stream_service store_streams = {
    .kind = CLIENT_STREAMS_STORE,
    .conn_kind = CLIENT_COORDINATOR,
    .server = "the coordinator",
    .run = &stub_run,
    .request = &tutti__v1__store_service_run_request__descriptor,
    .pack = pack_store_command,
    .read = read_store_answer,
    .open_lane = ask_for_store_lane,
};

static tutti_code
ask_for_store_lane(tutti_client *client, const char *host_id, uint32_t wait_ms,
                   client_lane_offer *ret_offer, tutti_error *err)
{
    Tutti__V1__StoreServiceOpenLaneRequest request =
        TUTTI__V1__STORE_SERVICE_OPEN_LANE_REQUEST__INIT;
    client_call call = client_ask_coordinator(client, &stub_open_lane);
    const Tutti__V1__StoreServiceOpenLaneResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    call.deadline_ns = client_deadline(client, wait_ms);
    request.host_id = client_write_text(host_id);
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    code = client_read_lane_offer(&store_streams,
                                  (tutti_bytes){response->token.data, response->token.len},
                                  response->socket, ret_offer, err);
    tutti_rpc_message_free(message);
    return code;
}

client_call
client_ask_store(const tutti_client *client, const tutti_rpc_stub *stub)
{
    client_call call = client_ask_coordinator(client, stub);

    call.streams = &store_streams;
    return call;
}

bool
client_store_has_streams(const tutti_client *client)
{
    return !atomic_load(&client->streams[CLIENT_STREAMS_STORE].goes_by_itself);
}
