/*
 * Streams that are polled: one gRPC queue for each, whose events are the stream's own. Reads are
 * always one message ahead, and one write is under way at most, so there are five tags.
 *
 * Any thread starts a write; the caller sees to it that there is one at a time (WRITTEN comes
 * between two). All else belongs to who polls. A poller that sleeps in gRPC is woken by an empty
 * batch of a call that goes nowhere, as in rpc/loop/loop.c; `waking` is true while one is under
 * way.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"
#include "rpc/util/process.h"

struct tutti_rpc_duplex {
    tutti_rpc_channel *channel;
    const rpc_known *known;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_channel *lame; /* for the mailbox: it never connects */
    grpc_call *mailbox; /* its empty batches wake the poller */
    rpc_outcome outcome;
    grpc_byte_buffer *received;
    unsigned under_way; /* of opened, status and read: how many have not come back */
    bool told;          /* that it has ended */
    atomic_bool writing;
    atomic_bool waking;
    /* Only their addresses count. */
    char opened_tag;
    char status_tag;
    char read_tag;
    char write_tag;
    char wake_tag;
};

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
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a stream");
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
    self->call = rpc_channel_call(channel, self->known, self->queue, options);
    rpc_channel_begin(channel, self->call, options, &self->outcome, &self->opened_tag,
                      &self->status_tag);
    self->under_way = 2;
    start_duplex_read(self);
    *ret_duplex = self;
    return TUTTI_OK;
}

void
tutti_rpc_duplex_write(tutti_rpc_duplex *duplex, tutti_rpc_packed *packed, bool more)
{
    grpc_byte_buffer *buffer = rpc_packed_buffer(packed);
    const grpc_op op = {.op = GRPC_OP_SEND_MESSAGE,
                        .flags = more ? GRPC_WRITE_BUFFER_HINT : 0,
                        .data.send_message.send_message = buffer};
    const bool before = atomic_exchange(&duplex->writing, true);

    assert(!before);
    (void)before;
    rpc_batch_start(duplex->call, &op, 1, &duplex->write_tag);
    grpc_byte_buffer_destroy(buffer); /* gRPC holds a reference of its own */
}

void
tutti_rpc_duplex_close(tutti_rpc_duplex *duplex)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    const bool before = atomic_exchange(&duplex->writing, true);

    assert(!before);
    (void)before;
    rpc_batch_start(duplex->call, &op, 1, &duplex->write_tag);
}

/* A message, or the end of all messages. */
static tutti_rpc_event
take_read(tutti_rpc_duplex *self, tutti_rpc_message **ret_message, tutti_error *err)
{
    grpc_byte_buffer *received = self->received;

    self->received = NULL;
    if (received == NULL) {
        self->told = true;
        return TUTTI_RPC_ENDED;
    }
    if (rpc_response_unpack(self->known, received, ret_message, err) != TUTTI_OK) {
        self->told = true;
        tutti_rpc_duplex_cancel(self);
        return TUTTI_RPC_ENDED;
    }
    start_duplex_read(self); /* it travels while the caller works on this one */
    return TUTTI_RPC_MESSAGE;
}

/* Events that only count are NOTHING. */
static tutti_rpc_event
take_event(tutti_rpc_duplex *self, const void *tag, tutti_rpc_message **ret_message,
           tutti_error *err)
{
    if (tag == &self->write_tag) {
        atomic_store(&self->writing, false);
        return TUTTI_RPC_WRITTEN;
    }
    if (tag == &self->wake_tag) {
        atomic_store(&self->waking, false);
        return TUTTI_RPC_NOTHING;
    }
    self->under_way--;
    return tag == &self->read_tag ? take_read(self, ret_message, err) : TUTTI_RPC_NOTHING;
}

/* One event of gRPC's. [out] ret_passed  the time is over, or the poller was woken */
static tutti_rpc_event
step_once(tutti_rpc_duplex *self, gpr_timespec until, bool *ret_passed,
          tutti_rpc_message **ret_message, tutti_error *err)
{
    const grpc_event event = grpc_completion_queue_next(self->queue, until, NULL);

    *ret_passed = event.type != GRPC_OP_COMPLETE || event.tag == &self->wake_tag;
    if (event.type != GRPC_OP_COMPLETE) {
        return TUTTI_RPC_NOTHING;
    }
    rpc_tag_acquire(event.tag);
    return take_event(self, event.tag, ret_message, err);
}

tutti_rpc_event
tutti_rpc_duplex_poll(tutti_rpc_duplex *duplex, uint64_t deadline_ns,
                      tutti_rpc_message **ret_message, tutti_error *err)
{
    const gpr_timespec until = rpc_time_to(deadline_ns == 0 ? TUTTI_TIMERS_NEVER : deadline_ns);
    tutti_rpc_event happened;
    bool passed;

    *err = (tutti_error){0};
    do {
        happened = step_once(duplex, until, &passed, ret_message, err);
    } while (happened == TUTTI_RPC_NOTHING && !passed);
    return happened;
}

void
tutti_rpc_duplex_wake(tutti_rpc_duplex *duplex)
{
    if (!atomic_exchange(&duplex->waking, true)) {
        rpc_batch_start(duplex->mailbox, NULL, 0, &duplex->wake_tag);
    }
}

void
tutti_rpc_duplex_cancel(tutti_rpc_duplex *duplex)
{
    (void)grpc_call_cancel(duplex->call, NULL);
}

/* One event of gRPC's, of which nobody wants to hear. */
static void
drop_one(tutti_rpc_duplex *self)
{
    tutti_rpc_message *message = NULL;
    tutti_error err;
    bool passed;

    if (step_once(self, rpc_time_to(TUTTI_TIMERS_NEVER), &passed, &message, &err) ==
        TUTTI_RPC_MESSAGE) {
        tutti_rpc_message_free(message);
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
    while (atomic_load(&duplex->writing) || atomic_load(&duplex->waking)) {
        drop_one(duplex);
    }
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
