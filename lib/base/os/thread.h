/*
 * Thread: what POSIX takes many words for. Any thread.
 */
#ifndef TUTTI_BASE_OS_THREAD_H
#define TUTTI_BASE_OS_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define TUTTI_THREAD_FOR_EVER UINT64_MAX

/*
 * A thread that takes no signals: they are for the program's own. Joined by the caller.
 *
 * Returns 0 or an errno.
 */
int tutti_thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg);

/* A condition whose waits count on tutti_clock_ns(). pthread_cond_destroy() it. */
void tutti_cond_init(pthread_cond_t *cond);

/*
 * Wait once, with the lock, until `at_ns`. It may wake for nothing.
 *
 * Returns false: the time is up.
 */
bool tutti_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t at_ns);

#endif
