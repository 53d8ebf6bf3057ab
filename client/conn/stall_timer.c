/*
 * A thread that looks whether transfers still move, and cancels the streams of those that do not.
 * gRPC has deadlines for a whole call only; a transfer may take any time as long as it moves.
 *
 * A transfer stores the time of its last progress, relaxed and without the lock, for each chunk;
 * the thread reads it when it looks. It sleeps until the earliest stream could be due, then looks
 * again; a store that it has not seen only makes it look once too often. The stream is cancelled
 * under the lock, so remove returns only when the thread is done with it.
 */
#include "client/conn/stall_timer.h"

#include <assert.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"

void
client_stall_timer_init(client_stall_timer *watch)
{
    *watch = (client_stall_timer){0};
    tutti_list_init(&watch->watched);
    (void)pthread_mutex_init(&watch->lock, NULL);
    tutti_cond_init(&watch->changed);
}

/* Give up what is due; when the next one will be. */
static uint64_t
look_stall_timer(client_stall_timer *watch, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &watch->watched)
    {
        client_watched *watched = tutti_container_of(link, client_watched, link);
        const uint64_t due_ns =
            tutti_clock_add(atomic_load(&watched->moved_ns), watched->patience_ns);

        if (watched->stalled) {
            continue;
        }
        if (due_ns <= now_ns) {
            watched->stalled = true;
            tutti_rpc_stream_cancel(watched->stream);
        } else if (due_ns < next_ns) {
            next_ns = due_ns;
        }
    }
    return next_ns;
}

static void *
run_stall_timer(void *arg)
{
    client_stall_timer *watch = arg;

    (void)pthread_mutex_lock(&watch->lock);
    while (!watch->stopping) {
        (void)tutti_cond_wait_until(&watch->changed, &watch->lock,
                                    look_stall_timer(watch, tutti_clock_ns()));
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* With the lock held. */
static tutti_code
start_stall_timer(client_stall_timer *watch, tutti_error *err)
{
    int failed;

    if (watch->started) {
        return TUTTI_OK;
    }
    failed = tutti_thread_start(&watch->thread, run_stall_timer, watch);
    if (failed != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "could not start a thread to watch a transfer: %s", strerror(failed));
    }
    watch->started = true;
    return TUTTI_OK;
}

void
client_stall_timer_fini(client_stall_timer *watch)
{
    (void)pthread_mutex_lock(&watch->lock);
    assert(tutti_list_empty(&watch->watched));
    watch->stopping = true;
    (void)pthread_cond_signal(&watch->changed);
    (void)pthread_mutex_unlock(&watch->lock);
    if (watch->started) {
        (void)pthread_join(watch->thread, NULL);
    }
    (void)pthread_cond_destroy(&watch->changed);
    (void)pthread_mutex_destroy(&watch->lock);
}

tutti_code
client_stall_timer_add(client_stall_timer *watch, client_watched *watched, tutti_rpc_stream *stream,
                       uint64_t patience_ns, tutti_error *err)
{
    tutti_code code;

    watched->stream = stream;
    watched->patience_ns = patience_ns;
    watched->stalled = false;
    atomic_init(&watched->moved_ns, tutti_clock_ns());
    (void)pthread_mutex_lock(&watch->lock);
    code = start_stall_timer(watch, err);
    if (code == TUTTI_OK) {
        tutti_list_add(&watch->watched, &watched->link);
        (void)pthread_cond_signal(&watch->changed);
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return code;
}

void
client_stall_timer_moved(client_watched *watched)
{
    atomic_store_explicit(&watched->moved_ns, tutti_clock_ns(), memory_order_relaxed);
}

bool
client_stall_timer_remove(client_stall_timer *watch, client_watched *watched)
{
    bool stalled;

    (void)pthread_mutex_lock(&watch->lock);
    tutti_list_remove(&watched->link);
    stalled = watched->stalled;
    (void)pthread_mutex_unlock(&watch->lock);
    return stalled;
}
