/*
 * Calls: what is to be sent waits in `out` until there is a connection and room; what has come waits in `in` until it is
 * asked for. deliver() gives whoever asks what is there.
 */
#include <assert.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <grpc/support/string_util.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/core/core_private.h"

#define WINDOW_BYTES (64U << 10) /* that the peer has not taken; a message may go beyond it */
#define AGAIN_NS (5 * TUTTI_NS_PER_MS)

typedef struct item {
    tutti_list_node link;
    core_frame *frame;
    grpc_byte_buffer *message; /* the sender's memory, until it is sent */
    core_batch *batch;
} item;

static struct {
    tutti_list_node calls;
    uint64_t count;
} ours;

static void pump_out(grpc_call *self);
static void deliver(grpc_call *self);

/* ------------------------------------------------------------------------------ metadata */

void
core_copy_metadata(grpc_metadata_array *to, const grpc_metadata *from, size_t count)
{
    size_t i;

    to->count = count;
    to->capacity = count;
    to->metadata = count == 0 ? NULL : gpr_malloc(count * sizeof(to->metadata[0]));
    for (i = 0; i < count; i++) {
        to->metadata[i].key = grpc_slice_from_copied_buffer(
            (const char *)GRPC_SLICE_START_PTR(from[i].key), GRPC_SLICE_LENGTH(from[i].key));
        to->metadata[i].value = grpc_slice_from_copied_buffer(
            (const char *)GRPC_SLICE_START_PTR(from[i].value), GRPC_SLICE_LENGTH(from[i].value));
    }
}

void
core_free_metadata(grpc_metadata_array *array)
{
    size_t i;

    for (i = 0; i < array->count; i++) {
        grpc_slice_unref(array->metadata[i].key);
        grpc_slice_unref(array->metadata[i].value);
    }
    gpr_free(array->metadata);
    memset(array, 0, sizeof(*array));
}

/* The array is the caller's, what it points to stays the call's. */
static void
lend_metadata(grpc_metadata_array *to, const grpc_metadata_array *from)
{
    gpr_free(to->metadata);
    to->count = from->count;
    to->capacity = from->count;
    to->metadata = from->count == 0 ? NULL : gpr_malloc(from->count * sizeof(to->metadata[0]));
    if (from->count > 0) {
        memcpy(to->metadata, from->metadata, from->count * sizeof(to->metadata[0]));
    }
}

static void
move_metadata(grpc_metadata_array *to, grpc_metadata_array *from)
{
    core_free_metadata(to);
    *to = *from;
    memset(from, 0, sizeof(*from));
}

/* ------------------------------------------------------------------------------ life */

static void on_deadline(void *arg, uint64_t number);

grpc_call *
core_call_new(core_side side, int process, grpc_completion_queue *queue, const char *method,
              size_t method_size, uint64_t deadline_ns)
{
    grpc_call *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->side = side;
    self->process = process;
    self->queue = queue;
    self->method = strndup(method, method_size);
    self->deadline_ns = deadline_ns;
    self->text = grpc_empty_slice();
    self->number = ++ours.count;
    tutti_list_init(&self->link);
    tutti_list_init(&self->asking);
    tutti_list_init(&self->out);
    tutti_list_init(&self->in);
    tutti_list_add(&ours.calls, &self->every);
    if (deadline_ns != SIM_NEVER) {
        sim_at(deadline_ns > sim_now_ns() ? deadline_ns : sim_now_ns(), on_deadline, self, 0);
    }
    return self;
}

static void
drop_item(item *one, bool ok)
{
    tutti_list_remove(&one->link);
    if (one->message != NULL) {
        grpc_byte_buffer_destroy(one->message);
    }
    if (one->frame != NULL) {
        core_frame_free(one->frame);
    }
    core_batch_drop(one->batch, ok);
    free(one);
}

/* Nothing more comes or goes. Its connection has one call fewer. */
static void
finish(grpc_call *self, bool cut)
{
    core_conn *conn = self->conn;

    self->ended = true;
    self->cut = cut;
    tutti_list_remove(&self->link);
    tutti_list_init(&self->link);
    tutti_list_remove(&self->asking);
    tutti_list_init(&self->asking);
    while (!tutti_list_empty(&self->out)) {
        drop_item(tutti_container_of(self->out.next, item, link), false);
    }
    while (!tutti_list_empty(&self->in)) {
        core_frame_free(tutti_container_of(self->in.next, core_frame, link));
    }
    deliver(self);
    if (self->side == CORE_CLIENT && conn != NULL) {
        conn->calls--;
        core_channel_call_over(conn);
    }
}

void
core_call_end(grpc_call *call, grpc_status_code status, const char *text)
{
    if (call->ended) {
        return;
    }
    if (!call->has_status) {
        call->has_status = true;
        call->status = status;
        call->text = grpc_slice_from_copied_string(text);
    }
    finish(call, true);
}

static void
reset_peer(grpc_call *self, grpc_status_code status)
{
    core_frame *frame;

    if (self->conn == NULL || self->ended) {
        return;
    }
    frame = core_frame_new(CORE_RESET);
    frame->from = self;
    frame->status = status;
    core_send(self->conn, 1 - self->side, frame);
}

static void
give_up(grpc_call *self, grpc_status_code status, const char *text)
{
    reset_peer(self, GRPC_STATUS_CANCELLED);
    core_call_end(self, status, text);
}

/* gRPC's timers do not run while the process is stopped. */
static void
on_deadline(void *arg, uint64_t number)
{
    grpc_call *self = arg;

    (void)number;
    if (self->ended) {
        return;
    }
    if (sim_frozen(self->process)) {
        sim_at(sim_now_ns() + AGAIN_NS, on_deadline, self, 0);
    } else {
        give_up(self, GRPC_STATUS_DEADLINE_EXCEEDED, "Deadline Exceeded");
    }
}

grpc_call_error
grpc_call_cancel(grpc_call *call, void *reserved)
{
    (void)reserved;
    if (!call->ended) {
        give_up(call, GRPC_STATUS_CANCELLED, "Cancelled");
    }
    return GRPC_CALL_OK;
}

static core_frame *
trailers(grpc_call *self, grpc_status_code status, grpc_slice text)
{
    core_frame *frame = core_frame_new(CORE_TRAILERS);

    frame->from = self;
    frame->status = status;
    frame->text = grpc_slice_from_copied_buffer((const char *)GRPC_SLICE_START_PTR(text),
                                                GRPC_SLICE_LENGTH(text));
    return frame;
}

/* What waits to be sent is dropped, and the status goes past it. */
grpc_call_error
grpc_call_cancel_with_status(grpc_call *call, grpc_status_code status, const char *description,
                             void *reserved)
{
    (void)reserved;
    if (!call->ended && call->side == CORE_SERVER) {
        core_send(call->conn, CORE_CLIENT,
                  trailers(call, status, grpc_slice_from_static_string(description)));
        core_call_end(call, status, description);
    } else if (!call->ended) {
        give_up(call, status, description);
    }
    return GRPC_CALL_OK;
}

static void
free_contents(grpc_call *self)
{
    core_free_metadata(&self->initial);
    core_free_metadata(&self->trailing);
    grpc_slice_unref(self->text);
    self->text = grpc_empty_slice();
}

/* The struct stays until all is over: frames that are on their way name it. */
void
grpc_call_unref(grpc_call *call)
{
    if (call->unrefd) {
        sim_fail("a call of %s is given back twice", call->method);
    }
    call->unrefd = true;
    if (!call->ended) {
        give_up(call, GRPC_STATUS_CANCELLED, "Cancelled");
    }
    free_contents(call);
}

char *
grpc_call_get_peer(grpc_call *call)
{
    char text[40];

    (void)snprintf(text, sizeof(text), "ipv4:127.0.0.1:%u",
                   call->conn == NULL ? 1 : 20000 + call->conn->number);
    return gpr_strdup(text);
}

int
grpc_call_failed_before_recv_message(const grpc_call *call)
{
    return call->cut ? 1 : 0;
}

/* ------------------------------------------------------------------------------ out */

static grpc_byte_buffer *
copy_bytes(grpc_byte_buffer *from)
{
    grpc_byte_buffer_reader reader;
    grpc_byte_buffer *copy;
    grpc_slice all;
    const int opened = grpc_byte_buffer_reader_init(&reader, from);

    assert(opened == 1);
    (void)opened;
    all = grpc_byte_buffer_reader_readall(&reader);
    copy = grpc_raw_byte_buffer_create(&all, 1);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return copy;
}

static void
send_item(grpc_call *self, item *one)
{
    core_frame *frame = one->frame;

    one->frame = NULL;
    if (one->message != NULL) {
        frame->message = copy_bytes(one->message);
        frame->bytes = grpc_byte_buffer_length(frame->message);
        self->unread += frame->bytes;
    }
    core_send(self->conn, 1 - self->side, frame);
}

/* Until there is no room, or no connection yet. A server's status is its end. */
static void
pump_out(grpc_call *self)
{
    while (!self->ended && self->conn != NULL && !tutti_list_empty(&self->out)) {
        item *one = tutti_container_of(self->out.next, item, link);
        const bool last = one->frame->kind == CORE_TRAILERS;

        if (one->message != NULL && self->unread >= WINDOW_BYTES) {
            return;
        }
        send_item(self, one);
        drop_item(one, true);
        if (last) {
            finish(self, false);
        }
    }
}

static void
add_item(grpc_call *self, core_frame *frame, grpc_byte_buffer *message, core_batch *batch)
{
    item *one = calloc(1, sizeof(*one));

    assert(one != NULL);
    frame->from = self;
    *one = (item){.frame = frame, .message = message, .batch = batch};
    tutti_list_init(&frame->link);
    tutti_list_add(&self->out, &one->link);
    if (self->ended) {
        drop_item(one, false);
    }
}

void
core_call_connect(grpc_call *call, core_conn *conn)
{
    call->conn = conn;
    conn->calls++;
    tutti_list_add(&conn->all[CORE_CLIENT], &call->link);
    sim_note("%d calls %d: %s (call %llu)", call->process, conn->process[CORE_SERVER], call->method,
             (unsigned long long)call->number);
    pump_out(call);
}

/* ------------------------------------------------------------------------------ in */

static void
settle(core_batch **want)
{
    core_batch *batch = *want;

    *want = NULL;
    core_batch_drop(batch, true);
}

grpc_byte_buffer *
core_call_take(grpc_call *call)
{
    core_frame *frame;
    grpc_byte_buffer *message;

    if (tutti_list_empty(&call->in)) {
        return NULL;
    }
    frame = tutti_container_of(call->in.next, core_frame, link);
    message = frame->message;
    frame->message = NULL;
    frame->from->unread -= frame->bytes;
    pump_out(frame->from);
    core_frame_free(frame);
    return message;
}

static void
fill_status(grpc_call *self)
{
    const struct grpc_op_recv_status_on_client *to = &self->status_to.data.recv_status_on_client;

    *to->status = self->status;
    *to->status_details = grpc_slice_ref(self->text);
    lend_metadata(to->trailing_metadata, &self->trailing);
}

static void
deliver(grpc_call *self)
{
    if (self->want_initial != NULL && (self->has_initial || self->has_status || self->ended)) {
        lend_metadata(self->initial_to, &self->initial);
        settle(&self->want_initial);
    }
    if (self->want_message != NULL) {
        *self->message_to = core_call_take(self);
        if (*self->message_to != NULL || self->half_closed || self->has_status || self->ended) {
            settle(&self->want_message);
        }
    }
    if (self->side == CORE_CLIENT && self->has_status && !self->ended &&
        tutti_list_empty(&self->in)) {
        finish(self, false);
        return;
    }
    if (self->want_status != NULL && self->ended) {
        fill_status(self);
        settle(&self->want_status);
    }
    if (self->want_close != NULL && self->ended) {
        *self->close_to = self->cut ? 1 : 0;
        settle(&self->want_close);
    }
}

/* [in, moved] frame */
void
core_call_arrive(grpc_call *call, core_frame *frame)
{
    bool keep = false;

    if (call == NULL || call->ended) {
        core_frame_free(frame);
        return;
    }
    switch (frame->kind) {
    case CORE_INITIAL:
        call->has_initial = true;
        move_metadata(&call->initial, &frame->metadata);
        break;
    case CORE_MESSAGE:
        tutti_list_remove(&frame->link);
        tutti_list_add(&call->in, &frame->link);
        keep = true;
        break;
    case CORE_HALF_CLOSE:
        call->half_closed = true;
        break;
    case CORE_TRAILERS:
        call->has_status = true;
        call->status = frame->status;
        call->text = grpc_slice_ref(frame->text);
        move_metadata(&call->trailing, &frame->metadata);
        break;
    default:
        core_call_end(call, frame->status, "cut by the peer");
        break;
    }
    if (!keep) {
        core_frame_free(frame);
    }
    if (call->side == CORE_SERVER && !call->headed) {
        core_server_offer(call);
    }
    deliver(call);
}

/* ------------------------------------------------------------------------------ batches */

static void
start_headers(grpc_call *self, const grpc_op *op, core_batch *batch)
{
    const bool client = self->side == CORE_CLIENT;
    core_frame *frame = core_frame_new(client ? CORE_HEADERS : CORE_INITIAL);

    core_copy_metadata(&frame->metadata, op->data.send_initial_metadata.metadata,
                       op->data.send_initial_metadata.count);
    add_item(self, frame, NULL, batch);
    if (client && !self->ended) {
        self->waits_for_ready = (op->flags & GRPC_INITIAL_METADATA_WAIT_FOR_READY) != 0;
        core_channel_start(self);
    }
}

static void
start_status(grpc_call *self, const grpc_op *op, core_batch *batch)
{
    const struct grpc_op_send_status_from_server *from = &op->data.send_status_from_server;
    core_frame *frame =
        trailers(self, from->status,
                 from->status_details == NULL ? grpc_empty_slice() : *from->status_details);

    core_copy_metadata(&frame->metadata, from->trailing_metadata, from->trailing_metadata_count);
    add_item(self, frame, NULL, batch);
}

static void
start_op(grpc_call *self, const grpc_op *op, core_batch *batch)
{
    switch (op->op) {
    case GRPC_OP_SEND_INITIAL_METADATA:
        start_headers(self, op, batch);
        break;
    case GRPC_OP_SEND_MESSAGE:
        add_item(self, core_frame_new(CORE_MESSAGE),
                 grpc_byte_buffer_copy(op->data.send_message.send_message), batch);
        break;
    case GRPC_OP_SEND_CLOSE_FROM_CLIENT:
        add_item(self, core_frame_new(CORE_HALF_CLOSE), NULL, batch);
        break;
    case GRPC_OP_SEND_STATUS_FROM_SERVER:
        start_status(self, op, batch);
        break;
    case GRPC_OP_RECV_INITIAL_METADATA:
        assert(self->want_initial == NULL);
        self->want_initial = batch;
        self->initial_to = op->data.recv_initial_metadata.recv_initial_metadata;
        break;
    case GRPC_OP_RECV_MESSAGE:
        assert(self->want_message == NULL);
        self->want_message = batch;
        self->message_to = op->data.recv_message.recv_message;
        break;
    case GRPC_OP_RECV_STATUS_ON_CLIENT:
        assert(self->want_status == NULL);
        self->want_status = batch;
        self->status_to = *op;
        break;
    case GRPC_OP_RECV_CLOSE_ON_SERVER:
        assert(self->want_close == NULL);
        self->want_close = batch;
        self->close_to = op->data.recv_close_on_server.cancelled;
        break;
    }
}

/* What is asked for first: a call may end while the rest is started. */
grpc_call_error
grpc_call_start_batch(grpc_call *call, const grpc_op *ops, size_t nops, void *tag, void *reserved)
{
    core_batch *batch;
    size_t i;

    (void)reserved;
    if (nops == 0) {
        core_queue_expect(call->queue);
        core_queue_put(call->queue, tag, true);
        return GRPC_CALL_OK;
    }
    batch = core_batch_new(call->queue, tag, (unsigned)nops + 1);
    for (i = 0; i < nops; i++) {
        start_op(call, &ops[i], batch);
    }
    pump_out(call);
    deliver(call);
    core_batch_drop(batch, true);
    return GRPC_CALL_OK;
}

/* ------------------------------------------------------------------------------ all of them */

void
core_calls_open(void)
{
    tutti_list_init(&ours.calls);
    ours.count = 0;
}

void
core_calls_close(void)
{
    tutti_list_node *node;

    while ((node = tutti_list_pop(&ours.calls)) != NULL) {
        grpc_call *self = tutti_container_of(node, grpc_call, every);

        if (!self->unrefd && (self->side == CORE_CLIENT || self->headed)) {
            sim_fail("call %llu of %s by process %d is left", (unsigned long long)self->number,
                     self->method, self->process);
        }
        if (!self->ended) { /* a server's that no request was posted for */
            core_call_end(self, GRPC_STATUS_CANCELLED, "the end");
        }
        if (!self->unrefd) {
            free_contents(self);
        }
        free(self->method);
        free(self);
    }
}
