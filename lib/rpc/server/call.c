/*
 * One call on the server, from its arrival to its end: handing over, answering, telling the
 * handler that the client is gone.
 *
 * The loop's thread runs everything but answers: tutti_rpc_call_reply, fail, finish and write may
 * be called from any thread, for example the engine's. `lock` decides who has the last word
 * (`answered`, `ending`) and orders the status behind a write that is under way; it is never held
 * while gRPC, a handler or a guard is called.
 *
 * A call ends when `parts` is 0 (server/call.h). The count is why a call may be answered on
 * another thread while CLOSE arrives on the loop: whichever is last ends it, and the end always
 * runs on the loop (rpc_call_drop_later posts it there). If the client dies, CLOSE comes with
 * `gone` set, the handler is told once, and it still has to answer: its answer goes nowhere, but
 * gives the handler's part back.
 *
 * Who frees: the last tutti_rpc_call_unref. After the end only what a handler with a ref may
 * still ask (identity, user, cancelled) is good; gRPC's call is gone.
 */
#include "rpc/server/call.h"

#include <assert.h>
#include <grpc/support/alloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"
#include "rpc/message/status_pb.h"
#include "rpc/server.h"
#include "rpc/server/lane.h"
#include "rpc/server/server_private.h"
#include "rpc/util/process.h"

#define PARTS_ALWAYS 2 /* CLOSE and the status */
#define METHOD_BYTES_SHOWN 200
#define UNSENT_BYTES_SMALL (4u << 10) /* what is smaller may always wait: --streams-max limits it */

/*
 * The last part is over: count the call, tell the handler, give gRPC's call back. Loop's thread.
 * The order matters: on_end may still use the request, and the server's life is given back last,
 * because the server may be gone behind it.
 */
static void
end_call(tutti_rpc_call *call)
{
    tutti_rpc_server *server = call->server_loop->server;
    tutti_rpc_loop *loop = call->server_loop->loop;
    rpc_route *route = call->route;

    rpc_server_note(server, route, (int)call->status.code, tutti_clock_ns() - call->came_ns);
    if (call->handed) {
        if (route->method->stream != NULL && route->method->stream->on_end != NULL) {
            route->method->stream->on_end(call, route->self);
        } else if (call->on_end != NULL) {
            call->on_end(call, route->self);
        }
        (void)atomic_fetch_sub(&server->call_count, 1);
    }
    rpc_lane_unbind(call);
    tutti_list_remove(&call->link);
    tutti_rpc_message_free(call->request);
    call->request = NULL;
    rpc_status_fini(&call->status);
    /* A handler that has kept a ref may ask for the peer on another thread at this moment. */
    (void)pthread_mutex_lock(&call->lock);
    grpc_call_unref(call->call);
    call->call = NULL;
    (void)pthread_mutex_unlock(&call->lock);
    tutti_rpc_call_unref(call);
    rpc_loop_drop(loop);
    rpc_server_release(server);
}

static void
on_end(tutti_rpc_task *task)
{
    end_call(tutti_container_of(task, tutti_rpc_call, end));
}

void
rpc_call_drop(tutti_rpc_call *call, unsigned parts)
{
    if (atomic_fetch_sub(&call->parts, parts) == parts) {
        end_call(call);
    }
}

/*
 * The end runs on_end, which belongs to the loop, so it is posted: this thread may be any, and
 * may be inside the handler.
 */
void
rpc_call_drop_later(tutti_rpc_call *call)
{
    if (atomic_fetch_sub(&call->parts, 1) == 1) {
        tutti_rpc_loop_post(call->server_loop->loop, &call->end);
    }
}

/*
 * Tell the handler that the client is gone, that the server drains, or that the call was refused
 * behind its back. At most once (`told`), and not when it has answered: a handler may free its
 * state when it answers. An answer on another thread can still come between the look at
 * `answered` and on_cancel; server.h promises the order only for answers that are given on the
 * loop.
 */
void
rpc_call_tell(tutti_rpc_call *call)
{
    const tutti_rpc_method *method;
    bool answered;

    if (!call->handed || call->told) {
        return;
    }
    (void)pthread_mutex_lock(&call->lock);
    answered = call->answered;
    (void)pthread_mutex_unlock(&call->lock);
    if (answered) {
        return;
    }
    call->told = true;
    method = call->route->method;
    if (method->stream != NULL && method->stream->on_cancel != NULL) {
        method->stream->on_cancel(call, call->route->self);
    } else if (method->stream == NULL && call->on_cancel != NULL) {
        call->on_cancel(call, call->route->self);
    }
}

void
rpc_call_closed(tutti_rpc_call *call)
{
    /* 0: the status went out before the client left, so nobody has to be told. */
    if (call->gone != 0) {
        atomic_store(&call->cancelled, true);
        rpc_call_tell(call);
        if (call->lane != NULL) {
            rpc_lane_lose(call);
        }
    }
    rpc_call_drop(call, 1);
}

static void
on_closed(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_call *call = tutti_container_of(tag, tutti_rpc_call, closed);

    (void)ok; /* CLOSE always succeeds */
    if (call->lane == NULL || !rpc_lane_close_later(call)) {
        rpc_call_closed(call);
    }
}

static void
on_finished(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_call *call = tutti_container_of(tag, tutti_rpc_call, finished);

    (void)ok; /* false: the client has gone and does not hear the status */
    rpc_call_count_sent(call);
    rpc_call_drop(call, call->close_joined ? 2 : 1);
}

tutti_rpc_call *
rpc_call_new(rpc_server_loop *server_loop, rpc_route *route)
{
    tutti_rpc_call *call = malloc(sizeof(*call)); /* glibc's calloc has no thread cache */

    if (call == NULL) {
        return NULL;
    }
    memset(call, 0, sizeof(*call));
    call->server_loop = server_loop;
    call->route = route;
    atomic_init(&call->refs, 1);
    /* Counted from the beginning, so that the call cannot end between its parts. */
    atomic_init(&call->parts, PARTS_ALWAYS);
    tutti_list_init(&call->link);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    call->status.text = grpc_empty_slice();
    call->closed.on_done = on_closed;
    call->finished.on_done = on_finished;
    call->end.on_run = on_end;
    (void)pthread_mutex_init(&call->lock, NULL);
    rpc_server_hold(server_loop->server);
    return call;
}

void
rpc_call_discard(tutti_rpc_call *call)
{
    tutti_rpc_server *server = call->server_loop->server;

    tutti_rpc_call_unref(call);
    rpc_server_release(server);
}

void
tutti_rpc_call_ref(tutti_rpc_call *call)
{
    (void)atomic_fetch_add(&call->refs, 1);
}

void
tutti_rpc_call_unref(tutti_rpc_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) != 1) {
        return;
    }
    if (call->first != NULL) {
        grpc_byte_buffer_destroy(call->first);
    }
    if (call->stream != NULL) {
        tutti_rpc_call_unref(call->stream);
    }
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    gpr_free(call->peer);
    free(call->identity);
    if (call->grant != NULL) {
        call->server_loop->server->guard->release(call->grant);
    }
    (void)pthread_mutex_destroy(&call->lock);
    free(call);
}

/*
 * The request of a call whose client sends one message. It came together with the call
 * (GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER), which saves a batch. NULL: the client closed the
 * stream without one.
 */
static tutti_code
take_call_request(tutti_rpc_call *call, tutti_error *err)
{
    grpc_byte_buffer *first = call->first;

    if (call->route->client_streams) {
        return TUTTI_OK;
    }
    if (first == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_REQUEST",
                              "the call ended without a request");
    }
    call->first = NULL;
    TUTTI_TRY(rpc_unpack(call->route->input, first, !call->route->open_enums, &call->request, err));
    return rpc_call_check(call, call->request, err);
}

static tutti_code
no_method(const tutti_rpc_call *call, tutti_error *err)
{
    const size_t size = GRPC_SLICE_LENGTH(call->details.method);

    return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "NO_METHOD", "there is no method %.*s",
                          (int)(size < METHOD_BYTES_SHOWN ? size : METHOD_BYTES_SHOWN),
                          (const char *)GRPC_SLICE_START_PTR(call->details.method));
}

/*
 * May the call go to its handler? The order is deliberate: a draining server says so to
 * everybody, and credentials are checked before the request is unpacked, so strangers cannot make
 * the server parse anything.
 */
static tutti_code
admit_call(tutti_rpc_call *call, tutti_error *err)
{
    if (atomic_load(&call->server_loop->server->draining)) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "DRAINING", "the server is shutting down");
    }
    if (call->route == NULL) {
        return no_method(call, err);
    }
    TUTTI_TRY(rpc_call_authorize(call, err));
    if (call->route->admit != NULL) {
        TUTTI_TRY(call->route->admit(call->route->self, err));
    }
    TUTTI_TRY(rpc_lane_bind(call, err));
    return take_call_request(call, err);
}

/*
 * The handler has one part until it answers. It is added before the handler runs, because the
 * handler may answer at once, on this thread or another.
 */
static void
hand_over_call(tutti_rpc_call *call)
{
    const rpc_route *route = call->route;

    call->handed = true;
    (void)atomic_fetch_add(&call->parts, 1);
    (void)atomic_fetch_add(&call->server_loop->server->call_count, 1);
    if (route->method->stream == NULL) {
        route->method->on_call(call, route->self);
    } else if (route->method->stream->on_open != NULL) {
        route->method->stream->on_open(call, route->self);
    }
}

void
rpc_call_begin(tutti_rpc_call *call)
{
    const grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                           .data.recv_close_on_server.cancelled = &call->gone};
    tutti_error err;

    call->came_ns = tutti_clock_ns();
    /* From here on a drain finds the call (on_sweep in accept.c). */
    tutti_list_add(&call->server_loop->calls, &call->link);
    call->beginning = true;
    if (admit_call(call, &err) == TUTTI_OK) {
        hand_over_call(call);
    } else {
        rpc_call_refuse(call, &err);
    }
    call->beginning = false;
    /*
     * The handler has not answered yet: ask for CLOSE now. Without it nobody would learn that the
     * client has gone. If it has answered inside its call, CLOSE went out with the status
     * (join_close).
     */
    if (!call->close_started) {
        call->close_started = true;
        rpc_batch_start(call->call, &close, 1, &call->closed);
    }
}

const void *
tutti_rpc_call_request(const tutti_rpc_call *call)
{
    return tutti_rpc_message_get(call->request);
}

tutti_rpc_message *
tutti_rpc_call_message(const tutti_rpc_call *call)
{
    return call->request;
}

uint64_t
tutti_rpc_call_deadline(const tutti_rpc_call *call)
{
    return rpc_time_from(call->deadline);
}

bool
tutti_rpc_call_cancelled(const tutti_rpc_call *call)
{
    return atomic_load(&call->cancelled);
}

const char *
tutti_rpc_call_method(const tutti_rpc_call *call)
{
    return call->route->path;
}

const char *
tutti_rpc_call_peer(const tutti_rpc_call *call)
{
    tutti_rpc_call *self = (tutti_rpc_call *)(uintptr_t)call; /* looked up when first asked */
    const char *peer;

    /* gRPC builds the text of the peer in new memory each time, so it is asked once and kept. */
    if (call->stream != NULL) {
        return tutti_rpc_call_peer(call->stream);
    }
    (void)pthread_mutex_lock(&self->lock);
    if (self->peer == NULL && self->call != NULL) {
        self->peer = grpc_call_get_peer(self->call);
    }
    peer = self->peer;
    (void)pthread_mutex_unlock(&self->lock);
    return peer == NULL ? "" : peer;
}

tutti_bytes
tutti_rpc_call_metadata(const tutti_rpc_call *call, const char *key)
{
    size_t i;

    if (call->lease[0] != '\0' && strcmp(key, "tutti-lease") == 0) {
        return tutti_bytes_of(call->lease);
    }
    if (call->stream != NULL) {
        return tutti_rpc_call_metadata(call->stream, key);
    }
    for (i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *one = &call->metadata.metadata[i];

        if (grpc_slice_str_cmp(one->key, key) == 0) {
            return (tutti_bytes){GRPC_SLICE_START_PTR(one->value), GRPC_SLICE_LENGTH(one->value)};
        }
    }
    return (tutti_bytes){NULL, 0};
}

const char *
tutti_rpc_call_identity(const tutti_rpc_call *call)
{
    if (call->stream != NULL) {
        return tutti_rpc_call_identity(call->stream);
    }
    return call->identity == NULL ? "" : call->identity;
}

void
tutti_rpc_call_set_user(tutti_rpc_call *call, void *user)
{
    call->user = user;
}

void *
tutti_rpc_call_user(const tutti_rpc_call *call)
{
    return call->user;
}

void
tutti_rpc_call_on_cancel(tutti_rpc_call *call, tutti_rpc_unary_fn on_cancel)
{
    assert(call->route->method->stream == NULL);
    call->on_cancel = on_cancel;
}

void
tutti_rpc_call_on_end(tutti_rpc_call *call, tutti_rpc_unary_fn told)
{
    assert(call->route->method->stream == NULL);
    call->on_end = told;
}

void
rpc_server_note(tutti_rpc_server *server, rpc_route *route, int code, uint64_t duration_ns)
{
    assert(code >= 0 && code < TUTTI_RPC_CODES);
    if (route == NULL) {
        tutti_count(&server->unknown, 1);
        return;
    }
    tutti_count(&route->ended[code], 1);
    if (route->method->stream == NULL) {
        tutti_meter_add(&route->durations, duration_ns);
    }
}

/* ------------------------------------------------------------------------------ answering */

/*
 * May CLOSE travel in one batch with the status? Only while the handler is being called on the
 * loop (`beginning`): then CLOSE has not been asked for, and rpc_call_begin sees `close_started`
 * when the handler returns. It saves a batch and an event for each call that is answered at once.
 * From another thread it could race with rpc_call_begin, so that is not tried.
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

/* The struct. A payload behind it is a tensor's memory, which is counted as that. */
static size_t
find_own_bytes(const grpc_byte_buffer *message)
{
    const grpc_slice_buffer *slices = &message->data.raw.slice_buffer;

    return slices->count == 0 ? 0 : GRPC_SLICE_LENGTH(slices->slices[0]);
}

bool
rpc_call_count_unsent(tutti_rpc_call *call, const grpc_byte_buffer *message, tutti_error *err)
{
    tutti_rpc_server *server = call->server_loop->server;
    const size_t bytes = find_own_bytes(message);
    const size_t before = atomic_fetch_add(&server->unsent_bytes, bytes);

    call->unsent = bytes;
    atomic_store_explicit(&server->answered_ns, tutti_clock_ns(), memory_order_relaxed);
    if (bytes <= UNSENT_BYTES_SMALL || before < server->quota_bytes) {
        return true;
    }
    rpc_call_count_sent(call);
    (void)TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "UNSENT_LIMIT",
                         "%zu bytes of answers wait for clients that do not read them, this one "
                         "of %zu is dropped (--memory-quota %zu)",
                         before, bytes, server->quota_bytes);
    return false;
}

void
rpc_call_count_sent(tutti_rpc_call *call)
{
    (void)atomic_fetch_sub(&call->server_loop->server->unsent_bytes, call->unsent);
    call->unsent = 0;
}

/* The error takes the place of an answer that must not wait. */
static grpc_byte_buffer *
take_last(tutti_rpc_call *call)
{
    grpc_byte_buffer *message = call->last;
    tutti_error err;

    call->last = NULL;
    if (message != NULL && !rpc_call_count_unsent(call, message, &err)) {
        grpc_byte_buffer_destroy(message);
        message = NULL;
        rpc_status_fini(&call->status);
        rpc_status_init(&call->status, &err);
    }
    return message;
}

/*
 * `ending` is set, so no other thread writes or answers: `last`, `status` and `initial_sent` are
 * read without the lock. The initial metadata goes with the status if no write has taken it.
 */
void
rpc_call_send_last(tutti_rpc_call *call)
{
    const bool joined = join_close(call, tutti_rpc_loop_is_current(call->server_loop->loop));
    grpc_byte_buffer *message = take_last(call);
    grpc_op ops[4] = {0};
    size_t count = 0;

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
    if (call->lane != NULL) {
        rpc_lane_shut(call); /* before the batch: the call may end with it */
    }
    rpc_batch_start(call->call, ops, count, &call->finished);
    if (message != NULL) {
        grpc_byte_buffer_destroy(message);
    }
}

/* An answer that came second is dropped: the client has had another last word. */
static void
forget_call(grpc_byte_buffer *message, rpc_status *status)
{
    if (message != NULL) {
        grpc_byte_buffer_destroy(message);
    }
    rpc_status_fini(status);
}

/*
 * Claim the last word; exactly one caller gets it. False: another one had it (a refusal and the
 * handler's answer race), and this one is forgotten. *ret_now: the caller sends it at once;
 * otherwise a write is under way and on_written sends it, because gRPC allows one send at a time
 * and the status must come behind the message.
 */
static bool
claim_reply(tutti_rpc_call *call, grpc_byte_buffer *message, rpc_status *status, bool by_handler,
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
        forget_call(message, status);
    }
    return !late;
}

/* The handler's last word. [in, moved] message  NULL = none. `err` NULL = OK */
static void
answer_call(tutti_rpc_call *call, grpc_byte_buffer *message, const tutti_error *err)
{
    rpc_status status;
    bool now;

    rpc_status_init(&status, err);
    tutti_rpc_call_ref(call); /* the call may end on its loop before this returns */
    /*
     * Claim, give the handler's part back, then send. The status part is still counted, so the
     * call cannot end before rpc_call_send_last has been called, or before on_written has called
     * it.
     */
    (void)claim_reply(call, message, &status, true, &now);
    rpc_call_drop_later(call);
    if (now && !rpc_gate_hold(call, NULL, false)) {
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

/*
 * The handler may be at work with the call (a message of its stream is malformed). It is told in
 * a task of its own, never from inside tutti_rpc_call_write or on_message, so that a handler is
 * not entered twice. The task counts as a part, which keeps the call until it has run.
 */
void
rpc_call_refuse(tutti_rpc_call *call, const tutti_error *err)
{
    rpc_status status;
    bool now;

    rpc_status_init(&status, err);
    if (!claim_reply(call, NULL, &status, false, &now)) {
        return;
    }
    if (call->handed) {
        (void)atomic_fetch_add(&call->parts, 1);
        call->tell.on_run = on_tell;
        tutti_rpc_loop_post(call->server_loop->loop, &call->tell);
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
    /*
     * A response that cannot be packed (too large, no memory) becomes the error: the client must
     * hear something.
     */
    if (rpc_pack(response, payload, &message, &err) != TUTTI_OK) {
        answer_call(call, NULL, &err);
        return;
    }
    answer_call(call, message, NULL);
}

void
tutti_rpc_call_fail(tutti_rpc_call *call, const tutti_error *err)
{
    assert(err != NULL && err->code != TUTTI_OK);
    if (call->stream != NULL) {
        rpc_nested_answer(call, NULL, NULL, err);
        return;
    }
    answer_call(call, NULL, err);
}

void
tutti_rpc_call_finish(tutti_rpc_call *call, const tutti_error *err)
{
    assert(err != NULL || call->route->server_streams);
    answer_call(call, NULL, err);
}

/*
 * gRPC drops what waits to be sent and sends the status past it. CLOSE then comes as for a client
 * that has gone, which tells the handler.
 */
void
tutti_rpc_call_cut(tutti_rpc_call *call, const tutti_error *why)
{
    assert(call->stream == NULL && why->code != TUTTI_OK);
    (void)grpc_call_cancel_with_status(call->call, (grpc_status_code)why->code, why->text, NULL);
}

/* ------------------------------------------------------------------------------ trace */

#define PARENT_BYTES 55
#define TRACE_AT 3
#define TRACE_DIGITS (TUTTI_RPC_TRACE_SIZE - 1)

static bool
are_digits(const char *text, size_t count)
{
    return strspn(text, "0123456789abcdef") >= count;
}

/*
 * W3C Trace Context, version-format: 2 digits of version, 32 of trace-id, 16 of parent-id, 2 of
 * flags, with dashes between. A later version may be longer, behind another dash; version "ff",
 * and a trace-id or parent-id of zeros, are invalid.
 */
static bool
is_parent(const char *text, size_t size)
{
    return (size == PARENT_BYTES ||
            (size > PARENT_BYTES && text[PARENT_BYTES] == '-' && memcmp(text, "00", 2) != 0)) &&
           are_digits(text, 2) && memcmp(text, "ff", 2) != 0 && text[2] == '-' &&
           are_digits(text + TRACE_AT, TRACE_DIGITS) && text[35] == '-' &&
           are_digits(text + 36, 16) && text[52] == '-' && are_digits(text + 53, 2) &&
           strspn(text + TRACE_AT, "0") < TRACE_DIGITS && strspn(text + 36, "0") < 16;
}

void
tutti_rpc_call_trace(const tutti_rpc_call *call, char ret_trace[TUTTI_RPC_TRACE_SIZE])
{
    const tutti_bytes parent = tutti_rpc_call_metadata(call, "traceparent");
    char text[PARENT_BYTES + 2];
    const size_t size = parent.size <= PARENT_BYTES ? parent.size : PARENT_BYTES + 1;

    ret_trace[0] = '\0';
    if (size < PARENT_BYTES) {
        return;
    }
    memcpy(text, parent.data, size);
    text[size] = '\0';
    if (is_parent(text, size)) {
        memcpy(ret_trace, text + TRACE_AT, TRACE_DIGITS);
        ret_trace[TRACE_DIGITS] = '\0';
    }
}
