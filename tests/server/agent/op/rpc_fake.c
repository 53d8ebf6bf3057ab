#include "server/agent/op/rpc_fake.h"

#include <stdatomic.h>
#include <time.h>

#include "base/os/clock.h"
#include "support/testing.h"

#define TICK_NS TUTTI_NS_PER_US
#define HANGS_NS (20 * TUTTI_NS_PER_S)
#define BRIEF_NS (10 * TUTTI_NS_PER_MS)

/* ------------------------------------------------------------------------------ the clock */

/* The linker leads tutti_clock_ns to __wrap_tutti_clock_ns. */
uint64_t __real_tutti_clock_ns(void);
uint64_t __wrap_tutti_clock_ns(void);

static _Atomic uint64_t now_ns = 1000 * TUTTI_NS_PER_S;
static _Atomic uint64_t released_ns; /* when, by the real clock; 0 = it is held */

uint64_t
__wrap_tutti_clock_ns(void)
{
    const uint64_t since = atomic_load(&released_ns);
    const uint64_t more = since == 0 ? 0 : __real_tutti_clock_ns() - since;

    return atomic_fetch_add(&now_ns, TICK_NS) + TICK_NS + more;
}

void
fake_clock_step(uint64_t ns)
{
    atomic_fetch_add(&now_ns, ns);
}

void
fake_clock_release(void)
{
    atomic_store(&released_ns, __real_tutti_clock_ns());
}

void
fake_clock_hold(void)
{
    const uint64_t since = atomic_exchange(&released_ns, 0);

    if (since != 0) {
        atomic_fetch_add(&now_ns, __real_tutti_clock_ns() - since);
    }
}

/* ------------------------------------------------------------------------------ the loop */

void
fake_loop_init(tutti_rpc_loop *loop)
{
    (void)pthread_mutex_init(&loop->mutex, NULL);
    (void)pthread_cond_init(&loop->posted, NULL);
    tutti_list_init(&loop->tasks);
    tutti_timers_init(&loop->timers);
}

void
fake_loop_fini(tutti_rpc_loop *loop)
{
    assert_true(tutti_list_empty(&loop->tasks));
    (void)pthread_cond_destroy(&loop->posted);
    (void)pthread_mutex_destroy(&loop->mutex);
}

void
tutti_rpc_loop_post(tutti_rpc_loop *loop, tutti_rpc_task *task)
{
    (void)pthread_mutex_lock(&loop->mutex);
    tutti_list_add(&loop->tasks, &task->link);
    (void)pthread_cond_signal(&loop->posted);
    (void)pthread_mutex_unlock(&loop->mutex);
}

void
tutti_rpc_loop_timer_start(tutti_rpc_loop *loop, tutti_timer *timer, uint64_t at_ns)
{
    tutti_timers_start(&loop->timers, timer, at_ns);
}

void
tutti_rpc_loop_timer_stop(tutti_rpc_loop *loop, tutti_timer *timer)
{
    tutti_timers_stop(&loop->timers, timer);
}

static tutti_rpc_task *
take_task(tutti_rpc_loop *loop)
{
    tutti_list_node *link;

    (void)pthread_mutex_lock(&loop->mutex);
    link = tutti_list_pop(&loop->tasks);
    (void)pthread_mutex_unlock(&loop->mutex);
    return link == NULL ? NULL : tutti_container_of(link, tutti_rpc_task, link);
}

unsigned
fake_loop_run(tutti_rpc_loop *loop)
{
    tutti_rpc_task *task;
    unsigned count = 0;

    tutti_timers_run(&loop->timers, tutti_clock_ns());
    while ((task = take_task(loop)) != NULL) {
        task->on_run(task);
        count++;
    }
    return count;
}

/* Until a task is posted; false when `ns` have passed. */
static bool
wait_posted(tutti_rpc_loop *loop, uint64_t ns)
{
    struct timespec until;
    int late = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(ns % TUTTI_NS_PER_S);
    until.tv_sec += (time_t)(ns / TUTTI_NS_PER_S) + until.tv_nsec / (long)TUTTI_NS_PER_S;
    until.tv_nsec %= (long)TUTTI_NS_PER_S;
    (void)pthread_mutex_lock(&loop->mutex);
    while (tutti_list_empty(&loop->tasks) && late == 0) {
        late = pthread_cond_timedwait(&loop->posted, &loop->mutex, &until);
    }
    (void)pthread_mutex_unlock(&loop->mutex);
    return late == 0;
}

void
fake_loop_wait(tutti_rpc_loop *loop, const char *what)
{
    if (!wait_posted(loop, HANGS_NS)) {
        fail_msg("%s hangs", what);
    }
}

void
fake_loop_wait_briefly(tutti_rpc_loop *loop)
{
    (void)wait_posted(loop, BRIEF_NS);
}

/* ------------------------------------------------------------------------------ messages */

const void *
tutti_rpc_message_get(const tutti_rpc_message *message)
{
    return message->body;
}

size_t
tutti_rpc_message_payload_bytes(const tutti_rpc_message *message)
{
    return message->size;
}

void
tutti_rpc_message_read(tutti_rpc_message *message, void *dest, size_t size)
{
    assert_true(size <= message->size);
    memcpy(dest, message->payload, size);
    message->payload += size;
    message->size -= size;
}

/* ------------------------------------------------------------------------------ calls */

static unsigned turns;

void
fake_call_begin(tutti_rpc_call *call)
{
    atomic_store(&call->refs, 1); /* the server's */
}

static void
run_call_end(tutti_rpc_task *task)
{
    tutti_rpc_call *call = tutti_container_of(task, tutti_rpc_call, end);

    call->turn = ++turns;
    call->on_cancel = NULL;
    if (call->on_end != NULL) {
        call->on_end(call, call->self);
    }
    call->over = true;
    tutti_rpc_call_unref(call);
}

void
fake_call_answered(tutti_rpc_call *call)
{
    assert_false(atomic_exchange(&call->answered, true)); /* exactly once */
    call->end.on_run = run_call_end;
    tutti_rpc_loop_post(call->loop, &call->end);
}

void
tutti_rpc_call_fail(tutti_rpc_call *call, const tutti_error *err)
{
    assert_int_not_equal(err->code, TUTTI_OK);
    call->code = err->code;
    call->err = *err;
    fake_call_answered(call);
}

void
fake_call_cancel(tutti_rpc_call *call, bool drains)
{
    if (!drains) {
        atomic_store(&call->cancelled, true);
    }
    if (call->on_cancel != NULL && !atomic_load(&call->answered)) {
        const tutti_rpc_unary_fn on_cancel = call->on_cancel;

        call->on_cancel = NULL;
        on_cancel(call, call->self);
    }
}

bool
tutti_rpc_call_cancelled(const tutti_rpc_call *call)
{
    return atomic_load(&call->cancelled);
}

uint64_t
tutti_rpc_call_deadline(const tutti_rpc_call *call)
{
    return call->deadline_ns;
}

const char *
tutti_rpc_call_peer(const tutti_rpc_call *call)
{
    (void)call;
    return "unix:";
}

const char *
tutti_rpc_call_identity(const tutti_rpc_call *call)
{
    return call->identity != NULL ? call->identity : "";
}

tutti_bytes
tutti_rpc_call_metadata(const tutti_rpc_call *call, const char *key)
{
    const char *value = strcmp(key, "user-agent") == 0    ? call->user_agent
                        : strcmp(key, "tutti-lease") == 0 ? call->lease
                                                          : NULL;

    return value == NULL ? (tutti_bytes){NULL, 0} : tutti_bytes_of(value);
}

void
tutti_rpc_call_trace(const tutti_rpc_call *call, char ret_trace[TUTTI_RPC_TRACE_SIZE])
{
    (void)snprintf(ret_trace, TUTTI_RPC_TRACE_SIZE, "%s", call->trace != NULL ? call->trace : "");
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
    call->on_cancel = on_cancel;
}

void
tutti_rpc_call_on_end(tutti_rpc_call *call, tutti_rpc_unary_fn on_end)
{
    call->on_end = on_end;
}

void
tutti_rpc_call_ref(tutti_rpc_call *call)
{
    atomic_fetch_add(&call->refs, 1);
}

void
tutti_rpc_call_unref(tutti_rpc_call *call)
{
    assert_true(atomic_fetch_sub(&call->refs, 1) > 0);
}

/* ------------------------------------------------------------------------------ streams, server */

/* Rooms that are linked too, and that no test enters. */
static void
fail_entered(const char *name)
{
    fail_msg("%s is not a part of these tests", name);
}

void
tutti_rpc_call_read(tutti_rpc_call *call)
{
    (void)call;
    fail_entered(__func__);
}

void
tutti_rpc_call_finish(tutti_rpc_call *call, const tutti_error *err)
{
    (void)call;
    (void)err;
    fail_entered(__func__);
}

void
tutti_rpc_call_cut(tutti_rpc_call *call, const tutti_error *why)
{
    (void)call;
    (void)why;
    fail_entered(__func__);
}

tutti_rpc_message *
tutti_rpc_call_message(const tutti_rpc_call *call)
{
    (void)call;
    fail_entered(__func__);
    return NULL;
}

/* Only who starts a process asks where an agent is to be reached. */
const tutti_address *
tutti_rpc_server_addresses(const tutti_rpc_server *server, size_t *ret_count)
{
    (void)server;
    *ret_count = 0;
    fail_entered(__func__);
    return NULL;
}

void
tutti_rpc_server_set_health(tutti_rpc_server *server, const char *service, bool serving)
{
    (void)server;
    (void)service;
    (void)serving;
    fail_entered(__func__);
}

/* ------------------------------------------------------------------------------ requests */

void
fake_channel_init(tutti_rpc_channel *channel)
{
    tutti_list_init(&channel->requests);
}

tutti_code
tutti_rpc_request_start(tutti_rpc_channel *channel, tutti_rpc_loop *loop,
                        const tutti_rpc_stub *stub, const struct ProtobufCMessage *request,
                        const tutti_rpc_call_options *options, tutti_rpc_reply_fn on_reply,
                        void *arg, tutti_rpc_request **ret_request, tutti_error *err)
{
    tutti_rpc_request *made = channel->broken ? NULL : calloc(1, sizeof(*made));

    (void)loop;
    (void)stub;
    channel->count++;
    if (made == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a request");
    }
    made->on_reply = on_reply;
    made->arg = arg;
    made->deadline_ns = options->deadline_ns;
    channel->read_name(request, made->name);
    tutti_list_add(&channel->requests, &made->link);
    *ret_request = made;
    return TUTTI_OK;
}

void
tutti_rpc_request_cancel(tutti_rpc_request *request)
{
    request->cancelled = true;
}

void
fake_request_end(tutti_rpc_request *request, const void *response, const tutti_error *err)
{
    tutti_rpc_message message = {.body = response};
    const tutti_rpc_reply_fn on_reply = request->on_reply;
    void *arg = request->arg;

    tutti_list_remove(&request->link);
    free(request);
    on_reply(arg, err == NULL ? &message : NULL, err);
}
