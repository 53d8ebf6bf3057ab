/*
 * Messages of a streaming call: at most one read and one write are under way at a time.
 *
 * on_read and on_written run on the loop's thread; reads are asked for and writes made on any
 * thread. `writing` and `initial_sent` are behind the call's lock, together with `ending`,
 * because a finish on another thread must know whether the status has to wait for a write. Each
 * read and write counts as a part of the call, so the call outlives it.
 *
 * If the client goes away, a read comes back empty and a write comes back with `ok` false.
 * Neither is reported to the handler by itself: CLOSE comes too, and on_cancel tells of it.
 */
#include <assert.h>

#include "base/error/fail.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"
#include "rpc/server.h"
#include "rpc/server/call.h"
#include "rpc/server/lane.h"
#include "rpc/server/server_private.h"

static bool
is_ending(tutti_rpc_call *call)
{
    bool ending;

    (void)pthread_mutex_lock(&call->lock);
    ending = call->ending;
    (void)pthread_mutex_unlock(&call->lock);
    return ending;
}

/*
 * Unpack one message, check it against the grant, hand it over. `request` holds it meanwhile, so
 * that the handler can take it (tutti_rpc_call_take) and keep it beyond on_message. A message
 * that is malformed, or names a job or rank that is not the caller's, ends the call without the
 * handler's seeing it.
 */
static void
deliver_message(tutti_rpc_call *call, grpc_byte_buffer *received)
{
    const rpc_route *route = call->route;
    tutti_rpc_message *message = NULL;
    tutti_error err;

    if (rpc_unpack(route->input, received, !route->open_enums, &message, &err) != TUTTI_OK) {
        rpc_call_refuse(call, &err);
        return;
    }
    call->request = message;
    if (rpc_call_check(call, message, &err) != TUTTI_OK) {
        rpc_call_refuse(call, &err);
    } else if (route->method->stream->on_message != NULL) {
        route->method->stream->on_message(call, route->self, message);
    }
    tutti_rpc_message_free(tutti_rpc_call_take(call)); /* unless it was taken */
}

tutti_rpc_message *
tutti_rpc_call_take(tutti_rpc_call *call)
{
    tutti_rpc_message *message = call->request;

    assert(call->route->client_streams);
    call->request = NULL;
    return message;
}

/* The last word may have been given: then messages have no reader. */
void
rpc_call_deliver(tutti_rpc_call *call, grpc_byte_buffer *received)
{
    if (is_ending(call)) {
        grpc_byte_buffer_destroy(received);
    } else {
        deliver_message(call, received);
    }
}

void
rpc_call_half_closed(tutti_rpc_call *call)
{
    const tutti_rpc_stream_ops *ops = call->route->method->stream;

    if (!is_ending(call) && ops->on_half_close != NULL) {
        ops->on_half_close(call, call->route->self);
    }
}

static void
on_read(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_call *call = tutti_container_of(tag, tutti_rpc_call, read);
    grpc_byte_buffer *received = call->received;

    call->received = NULL;
    if (received != NULL) {
        rpc_call_deliver(call, received);
        /*
     * No message: either the client has half-closed, or the call has failed. Only gRPC can tell
     * the two apart; a failed call is CLOSE's to report.
     */
    } else if (ok && grpc_call_failed_before_recv_message(call->call) == 0) {
        rpc_call_half_closed(call);
    }
    rpc_call_drop(call, 1);
}

void
rpc_call_read_grpc(tutti_rpc_call *call)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
                        .data.recv_message.recv_message = &call->received};

    (void)atomic_fetch_add(&call->parts, 1);
    call->read.on_done = on_read;
    rpc_batch_start(call->call, &op, 1, &call->read);
}

void
tutti_rpc_call_read(tutti_rpc_call *call)
{
    assert(call->route->client_streams);
    if (is_ending(call)) {
        return;
    }
    if (call->lane != NULL) {
        rpc_lane_read(call);
    } else {
        rpc_call_read_grpc(call);
    }
}

void
rpc_call_on_written(tutti_rpc_call *call, bool ok)
{
    const tutti_rpc_stream_ops *ops = call->route->method->stream;
    bool ending;

    (void)pthread_mutex_lock(&call->lock);
    call->writing = false;
    ending = call->ending;
    (void)pthread_mutex_unlock(&call->lock);
    if (ending) { /* the status has waited for this write */
        if (!rpc_gate_hold(call, NULL, false)) {
            rpc_call_send_last(call);
        }
    } else if ((ok || call->told) && ops->on_written != NULL) { /* failed: CLOSE tells */
        ops->on_written(call, call->route->self);
    }
    rpc_call_drop(call, 1);
}

static void
on_written(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_call *call = tutti_container_of(tag, tutti_rpc_call, written);

    rpc_call_count_sent(call);
    rpc_call_on_written(call, ok);
}

/* False: the call is ending, so nothing is sent any more. */
static bool
claim_write(tutti_rpc_call *call, bool *ret_first)
{
    bool may;

    (void)pthread_mutex_lock(&call->lock);
    assert(!call->answered && !call->writing);
    may = !call->ending;
    if (may) {
        *ret_first = !call->initial_sent;
        call->writing = true;
        call->initial_sent = true;
    }
    (void)pthread_mutex_unlock(&call->lock);
    return may;
}

/*
 * A write that takes the initial metadata with it gets no buffer hint: gRPC tells of the end of
 * such a batch only when it has left the buffer, and the handler makes the write that would push
 * it out only when it is told of this one.
 */
void
rpc_call_write_grpc(tutti_rpc_call *call, grpc_byte_buffer *message, bool first, bool more)
{
    grpc_op ops[2] = {0};
    size_t count = 0;
    tutti_error err;

    if (!rpc_call_count_unsent(call, message, &err)) {
        tutti_rpc_call_cut(call, &err); /* the write below comes back in vain */
    }
    if (first) {
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    }
    ops[count].op = GRPC_OP_SEND_MESSAGE;
    ops[count].flags = more && !first ? GRPC_WRITE_BUFFER_HINT : 0;
    ops[count++].data.send_message.send_message = message;
    (void)atomic_fetch_add(&call->parts, 1);
    call->written.on_done = on_written;
    rpc_batch_start(call->call, ops, count, &call->written);
}

void
rpc_call_start_write(tutti_rpc_call *call, grpc_byte_buffer *message, bool first, bool more)
{
    if (call->lane == NULL || !rpc_lane_write(call, message)) {
        rpc_call_write_grpc(call, message, first, more);
    }
}

/* [in, moved] message. gRPC holds a reference of its own while the batch runs. */
static bool
write_message(tutti_rpc_call *call, grpc_byte_buffer *message, bool more, bool gated)
{
    bool first = false;
    const bool may = claim_write(call, &first);

    assert(call->route->server_streams);
    if (may && gated && rpc_gate_hold(call, message, first)) {
        return true;
    }
    if (may) {
        rpc_call_start_write(call, message, first, more);
    }
    grpc_byte_buffer_destroy(message);
    return may;
}

bool
tutti_rpc_call_write_packed(tutti_rpc_call *call, tutti_rpc_packed *packed, bool more)
{
    return write_message(call, rpc_packed_buffer(packed), more, true);
}

static void
pack_and_write(tutti_rpc_call *call, const struct ProtobufCMessage *response,
               const tutti_rpc_blob *payload, bool gated)
{
    tutti_rpc_packed *packed = NULL;
    tutti_error err;

    if (tutti_rpc_pack(response, payload, &packed, &err) != TUTTI_OK) {
        rpc_call_refuse(call, &err); /* what cannot be packed ends the call */
        return;
    }
    (void)write_message(call, rpc_packed_buffer(packed), false, gated);
}

void
tutti_rpc_call_write(tutti_rpc_call *call, const struct ProtobufCMessage *response,
                     const tutti_rpc_blob *payload)
{
    pack_and_write(call, response, payload, true);
}

void
tutti_rpc_call_write_now(tutti_rpc_call *call, const struct ProtobufCMessage *response)
{
    pack_and_write(call, response, NULL, false);
}

bool
tutti_rpc_call_writable(const tutti_rpc_call *call)
{
    tutti_rpc_call *self = (tutti_rpc_call *)(uintptr_t)call; /* only its lock changes */
    bool writable;

    (void)pthread_mutex_lock(&self->lock);
    writable = !self->writing && !self->ending;
    (void)pthread_mutex_unlock(&self->lock);
    return writable && !tutti_rpc_call_cancelled(call);
}
