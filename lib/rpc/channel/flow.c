/*
 * Streams on a loop. A flow is over when each of its batches has come back: opened, ended, read,
 * and those of writes and the half-close. `parts` counts them.
 *
 * The loop's thread owns the flow. tutti_rpc_flow_start may run on another thread: then callbacks
 * may run before it returns, so everything is written before the first batch starts (start_all).
 * on_end comes last, once, and frees the flow; if it was ended by ourselves (a message that
 * cannot be packed or unpacked), `failure` is told instead of gRPC's CANCELLED.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"

struct tutti_rpc_flow {
    tutti_rpc_channel *channel;
    tutti_rpc_loop *loop;
    const rpc_known *known;
    const tutti_rpc_flow_ops *ops;
    void *arg;
    grpc_call *call;
    rpc_outcome outcome;
    grpc_byte_buffer *received;
    tutti_rpc_message *message; /* that on_message looks at; NULL = none, or it was taken */
    unsigned parts;             /* batches under way */
    bool writing;
    bool closing; /* half-close when the write has left */
    bool closed;
    bool over;   /* the stream has ended: nothing more will be sent */
    bool failed; /* by ourselves: `failure` says why */
    bool held;   /* no read is under way, but its part is still counted */
    tutti_buf *details;
    tutti_error failure;
    tutti_rpc_tag opened;
    tutti_rpc_tag ended;
    tutti_rpc_tag read;
    tutti_rpc_tag written;
    tutti_rpc_tag half_closed;
};

static void
end_flow(tutti_rpc_flow *self)
{
    tutti_error err;
    tutti_code code = rpc_outcome_read(&self->outcome, self->channel, self->known, &err);

    if (self->failed) {
        code = tutti_error_pass(&err, &self->failure);
    }
    rpc_outcome_details(&self->outcome, self->details);
    rpc_outcome_leave(&self->outcome);
    if (self->ops->on_end != NULL) {
        self->ops->on_end(self->arg, code == TUTTI_OK ? NULL : &err);
    }
    rpc_outcome_fini(&self->outcome);
    grpc_call_unref(self->call);
    rpc_loop_drop(self->loop);
    free(self);
}

/* One batch has come back. */
static void
drop_message(tutti_rpc_flow *self)
{
    if (--self->parts == 0) {
        end_flow(self);
    }
}

/* It goes wrong on our side: end the call, and remember why. */
static void
give_up(tutti_rpc_flow *self)
{
    self->failed = true;
    self->over = true;
    rpc_outcome_cancel(&self->outcome, self->call);
}

static void
start_read(tutti_rpc_flow *self)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
                        .data.recv_message.recv_message = &self->received};

    rpc_batch_start(self->call, &op, 1, &self->read);
}

static void
deliver_message(tutti_rpc_flow *self, grpc_byte_buffer *received)
{
    if (self->failed) {
        grpc_byte_buffer_destroy(received);
    } else if (rpc_response_unpack(self->known, received, &self->message, &self->failure) !=
               TUTTI_OK) {
        give_up(self);
    } else if (self->ops->on_message != NULL) {
        self->ops->on_message(self->arg, self->message);
    }
    tutti_rpc_message_free(tutti_rpc_flow_take(self));
}

tutti_rpc_message *
tutti_rpc_flow_take(tutti_rpc_flow *flow)
{
    tutti_rpc_message *message = flow->message;

    flow->message = NULL;
    return message;
}

static void
on_read(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_flow *self = tutti_container_of(tag, tutti_rpc_flow, read);
    grpc_byte_buffer *received = self->received;

    (void)ok;
    self->received = NULL;
    /* The end of the messages; `ended` brings the status. */
    if (received == NULL) {
        drop_message(self);
        return;
    }
    deliver_message(self, received);
    if (!self->held) {
        start_read(self); /* takes the part of the read that has come back */
    }
}

void
tutti_rpc_flow_hold(tutti_rpc_flow *flow)
{
    flow->held = true;
}

void
tutti_rpc_flow_resume(tutti_rpc_flow *flow)
{
    assert(flow->held);
    flow->held = false;
    start_read(flow);
}

static void
start_half_close(tutti_rpc_flow *self)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    self->closed = true;
    self->parts++;
    rpc_batch_start(self->call, &op, 1, &self->half_closed);
}

static void
on_written(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_flow *self = tutti_container_of(tag, tutti_rpc_flow, written);

    self->writing = false;
    self->over = self->over || !ok;
    /* writes_done was called while this write was under way. */
    if (self->closing && !self->over && !self->closed) {
        start_half_close(self);
    } else if (!self->over && !self->closed && self->ops->on_written != NULL) {
        self->ops->on_written(self->arg);
    }
    drop_message(self);
}

static void
on_ended(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_flow *self = tutti_container_of(tag, tutti_rpc_flow, ended);

    (void)ok;
    self->over = true;
    drop_message(self);
}

static void
on_opened(tutti_rpc_tag *tag, bool ok)
{
    (void)ok;
    drop_message(tutti_container_of(tag, tutti_rpc_flow, opened));
}

static void
on_half_closed(tutti_rpc_tag *tag, bool ok)
{
    (void)ok;
    drop_message(tutti_container_of(tag, tutti_rpc_flow, half_closed));
}

/*
 * The batches every flow has: it opens, it ends, it reads, and perhaps it writes a first message.
 * The loop may work on the first ones while the last ones are started here, so all are counted
 * before, and nothing is touched after the last.
 */
static void
start_all(tutti_rpc_flow *self, grpc_byte_buffer *first, bool half_close,
          const tutti_rpc_call_options *options)
{
    rpc_call_metadata metadata;
    grpc_op ops[4] = {0};
    size_t count = 0;

    self->parts = 3;
    self->closed = half_close;
    ops[count++] = rpc_channel_first_op(self->channel, options, &metadata);
    if (first != NULL) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = first;
    }
    if (half_close) {
        ops[count++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    }
    rpc_batch_start(self->call, ops, count, first != NULL ? &self->written : &self->opened);
    rpc_call_metadata_fini(&metadata);
    if (first != NULL) {
        grpc_byte_buffer_destroy(first);
    }
    ops[0] = rpc_outcome_initial_op(&self->outcome);
    ops[1] =
        (grpc_op){.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &self->received};
    rpc_batch_start(self->call, ops, 2, &self->read);
    ops[0] = rpc_outcome_status_op(&self->outcome);
    rpc_batch_start(self->call, ops, 1, &self->ended);
}

static tutti_rpc_flow *
make_flow(tutti_rpc_channel *channel, const tutti_rpc_flow_ops *ops, void *arg)
{
    tutti_rpc_flow *self = calloc(1, sizeof(*self));

    if (self != NULL) {
        self->channel = channel;
        self->ops = ops;
        self->arg = arg;
        self->opened.on_done = on_opened;
        self->ended.on_done = on_ended;
        self->read.on_done = on_read;
        self->written.on_done = on_written;
        self->half_closed.on_done = on_half_closed;
    }
    return self;
}

tutti_code
tutti_rpc_flow_start(tutti_rpc_channel *channel, tutti_rpc_loop *loop, const tutti_rpc_stub *stub,
                     const struct ProtobufCMessage *first, bool half_close,
                     const tutti_rpc_call_options *options, const tutti_rpc_flow_ops *ops,
                     void *arg, tutti_rpc_flow **ret_flow, tutti_error *err)
{
    tutti_rpc_flow *self = make_flow(channel, ops, arg);
    grpc_byte_buffer *buffer = NULL;
    tutti_code code;

    code = rpc_channel_pack(first, NULL, options, &buffer, err);
    if (code == TUTTI_OK && self == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for a stream");
    }
    if (code == TUTTI_OK) {
        code = rpc_channel_find(channel, stub, &self->known, err);
    }
    if (code != TUTTI_OK) {
        if (buffer != NULL) {
            grpc_byte_buffer_destroy(buffer);
        }
        free(self);
        return code;
    }
    self->details = options == NULL ? NULL : options->details;
    rpc_outcome_init(&self->outcome, channel);
    self->call =
        rpc_channel_call(channel, self->known, rpc_loop_queue(loop), options, &self->outcome);
    self->writing = buffer != NULL;
    if (ret_flow != NULL) {
        *ret_flow = self; /* before its events can run */
    }
    self->loop = loop;
    rpc_loop_hold(loop);
    start_all(self, buffer, half_close, options);
    return TUTTI_OK;
}

/* [in, moved] buffer */
static void
start_flow_write(tutti_rpc_flow *self, grpc_byte_buffer *buffer, bool more)
{
    const grpc_op op = {.op = GRPC_OP_SEND_MESSAGE,
                        .flags = more ? GRPC_WRITE_BUFFER_HINT : 0,
                        .data.send_message.send_message = buffer};

    assert(!self->writing && !self->closed && !self->closing);
    self->writing = true;
    self->parts++;
    rpc_batch_start(self->call, &op, 1, &self->written);
    grpc_byte_buffer_destroy(buffer);
}

void
tutti_rpc_flow_write(tutti_rpc_flow *flow, const struct ProtobufCMessage *message)
{
    grpc_byte_buffer *buffer = NULL;

    if (flow->over) {
        return;
    }
    if (rpc_pack(message, NULL, &buffer, &flow->failure) != TUTTI_OK) {
        give_up(flow);
        return;
    }
    start_flow_write(flow, buffer, false);
}

void
tutti_rpc_flow_write_packed(tutti_rpc_flow *flow, tutti_rpc_packed *packed, bool more)
{
    if (flow->over) {
        tutti_rpc_packed_free(packed);
        return;
    }
    start_flow_write(flow, rpc_packed_buffer(packed), more);
}

bool
tutti_rpc_flow_writable(const tutti_rpc_flow *flow)
{
    return !flow->writing && !flow->closed && !flow->closing && !flow->over;
}

void
tutti_rpc_flow_writes_done(tutti_rpc_flow *flow)
{
    assert(!flow->closed && !flow->closing);
    flow->closing = true;
    if (!flow->writing && !flow->over) {
        start_half_close(flow);
    }
}

void
tutti_rpc_flow_cancel(tutti_rpc_flow *flow)
{
    rpc_outcome_cancel(&flow->outcome, flow->call);
}
