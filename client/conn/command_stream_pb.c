/*
 * Unary calls as commands of an open stream (decision 0022 has the whole argument and the table
 * of what becomes of a call whose stream ends).
 *
 * The rule for every failure: a call goes again, as a unary one, only if it is certain that the
 * server has not begun it. Otherwise the caller gets the error that a unary call would have had.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/command_stream.h"
#include "client/conn/command_stream_pb.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "rpc/follow.h"

#define CALLS_BEFORE 2 /* of one client: who makes so few has no use for a stream */

/* Whose streams may carry the call; NULL = nobody's. A coordinator does not say whether it has any. */
static const client_stream_service *
find_service(const tutti_client *client, const client_call *call)
{
    if (call->kind == CLIENT_CONTROL) {
        return client->agent.commands_max == 0 ? NULL : &client_commands;
    }
    return call->streams;
}

/*
 * May a stream carry this call? It is a command, its payload is small (copied, not lent), and the
 * client has made a few calls: a program of one call would only pay for opening the stream. The
 * counter stops at CALLS_BEFORE; relaxed, because being off by one does not matter.
 */
static bool
may_carry(client_streams *streams, const client_call *call, uint32_t number)
{
    if (call->payload_bytes > CLIENT_COPY_BYTES_MAX || number == 0 ||
        atomic_load_explicit(&streams->goes_by_itself, memory_order_relaxed)) {
        return false;
    }
    return atomic_load_explicit(&streams->calls, memory_order_relaxed) >= CALLS_BEFORE ||
           atomic_fetch_add_explicit(&streams->calls, 1, memory_order_relaxed) >= CALLS_BEFORE;
}

static tutti_code
post_request(client_command_stream *commands, const client_call *call, uint32_t number,
             const ProtobufCMessage *request, tutti_error *err)
{
    const tutti_rpc_blob blob = {.data = call->payload, .size = call->payload_bytes};
    tutti_rpc_packed *packed = NULL;

    TUTTI_TRY(commands->service->pack(++commands->last_id, number, request,
                                      blob.size > 0 ? &blob : NULL, &packed, err));
    tutti_rpc_stream_post(commands->stream, packed);
    return TUTTI_OK;
}

/* [out, owned] ret_message  the answer; NULL: why there is none (TUTTI_OK: the stream has ended
 * well), and the command stream is gone */
static tutti_code
receive_command(tutti_client *client, client_command_stream *commands, const client_call *call,
                tutti_rpc_message **ret_message, tutti_error *err)
{
    tutti_error ended;
    tutti_code code;

    *ret_message = NULL;
    /*
     * The deadline has passed. Cancelling the stream cancels the op at the server, as the end of a
     * unary call does.
     */
    if (!tutti_rpc_stream_wait(commands->stream, call->deadline_ns)) {
        code = tutti_rpc_stream_late(commands->stream, call->stub, err);
        (void)client_command_stream_drop(client, commands, NULL);
        return code;
    }
    code = tutti_rpc_stream_read(commands->stream, ret_message, err);
    if (code == TUTTI_OK && *ret_message != NULL) {
        return TUTTI_OK;
    }
    if (code != TUTTI_OK) {
        (void)client_command_stream_drop(client, commands, NULL);
        return code;
    }
    code = client_command_stream_drop(client, commands, &ended);
    return code == TUTTI_OK ? code : tutti_error_pass(err, &ended);
}

/*
 * Does this code mean that the server, or a proxy before it, lets nobody have a stream of
 * commands?
 */
static bool
is_refusal(tutti_code code)
{
    return code == TUTTI_UNIMPLEMENTED || code == TUTTI_PERMISSION_DENIED ||
           code == TUTTI_UNAUTHENTICATED || code == TUTTI_RESOURCE_EXHAUSTED;
}

/* What the answer says. [in] number  of the command, and so of its result; [in, moved] message */
static tutti_code
read_command_answer(const client_command_stream *commands, uint32_t number,
                    tutti_rpc_message *message, tutti_rpc_message **ret_response, tutti_error *err)
{
    const client_command_answer answer = commands->service->read(tutti_rpc_message_get(message));
    tutti_error said;
    tutti_code code = TUTTI_OK;

    if (answer.id != commands->last_id || (answer.error == NULL && answer.number != number)) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "%s answered call %" PRIu64 " with %" PRIu32
                              " instead of call %" PRIu64 " with %" PRIu32,
                              commands->service->server, answer.id, answer.number,
                              commands->last_id, number);
    } else if (answer.error != NULL) {
        client_read_error(answer.error, &said);
        code = tutti_error_pass(err, &said);
    } else if (ret_response != NULL) {
        tutti_rpc_message_narrow(message, answer.response);
        *ret_response = message;
        return TUTTI_OK;
    }
    tutti_rpc_message_free(message);
    return code;
}

/*
 * Behind an answer: the stream is idle again, unless its answers make no sense, or its token has
 * become bad.
 */
static void
put_away(tutti_client *client, client_command_stream *commands, tutti_code code)
{
    if (code != TUTTI_DATA_LOSS && code != TUTTI_UNAUTHENTICATED) {
        client_command_stream_release(client, commands);
        return;
    }
    tutti_rpc_stream_cancel(commands->stream);
    (void)client_command_stream_drop(client, commands, NULL);
}

static bool
has_reason(const tutti_error *err, const char *reason)
{
    return strcmp(err->reason, reason) == 0;
}

/*
 * Shall the call be made again as a unary one? In these cases nothing was begun:
 *
 * - the first command of a stream was refused as a stream, and so are all later ones, unless the token
 *   is to blame, which may be replaced: no more streams;
 * - the server of the stream does not know its lane, as it is not the one that made it, or was too slow;
 * - no coordinator that leads was reached: a unary call looks for it;
 * - the answer is UNAUTHENTICATED, because the token that the stream began with has expired, and a call
 *   of its own reads today's; or it is NO_COMMAND, from a server that is older than the command;
 * - the stream ended OK without an answer, which a server that drains does only to commands that it has
 *   not read.
 */
static bool
goes_by_itself(client_streams *streams, const client_stream_service *service,
               const tutti_error *failed, bool first, bool answered)
{
    const tutti_code code = failed->code;

    if (answered) {
        return code == TUTTI_UNAUTHENTICATED || has_reason(failed, "NO_COMMAND");
    }
    if (first && has_reason(failed, "NO_LANE")) {
        client_lane_put_off(streams);
        return true;
    }
    if (first && service->conn_kind == CLIENT_COORDINATOR && tutti_rpc_was_elsewhere(failed)) {
        return true;
    }
    if (first && is_refusal(code)) {
        atomic_store(&streams->goes_by_itself, code != TUTTI_UNAUTHENTICATED);
        return true;
    }
    return code == TUTTI_OK;
}

/* [out] ret_answered  the server has said what became of it, or nothing was sent */
static tutti_code
exchange_command(tutti_client *client, client_command_stream *commands, const client_call *call,
                 uint32_t number, const ProtobufCMessage *request, tutti_rpc_message **ret_response,
                 bool *ret_answered, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    tutti_code code = post_request(commands, call, number, request, err);

    *ret_answered = true;
    if (code != TUTTI_OK) {
        put_away(client, commands, TUTTI_DATA_LOSS);
        return code;
    }
    code = receive_command(client, commands, call, &message, err);
    *ret_answered = message != NULL;
    if (message != NULL) {
        code = read_command_answer(commands, number, message, ret_response, err);
        put_away(client, commands, code);
    }
    return code;
}

bool
client_command_stream_call(tutti_client *client, const client_call *call,
                           const struct ProtobufCMessage *request, tutti_rpc_message **ret_response,
                           tutti_code *ret_code, tutti_error *err)
{
    const client_stream_service *service = find_service(client, call);
    const uint32_t number = service == NULL ? 0 : client_command_number(service, request);
    client_streams *streams = service == NULL ? NULL : &client->streams[service->kind];
    client_command_stream *commands = NULL;
    tutti_error failed = {0};
    bool answered;
    bool first;

    if (number != 0 && may_carry(streams, call, number)) {
        commands = client_command_stream_acquire(client, service);
    }
    if (commands == NULL) {
        return false;
    }
    first = commands->last_id == 0;
    *ret_code =
        exchange_command(client, commands, call, number, request, ret_response, &answered, &failed);
    failed.code = *ret_code;
    if (goes_by_itself(streams, service, &failed, first, answered)) {
        return false;
    }
    if (*ret_code != TUTTI_OK) {
        (void)tutti_error_pass(err, &failed);
    }
    return true;
}

/* Every call has a request type of its own, and with it a place in the oneof. */
uint32_t
client_command_number(const client_stream_service *service, const ProtobufCMessage *request)
{
    const ProtobufCMessageDescriptor *type = service->request;
    uint32_t number = 0;
    unsigned i;

    for (i = 0; i < type->n_fields && number == 0; i++) {
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE &&
            type->fields[i].descriptor == request->descriptor) {
            number = type->fields[i].id;
        }
    }
    return number;
}

tutti_code
client_read_lane_offer(const client_stream_service *service, tutti_bytes token, const char *socket,
                       client_lane_offer *ret, tutti_error *err)
{
    if (token.size != sizeof(ret->token) || strlen(socket) >= sizeof(ret->socket)) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "%s sent a malformed offer of a lane", service->server);
    }
    memcpy(ret->token, token.data, sizeof(ret->token));
    memcpy(ret->socket, socket, strlen(socket) + 1);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the agent's */

static const tutti_rpc_stub stub_run = {&tutti__v1__commands_service__descriptor, "Run"};
static const tutti_rpc_stub stub_open_lane = {&tutti__v1__commands_service__descriptor, "OpenLane"};

uint32_t
client_command_of(const ProtobufCMessage *request)
{
    return client_command_number(&client_commands, request);
}

void
client_set_command(Tutti__V1__RunRequest *message, uint32_t number, const ProtobufCMessage *request)
{
    message->command_case = (Tutti__V1__RunRequest__CommandCase)number;
    message->all_reduce = (void *)(uintptr_t)request; /* all of it share their place */
}

tutti_code
client_open_commands(client_conn *conn, const tutti_rpc_call_options *options,
                     tutti_rpc_stream **ret_stream, tutti_error *err)
{
    return tutti_rpc_stream_open(conn->channel, &stub_run, options, ret_stream, err);
}

static tutti_code
pack_command(uint64_t id, uint32_t number, const ProtobufCMessage *request,
             const tutti_rpc_blob *payload, tutti_rpc_packed **ret_packed, tutti_error *err)
{
    Tutti__V1__RunRequest message = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__RunOptions options = TUTTI__V1__RUN_OPTIONS__INIT;

    message.id = id;
    if (id == 1) { /* the agent need not read ahead: one command at a time */
        options.in_flight_max = 1;
        message.options = &options;
    }
    client_set_command(&message, number, request);
    return tutti_rpc_pack(&message.base, payload, ret_packed, err);
}

static client_command_answer
read_answer(const void *message)
{
    const Tutti__V1__RunResponse *answer = message;

    if (answer->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_ERROR) {
        return (client_command_answer){.id = answer->id, .error = answer->error};
    }
    return (client_command_answer){
        .id = answer->id,
        .number = (uint32_t)answer->result_case,
        .response = (const ProtobufCMessage *)answer->all_reduce, /* whichever it is */
    };
}

static tutti_code
ask_for_lane(tutti_client *client, const char *host_id, uint32_t wait_ms,
             client_lane_offer *ret_offer, tutti_error *err)
{
    Tutti__V1__OpenLaneRequest request = TUTTI__V1__OPEN_LANE_REQUEST__INIT;
    const client_call call = {.stub = &stub_open_lane,
                              .kind = CLIENT_CONTROL,
                              .deadline_ns = client_deadline(client, wait_ms)};
    const Tutti__V1__OpenLaneResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.host_id = client_write_text(host_id);
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    code = client_read_lane_offer(&client_commands,
                                  (tutti_bytes){response->token.data, response->token.len},
                                  response->socket, ret_offer, err);
    tutti_rpc_message_free(message);
    return code;
}

const client_stream_service client_commands = {
    .kind = CLIENT_STREAMS_COMMANDS,
    .conn_kind = CLIENT_CONTROL,
    .server = "the agent",
    .run = &stub_run,
    .request = &tutti__v1__run_request__descriptor,
    .pack = pack_command,
    .read = read_answer,
    .open_lane = ask_for_lane,
};
