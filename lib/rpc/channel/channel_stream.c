/*
 * Streams that block: one pluck queue, and one tag for each thing that can be under way.
 *
 * One thread writes while another may read; the fields are divided so that no lock is needed:
 * `posted` and `closed` belong to the writer, `reading`, `fetched`, `read_all` and `received` to
 * the reader. The two wait for different tags on one queue, which gRPC allows. finish runs when
 * both are done, and waits for every batch: only then may the memory that gRPC writes to be
 * freed.
 *
 * With a lane (rpc/lane.h) the messages go through its memory, and gRPC's read is asked only for
 * what is too large for it, and for the end. Who waits sleeps in the lane; between slices of
 * SLICE_NS it looks whether the server is gone.
 *
 * Without one, a read is always one message ahead. If the server dies or tutti_rpc_stream_cancel is called,
 * reads and writes return, and finish gives the status.
 */
#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "lane/lane.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/lane.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/lane_message.h"
#include "rpc/message/message.h"
#include "rpc/util/process.h"

#define SLICE_NS (50 * TUTTI_NS_PER_MS)
#define FIRST_SLICE_NS TUTTI_NS_PER_MS
#define FRESH_NS TUTTI_NS_PER_MS
#define CROWDED_NS (50 * TUTTI_NS_PER_US)

struct tutti_rpc_stream {
    tutti_rpc_channel *channel;
    const rpc_known *known;
    grpc_completion_queue *queue;
    grpc_call *call;
    rpc_outcome outcome;
    grpc_byte_buffer *received; /* by gRPC, once the read is back */
    grpc_byte_buffer *next;     /* owned: what was fetched; NULL = the end */
    bool reading;               /* a read of gRPC's is under way: one message is fetched ahead */
    bool arrived;               /* it is back, in `received`, and its turn has not come */
    bool fetched;               /* `next` is there */
    bool read_all;
    bool posted; /* a write that nobody has waited for */
    bool closed; /* our side */
    bool has_lane;
    bool lane_answered;      /* something has come by it, ... */
    uint64_t answered_ns;    /* ... at last then */
    tutti_rpc_lane_end lane; /* if `has_lane` */
    atomic_bool cancelled;
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
        return TUTTI_FAIL_MEMORY(err, "no memory for a stream");
    }
    code = rpc_channel_find(channel, stub, &self->known, err);
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    self->channel = channel;
    if (options != NULL && options->lane != NULL) {
        self->has_lane = true;
        self->lane = *options->lane;
    }
    self->queue = rpc_channel_take_queue(channel);
    rpc_outcome_init(&self->outcome, channel);
    self->call = rpc_channel_call(channel, self->known, self->queue, options, &self->outcome);
    rpc_channel_begin(channel, self->call, options, &self->outcome, &self->opened_tag,
                      &self->status_tag);
    *ret_stream = self;
    return TUTTI_OK;
}

static tutti_code
is_stream_ended(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_ABORTED, "CLOSED", "the stream has ended");
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

/* ------------------------------------------------------------------ by a lane */

bool
rpc_lane_is_gone(const tutti_rpc_lane_end *end)
{
    struct pollfd look = {.fd = end->lease, .events = POLLIN};

    return tutti_lane_is_closed(end->lane) || (end->lease >= 0 && poll(&look, 1, 0) != 0);
}

static bool
is_server_gone(const tutti_rpc_stream *self)
{
    return rpc_lane_is_gone(&self->lane);
}

/*
 * Wait for room. The reader on another thread may take a wake-up that was for us, so the slices
 * are short; it is rare that a client is so far ahead. False: the stream has ended.
 */
static bool
wait_for_room(tutti_rpc_stream *self, size_t bytes)
{
    while (tutti_lane_is_crowded(self->lane.lane, bytes)) {
        const struct timespec pause = {.tv_nsec = CROWDED_NS};

        if (is_server_gone(self) || atomic_load(&self->cancelled)) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

static void
put_end(tutti_rpc_stream *self)
{
    if (wait_for_room(self, 0)) {
        (void)tutti_lane_put(self->lane.lane, NULL, 0, TUTTI_RPC_LANE_END);
    }
}

/* A stream that has ended takes nothing: the next read says so. */
static void
put_message(tutti_rpc_stream *self, grpc_byte_buffer *buffer)
{
    if (wait_for_room(self, rpc_lane_message_bytes(buffer))) {
        (void)rpc_lane_message_put(self->lane.lane, buffer);
    }
}

/* gRPC's read is back, or was. False: not by the deadline. */
static bool
await_grpc(tutti_rpc_stream *self, uint64_t deadline_ns)
{
    grpc_event event;

    if (self->arrived) {
        return true;
    }
    if (!self->reading) {
        start_read(self);
    }
    event = rpc_channel_pluck_until(self->queue, &self->read_tag, &self->outcome, self->call,
                                    deadline_ns);
    if (event.type != GRPC_OP_COMPLETE) {
        return false;
    }
    rpc_tag_acquire((void *)&self->read_tag);
    self->reading = false;
    self->arrived = true;
    return true;
}

/* Its message, or the end: all there is without a lane; with one, what is too large for it. */
static bool
fetch_grpc(tutti_rpc_stream *self, uint64_t deadline_ns)
{
    if (!await_grpc(self, deadline_ns)) {
        return false;
    }
    self->next = self->received;
    self->received = NULL;
    self->arrived = false;
    self->fetched = true;
    return true;
}

/* What makes no sense ends the stream as a broken connection would. */
static bool
take_lane(tutti_rpc_stream *self, tutti_lane_found found, size_t bytes, uint32_t kind)
{
    if (found == TUTTI_LANE_BROKEN || kind > TUTTI_RPC_LANE_ELSEWHERE) {
        tutti_rpc_stream_cancel(self);
        return fetch_grpc(self, TUTTI_TIMERS_NEVER);
    }
    self->next = rpc_lane_message_take(self->lane.lane, bytes);
    self->fetched = kind == TUTTI_RPC_LANE_BYTES;
    if (!self->fetched) {
        grpc_byte_buffer_destroy(self->next); /* a note: the message comes by gRPC */
        return fetch_grpc(self, TUTTI_TIMERS_NEVER);
    }
    return true;
}

/* True: the slice is over, and it is time to look whether the stream has ended. */
static bool
sleep_in_lane(tutti_rpc_stream *self, uint64_t slice_ns, uint64_t deadline_ns)
{
    const uint64_t slice_end_ns = tutti_clock_add(tutti_clock_ns(), slice_ns);

    tutti_lane_sleep(self->lane.lane, slice_end_ns < deadline_ns ? slice_end_ns : deadline_ns);
    return tutti_clock_ns() >= slice_end_ns;
}

/*
 * Will no more come? Without a system call, unless `look`: then also whether the server's process
 * is gone, and whether gRPC has read the end. That may be so although nobody has shut the lane: a
 * stream that is refused never gets it.
 */
static bool
is_over(tutti_rpc_stream *self, bool look)
{
    return tutti_lane_is_closed(self->lane.lane) || atomic_load(&self->cancelled) ||
           (look && (is_server_gone(self) || (await_grpc(self, 1) && self->received == NULL)));
}

/* A server that has answered a moment ago is not asked whether it is there: a call that finds it
 * gone fails as one under way. */
static bool
is_stale(const tutti_rpc_stream *self)
{
    return tutti_clock_ns() - self->answered_ns > FRESH_NS;
}

/*
 * The ring is looked at behind the signs that no more will come: what the server wrote last is read
 * first. The first slices are short, as a stream that is refused is so at once.
 */
static bool
fetch_lane(tutti_rpc_stream *self, uint64_t deadline_ns)
{
    tutti_lane *lane = self->lane.lane;
    uint64_t slice_ns = self->lane_answered ? SLICE_NS : FIRST_SLICE_NS;
    bool late = tutti_clock_ns() >= deadline_ns;
    bool look = late && !self->lane_answered;
    uint32_t kind = 0;
    size_t bytes = 0;

    for (;;) {
        const bool over = is_over(self, look) || (late && is_stale(self) && is_server_gone(self));
        const tutti_lane_found found = tutti_lane_peek(lane, &bytes, &kind);

        if (found != TUTTI_LANE_NOTHING) {
            tutti_lane_stay_awake(lane);
            self->lane_answered = true;
            self->answered_ns = tutti_clock_ns();
            return take_lane(self, found, bytes, kind);
        }
        if (over || late) {
            return over && fetch_grpc(self, deadline_ns);
        }
        look = false;
        if (!tutti_lane_watch(lane, deadline_ns) && tutti_lane_may_sleep(lane)) {
            look = sleep_in_lane(self, slice_ns, deadline_ns);
            late = tutti_clock_ns() >= deadline_ns;
            slice_ns = slice_ns * 2 < SLICE_NS ? slice_ns * 2 : SLICE_NS;
            if (look && tutti_rpc_interrupted()) {
                tutti_rpc_stream_cancel(self);
            }
        }
    }
}

/* ------------------------------------------------------------------ writing and reading */

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

/* By the lane, if the stream has one and the message is small enough. */
static bool
goes_by_lane(tutti_rpc_stream *self, tutti_rpc_packed *packed)
{
    grpc_byte_buffer *buffer = rpc_packed_buffer(packed);

    if (!self->has_lane) {
        return false;
    }
    put_message(self, buffer);
    if (rpc_lane_message_is_large(buffer)) {
        return false;
    }
    grpc_byte_buffer_destroy(buffer);
    return true;
}

/*
 * A server may end the stream because of this message, before the writer looks: so the writer looks before
 * it writes. What was written counts as written, as over gRPC; the end is told by the next read.
 */
tutti_code
tutti_rpc_stream_write_packed(tutti_rpc_stream *stream, tutti_rpc_packed *packed, bool more,
                              tutti_error *err)
{
    const bool gone = stream->has_lane && is_server_gone(stream);

    if (goes_by_lane(stream, packed)) {
        return gone ? is_stream_ended(err) : TUTTI_OK;
    }
    start_write(stream, packed, more);
    return rpc_channel_pluck(stream->queue, &stream->write_tag) ? TUTTI_OK : is_stream_ended(err);
}

void
tutti_rpc_stream_post(tutti_rpc_stream *stream, tutti_rpc_packed *packed)
{
    if (!goes_by_lane(stream, packed)) {
        start_write(stream, packed, false);
        stream->posted = true;
    }
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
    /* A stream that was cancelled has not ended well, whichever way is faster. */
    if (stream->has_lane && !atomic_load(&stream->cancelled)) {
        put_end(stream);
    }
    rpc_batch_start(stream->call, &op, 1, &stream->write_tag);
    return rpc_channel_pluck(stream->queue, &stream->write_tag) ? TUTTI_OK : is_stream_ended(err);
}

/* Until the next message, or the end, is there; false: not by then. */
static bool
fetch_stream(tutti_rpc_stream *self, uint64_t deadline_ns)
{
    if (self->fetched || self->read_all) {
        return true;
    }
    return self->has_lane ? fetch_lane(self, deadline_ns) : fetch_grpc(self, deadline_ns);
}

/* What was fetched, as gRPC received it; NULL at the end. */
static grpc_byte_buffer *
take_fetched(tutti_rpc_stream *self)
{
    grpc_byte_buffer *next = self->next;

    self->fetched = false;
    self->next = NULL;
    self->read_all = next == NULL;
    return next;
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
    if (!stream->has_lane) {
        start_read(stream); /* it travels while the caller works on this one */
    }
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
    atomic_store(&stream->cancelled, true);
    rpc_outcome_cancel(&stream->outcome, stream->call);
    if (stream->has_lane) {
        tutti_lane_wake_self(stream->lane.lane);
    }
}

/* In gRPC's words first: they are what is explained. */
tutti_code
tutti_rpc_stream_late(tutti_rpc_stream *stream, const tutti_rpc_stub *stub, tutti_error *err)
{
    const rpc_known *known = NULL;
    tutti_error late;

    (void)TUTTI_FAIL_FOR(&late, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT", "Deadline Exceeded");
    if (rpc_channel_find(stream->channel, stub, &known, NULL) == TUTTI_OK) {
        rpc_connect_error_explain(stream->channel, known, &late);
    }
    rpc_channel_follow(stream->channel, &late, false, stream->outcome.moves);
    tutti_rpc_stream_cancel(stream);
    return tutti_error_pass(err, &late);
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
