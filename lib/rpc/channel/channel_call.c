/*
 * What all calls of a channel share, and the unary call that blocks.
 *
 * A blocking call runs on the caller's thread, with a pluck queue that no other call uses
 * meanwhile, so nothing is shared but the channel. All six operations are one batch: gRPC ends it
 * when the status has come, whatever happened to the rest, so there is one event to wait for and
 * no state between. If the server dies, the status is gRPC's own (UNAVAILABLE), which
 * connect_error.c puts into words.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"
#include "rpc/message/service.h"
#include "rpc/message/status_pb.h"
#include "rpc/util/process.h"

static const rpc_known *
find_known(const tutti_rpc_channel *channel, const tutti_rpc_stub *stub)
{
    const size_t count = atomic_load_explicit(&channel->known_count, memory_order_acquire);
    size_t i;

    for (i = 0; i < count; i++) {
        if (channel->known[i].stub == stub) {
            return &channel->known[i];
        }
    }
    return NULL;
}

static const struct ProtobufCMessageDescriptor *
output_of(const tutti_rpc_stub *stub)
{
    const size_t number = rpc_service_find(stub->service, stub->method);

    assert(number != SIZE_MAX); /* the stub names a method of its service */
    return rpc_service_output(stub->service, number);
}

/*
 * With the lock held: add a method to `known`. Other threads search meanwhile without the lock,
 * so the entry is complete before the count is raised.
 */
static tutti_code
learn_server(tutti_rpc_channel *channel, const tutti_rpc_stub *stub, const rpc_known **ret_known,
             tutti_error *err)
{
    const size_t count = channel->known_count;
    rpc_known *known = &channel->known[count];

    if (count == TUTTI_RPC_STUBS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "METHOD_LIMIT",
                              "more than %d methods on one channel", TUTTI_RPC_STUBS_MAX);
    }
    known->path = stub->service == NULL ? strdup(stub->method)
                                        : rpc_service_path(stub->service, stub->method);
    if (known->path == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a method");
    }
    known->stub = stub;
    known->output = stub->service == NULL ? NULL : output_of(stub);
    if (!channel->secrets.changing) {
        known->handle = grpc_channel_register_call(channel->grpc, known->path, NULL, NULL);
    }
    atomic_store_explicit(&channel->known_count, count + 1, memory_order_release);
    *ret_known = known;
    return TUTTI_OK;
}

tutti_code
rpc_channel_find(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                 const rpc_known **ret_known, tutti_error *err)
{
    /* Another thread may have added it before we got the lock. */
    const rpc_known *known = find_known(channel, stub);
    tutti_code code = rpc_check_process(err);

    if (code != TUTTI_OK) {
        return code;
    }
    if (known == NULL) {
        (void)pthread_mutex_lock(&channel->lock);
        known = find_known(channel, stub);
        code = known == NULL ? learn_server(channel, stub, &known, err) : TUTTI_OK;
        (void)pthread_mutex_unlock(&channel->lock);
    }
    *ret_known = known;
    return code;
}

grpc_call *
rpc_channel_call(tutti_rpc_channel *channel, const rpc_known *known, grpc_completion_queue *queue,
                 const tutti_rpc_call_options *options, const rpc_outcome *outcome)
{
    const uint64_t deadline =
        options == NULL || options->deadline_ns == 0 ? TUTTI_TIMERS_NEVER : options->deadline_ns;

    if (channel->secrets.changing) {
        rpc_channel_renew(channel);
    }
    if (channel->secrets.changing || outcome->connection != 0) {
        return rpc_connection_call(channel, outcome->connection, known->path, queue, deadline);
    }
    return grpc_channel_create_registered_call(channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                               known->handle, rpc_time_to(deadline), NULL);
}

/* A slice of so few bytes is a value: nothing has to be freed. */
static grpc_metadata
lease_metadata(uint64_t lease)
{
    char digits[24];

    (void)snprintf(digits, sizeof(digits), "%" PRIu64, lease);
    return (grpc_metadata){.key = grpc_slice_from_static_string("tutti-lease"),
                           .value = grpc_slice_from_copied_string(digits)};
}

/* gRPC may read the texts after the batch was started: on another thread, when there is a connection. */
static void
add_extra(const tutti_rpc_call_options *options, rpc_call_metadata *metadata, size_t *count)
{
    size_t i;

    assert(options->extra_count <= TUTTI_RPC_EXTRA_MAX);
    metadata->extra_at = *count;
    metadata->extra_count = options->extra_count;
    for (i = 0; i < options->extra_count; i++) {
        metadata->list[(*count)++] =
            (grpc_metadata){.key = grpc_slice_from_copied_string(options->extra[i].key),
                            .value = grpc_slice_from_copied_string(options->extra[i].value)};
    }
}

void
rpc_call_metadata_fini(rpc_call_metadata *metadata)
{
    size_t i;

    for (i = 0; i < metadata->extra_count; i++) {
        grpc_slice_unref(metadata->list[metadata->extra_at + i].key);
        grpc_slice_unref(metadata->list[metadata->extra_at + i].value);
    }
}

grpc_op
rpc_channel_first_op(tutti_rpc_channel *channel, const tutti_rpc_call_options *options,
                     rpc_call_metadata *ret_metadata)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    size_t count = channel->secrets.metadata_count;

    op.data.send_initial_metadata.metadata = rpc_channel_bearer(channel);
    ret_metadata->extra_count = 0;
    if (options != NULL &&
        (options->lease != 0 || options->extra_count != 0 || options->lane != NULL)) {
        memcpy(ret_metadata->list, op.data.send_initial_metadata.metadata,
               count * sizeof(ret_metadata->list[0]));
        op.data.send_initial_metadata.metadata = ret_metadata->list;
    }
    if (options != NULL && options->lease != 0) {
        ret_metadata->list[count++] = lease_metadata(options->lease);
    }
    if (options != NULL && options->lane != NULL) { /* the name lives as long as the stream */
        ret_metadata->list[count++] =
            (grpc_metadata){.key = grpc_slice_from_static_string("tutti-lane"),
                            .value = grpc_slice_from_static_string(options->lane->name)};
    }
    if (options != NULL) {
        add_extra(options, ret_metadata, &count);
    }
    op.data.send_initial_metadata.count = count;
    if (options != NULL && options->wait_for_ready && !rpc_channel_has_others(channel)) {
        op.flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                   GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    }
    return op;
}

void
rpc_channel_begin(tutti_rpc_channel *channel, grpc_call *call,
                  const tutti_rpc_call_options *options, rpc_outcome *outcome, void *opened_tag,
                  void *status_tag)
{
    rpc_call_metadata metadata;
    grpc_op ops[2] = {0};

    ops[0] = rpc_channel_first_op(channel, options, &metadata);
    ops[1] = rpc_outcome_initial_op(outcome);
    rpc_batch_start(call, ops, 2, opened_tag);
    rpc_call_metadata_fini(&metadata);
    ops[0] = rpc_outcome_status_op(outcome);
    rpc_batch_start(call, ops, 1, status_tag);
}

bool
rpc_channel_pluck(grpc_completion_queue *queue, void *tag)
{
    const grpc_event event =
        grpc_completion_queue_pluck(queue, tag, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);

    assert(event.type == GRPC_OP_COMPLETE);
    rpc_tag_acquire(tag);
    return event.success != 0;
}

void
rpc_outcome_init(rpc_outcome *outcome, tutti_rpc_channel *channel)
{
    outcome->moves = channel == NULL ? 0 : atomic_load(&channel->moves);
    outcome->channel = channel;
    outcome->connection = channel == NULL ? 0 : rpc_connection_take(channel);
    grpc_metadata_array_init(&outcome->initial);
    grpc_metadata_array_init(&outcome->trailing);
    outcome->status = GRPC_STATUS_UNKNOWN;
    outcome->text = grpc_empty_slice();
    atomic_init(&outcome->cancelled, false);
}

void
rpc_outcome_cancel(rpc_outcome *outcome, grpc_call *call)
{
    atomic_store(&outcome->cancelled, true);
    (void)grpc_call_cancel(call, NULL);
}

void
rpc_outcome_leave(rpc_outcome *outcome)
{
    if (outcome->channel != NULL) {
        rpc_connection_give(outcome->channel, outcome->connection);
        outcome->channel = NULL;
    }
}

void
rpc_outcome_fini(rpc_outcome *outcome)
{
    rpc_outcome_leave(outcome);
    grpc_metadata_array_destroy(&outcome->initial);
    grpc_metadata_array_destroy(&outcome->trailing);
    grpc_slice_unref(outcome->text);
}

grpc_op
rpc_outcome_initial_op(rpc_outcome *outcome)
{
    return (grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA,
                     .data.recv_initial_metadata.recv_initial_metadata = &outcome->initial};
}

grpc_op
rpc_outcome_status_op(rpc_outcome *outcome)
{
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};

    op.data.recv_status_on_client.trailing_metadata = &outcome->trailing;
    op.data.recv_status_on_client.status = &outcome->status;
    op.data.recv_status_on_client.status_details = &outcome->text;
    return op;
}

static tutti_bytes
slice_bytes(const grpc_slice *slice)
{
    return (tutti_bytes){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
}

static tutti_bytes
find_details(const grpc_metadata_array *trailing)
{
    size_t i;

    for (i = 0; i < trailing->count; i++) {
        if (grpc_slice_str_cmp(trailing->metadata[i].key, "grpc-status-details-bin") == 0) {
            return slice_bytes(&trailing->metadata[i].value);
        }
    }
    return (tutti_bytes){NULL, 0};
}

void
rpc_outcome_details(const rpc_outcome *outcome, tutti_buf *ret_details)
{
    const tutti_bytes details = find_details(&outcome->trailing);

    if (ret_details != NULL && details.size > 0) {
        (void)tutti_buf_add(ret_details, details.data, details.size, NULL);
    }
}

/*
 * If the peer's application sent the status (its details say the same code), its words are passed
 * on. If gRPC made the status, the words are rewritten for people.
 */
tutti_code
rpc_outcome_read(const rpc_outcome *outcome, tutti_rpc_channel *channel, const rpc_known *known,
                 tutti_error *err)
{
    bool from_peer = false;
    tutti_error all;
    tutti_code code;

    if (outcome->status == GRPC_STATUS_OK) {
        return TUTTI_OK;
    }
    code = rpc_status_decode(outcome->status, slice_bytes(&outcome->text),
                             find_details(&outcome->trailing), &from_peer, &all);
    if (!from_peer && code == TUTTI_CANCELLED && !atomic_load(&outcome->cancelled)) {
        code = TUTTI_FAIL_FOR(&all, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                              "%s has ended %s while it stops: it is not known whether it was done",
                              channel->address->text, known->path);
    } else if (!from_peer) {
        rpc_connect_error_explain(channel, known, &all);
    }
    rpc_channel_follow(channel, &all, from_peer, outcome->moves);
    (void)tutti_error_pass(err, &all);
    return code;
}

/*
 * Malformed bytes are the server's fault, not the caller's: INVALID_ARGUMENT becomes DATA_LOSS.
 * Unknown enum numbers are taken, since the server may be newer.
 */
tutti_code
rpc_response_unpack(const rpc_known *known, grpc_byte_buffer *received,
                    tutti_rpc_message **ret_message, tutti_error *err)
{
    const char *path = known->path;
    tutti_error inner;

    if (received == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "%s answered OK without a message", path);
    }
    switch (rpc_unpack(known->output, received, false, ret_message, &inner)) {
    case TUTTI_OK:
        return TUTTI_OK;
    case TUTTI_INVALID_ARGUMENT:
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "%s answered with a message that is not its response: %s", path,
                              inner.text);
    default:
        return tutti_error_pass(err, &inner);
    }
}

/* All of a unary call in one batch, waited for. [in, moved] message */
static tutti_code
run_unary(tutti_rpc_channel *channel, const rpc_known *known, const tutti_rpc_call_options *options,
          grpc_byte_buffer *message, grpc_byte_buffer **ret_received, tutti_error *err)
{
    grpc_completion_queue *queue = rpc_channel_take_queue(channel);
    grpc_call *call;
    rpc_outcome outcome;
    rpc_call_metadata metadata;
    grpc_op ops[6] = {0};
    tutti_error all;
    tutti_code code;

    rpc_outcome_init(&outcome, channel);
    call = rpc_channel_call(channel, known, queue, options, &outcome);
    ops[0] = rpc_channel_first_op(channel, options, &metadata);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3] = rpc_outcome_initial_op(&outcome);
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = ret_received;
    ops[5] = rpc_outcome_status_op(&outcome);
    rpc_batch_start(call, ops, 6, &outcome);
    rpc_call_metadata_fini(&metadata);
    grpc_byte_buffer_destroy(message);
    (void)rpc_channel_pluck_until(queue, &outcome, &outcome, call, TUTTI_TIMERS_NEVER);
    rpc_tag_acquire(&outcome);
    code = rpc_outcome_read(&outcome, channel, known, &all);
    rpc_outcome_details(&outcome, options == NULL ? NULL : options->details);
    rpc_outcome_fini(&outcome);
    grpc_call_unref(call); /* behind outcome_read: it owns what was received */
    if (code != TUTTI_OK) {
        rpc_connect_error_ask(channel, queue, &all);
        tutti_rpc_channel_name_certificate(channel, &all);
        (void)tutti_error_pass(err, &all);
    }
    rpc_channel_give_queue(channel, queue);
    return code;
}

tutti_code
rpc_channel_pack(const struct ProtobufCMessage *message, const tutti_rpc_blob *payload,
                 const tutti_rpc_call_options *options, grpc_byte_buffer **ret_buffer,
                 tutti_error *err)
{
    *ret_buffer = options == NULL ? NULL : rpc_packed_buffer(options->packed);
    return message == NULL ? TUTTI_OK : rpc_pack(message, payload, ret_buffer, err);
}

tutti_code
tutti_rpc_invoke(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                 const struct ProtobufCMessage *request, const tutti_rpc_blob *payload,
                 const tutti_rpc_call_options *options, tutti_rpc_message **ret_response,
                 tutti_error *err)
{
    const rpc_known *known = NULL;
    grpc_byte_buffer *message = NULL;
    grpc_byte_buffer *received = NULL;
    tutti_code code;

    TUTTI_TRY(rpc_channel_pack(request, payload, options, &message, err));
    code = rpc_channel_find(channel, stub, &known, err);
    if (code != TUTTI_OK) {
        grpc_byte_buffer_destroy(message);
        return code;
    }
    code = run_unary(channel, known, options, message, &received, err);
    if (code == TUTTI_OK && ret_response != NULL) {
        return rpc_response_unpack(known, received, ret_response, err);
    }
    if (received != NULL) {
        grpc_byte_buffer_destroy(received);
    }
    return code;
}
