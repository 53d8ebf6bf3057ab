#include "base/os/thread.h"

#include <signal.h>
#include <time.h>

#include "base/os/clock.h"

/*
 * A new thread takes over the mask of the one that starts it. So all signals are blocked around
 * the start, and no signal of the process is ever handled by the new thread.
 */
int
tutti_thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(ret_thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Waits are by the clock that nobody can set. */
void
tutti_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;

    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

/*
 * Returns false when the time has passed. True does not mean that the condition holds: the caller
 * asks that, in a loop.
 */
bool
tutti_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(at_ns / TUTTI_NS_PER_S),
                                .tv_nsec = (long)(at_ns % TUTTI_NS_PER_S)};

    if (at_ns == TUTTI_THREAD_FOR_EVER) {
        (void)pthread_cond_wait(cond, lock);
        return true;
    }
    return pthread_cond_timedwait(cond, lock, &at) == 0;
}
