/*
 * The loop: one gRPC completion queue, the thread that serves it, its tasks, timers and idle
 * tasks.
 *
 * Threads: who has the turn runs everything that is bound to the loop. That is the loop's own
 * thread when an event has come, or a thread between tutti_rpc_loop_enter and leave, while the own
 * thread sleeps in gRPC without the turn. Other threads only post tasks (tutti_rpc_loop_post),
 * start batches on the queue (rpc_batch_start, which gRPC makes safe), and hold or drop a loop that
 * dozes. So `timers`, `idle`, `looks`, `is_idle` and `until_ns` belong to the turn and need no
 * lock; `tasks`, `waking`, `closed`, `asleep` and `held` are behind `lock`. The lock is a leaf: no
 * callback runs with it held. Turns are given in the order in which they were asked for.
 *
 * A post has to wake a thread that sleeps in grpc_completion_queue_next. gRPC has no call for
 * that, so each loop has a "mailbox": a call on a lame channel, on which an empty batch completes
 * at once and comes out of the queue as an event. At most one such batch is under way (`waking`).
 *
 * A loop that dozes sleeps on `stirred` instead, while no call is bound to it (`held` is 0).
 *
 * End: tutti_rpc_loop_stop shuts the queue down. gRPC returns SHUTDOWN only after every batch
 * that was started has come back, so callbacks of all calls have run by then. Tasks that these
 * callbacks post are run before the thread ends; timers and idle tasks are forgotten.
 */
#include <assert.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/util/process.h"

/*
 * Looks in a row that found nothing. A look serves one socket at most, and what it reads need not
 * be an event: a peer that gets a message sends a ping, say. So there are more looks than messages
 * that an idle task may send, or sockets that wait to be read get more and more.
 */
#define IDLE_LOOKS 24
#define IDLE_PATIENCE_NS (5 * TUTTI_NS_PER_MS)

struct tutti_rpc_loop {
    grpc_completion_queue *queue;
    grpc_channel *lame;  /* never connects: only for ... */
    grpc_call *mailbox;  /* ... this call, whose empty batches are our own events */
    tutti_rpc_tag woken; /* the tag of such a batch */
    tutti_timers timers;
    pthread_t thread;
    const char *name;
    bool started;
    bool stopped;
    bool dozes;
    tutti_list_node idle;      /* tasks that wait until nothing else is to do, ... */
    uint64_t idle_ns;          /* ... since when */
    unsigned looks;            /* at the queue and the sockets, since something was found */
    bool is_idle;              /* while those tasks run: nothing was found */
    uint64_t until_ns;         /* the own thread sleeps until then; 0 = it does not sleep */
    pthread_mutex_t turn_lock; /* guards the two numbers; a leaf */
    pthread_cond_t turn_given;
    uint64_t turn_asked;  /* how many turns were asked for, ... */
    uint64_t turn_number; /* ... and which of them it is */
    atomic_bool posted;   /* `tasks` is not empty; read without the lock */
    pthread_mutex_t lock; /* guards all below */
    tutti_list_node tasks;
    bool waking; /* an empty batch is under way */
    bool closed; /* the queue takes no batches any more */

    bool asleep;   /* waits for `stirred`, not in gRPC */
    unsigned held; /* calls and streams bound to the loop; counted if it dozes */
    pthread_cond_t stirred;
};

/* The loop whose turn this thread has; NULL for all other threads. */
static _Thread_local const tutti_rpc_loop *serving;

void
rpc_batch_start(grpc_call *call, const grpc_op *ops, size_t op_count, void *tag)
{
    grpc_call_error refused;

    rpc_tag_release(tag);
    refused = grpc_call_start_batch(call, ops, op_count, tag, NULL);
    assert(refused == GRPC_CALL_OK);
    (void)refused;
}

/*
 * The mailbox's batch has come back. Nothing else is to do here, because serve_loop runs the
 * tasks after each event. `waking` is cleared before the tasks are taken, not after: a post
 * between the two starts another batch, which costs one event too many. In the other order a post
 * behind run_tasks would see `waking` set, start no batch, and its task would wait for the next
 * event.
 */
static void
on_woken(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_loop *self = tutti_container_of(tag, tutti_rpc_loop, woken);

    (void)ok;
    (void)pthread_mutex_lock(&self->lock);
    self->waking = false;
    (void)pthread_mutex_unlock(&self->lock);
}

tutti_code
tutti_rpc_loop_new(const char *name, tutti_rpc_loop **ret_loop, tutti_error *err)
{
    const grpc_slice path = grpc_slice_from_static_string("/mailbox");
    tutti_rpc_loop *self;
    tutti_code code = rpc_check_process(err);

    assert(strlen(name) <= 15);
    if (code != TUTTI_OK) {
        return code;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a loop");
    }
    self->name = name;
    self->woken.on_done = on_woken;
    tutti_timers_init(&self->timers);
    tutti_list_init(&self->tasks);
    tutti_list_init(&self->idle);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->stirred);
    (void)pthread_mutex_init(&self->turn_lock, NULL);
    (void)pthread_cond_init(&self->turn_given, NULL);
    self->until_ns = TUTTI_TIMERS_NEVER;
    self->queue = grpc_completion_queue_create_for_next(NULL);
    /*
     * A lame channel fails every call without a connection and without a thread, so the mailbox
     * costs nothing while nobody posts.
     */
    self->lame = grpc_lame_client_channel_create("mailbox", GRPC_STATUS_UNAVAILABLE, "");
    self->mailbox = grpc_channel_create_call(self->lame, NULL, GRPC_PROPAGATE_DEFAULTS, self->queue,
                                             path, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    *ret_loop = self;
    return TUTTI_OK;
}

static void
run_round(tutti_list_node *round)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(round)) != NULL) {
        tutti_rpc_task *task = tutti_container_of(link, tutti_rpc_task, link);

        task->on_run(task);
    }
}

/*
 * Run the tasks that are there. They are moved to a list of our own first: a task that posts
 * itself again runs in the next round, behind the events that have come meanwhile, so it cannot
 * keep the loop from reading the queue. `posted` is cleared under the lock, together with the
 * list; its acquire load pairs with the release store of tutti_rpc_loop_post.
 */
static void
run_tasks(tutti_rpc_loop *self)
{
    tutti_list_node round;

    if (!atomic_load_explicit(&self->posted, memory_order_acquire)) {
        return;
    }
    self->looks = 0;
    tutti_list_init(&round);
    (void)pthread_mutex_lock(&self->lock);
    tutti_list_splice(&round, &self->tasks);
    atomic_store_explicit(&self->posted, false, memory_order_relaxed);
    (void)pthread_mutex_unlock(&self->lock);
    run_round(&round);
}

/*
 * gRPC polls no socket while an event waits in the queue. So a sender whose every message makes
 * the next event would keep all sockets of the process from being read. Idle tasks wait until
 * IDLE_LOOKS looks at the queue and the sockets have found nothing, or IDLE_PATIENCE_NS are over.
 */
static void
run_idle(tutti_rpc_loop *self, bool found)
{
    tutti_list_node round;

    if (tutti_list_empty(&self->idle)) {
        return;
    }
    self->looks = found ? 0 : self->looks + 1;
    if (self->looks < IDLE_LOOKS && tutti_clock_ns() - self->idle_ns < IDLE_PATIENCE_NS) {
        return;
    }
    self->is_idle = self->looks >= IDLE_LOOKS;
    self->looks = 0;
    tutti_list_init(&round);
    tutti_list_splice(&round, &self->idle);
    run_round(&round);
}

static void
run_timers(tutti_rpc_loop *self)
{
    if (tutti_timers_next(&self->timers) != TUTTI_TIMERS_NEVER) {
        tutti_timers_run(&self->timers, tutti_clock_ns());
    }
}

/*
 * Until when the own thread may sleep in gRPC: not at all (0) while a task is posted (a post made
 * in the turn rings no mailbox) or an idle task counts looks.
 */
static uint64_t
sleep_until(const tutti_rpc_loop *self)
{
    return atomic_load_explicit(&self->posted, memory_order_acquire) ||
                   !tutti_list_empty(&self->idle)
               ? 0
               : tutti_timers_next(&self->timers);
}

/* ------------------------------------------------------------------------------ turns */

/* A number is drawn and waited for, so a thread that asks often cannot keep another one out. */
static void
await_turn(tutti_rpc_loop *self)
{
    uint64_t number;

    (void)pthread_mutex_lock(&self->turn_lock);
    number = self->turn_asked++;
    while (number != self->turn_number) {
        (void)pthread_cond_wait(&self->turn_given, &self->turn_lock);
    }
    (void)pthread_mutex_unlock(&self->turn_lock);
    serving = self;
}

static void
give_turn(tutti_rpc_loop *self)
{
    bool wanted;

    serving = NULL;
    (void)pthread_mutex_lock(&self->turn_lock);
    self->turn_number++;
    wanted = self->turn_asked != self->turn_number;
    (void)pthread_mutex_unlock(&self->turn_lock);
    if (wanted) {
        (void)pthread_cond_broadcast(&self->turn_given);
    }
}

/*
 * With the lock held, which the wait lets go. `asleep` tells posters to signal `stirred` instead
 * of ringing the mailbox, into whose queue nobody looks now. False: a timer is due.
 */
static bool
sleep_once(tutti_rpc_loop *self)
{
    bool early;

    self->asleep = true;
    early = tutti_cond_wait_until(&self->stirred, &self->lock, self->until_ns);
    self->asleep = false;
    return early;
}

/*
 * For a loop that dozes: while no call is bound to it (`held` is 0) the queue has no events, so
 * the thread sleeps outside gRPC until a task is posted, a call is bound, a timer is due or the
 * loop is stopped. False: a call is bound or the queue is shut down, so the caller has to ask the
 * queue.
 */
static bool
may_idle(tutti_rpc_loop *self)
{
    bool idle;

    (void)pthread_mutex_lock(&self->lock);
    while (self->held == 0 && !self->closed && tutti_list_empty(&self->tasks) && sleep_once(self)) {
    }
    idle = self->held == 0 && !self->closed;
    (void)pthread_mutex_unlock(&self->lock);
    return idle;
}

static grpc_event
next_event(tutti_rpc_loop *self)
{
    if (self->dozes && may_idle(self)) {
        return (grpc_event){.type = GRPC_QUEUE_TIMEOUT};
    }
    /* Behind may_idle: a poster that saw this thread asleep has rung no mailbox. */
    return grpc_completion_queue_next(self->queue,
                                      atomic_load_explicit(&self->posted, memory_order_acquire) ||
                                              self->until_ns == 0
                                          ? gpr_time_0(GPR_CLOCK_MONOTONIC)
                                          : rpc_time_to(self->until_ns),
                                      NULL);
}

static void
run_turn(tutti_rpc_loop *self, const grpc_event *event)
{
    await_turn(self);
    if (event->type == GRPC_OP_COMPLETE) {
        tutti_rpc_tag *tag = event->tag;

        rpc_tag_acquire(tag);
        tag->on_done(tag, event->success != 0);
    }
    /* Timers before tasks: a task that a timer posts runs in the same turn. */
    run_timers(self);
    run_tasks(self);
    run_idle(self, event->type == GRPC_OP_COMPLETE);
    self->until_ns = sleep_until(self);
    give_turn(self);
}

static void
serve_loop(tutti_rpc_loop *self)
{
    grpc_event event;

    /* Timers and tasks may have been set before the loop started. */
    await_turn(self);
    self->until_ns = sleep_until(self);
    give_turn(self);
    do {
        event = next_event(self);
        run_turn(self, &event);
    } while (event.type != GRPC_QUEUE_SHUTDOWN);
    await_turn(self);
    while (atomic_load(&self->posted)) { /* posted by the last callbacks and tasks */
        run_tasks(self);
    }
    give_turn(self);
}

static void *
run_thread(void *arg)
{
    tutti_rpc_loop *self = arg;

    (void)pthread_setname_np(pthread_self(), self->name);
    serve_loop(self);
    return NULL;
}

tutti_code
tutti_rpc_loop_start(tutti_rpc_loop *loop, tutti_error *err)
{
    int failed;

    assert(!loop->started && !loop->stopped);
    loop->started = true; /* before the thread's own asserts read it */
    failed = tutti_thread_start(&loop->thread, run_thread, loop);
    if (failed != 0) {
        loop->started = false;
        (void)TUTTI_FAIL_ERRNO(err, failed, "could not start thread %s", loop->name);
        if (err != NULL) {
            err->code = TUTTI_RESOURCE_EXHAUSTED;
        }
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    return TUTTI_OK;
}

/*
 * `closed` is set under the lock before the queue is shut down, because a batch that is started
 * on a queue behind its shutdown aborts the process: tutti_rpc_loop_post looks at `closed` under
 * the same lock before it rings the mailbox.
 */
void
tutti_rpc_loop_stop(tutti_rpc_loop *loop)
{
    assert(!tutti_rpc_loop_is_current(loop) && !loop->stopped);
    (void)pthread_mutex_lock(&loop->lock);
    loop->closed = true;
    (void)pthread_cond_signal(&loop->stirred);
    (void)pthread_mutex_unlock(&loop->lock);
    grpc_completion_queue_shutdown(loop->queue);
    if (loop->started) {
        (void)pthread_join(loop->thread, NULL);
    } else {
        serve_loop(loop);
    }
    loop->stopped = true;
}

void
tutti_rpc_loop_free(tutti_rpc_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    if (!loop->stopped) {
        assert(!loop->started);
        tutti_rpc_loop_stop(loop);
    }
    grpc_call_unref(loop->mailbox);
    grpc_channel_destroy(loop->lame);
    grpc_completion_queue_destroy(loop->queue);
    (void)pthread_cond_destroy(&loop->turn_given);
    (void)pthread_mutex_destroy(&loop->turn_lock);
    (void)pthread_cond_destroy(&loop->stirred);
    (void)pthread_mutex_destroy(&loop->lock);
    free(loop);
}

/*
 * Wake the own thread, with the lock. It may be asleep outside gRPC (signal), or in gRPC or on its
 * way there (ring the mailbox).
 */
static void
wake_loop(tutti_rpc_loop *self)
{
    if (self->asleep) {
        (void)pthread_cond_signal(&self->stirred);
    } else if (!self->waking && !self->closed) {
        self->waking = true;
        /* Under the lock, so that the queue is not shut down in between; an empty batch calls
         * nothing of ours. */
        rpc_batch_start(self->mailbox, NULL, 0, &self->woken);
    }
}

/*
 * Who has the turn wakes nobody: it runs the tasks before it gives the turn back. All is decided
 * under the lock, so the own thread cannot go to sleep between the look and the wake-up.
 */
void
tutti_rpc_loop_post(tutti_rpc_loop *loop, tutti_rpc_task *task)
{
    const bool current = tutti_rpc_loop_is_current(loop);

    (void)pthread_mutex_lock(&loop->lock);
    tutti_list_add(&loop->tasks, &task->link);
    atomic_store_explicit(&loop->posted, true, memory_order_release);
    if (!current) {
        wake_loop(loop);
    }
    (void)pthread_mutex_unlock(&loop->lock);
}

void
tutti_rpc_loop_enter(tutti_rpc_loop *loop)
{
    assert(!tutti_rpc_loop_is_current(loop));
    await_turn(loop);
}

bool
tutti_rpc_loop_try_enter(tutti_rpc_loop *loop)
{
    bool is_free;

    assert(!tutti_rpc_loop_is_current(loop));
    (void)pthread_mutex_lock(&loop->turn_lock);
    is_free = loop->turn_asked == loop->turn_number;
    loop->turn_asked += is_free ? 1 : 0;
    (void)pthread_mutex_unlock(&loop->turn_lock);
    if (is_free) {
        serving = loop;
    }
    return is_free;
}

/*
 * The own thread sleeps until `until_ns`. If what has happened in this turn needs it earlier (a
 * timer, idle tasks), it is woken.
 */
void
tutti_rpc_loop_leave(tutti_rpc_loop *loop)
{
    bool early;

    while (atomic_load_explicit(&loop->posted, memory_order_acquire)) {
        run_tasks(loop);
    }
    early = sleep_until(loop) < loop->until_ns;
    if (early) {
        (void)pthread_mutex_lock(&loop->lock);
        wake_loop(loop);
        (void)pthread_mutex_unlock(&loop->lock);
    }
    give_turn(loop);
}

void
tutti_rpc_loop_post_idle(tutti_rpc_loop *loop, tutti_rpc_task *task)
{
    assert((!loop->started || tutti_rpc_loop_is_current(loop)) && !loop->dozes);
    if (tutti_list_empty(&loop->idle)) {
        loop->idle_ns = tutti_clock_ns();
        loop->looks = 0;
    }
    tutti_list_add(&loop->idle, &task->link);
}

void
tutti_rpc_loop_cancel_idle(tutti_rpc_loop *loop, tutti_rpc_task *task)
{
    assert(!loop->started || loop->stopped || tutti_rpc_loop_is_current(loop));
    (void)loop;
    tutti_list_remove(&task->link);
}

bool
tutti_rpc_loop_is_idle(const tutti_rpc_loop *loop)
{
    return loop->is_idle;
}

void
tutti_rpc_loop_timer_start(tutti_rpc_loop *loop, tutti_timer *timer, uint64_t at_ns)
{
    assert(!loop->started || tutti_rpc_loop_is_current(loop));
    tutti_timers_start(&loop->timers, timer, at_ns);
}

void
tutti_rpc_loop_timer_stop(tutti_rpc_loop *loop, tutti_timer *timer)
{
    assert(!loop->started || loop->stopped || tutti_rpc_loop_is_current(loop));
    tutti_timers_stop(&loop->timers, timer);
}

bool
tutti_rpc_loop_is_current(const tutti_rpc_loop *loop)
{
    return serving == loop;
}

void
tutti_rpc_loop_idle(tutti_rpc_loop *loop)
{
    assert(!loop->started);
    loop->dozes = true;
}

bool
rpc_loop_dozes(const tutti_rpc_loop *loop)
{
    return loop->dozes;
}

/*
 * The count rises before the first batch is started. So either the thread sees it in may_idle
 * before it sleeps, or it is asleep already and is signalled.
 */
void
rpc_loop_hold(tutti_rpc_loop *loop)
{
    if (!loop->dozes) {
        return;
    }
    (void)pthread_mutex_lock(&loop->lock);
    loop->held++;
    if (loop->asleep) {
        (void)pthread_cond_signal(&loop->stirred);
    }
    (void)pthread_mutex_unlock(&loop->lock);
}

/*
 * No signal: fewer bound calls give a sleeping thread nothing to do. The thread sees the count
 * when it next asks may_idle.
 */
void
rpc_loop_drop(tutti_rpc_loop *loop)
{
    if (!loop->dozes) {
        return;
    }
    (void)pthread_mutex_lock(&loop->lock);
    assert(loop->held > 0);
    loop->held--;
    (void)pthread_mutex_unlock(&loop->lock);
}

grpc_completion_queue *
rpc_loop_queue(const tutti_rpc_loop *loop)
{
    return loop->queue;
}
