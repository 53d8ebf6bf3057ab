/* The last word of a call: one batch, from whatever thread speaks it. */
#include <assert.h>

#include "base/fail.h"
#include "rpc/message/message.h"
#include "rpc/server/call.h"

/*
 * A handler that answers while it is being called saves a batch and an event: CLOSE travels with
 * the status.
 */
static bool
join_close(tutti_rpc_call *call, bool current)
{
    if (!current || !call->beginning || call->close_started) {
        return false;
    }
    call->close_started = true;
    call->close_joined = true;
    return true;
}

void
rpc_call_send_last(tutti_rpc_call *call)
{
    const bool joined = join_close(call, tutti_rpc_loop_is_current(call->lane->loop));
    grpc_byte_buffer *message = call->last;
    grpc_op ops[4] = {0};
    size_t count = 0;

    call->last = NULL;
    if (!call->initial_sent) {
        call->initial_sent = true;
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    }
    if (message != NULL) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = message;
    }
    ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[count].data.send_status_from_server.status = call->status.code;
    ops[count].data.send_status_from_server.status_details = &call->status.text;
    ops[count].data.send_status_from_server.trailing_metadata = &call->status.details;
    ops[count++].data.send_status_from_server.trailing_metadata_count = call->status.detail_count;
    if (joined) {
        ops[count].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
        ops[count++].data.recv_close_on_server.cancelled = &call->gone;
    }
    rpc_batch_start(call->call, ops, count, &call->finished);
    if (message != NULL) {
        grpc_byte_buffer_destroy(message);
    }
}

/* Nobody will send it. */
static void
forget(grpc_byte_buffer *message, rpc_status *status)
{
    if (message != NULL) {
        grpc_byte_buffer_destroy(message);
    }
    rpc_status_fini(status);
}

/*
 * Claim the last word; false: somebody had it already, and this one is forgotten. *ret_now: send it
 * at once, no write in flight has to leave first.
 */
static bool
claim(tutti_rpc_call *call, grpc_byte_buffer *message, rpc_status *status, bool by_handler,
      bool *ret_now)
{
    bool late;

    (void)pthread_mutex_lock(&call->lock);
    if (by_handler) {
        assert(!call->answered); /* a call is answered once */
        call->answered = true;
    }
    late = call->ending;
    *ret_now = !late && !call->writing;
    if (!late) {
        call->ending = true;
        call->last = message;
        call->status = *status;
    }
    (void)pthread_mutex_unlock(&call->lock);
    if (late) {
        forget(message, status);
    }
    return !late;
}

/* The handler's last word. [in, moved] message  NULL = none. `err` NULL = OK */
static void
answer(tutti_rpc_call *call, grpc_byte_buffer *message, const tutti_error *err)
{
    rpc_status status;
    bool now;

    rpc_status_init(&status, err);
    tutti_rpc_call_ref(call); /* its events may run before this returns */
    (void)claim(call, message, &status, true, &now);
    rpc_call_drop_later(call);
    if (now) {
        rpc_call_send_last(call);
    }
    tutti_rpc_call_unref(call);
}

static void
on_tell(tutti_rpc_task *task)
{
    tutti_rpc_call *call = tutti_container_of(task, tutti_rpc_call, tell);

    rpc_call_tell(call);
    rpc_call_drop(call, 1);
}

void
rpc_call_refuse(tutti_rpc_call *call, const tutti_error *err)
{
    rpc_status status;
    bool now;

    rpc_status_init(&status, err);
    if (!claim(call, NULL, &status, false, &now)) {
        return;
    }
    if (call->handed) {
        (void)atomic_fetch_add(&call->parts, 1);
        call->tell.on_run = on_tell;
        tutti_rpc_loop_post(call->lane->loop, &call->tell);
    }
    if (now) {
        rpc_call_send_last(call);
    }
}

void
tutti_rpc_call_reply(tutti_rpc_call *call, const struct ProtobufCMessage *response,
                     const tutti_rpc_blob *payload)
{
    grpc_byte_buffer *message = NULL;
    tutti_error err;

    assert(!call->route->server_streams);
    if (call->stream != NULL) {
        rpc_nested_answer(call, response, payload, NULL);
        return;
    }
    if (rpc_pack(response, payload, &message, &err) != TUTTI_OK) {
        answer(call, NULL, &err);
        return;
    }
    answer(call, message, NULL);
}

void
tutti_rpc_call_fail(tutti_rpc_call *call, const tutti_error *err)
{
    assert(err != NULL && err->code != TUTTI_OK);
    if (call->stream != NULL) {
        rpc_nested_answer(call, NULL, NULL, err);
        return;
    }
    answer(call, NULL, err);
}

void
tutti_rpc_call_finish(tutti_rpc_call *call, const tutti_error *err)
{
    assert(err != NULL || call->route->server_streams);
    answer(call, NULL, err);
}

void
tutti_rpc_call_cut(tutti_rpc_call *call, const tutti_error *why)
{
    assert(call->stream == NULL && why->code != TUTTI_OK);
    (void)grpc_call_cancel_with_status(call->call, (grpc_status_code)why->code, why->text, NULL);
}
