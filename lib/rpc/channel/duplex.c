/*
 * Streams that are polled: one gRPC queue for each, whose events are the stream's own. gRPC's reads
 * are always one message ahead, and one write is under way at most, so there are five tags.
 *
 * Any thread starts a write; the caller sees to it that there is one at a time (WRITTEN comes
 * between two). All else belongs to who polls. A poller that sleeps in gRPC is woken by an empty
 * batch of a call that goes nowhere, as in rpc/loop/loop.c; `waking` is true while one is under
 * way.
 *
 * With a lane, duplex_lane.c writes and polls, and asks here for what is still gRPC's.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "rpc/channel/duplex_private.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"
#include "rpc/util/process.h"

static void
start_duplex_read(tutti_rpc_duplex *self)
{
    const grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
                        .data.recv_message.recv_message = &self->received};

    self->under_way++;
    rpc_batch_start(self->call, &op, 1, &self->read_tag);
}

static void
make_mailbox(tutti_rpc_duplex *self)
{
    const grpc_slice path = grpc_slice_from_static_string("/mailbox");

    self->lame = grpc_lame_client_channel_create("mailbox", GRPC_STATUS_UNAVAILABLE, "");
    self->mailbox = grpc_channel_create_call(self->lame, NULL, GRPC_PROPAGATE_DEFAULTS, self->queue,
                                             path, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
}

tutti_code
tutti_rpc_duplex_open(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                      const tutti_rpc_call_options *options, tutti_rpc_duplex **ret_duplex,
                      tutti_error *err)
{
    tutti_rpc_duplex *self = calloc(1, sizeof(*self));
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
    self->queue = grpc_completion_queue_create_for_next(NULL);
    make_mailbox(self);
    rpc_outcome_init(&self->outcome, channel);
    rpc_duplex_lane_init(&self->lane, options == NULL ? NULL : options->lane);
    self->call = rpc_channel_call(channel, self->known, self->queue, options, &self->outcome);
    rpc_channel_begin(channel, self->call, options, &self->outcome, &self->opened_tag,
                      &self->status_tag);
    self->under_way = 2;
    start_duplex_read(self);
    *ret_duplex = self;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ writing */

static void
send_batch(tutti_rpc_duplex *self, const grpc_op *op)
{
    atomic_store(&self->sending, true);
    rpc_batch_start(self->call, op, 1, &self->write_tag);
}

void
rpc_duplex_send(tutti_rpc_duplex *duplex, grpc_byte_buffer *message, bool more)
{
    const grpc_op op = {.op = GRPC_OP_SEND_MESSAGE,
                        .flags = more ? GRPC_WRITE_BUFFER_HINT : 0,
                        .data.send_message.send_message = message};

    send_batch(duplex, &op); /* gRPC holds a reference of its own */
}

void
rpc_duplex_send_close(tutti_rpc_duplex *duplex)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    send_batch(duplex, &op);
}

static void
begin_write(tutti_rpc_duplex *self)
{
    const bool before = atomic_exchange(&self->writing, true);

    assert(!before);
    (void)before;
}

static bool
has_lane(const tutti_rpc_duplex *self)
{
    return self->lane.end.lane != NULL;
}

bool
tutti_rpc_duplex_write(tutti_rpc_duplex *duplex, tutti_rpc_packed *packed, bool more)
{
    grpc_byte_buffer *buffer = rpc_packed_buffer(packed);
    bool left = false;

    begin_write(duplex);
    if (has_lane(duplex)) {
        left = rpc_duplex_lane_write(duplex, buffer);
    } else {
        rpc_duplex_send(duplex, buffer, more);
    }
    grpc_byte_buffer_destroy(buffer);
    return left;
}

void
tutti_rpc_duplex_close(tutti_rpc_duplex *duplex)
{
    begin_write(duplex);
    if (has_lane(duplex)) {
        (void)rpc_duplex_lane_write(duplex, NULL);
    } else {
        rpc_duplex_send_close(duplex);
    }
}

/* ------------------------------------------------------------------ polling */

tutti_rpc_event
rpc_duplex_unpack(tutti_rpc_duplex *duplex, grpc_byte_buffer *received,
                  tutti_rpc_message **ret_message, tutti_error *err)
{
    if (rpc_response_unpack(duplex->known, received, ret_message, err) == TUTTI_OK) {
        return TUTTI_RPC_MESSAGE;
    }
    duplex->told = true;
    tutti_rpc_duplex_cancel(duplex);
    return TUTTI_RPC_ENDED;
}

tutti_rpc_event
rpc_duplex_take(tutti_rpc_duplex *duplex, tutti_rpc_message **ret_message, tutti_error *err)
{
    grpc_byte_buffer *received = duplex->received;
    tutti_rpc_event happened;

    duplex->arrived = false;
    duplex->received = NULL;
    if (received == NULL) {
        duplex->told = true;
        return TUTTI_RPC_ENDED;
    }
    happened = rpc_duplex_unpack(duplex, received, ret_message, err);
    if (happened == TUTTI_RPC_MESSAGE) {
        start_duplex_read(duplex); /* it travels while the caller works on this one */
    }
    return happened;
}

/* Events that only count are NOTHING. */
static tutti_rpc_event
note_event(tutti_rpc_duplex *self, const void *tag)
{
    if (tag == &self->write_tag) {
        atomic_store(&self->sending, false);
        atomic_store(&self->writing, false);
        return TUTTI_RPC_WRITTEN;
    }
    if (tag == &self->wake_tag) {
        atomic_store(&self->waking, false);
        return TUTTI_RPC_NOTHING;
    }
    self->under_way--;
    self->arrived = self->arrived || tag == &self->read_tag;
    return TUTTI_RPC_NOTHING;
}

tutti_rpc_event
rpc_duplex_step(tutti_rpc_duplex *duplex, uint64_t until_ns, bool *ret_passed)
{
    const grpc_event event = grpc_completion_queue_next(duplex->queue, rpc_time_to(until_ns), NULL);

    *ret_passed = event.type != GRPC_OP_COMPLETE || event.tag == &duplex->wake_tag;
    if (event.type != GRPC_OP_COMPLETE) {
        return TUTTI_RPC_NOTHING;
    }
    rpc_tag_acquire(event.tag);
    return note_event(duplex, event.tag);
}

static tutti_rpc_event
poll_grpc(tutti_rpc_duplex *self, uint64_t deadline_ns, tutti_rpc_message **ret_message,
          tutti_error *err)
{
    tutti_rpc_event happened;
    bool passed;

    do {
        happened = rpc_duplex_step(self, deadline_ns, &passed);
        if (self->arrived) {
            return rpc_duplex_take(self, ret_message, err);
        }
    } while (happened == TUTTI_RPC_NOTHING && !passed);
    return happened;
}

tutti_rpc_event
tutti_rpc_duplex_poll(tutti_rpc_duplex *duplex, uint64_t deadline_ns,
                      tutti_rpc_message **ret_message, tutti_error *err)
{
    const uint64_t until_ns = deadline_ns == 0 ? TUTTI_TIMERS_NEVER : deadline_ns;

    *err = (tutti_error){0};
    return has_lane(duplex) ? rpc_duplex_lane_poll(duplex, until_ns, ret_message, err)
                            : poll_grpc(duplex, until_ns, ret_message, err);
}

void
rpc_duplex_ring(tutti_rpc_duplex *duplex)
{
    if (!atomic_exchange(&duplex->waking, true)) {
        rpc_batch_start(duplex->mailbox, NULL, 0, &duplex->wake_tag);
    }
}

void
tutti_rpc_duplex_wake(tutti_rpc_duplex *duplex)
{
    if (has_lane(duplex)) {
        rpc_duplex_lane_wake(duplex);
    } else {
        rpc_duplex_ring(duplex);
    }
}

void
tutti_rpc_duplex_cancel(tutti_rpc_duplex *duplex)
{
    rpc_outcome_cancel(&duplex->outcome, duplex->call);
    if (has_lane(duplex)) {
        rpc_duplex_lane_cancel(duplex);
    }
}

/* ------------------------------------------------------------------ the end */

/* One event of gRPC's, of which nobody wants to hear. */
static void
drop_one(tutti_rpc_duplex *self)
{
    bool passed;

    (void)rpc_duplex_step(self, TUTTI_TIMERS_NEVER, &passed);
    if (self->arrived) {
        self->arrived = false;
        if (self->received != NULL) {
            grpc_byte_buffer_destroy(self->received);
            self->received = NULL;
            start_duplex_read(self);
        }
    }
}

tutti_code
tutti_rpc_duplex_end(tutti_rpc_duplex *duplex, tutti_error *err)
{
    if (!duplex->told) {
        tutti_rpc_duplex_cancel(duplex);
    }
    while (duplex->under_way > 0) {
        drop_one(duplex);
    }
    return rpc_outcome_read(&duplex->outcome, duplex->channel, duplex->known, err);
}

/* Every batch has to come back first: only then may the memory that gRPC writes to be freed. */
void
tutti_rpc_duplex_free(tutti_rpc_duplex *duplex)
{
    while (atomic_load(&duplex->sending) || atomic_load(&duplex->waking)) {
        drop_one(duplex);
    }
    if (duplex->received != NULL) {
        grpc_byte_buffer_destroy(duplex->received);
    }
    rpc_duplex_lane_fini(&duplex->lane);
    rpc_outcome_fini(&duplex->outcome);
    grpc_call_unref(duplex->call);
    grpc_call_unref(duplex->mailbox);
    grpc_channel_destroy(duplex->lame);
    grpc_completion_queue_shutdown(duplex->queue);
    while (
        grpc_completion_queue_next(duplex->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
        GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(duplex->queue);
    free(duplex);
}
