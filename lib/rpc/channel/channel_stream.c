/*
 * Streams that block: one pluck queue, and one tag for each thing that can be under way.
 *
 * One thread writes while another may read; the fields are divided so that no lock is needed:
 * `posted` and `closed` belong to the writer, `reading`, `fetched`, `read_all` and `received` to
 * the reader. The two wait for different tags on one queue, which gRPC allows. finish runs when
 * both are done, and waits for every batch: only then may the memory that gRPC writes to be
 * freed.
 *
 * A read is always one message ahead. If the server dies or tutti_rpc_stream_cancel is called,
 * reads and writes return, and finish gives the status.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"
#include "rpc/util/process.h"

struct tutti_rpc_stream {
    tutti_rpc_channel *channel;
    const rpc_known *known;
    grpc_completion_queue *queue;
    grpc_call *call;
    rpc_outcome outcome;
    grpc_byte_buffer *received;
    bool reading; /* a read is under way: one message is fetched ahead */
    bool fetched; /* it is there, in `received` */
    bool read_all;
    bool posted; /* a write that nobody has waited for */
    bool closed; /* our side */
    /* Only their addresses count. */
    char opened_tag;
    char status_tag;
    char read_tag;
    char write_tag;
};

static void
start_read(tutti_rpc_stream *self)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
                        .data.recv_message.recv_message = &self->received};

    self->reading = true;
    rpc_batch_start(self->call, &op, 1, &self->read_tag);
}

tutti_code
tutti_rpc_stream_open(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                      const tutti_rpc_call_options *options, tutti_rpc_stream **ret_stream,
                      tutti_error *err)
{
    tutti_rpc_stream *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a stream");
    }
    code = rpc_channel_find(channel, stub, &self->known, err);
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    self->channel = channel;
    self->queue = rpc_channel_take_queue(channel);
    rpc_outcome_init(&self->outcome, channel);
    self->call = rpc_channel_call(channel, self->known, self->queue, options);
    rpc_channel_begin(channel, self->call, options, &self->outcome, &self->opened_tag,
                      &self->status_tag);
    *ret_stream = self;
    return TUTTI_OK;
}

static tutti_code
is_stream_ended(tutti_error *err)
{
    return TUTTI_FAIL(err, TUTTI_ABORTED, "the stream has ended");
}

/*
 * Wait for a posted write: gRPC takes one at a time. Its success is not looked at, because a
 * failed write means that the stream has ended, and the next read or finish says so.
 */
static void
settle_stream(tutti_rpc_stream *self)
{
    if (self->posted) {
        self->posted = false;
        (void)rpc_channel_pluck(self->queue, &self->write_tag);
    }
}

static void
start_write(tutti_rpc_stream *self, tutti_rpc_packed *packed, bool more)
{
    grpc_byte_buffer *buffer = rpc_packed_buffer(packed);
    const grpc_op op = {.op = GRPC_OP_SEND_MESSAGE,
                        .flags = more ? GRPC_WRITE_BUFFER_HINT : 0,
                        .data.send_message.send_message = buffer};

    assert(!self->closed);
    settle_stream(self);
    rpc_batch_start(self->call, &op, 1, &self->write_tag);
    /* gRPC holds a reference of its own. */
    grpc_byte_buffer_destroy(buffer);
}

tutti_code
tutti_rpc_stream_write_packed(tutti_rpc_stream *stream, tutti_rpc_packed *packed, bool more,
                              tutti_error *err)
{
    start_write(stream, packed, more);
    return rpc_channel_pluck(stream->queue, &stream->write_tag) ? TUTTI_OK : is_stream_ended(err);
}

void
tutti_rpc_stream_post(tutti_rpc_stream *stream, tutti_rpc_packed *packed)
{
    start_write(stream, packed, false);
    stream->posted = true;
}

tutti_code
tutti_rpc_stream_write(tutti_rpc_stream *stream, const struct ProtobufCMessage *message,
                       const tutti_rpc_blob *payload, tutti_error *err)
{
    tutti_rpc_packed *packed = NULL;

    TUTTI_TRY(tutti_rpc_pack(message, payload, &packed, err));

    return tutti_rpc_stream_write_packed(stream, packed, false, err);
}

tutti_code
tutti_rpc_stream_writes_done(tutti_rpc_stream *stream, tutti_error *err)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    assert(!stream->closed);
    settle_stream(stream);
    stream->closed = true;
    rpc_batch_start(stream->call, &op, 1, &stream->write_tag);
    return rpc_channel_pluck(stream->queue, &stream->write_tag) ? TUTTI_OK : is_stream_ended(err);
}

/* Until the next message, or the end, is there; false: not by then. */
static bool
fetch_stream(tutti_rpc_stream *self, uint64_t deadline_ns)
{
    grpc_event event;

    if (self->fetched || self->read_all) {
        return true;
    }
    if (!self->reading) {
        start_read(self);
    }
    event = rpc_channel_pluck_until(self->queue, &self->read_tag, self->call, deadline_ns);
    if (event.type != GRPC_OP_COMPLETE) {
        return false;
    }
    rpc_tag_acquire((void *)&self->read_tag);
    self->reading = false;
    self->fetched = true;
    return true;
}

/* What was fetched, as gRPC received it; NULL at the end. */
static grpc_byte_buffer *
take_fetched(tutti_rpc_stream *self)
{
    grpc_byte_buffer *received = self->received;

    self->fetched = false;
    self->received = NULL;
    self->read_all = received == NULL;
    return received;
}

static grpc_byte_buffer *
receive_stream(tutti_rpc_stream *self)
{
    (void)fetch_stream(self, TUTTI_TIMERS_NEVER);
    return take_fetched(self);
}

tutti_code
tutti_rpc_stream_read(tutti_rpc_stream *stream, tutti_rpc_message **ret_message, tutti_error *err)
{
    grpc_byte_buffer *received = receive_stream(stream);
    tutti_code code;

    if (received == NULL) {
        *ret_message = NULL;
        return TUTTI_OK;
    }
    start_read(stream); /* it travels while the caller works on this one */
    code = rpc_response_unpack(stream->known, received, ret_message, err);
    if (code != TUTTI_OK) {
        tutti_rpc_stream_cancel(stream);
    }
    return code;
}

bool
tutti_rpc_stream_wait(tutti_rpc_stream *stream, uint64_t deadline_ns)
{
    return fetch_stream(stream, deadline_ns == 0 ? TUTTI_TIMERS_NEVER : deadline_ns);
}

void
tutti_rpc_stream_cancel(tutti_rpc_stream *stream)
{
    (void)grpc_call_cancel(stream->call, NULL);
}

/*
 * The order: half-close, so that the server may end; read to the end, because the status comes
 * only behind all messages; then the batches that open and end the call.
 */
tutti_code
tutti_rpc_stream_finish(tutti_rpc_stream *stream, tutti_error *err)
{
    grpc_byte_buffer *received;
    tutti_code code;

    if (!stream->closed) {
        (void)tutti_rpc_stream_writes_done(stream, NULL);
    }
    settle_stream(stream);
    while ((received = receive_stream(stream)) != NULL) {
        grpc_byte_buffer_destroy(received);
    }
    (void)rpc_channel_pluck(stream->queue, &stream->opened_tag);
    (void)rpc_channel_pluck(stream->queue, &stream->status_tag);
    code = rpc_outcome_read(&stream->outcome, stream->channel, stream->known, err);
    rpc_outcome_fini(&stream->outcome);
    grpc_call_unref(stream->call);
    rpc_channel_give_queue(stream->channel, stream->queue);
    free(stream);
    return code;
}
