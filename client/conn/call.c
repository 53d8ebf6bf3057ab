/*
 * Unary calls, and until when they may take. All calls of libtutti but transfers, watches and
 * pipelines go through client_invoke, on the caller's thread.
 *
 * The order: a request hook takes the request instead of sending it; a call that a command stream
 * may carry goes by one (command_stream_pb.c); all others are calls of their own on a shared
 * connection. A payload above CLIENT_COPY_BYTES_MAX is lent to gRPC, so the call returns only
 * when gRPC has let it go (zero_copy.c).
 */
#include "client/conn/call.h"

#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "client/conn/client.h"
#include "client/conn/command_stream.h"
#include "client/conn/conn_pool.h"
#include "client/conn/zero_copy.h"
#include "rpc/follow.h"

#define PAUSE_MIN_NS (5 * TUTTI_NS_PER_MS)
#define PAUSE_MAX_NS (200 * TUTTI_NS_PER_MS)

uint64_t
client_deadline(const tutti_client *client, uint32_t timeout_ms)
{
    const uint64_t wait_ms = timeout_ms != 0 ? timeout_ms : client->settings.timeout_ms;

    return tutti_clock_add(tutti_clock_ns(), wait_ms * TUTTI_NS_PER_MS);
}

tutti_rpc_call_options
client_stream_options(const tutti_client *client)
{
    return (tutti_rpc_call_options){.lease = atomic_load(&client->lease)};
}

uint64_t
client_op_deadline(uint32_t timeout_ms)
{
    const uint64_t wait_ms = (uint64_t)timeout_ms + CLIENT_OP_GRACE_MS;

    return timeout_ms == 0 ? 0 : tutti_clock_add(tutti_clock_ns(), wait_ms * TUTTI_NS_PER_MS);
}

/*
 * A coordinator that has answered before may be restarting: within the call's time that is a
 * delay. One that never answered is an error at once, mostly a wrong address.
 */
static bool
is_patient(const client_call *call, client_conn *conn)
{
    return call->kind == CLIENT_COORDINATOR && call->deadline_ns != 0 &&
           atomic_load(&conn->answered);
}

static bool
was_there(tutti_code code, const tutti_error *err)
{
    return code == TUTTI_OK ||
           (code != TUTTI_DEADLINE_EXCEEDED && strcmp(err->reason, "UNREACHABLE") != 0);
}

/* One attempt. *ret_others: there are several coordinators, and this one had not heard of the call. */
static tutti_code
invoke_once(tutti_client *client, const client_call *call, const struct ProtobufCMessage *request,
            tutti_rpc_message **ret_response, bool *ret_others, tutti_error *err)
{
    tutti_rpc_call_options options = {.deadline_ns = call->deadline_ns};
    const bool loaded = call->payload_bytes > 0;
    client_conn *conn = NULL;
    client_zero_copy_ref ref;
    tutti_rpc_blob blob;
    tutti_code code;

    TUTTI_TRY(client_conn_take(client, call->kind, &conn, err));
    options.wait_for_ready = is_patient(call, conn);
    if (call->kind != CLIENT_COORDINATOR) {
        options.lease = call->lease != 0 ? call->lease : atomic_load(&client->lease);
    }
    client_zero_copy_init(&ref);
    if (loaded) {
        blob = client_zero_copy_blob(&ref, call->payload, call->payload_bytes);
    }
    code = tutti_rpc_invoke(conn->channel, call->stub, request, loaded ? &blob : NULL, &options,
                            ret_response, err);
    if (was_there(code, err)) {
        atomic_store(&conn->answered, true);
    }
    *ret_others = code != TUTTI_OK && tutti_rpc_channel_has_others(conn->channel) &&
                  tutti_rpc_was_elsewhere(err);
    client_zero_copy_end(&ref, client, conn);
    return code;
}

/* Pauses double: a server that shuts down says so at once. False = the time is over. */
static bool
pause_before(uint64_t deadline_ns, uint64_t *pause_ns)
{
    if (deadline_ns != 0 && tutti_clock_add(tutti_clock_ns(), *pause_ns) >= deadline_ns) {
        return false;
    }
    client_pause_ns(*pause_ns);
    *pause_ns = *pause_ns * 2 < PAUSE_MAX_NS ? *pause_ns * 2 : PAUSE_MAX_NS;
    return true;
}

/*
 * Of several coordinators one leads, and sometimes none for some seconds. A call that none of them has
 * heard of is made again, by the channel at the next one, until its time is over: whether it may be
 * made twice does not matter.
 */
static tutti_code
invoke_anywhere(tutti_client *client, const client_call *call,
                const struct ProtobufCMessage *request, tutti_rpc_message **ret_response,
                tutti_error *err)
{
    const uint64_t until_ns =
        call->deadline_ns != 0 ? call->deadline_ns : client_deadline(client, 0);
    uint64_t pause_ns = PAUSE_MIN_NS;
    bool others = false;
    tutti_code code;

    do {
        code = invoke_once(client, call, request, ret_response, &others, err);
    } while (others && pause_before(until_ns, &pause_ns));
    return code;
}

bool
client_stream_again(const tutti_client *client, client_conn *conn, const tutti_error *err,
                    uint64_t *until_ns, uint64_t *pause_ns)
{
    if (*pause_ns == 0) {
        *pause_ns = PAUSE_MIN_NS;
        *until_ns = *until_ns != 0 ? *until_ns : client_deadline(client, 0);
    }
    return tutti_rpc_channel_has_others(conn->channel) && tutti_rpc_was_elsewhere(err) &&
           pause_before(*until_ns, pause_ns);
}

bool
client_stream_resumes(const tutti_error *err, uint64_t until_ns, uint64_t *pause_ns)
{
    if (*pause_ns == 0) {
        *pause_ns = PAUSE_MIN_NS;
    }
    return err->code == TUTTI_UNAVAILABLE && pause_before(until_ns, pause_ns);
}

static tutti_code
hear_responses(tutti_rpc_stream *stream, const struct ProtobufCMessage *request,
               bool (*on_response)(void *arg, const void *response), void *arg, bool *ret_enough,
               tutti_error *err)
{
    tutti_rpc_message *message = NULL;

    *ret_enough = false;
    TUTTI_TRY(tutti_rpc_stream_write(stream, request, NULL, err));
    TUTTI_TRY(tutti_rpc_stream_writes_done(stream, err));
    while (!*ret_enough) {
        TUTTI_TRY(tutti_rpc_stream_read(stream, &message, err));
        if (message == NULL) {
            return TUTTI_OK;
        }
        *ret_enough = !on_response(arg, tutti_rpc_message_get(message));
        tutti_rpc_message_free(message);
    }
    tutti_rpc_stream_cancel(stream);
    return TUTTI_OK;
}

/* The status says more than a stream that broke. */
tutti_code
client_stream_hear(tutti_rpc_stream *stream, const struct ProtobufCMessage *request,
                   bool (*on_response)(void *arg, const void *response), void *arg,
                   bool *ret_enough, tutti_error *err)
{
    const tutti_code code = hear_responses(stream, request, on_response, arg, ret_enough, err);
    tutti_error status = {0};
    const tutti_code ended = tutti_rpc_stream_finish(stream, &status);

    if (*ret_enough || (code != TUTTI_OK && code != TUTTI_ABORTED)) {
        return code;
    }
    return ended == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &status);
}

tutti_code
client_invoke(tutti_client *client, const client_call *call, const struct ProtobufCMessage *request,
              tutti_rpc_message **ret_response, tutti_error *err)
{
    tutti_error failed = {0};
    tutti_code code;

    if (call->request_hook != NULL) {
        return call->request_hook->take(call->request_hook, request, call->payload,
                                        call->payload_bytes, err);
    }
    if (call->lease == 0 && /* streams are under the client's lease */
        client_command_stream_call(client, call, request, ret_response, &code, err)) {
        return code;
    }
    code = invoke_anywhere(client, call, request, ret_response, &failed);
    return code == TUTTI_OK ? code : tutti_error_pass(err, &failed);
}

/*
 * May a further attempt be answered? The connection broke, the server drains, or gRPC calls the
 * error transient (no server's reason). Only for calls that may be made twice.
 */
static bool
may_be_answered(tutti_code code, const tutti_error *err)
{
    return code == TUTTI_UNAVAILABLE &&
           (strcmp(err->reason, "CONNECTION_LOST") == 0 || strcmp(err->reason, "DRAINING") == 0 ||
            strcmp(err->reason, "GRPC_STATUS") == 0);
}

tutti_code
client_invoke_again(tutti_client *client, const client_call *call,
                    const struct ProtobufCMessage *request, tutti_rpc_message **ret_response,
                    tutti_error *err)
{
    uint64_t pause_ns = PAUSE_MIN_NS;
    tutti_error failed = {0};
    tutti_code code = client_invoke(client, call, request, ret_response, &failed);

    while (may_be_answered(code, &failed) && pause_before(call->deadline_ns, &pause_ns)) {
        code = client_invoke(client, call, request, ret_response, &failed);
    }
    return code == TUTTI_OK ? code : tutti_error_pass(err, &failed);
}
