/*
 * Goal: threads of ours take no signals, the starter's stay as they were, and waits end on the
 * clock of tutti_clock_ns(). Method: one thread that looks at its mask; waits that are due, that
 * are not, and that are woken.
 */
#include "support/testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/launch.h"
#include "base/os/thread.h"

typedef struct probe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ready;
    bool takes_signals;
} probe;

static void *
look_and_wake(void *arg)
{
    probe *self = arg;
    sigset_t mask;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    (void)pthread_mutex_lock(&self->lock);
    self->takes_signals = sigismember(&mask, SIGTERM) == 0 || sigismember(&mask, SIGUSR1) == 0;
    self->ready = true;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

static void
test_thread__takes_no_signals_and_wakes_who_waits(void **state)
{
    probe self = {.lock = PTHREAD_MUTEX_INITIALIZER, .takes_signals = true};
    sigset_t mask;
    pthread_t thread;

    (void)state;
    tutti_cond_init(&self.changed);
    assert_int_equal(tutti_thread_start(&thread, look_and_wake, &self), 0);
    (void)pthread_mutex_lock(&self.lock);
    while (!self.ready) {
        assert_true(tutti_cond_wait_until(&self.changed, &self.lock, TUTTI_THREAD_FOR_EVER));
    }
    (void)pthread_mutex_unlock(&self.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(self.takes_signals);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGTERM), 0); /* ours are as they were */
    (void)pthread_cond_destroy(&self.changed);
}

static void
test_cond__waits_until_its_time_and_not_longer(void **state)
{
    probe self = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const uint64_t until_ns = tutti_clock_ns() + 20 * TUTTI_NS_PER_MS;

    (void)state;
    tutti_cond_init(&self.changed);
    (void)pthread_mutex_lock(&self.lock);
    while (tutti_cond_wait_until(&self.changed, &self.lock, until_ns)) {
    }
    assert_true(tutti_clock_ns() >= until_ns);
    assert_false(tutti_cond_wait_until(&self.changed, &self.lock, until_ns)); /* is over at once */
    (void)pthread_mutex_unlock(&self.lock);
    (void)pthread_cond_destroy(&self.changed);
}

static void
test_launch_follow__needs_a_process(void **state)
{
    const pid_t child = fork();
    tutti_error err;

    (void)state;
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_fails(tutti_launch_follow(child, NULL, NULL, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_PROCESS");
    assert_text_has(err.text, "--parent-pid");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch_follow__needs_a_process),
        cmocka_unit_test(test_thread__takes_no_signals_and_wakes_who_waits),
        cmocka_unit_test(test_cond__waits_until_its_time_and_not_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
