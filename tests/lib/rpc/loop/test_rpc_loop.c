/*
 * Goal: tasks run once per post, in order, on the loop's thread; timers run when they are due; a
 * loop ends with nothing lost, one that dozes too; gRPC is refused in a forked child and its log is
 * rate limited. Method: a loop and threads that post to it.
 */
#include "rig.h"
#include "rpc/util/process.h"

#include <grpc/support/log.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/log.h"
#include "rpc/loop/loop_private.h"

typedef struct probe {
    tutti_rpc_task task;
    tutti_timer timer;
    tutti_rpc_loop *loop;
    atomic_size_t count;
    size_t wanted;
    uint64_t at_ns;
    uint64_t late_ns;
    bool elsewhere;
} probe;

static const bool wakeful = false;
static const bool dozing = true;

/* state: of which kind */
static tutti_rpc_loop *
make_loop(void **state)
{
    const bool *dozes = *state;
    tutti_rpc_loop *loop = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_loop_new("test-loop", &loop, &err));
    if (*dozes) {
        tutti_rpc_loop_idle(loop);
    }
    return loop;
}

static void
end_loop(tutti_rpc_loop *loop)
{
    tutti_rpc_loop_stop(loop);
    tutti_rpc_loop_free(loop);
}

static void
count_task(tutti_rpc_task *task)
{
    probe *self = tutti_container_of(task, probe, task);

    self->elsewhere = self->elsewhere || !tutti_rpc_loop_is_current(self->loop);
    (void)atomic_fetch_add(&self->count, 1);
}

static void
count_and_post_again(tutti_rpc_task *task)
{
    probe *self = tutti_container_of(task, probe, task);

    count_task(task);
    if (self->count < self->wanted) {
        tutti_rpc_loop_post(self->loop, task);
    }
}

static void
test_loop__runs_tasks_on_its_thread(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    probe one = {.task = {.on_run = count_task}, .loop = loop};
    tutti_error err;

    assert_ok(tutti_rpc_loop_start(loop, &err));
    assert_false(tutti_rpc_loop_is_current(loop));
    tutti_rpc_loop_post(loop, &one.task);
    rig_await(one.count, 1);
    tutti_rpc_loop_post(loop, &one.task);
    rig_await(one.count, 2);
    assert_false(one.elsewhere);
    end_loop(loop);
}

static void
test_loop__lets_a_task_post_itself_and_timers_run_between(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    probe one = {.task = {.on_run = count_and_post_again}, .loop = loop, .wanted = 10000};
    tutti_error err;

    assert_ok(tutti_rpc_loop_start(loop, &err));
    tutti_rpc_loop_post(loop, &one.task);
    rig_await(one.count, 10000);
    end_loop(loop);
}

/* A chain of tasks, and an idle task that looks how far it has come. */
typedef struct chain {
    probe busy;
    tutti_rpc_task idle;
    size_t seen;
    bool was_idle;
    atomic_size_t idled;
} chain;

static void
see_chain(tutti_rpc_task *task)
{
    chain *self = tutti_container_of(task, chain, idle);

    self->seen = atomic_load(&self->busy.count);
    self->was_idle = tutti_rpc_loop_is_idle(self->busy.loop);
    (void)atomic_fetch_add(&self->idled, 1);
}

static void
run_chain(chain *self, tutti_rpc_loop *loop, size_t length)
{
    tutti_error err;

    self->busy = (probe){.task = {.on_run = count_and_post_again}, .loop = loop, .wanted = length};
    self->idle = (tutti_rpc_task){.on_run = see_chain};
    tutti_rpc_loop_post_idle(loop, &self->idle);
    tutti_rpc_loop_post(loop, &self->busy.task);
    assert_ok(tutti_rpc_loop_start(loop, &err));
    rig_await(self->idled, 1);
    rig_await(self->busy.count, length);
}

static void
test_idle_task__runs_behind_all_else(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    chain one = {0};

    run_chain(&one, loop, 100);
    end_loop(loop);
    assert_true(one.seen == 100 || !one.was_idle); /* or it took more than 5 ms */
}

static void
test_idle_task__of_a_busy_loop_runs_nevertheless(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    chain one = {0};

    run_chain(&one, loop, 1000 * 1000);
    end_loop(loop);
    assert_in_range(one.seen, 1, 1000 * 1000 - 1);
    assert_false(one.was_idle);
}

/* Tasks of one poster come in their order. */
typedef struct numbered {
    tutti_rpc_task task;
    size_t number;
    struct poster *from;
} numbered;

typedef struct poster {
    tutti_rpc_loop *loop;
    numbered tasks[2000];
    size_t next;
    atomic_bool disordered;
    atomic_size_t done;
} poster;

static void
check_order(tutti_rpc_task *task)
{
    numbered *self = tutti_container_of(task, numbered, task);

    if (self->number != self->from->next++) {
        atomic_store(&self->from->disordered, true);
    }
    (void)atomic_fetch_add(&self->from->done, 1);
}

static void *
post_all(void *arg)
{
    poster *self = arg;
    size_t i;

    for (i = 0; i < COUNT_OF(self->tasks); i++) {
        self->tasks[i] = (numbered){{.on_run = check_order}, i, self};
        tutti_rpc_loop_post(self->loop, &self->tasks[i].task);
    }
    return NULL;
}

static void
test_loop__keeps_the_order_of_posts_from_many_threads(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    poster *posters = calloc(4, sizeof(*posters));
    pthread_t threads[4];
    tutti_error err;
    size_t i;

    assert_non_null(posters);
    assert_ok(tutti_rpc_loop_start(loop, &err));
    for (i = 0; i < 4; i++) {
        posters[i].loop = loop;
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
    }
    for (i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        rig_await(posters[i].done, COUNT_OF(posters[i].tasks));
        assert_false(atomic_load(&posters[i].disordered));
    }
    end_loop(loop);
    free(posters);
}

static void
note_time(tutti_timer *timer)
{
    probe *self = tutti_container_of(timer, probe, timer);

    self->late_ns = tutti_clock_ns() - self->at_ns;
    (void)atomic_fetch_add(&self->count, 1);
}

static void
start_timer(tutti_rpc_task *task)
{
    probe *self = tutti_container_of(task, probe, task);

    self->at_ns = tutti_clock_ns() + 30 * TUTTI_NS_PER_MS;
    tutti_rpc_loop_timer_start(self->loop, &self->timer, self->at_ns);
}

static void
test_loop__runs_timers_when_they_are_due(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    probe early = {.timer = {.on_expiry = note_time}, .loop = loop};
    probe late = {.task = {.on_run = start_timer}, .timer = {.on_expiry = note_time}, .loop = loop};
    probe never = {.timer = {.on_expiry = note_time}, .loop = loop};
    tutti_error err;

    early.at_ns = tutti_clock_ns() + 10 * TUTTI_NS_PER_MS;
    tutti_rpc_loop_timer_start(loop, &early.timer, early.at_ns);
    tutti_rpc_loop_timer_start(loop, &never.timer, early.at_ns);
    tutti_rpc_loop_timer_stop(loop, &never.timer);
    assert_ok(tutti_rpc_loop_start(loop, &err));
    tutti_rpc_loop_post(loop, &late.task);
    rig_await(early.count, 1);
    rig_await(late.count, 1);
    assert_true(late.late_ns < 20 * TUTTI_NS_PER_S); /* and not before: unsigned */
    assert_int_equal(never.count, 0);
    end_loop(loop);
}

static void
test_loop__that_never_started_runs_what_was_posted_when_it_stops(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    probe one = {.task = {.on_run = count_and_post_again}, .loop = loop, .wanted = 5};

    tutti_rpc_loop_post(loop, &one.task);
    end_loop(loop);
    assert_int_equal(one.count, 5);
    assert_false(one.elsewhere);
    tutti_rpc_loop_free(make_loop(state));
    tutti_rpc_loop_free(NULL);
}

/* Counts when this thread blocks SIGTERM. */
static void
count_blocked(tutti_rpc_task *task)
{
    probe *self = tutti_container_of(task, probe, task);
    sigset_t mine;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &mine);
    (void)atomic_fetch_add(&self->count, sigismember(&mine, SIGTERM) ? 1 : 100);
}

static void
test_loop__has_a_thread_that_takes_no_signals(void **state)
{
    tutti_rpc_loop *loop = make_loop(state);
    probe one = {.task = {.on_run = count_blocked}, .loop = loop};
    tutti_error err;
    sigset_t mine;

    assert_ok(tutti_rpc_loop_start(loop, &err));
    tutti_rpc_loop_post(loop, &one.task);
    rig_await(one.count, 1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mine), 0);
    assert_false(sigismember(&mine, SIGTERM)); /* ours still does */
    end_loop(loop);
}

static void
test_time__is_the_clock_of_grpc(void **state)
{
    uint64_t before;
    uint64_t theirs;
    uint64_t real;
    uint64_t after;

    (void)state;
    do { /* until nothing has come between the readings */
        before = tutti_clock_ns();
        theirs = rpc_time_from(gpr_now(GPR_CLOCK_MONOTONIC));
        real = rpc_time_from(gpr_now(GPR_CLOCK_REALTIME));
        after = tutti_clock_ns();
    } while (after - before > TUTTI_NS_PER_MS);
    assert_in_range(theirs, before, after);
    assert_in_range(real, before - TUTTI_NS_PER_MS, after + TUTTI_NS_PER_MS);
    assert_true(rpc_time_from(rpc_time_to(123456789012ULL)) == 123456789012ULL);
    assert_true(rpc_time_from(gpr_inf_future(GPR_CLOCK_REALTIME)) == TUTTI_TIMERS_NEVER);
    assert_true(rpc_time_from(rpc_time_to(TUTTI_TIMERS_NEVER)) == TUTTI_TIMERS_NEVER);
    assert_true(rpc_time_from(gpr_inf_past(GPR_CLOCK_REALTIME)) == 0);
}

static int
run_in_child(void)
{
    tutti_rpc_loop *loop = NULL;
    tutti_rpc_channel *channel = NULL;
    tutti_error err;

    if (tutti_rpc_loop_new("child", &loop, &err) != TUTTI_FAILED_PRECONDITION ||
        strstr(err.text, "fork") == NULL) {
        return 1;
    }
    return tutti_rpc_channel_open("127.0.0.1:1", NULL, &channel, &err) == TUTTI_FAILED_PRECONDITION
               ? 0
               : 2;
}

static void
test_grpc__is_refused_in_a_forked_child(void **state)
{
    int status = 0;
    const pid_t child = fork();

    (void)state;
    if (child == 0) {
        _exit(run_in_child());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void
test_log__of_grpc_is_ours_and_limited(void **state)
{
    char text[65536];
    int pipes[2];
    ssize_t size;
    size_t lines = 0;
    size_t i;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    tutti_log_set_output(TUTTI_LOG_PEOPLE, pipes[1]);
    for (i = 0; i < 1000; i++) {
        gpr_log(GPR_ERROR, "a stranger sent garbage number %zu", i);
    }
    tutti_log_set_output(TUTTI_LOG_PEOPLE, STDERR_FILENO);
    (void)close(pipes[1]);
    size = read(pipes[0], text, sizeof(text) - 1);
    (void)close(pipes[0]);
    assert_true(size > 0);
    text[size] = '\0';
    for (i = 0; text[i] != '\0'; i++) {
        lines += text[i] == '\n' ? 1 : 0;
    }
    assert_in_range(lines, 1, 25);
    assert_text_has(text, "rpc/grpc: test_rpc_loop.c:");
    assert_text_has(text, "garbage number 0");
}

/* Of either kind of loop. */
#define LOOP_TESTS(test)                                                                           \
    cmocka_unit_test_prestate(test, (void *)(uintptr_t)&wakeful),                                  \
    {                                                                                              \
#test " (dozing)", test, NULL, NULL, (void *)(uintptr_t)&dozing                            \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TESTS(test_loop__runs_tasks_on_its_thread),
        LOOP_TESTS(test_loop__lets_a_task_post_itself_and_timers_run_between),
        LOOP_TESTS(test_loop__keeps_the_order_of_posts_from_many_threads),
        LOOP_TESTS(test_loop__runs_timers_when_they_are_due),
        LOOP_TESTS(test_loop__that_never_started_runs_what_was_posted_when_it_stops),
        LOOP_TESTS(test_loop__has_a_thread_that_takes_no_signals),
        cmocka_unit_test_prestate(test_idle_task__runs_behind_all_else,
                                  (void *)(uintptr_t)&wakeful),
        cmocka_unit_test_prestate(test_idle_task__of_a_busy_loop_runs_nevertheless,
                                  (void *)(uintptr_t)&wakeful),
        cmocka_unit_test(test_time__is_the_clock_of_grpc),
        cmocka_unit_test(test_grpc__is_refused_in_a_forked_child),
        cmocka_unit_test(test_log__of_grpc_is_ours_and_limited),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
