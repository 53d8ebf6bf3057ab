/*
 * Calls that were started. The connection's thread has the flow (rpc/channel.h); everybody else leaves work for it
 * behind the lock, and posts the call's one task (generic_post). So a call is cancelled, written and read on
 * one thread.
 *
 * A call is in `live` until its flow has ended and no task is posted: only then its memory may go, and the
 * connection's thread be stopped.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"
#include "client/conn/conn_pool.h"
#include "client/generic/generic.h"

#define SLICE_NS (50 * TUTTI_NS_PER_MS) /* of a wait, between questions whether to give up */

/* ------------------------------------------------------------------------------ its memory */

static void
free_part(generic_part *part)
{
    if (part != NULL) {
        tutti_rpc_packed_free(part->packed);
        free(part);
    }
}

/* With the lock. */
static void
drop_outbox(tutti_generic_call *call)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&call->outbox)) != NULL) {
        free_part(tutti_container_of(link, generic_part, link));
    }
    call->unsent = 0;
    call->writing = 0;
}

/* With the lock. NULL = none */
static tutti_rpc_message *
pop_arrived(tutti_generic_call *call)
{
    tutti_rpc_message *message = NULL;

    if (call->arrived_count > 0) {
        message = call->arrived[call->arrived_at];
        call->arrived_at = (call->arrived_at + 1) % GENERIC_AHEAD;
        call->arrived_count--;
        call->arrived_bytes -= tutti_rpc_message_payload_bytes(message);
    }
    return message;
}

/* With the lock, which is let go of: nothing of the call is under way any more. */
static void
free_call(tutti_generic_call *call)
{
    tutti_generic *generic = call->generic;
    tutti_rpc_message *message;

    generic_hush(call);
    drop_outbox(call);
    while ((message = pop_arrived(call)) != NULL) {
        tutti_rpc_message_free(message);
    }
    tutti_buf_fini(&call->details);
    free(call);
    generic_leave(generic);
}

/* With the lock, which is let go of. */
static void
finish_call(tutti_generic_call *call)
{
    tutti_list_remove(&call->live);
    generic_tell(call);
    if (call->freed) {
        free_call(call);
    } else {
        (void)pthread_mutex_unlock(&call->generic->lock);
    }
}

void
generic_post(tutti_generic_call *call)
{
    if (!call->posted && !call->ended) {
        call->posted = true;
        tutti_rpc_loop_post(call->generic->loop, &call->task);
    }
}

/* ------------------------------------------------------------------------------ on the connection's thread */

/* One message, or that there is none any more. */
static void
send_next(tutti_generic_call *call)
{
    tutti_list_node *link;
    generic_part *part;
    bool more;
    bool finish;

    if (!tutti_rpc_flow_writable(call->flow)) {
        return; /* on_written comes here again */
    }
    (void)pthread_mutex_lock(&call->generic->lock);
    link = tutti_list_pop(&call->outbox);
    part = link == NULL ? NULL : tutti_container_of(link, generic_part, link);
    more = !tutti_list_empty(&call->outbox);
    call->writing = part == NULL ? 0 : part->bytes;
    finish = part == NULL && call->last && !call->finished;
    call->finished = call->finished || finish;
    (void)pthread_mutex_unlock(&call->generic->lock);
    if (part != NULL) {
        tutti_rpc_flow_write_packed(call->flow, part->packed, more);
        free(part);
    } else if (finish) {
        tutti_rpc_flow_writes_done(call->flow);
    }
}

static void
on_call_message(void *arg, tutti_rpc_message *message)
{
    tutti_generic_call *call = arg;
    size_t at;

    (void)pthread_mutex_lock(&call->generic->lock);
    if (!call->cancelled) {
        at = (call->arrived_at + call->arrived_count) % GENERIC_AHEAD;
        call->arrived_bytes += tutti_rpc_message_payload_bytes(message);
        call->arrived[at] = tutti_rpc_flow_take(call->flow);
        call->arrived_count++;
        call->held =
            call->arrived_count == GENERIC_AHEAD || call->arrived_bytes >= GENERIC_AHEAD_BYTES;
        generic_tell(call);
    }
    if (call->held) {
        tutti_rpc_flow_hold(call->flow);
    }
    (void)pthread_mutex_unlock(&call->generic->lock);
}

static void
on_call_written(void *arg)
{
    tutti_generic_call *call = arg;
    bool was_full;

    (void)pthread_mutex_lock(&call->generic->lock);
    was_full = call->unsent > GENERIC_UNSENT_BYTES;
    call->unsent -= call->writing;
    call->writing = 0;
    if (was_full && call->unsent <= GENERIC_UNSENT_BYTES) {
        generic_tell(call);
    }
    (void)pthread_mutex_unlock(&call->generic->lock);
    send_next(call);
}

static void
on_call_end(void *arg, const tutti_error *err)
{
    tutti_generic_call *call = arg;

    (void)pthread_mutex_lock(&call->generic->lock);
    call->flow = NULL;
    call->ended = true;
    if (err != NULL) {
        call->failure = *err;
    }
    drop_outbox(call);
    if (call->posted) {
        generic_tell(call);
        (void)pthread_mutex_unlock(&call->generic->lock);
    } else {
        finish_call(call);
    }
}

static const tutti_rpc_flow_ops call_ops = {
    .on_message = on_call_message, .on_written = on_call_written, .on_end = on_call_end};

/* With the lock: may a call that is held read on? */
static bool
may_read_on(const tutti_generic_call *call)
{
    return call->cancelled || (call->arrived_count <= GENERIC_AHEAD / 2 &&
                               call->arrived_bytes < GENERIC_AHEAD_BYTES / 2);
}

static void
work_call(tutti_rpc_task *task)
{
    tutti_generic_call *call = tutti_container_of(task, tutti_generic_call, task);
    bool cancel;
    bool resume;

    (void)pthread_mutex_lock(&call->generic->lock);
    call->posted = false;
    if (call->ended) {
        finish_call(call);
        return;
    }
    cancel = call->cancelled;
    resume = call->held && may_read_on(call);
    call->held = call->held && !resume;
    (void)pthread_mutex_unlock(&call->generic->lock);
    if (cancel) {
        tutti_rpc_flow_cancel(call->flow);
    }
    if (resume) {
        tutti_rpc_flow_resume(call->flow);
    }
    send_next(call);
}

/* ------------------------------------------------------------------------------ starting */

static tutti_generic_call *
make_call(tutti_generic *generic, bool last, void *user)
{
    tutti_generic_call *call = calloc(1, sizeof(*call));

    if (call != NULL) {
        call->generic = generic;
        call->user = user;
        call->last = last;
        call->finished = last;
        call->task.on_run = work_call;
        tutti_list_init(&call->live);
        tutti_list_init(&call->ready);
        tutti_list_init(&call->outbox);
        tutti_buf_init(&call->details, TUTTI_GENERIC_DETAILS_MAX);
    }
    return call;
}

/* [in, moved] rpc->packed */
static tutti_code
start_call(tutti_generic_call *call, const tutti_rpc_stub *stub, tutti_rpc_call_options *rpc,
           tutti_error *err)
{
    tutti_generic *generic = call->generic;
    tutti_code code = generic_enter(generic, call, err);

    if (code != TUTTI_OK) {
        tutti_rpc_packed_free(rpc->packed);
        free(call);
        return code;
    }
    rpc->details = &call->details;
    code = tutti_rpc_flow_start(generic->channel, generic->loop, stub, NULL, call->last, rpc,
                                &call_ops, call, &call->flow, err);
    if (code != TUTTI_OK) {
        (void)pthread_mutex_lock(&generic->lock);
        tutti_list_remove(&call->live);
        free_call(call);
    }
    return code;
}

tutti_code
tutti_generic_start(tutti_generic *generic, const char *method, const void *request,
                    size_t request_bytes, bool last, const tutti_generic_call_options *options,
                    tutti_generic_call **ret_call, tutti_error *err)
{
    TUTTI_NEED(generic, err);
    TUTTI_NEED(ret_call, err);
    TUTTI_NEED(method, err);

    const tutti_rpc_stub *stub = NULL;
    tutti_generic_call_options own;
    tutti_rpc_call_options rpc;
    tutti_generic_call *call;
    tutti_code code;

    TUTTI_TRY(generic_read_options(method, options, &own, &rpc, err));
    TUTTI_TRY(generic_find_stub(generic, method, &stub, err));
    if (request != NULL) {
        TUTTI_TRY(tutti_rpc_pack_bytes((tutti_bytes){request, request_bytes}, &rpc.packed, err));
    }
    call = make_call(generic, last, own.user);
    if (call == NULL) {
        tutti_rpc_packed_free(rpc.packed);
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    code = start_call(call, stub, &rpc, err);
    if (code == TUTTI_OK) {
        *ret_call = call;
    }
    return code;
}

/* ------------------------------------------------------------------------------ its owner */

static tutti_code
pack_part(const void *message, size_t message_bytes, generic_part **ret_part, tutti_error *err)
{
    generic_part *part = calloc(1, sizeof(*part));
    tutti_code code;

    if (part == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a message");
    }
    part->bytes = message_bytes;
    code = tutti_rpc_pack_bytes((tutti_bytes){message, message_bytes}, &part->packed, err);
    if (code != TUTTI_OK) {
        free(part);
        return code;
    }
    *ret_part = part;
    return TUTTI_OK;
}

tutti_code
tutti_generic_send(tutti_generic_call *call, const void *message, size_t message_bytes, bool last,
                   tutti_error *err)
{
    TUTTI_NEED(call, err);

    generic_part *part = NULL;
    bool late;

    TUTTI_TRY(client_check_owner(call->generic->owner, err));
    if (message != NULL) {
        TUTTI_TRY(pack_part(message, message_bytes, &part, err));
    }
    (void)pthread_mutex_lock(&call->generic->lock);
    late = call->last;
    call->last = call->last || last;
    if (!late && !call->ended && part != NULL) {
        tutti_list_add(&call->outbox, &part->link);
        call->unsent += message_bytes;
        part = NULL;
    }
    generic_post(call);
    (void)pthread_mutex_unlock(&call->generic->lock);
    free_part(part);
    return !late ? TUTTI_OK
                 : TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "CLOSED",
                                  "the call was told that its last message was sent");
}

size_t
tutti_generic_unsent(const tutti_generic_call *call)
{
    size_t unsent;

    (void)pthread_mutex_lock(&call->generic->lock);
    unsent = call->unsent;
    (void)pthread_mutex_unlock(&call->generic->lock);
    return unsent;
}

static uint64_t
deadline_in(uint32_t timeout_ms)
{
    return timeout_ms == TUTTI_GENERIC_FOREVER
               ? UINT64_MAX
               : tutti_clock_add(tutti_clock_ns(), timeout_ms * TUTTI_NS_PER_MS);
}

/*
 * With the lock, which is let go of: wait for a change, or a slice. If the program wants its waits to end, the call is
 * cancelled, and its end is what comes.
 */
static void
wait_slice(tutti_generic_call *call, uint64_t deadline_ns)
{
    pthread_mutex_t *lock = &call->generic->lock;
    const uint64_t slice_ns = tutti_clock_add(tutti_clock_ns(), SLICE_NS);
    bool interrupted = false;

    (void)tutti_cond_wait_until(&call->generic->changed, lock,
                                slice_ns < deadline_ns ? slice_ns : deadline_ns);
    if (tutti_clock_ns() >= slice_ns) {
        (void)pthread_mutex_unlock(lock);
        interrupted = tutti_rpc_interrupted();
        (void)pthread_mutex_lock(lock);
    }
    if (interrupted) {
        call->cancelled = true;
        generic_post(call);
    }
}

tutti_code
tutti_generic_wait_sent(tutti_generic_call *call, uint32_t timeout_ms, tutti_error *err)
{
    TUTTI_NEED(call, err);

    const uint64_t deadline_ns = deadline_in(timeout_ms);
    size_t unsent;

    TUTTI_TRY(client_check_owner(call->generic->owner, err));
    (void)pthread_mutex_lock(&call->generic->lock);
    while (call->unsent > GENERIC_UNSENT_BYTES && tutti_clock_ns() < deadline_ns) {
        wait_slice(call, deadline_ns);
    }
    unsent = call->unsent;
    (void)pthread_mutex_unlock(&call->generic->lock);
    if (unsent > GENERIC_UNSENT_BYTES) {
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "%zu bytes of a call have not left", unsent);
    }
    return TUTTI_OK;
}

tutti_generic_event
tutti_generic_next(tutti_generic_call *call, uint32_t timeout_ms,
                   tutti_generic_message **ret_message, tutti_generic_details *ret_details,
                   tutti_error *err)
{
    const uint64_t deadline_ns = deadline_in(timeout_ms);
    tutti_rpc_message *message;
    tutti_generic_event event = TUTTI_GENERIC_NOTHING;

    if (client_check_owner(call->generic->owner, err) != TUTTI_OK) {
        return TUTTI_GENERIC_ENDED;
    }
    (void)pthread_mutex_lock(&call->generic->lock);
    while (call->arrived_count == 0 && !call->ended && tutti_clock_ns() < deadline_ns) {
        wait_slice(call, deadline_ns);
    }
    message = pop_arrived(call);
    if (message != NULL) {
        event = TUTTI_GENERIC_MESSAGE;
        *ret_message = message;
        if (call->held && may_read_on(call)) {
            generic_post(call);
        }
    } else if (call->ended) {
        event = TUTTI_GENERIC_ENDED;
        *err = call->failure;
        generic_give_details(&call->details, ret_details);
    }
    (void)pthread_mutex_unlock(&call->generic->lock);
    return event;
}

void
tutti_generic_cancel(tutti_generic_call *call)
{
    if (client_check_owner(call->generic->owner, NULL) != TUTTI_OK) {
        return;
    }
    (void)pthread_mutex_lock(&call->generic->lock);
    call->cancelled = true;
    generic_post(call);
    (void)pthread_mutex_unlock(&call->generic->lock);
}

void
tutti_generic_free(tutti_generic_call *call)
{
    if (call == NULL || client_check_owner(call->generic->owner, NULL) != TUTTI_OK) {
        return; /* in a child of fork the lock may be held for ever */
    }
    (void)pthread_mutex_lock(&call->generic->lock);
    if (call->ended && !call->posted) {
        free_call(call);
        return;
    }
    call->freed = true;
    call->cancelled = true;
    generic_hush(call);
    generic_post(call);
    (void)pthread_mutex_unlock(&call->generic->lock);
}
