/*
 * What the product calls of POSIX, answered by the kernel of the simulation: linked by --wrap, see CMakeLists.txt.
 * Descriptors are real ones (eventfd, epoll): whether they are readable is asked without waiting.
 *
 * A lock is a place where threads meet, so now and then the scheduler has its turn before one is taken.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <time.h>

#include "base/data/list.h"
#include "kernel.h"

#define YIELD_ONE_IN 12
#define PREEMPT_ONE_IN 400
#define PREEMPT_NS (3 * TUTTI_NS_PER_MS)

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_mutex_lock(pthread_mutex_t *);
int __real_epoll_wait(int, struct epoll_event *, int, int);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_join(pthread_t, void **);
int __wrap_pthread_setname_np(pthread_t, const char *);
int __wrap_pthread_mutex_lock(pthread_mutex_t *);
int __wrap_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __wrap_pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int __wrap_pthread_cond_signal(pthread_cond_t *);
int __wrap_pthread_cond_broadcast(pthread_cond_t *);
int __wrap_pthread_detach(pthread_t);
int __wrap_sem_wait(sem_t *);
int __wrap_sem_clockwait(sem_t *, clockid_t, const struct timespec *);
int __wrap_malloc_trim(size_t);
int __wrap_epoll_wait(int, struct epoll_event *, int, int);
int __wrap_epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
int __wrap_sched_yield(void);
int __wrap_nanosleep(const struct timespec *, struct timespec *);
int __wrap_clock_gettime(clockid_t, struct timespec *);
ssize_t __wrap_getrandom(void *, size_t, unsigned);

/* ------------------------------------------------------------------------------ threads */

int
__wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
                      void *arg)
{
    sim_task *task = sim_task_new(sim_process(), run, arg);

    (void)attributes;
    memcpy(ret_thread, &task, sizeof(task));
    return 0;
}

int
__wrap_pthread_join(pthread_t thread, void **ret_value)
{
    sim_task *task;

    (void)ret_value;
    memcpy(&task, &thread, sizeof(task));
    sim_task_join(task);
    return 0;
}

int
__wrap_pthread_detach(pthread_t thread)
{
    sim_task *task;

    memcpy(&task, &thread, sizeof(task));
    sim_task_detach(task);
    return 0;
}

int
__wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return 0;
}

static bool
takes_lock(void *arg)
{
    return pthread_mutex_trylock(arg) == 0;
}

int
__wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (!sim_in_task()) {
        return __real_pthread_mutex_lock(lock);
    }
    if (sim_chance(PREEMPT_ONE_IN)) {
        sim_sleep(sim_draw(PREEMPT_NS));
    } else if (sim_chance(YIELD_ONE_IN)) {
        sim_yield();
    }
    if (!takes_lock(lock)) {
        (void)sim_wait(takes_lock, lock, SIM_NEVER);
    }
    return 0;
}

/* ------------------------------------------------------------------------------ conditions */

#define SPURIOUS_ONE_IN 50
#define SPURIOUS_NS TUTTI_NS_PER_MS

/* A task that waits for a condition: on its stack, in the order in which they came. */
typedef struct cond_waiter {
    struct cond_waiter *next;
    const pthread_cond_t *cond;
    bool told;
} cond_waiter;

static cond_waiter *cond_waiters;

static bool
is_told(void *arg)
{
    return ((const cond_waiter *)arg)->told;
}

static void
leave_waiters(const cond_waiter *self)
{
    cond_waiter **at = &cond_waiters;

    while (*at != self) {
        at = &(*at)->next;
    }
    *at = self->next;
}

/* Now and then a wait ends though nobody has told it to, as POSIX allows. */
static int
wait_for_cond(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    const uint64_t early_ns = sim_chance(SPURIOUS_ONE_IN) ? sim_now_ns() + SPURIOUS_NS : SIM_NEVER;
    cond_waiter self = {.cond = cond};
    cond_waiter **at = &cond_waiters;

    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = &self;
    (void)pthread_mutex_unlock(lock);
    (void)sim_wait(is_told, &self, early_ns < until_ns ? early_ns : until_ns);
    leave_waiters(&self);
    if (!takes_lock(lock)) {
        (void)sim_wait(takes_lock, lock, SIM_NEVER);
    }
    return self.told || sim_now_ns() < until_ns ? 0 : ETIMEDOUT;
}

int
__wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    return wait_for_cond(cond, lock, SIM_NEVER);
}

/* Conditions of the product are by the monotonic clock (base/os/thread.h). */
int
__wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                              const struct timespec *time)
{
    return wait_for_cond(cond, lock,
                         (uint64_t)time->tv_sec * TUTTI_NS_PER_S + (uint64_t)time->tv_nsec);
}

static int
tell_waiters(const pthread_cond_t *cond, bool all)
{
    cond_waiter *at = cond_waiters;

    for (; at != NULL; at = at->next) {
        if (at->cond == cond && !at->told) {
            at->told = true;
            if (!all) {
                break;
            }
        }
    }
    return 0;
}

int
__wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    return tell_waiters(cond, false);
}

int
__wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    return tell_waiters(cond, true);
}

int
__wrap_sched_yield(void)
{
    sim_yield();
    return 0;
}

/* ------------------------------------------------------------------------------ posts */

static bool
takes_post(void *arg)
{
    return sem_trywait(arg) == 0;
}

int
__wrap_sem_wait(sem_t *post)
{
    if (!takes_post(post)) {
        (void)sim_wait(takes_post, post, SIM_NEVER);
    }
    return 0;
}

int
__wrap_sem_clockwait(sem_t *post, clockid_t clock, const struct timespec *at)
{
    const uint64_t until_ns = (uint64_t)at->tv_sec * TUTTI_NS_PER_S + (uint64_t)at->tv_nsec;

    (void)clock;
    if (takes_post(post) || sim_wait(takes_post, post, until_ns)) {
        return 0;
    }
    errno = ETIMEDOUT;
    return -1;
}

/* The system takes a while for it, and no schedule would miss what it gives back. */
int
__wrap_malloc_trim(size_t pad)
{
    (void)pad;
    return 0;
}

/* ------------------------------------------------------------------------------ waiting */

typedef struct poll {
    int poller;
    struct epoll_event *events;
    int max;
    int count;
} poll;

static bool
has_events(void *arg)
{
    poll *self = arg;

    self->count = __real_epoll_wait(self->poller, self->events, self->max, 0);
    return self->count > 0;
}

static int
wait_for(int poller, struct epoll_event *events, int max, uint64_t until_ns)
{
    poll self = {.poller = poller, .events = events, .max = max};

    if (!sim_in_task()) {
        return __real_epoll_wait(poller, events, max, 0);
    }
    return sim_wait(has_events, &self, until_ns) ? self.count : 0;
}

int
__wrap_epoll_wait(int poller, struct epoll_event *events, int max, int timeout_ms)
{
    return wait_for(poller, events, max,
                    timeout_ms < 0
                        ? SIM_NEVER
                        : sim_now_ns() + (uint64_t)(unsigned)timeout_ms * TUTTI_NS_PER_MS);
}

static uint64_t
end_of(const struct timespec *time)
{
    return sim_now_ns() + (uint64_t)time->tv_sec * TUTTI_NS_PER_S + (uint64_t)time->tv_nsec;
}

int
__wrap_epoll_pwait2(int poller, struct epoll_event *events, int max, const struct timespec *time,
                    const sigset_t *signals)
{
    (void)signals;
    return wait_for(poller, events, max, time == NULL ? SIM_NEVER : end_of(time));
}

int
__wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    (void)sim_wait(NULL, NULL, end_of(time));
    return 0;
}

/* ------------------------------------------------------------------------------ time and chance */

int
__wrap_clock_gettime(clockid_t id, struct timespec *ret_now)
{
    uint64_t now_ns = id == CLOCK_REALTIME ? 1700000000ULL * TUTTI_NS_PER_S : 0;

    (void)sim_look_at_clock();
    now_ns += sim_clock(sim_process());
    *ret_now = (struct timespec){.tv_sec = (time_t)(now_ns / TUTTI_NS_PER_S),
                                 .tv_nsec = (long)(now_ns % TUTTI_NS_PER_S)};
    return 0;
}

ssize_t
__wrap_getrandom(void *memory, size_t size, unsigned flags)
{
    unsigned char *bytes = memory;
    size_t i;

    (void)flags;
    for (i = 0; i < size; i++) {
        bytes[i] = (unsigned char)sim_draw(256);
    }
    return (ssize_t)size;
}
