#include "server/agent/function/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "base/os/thread.h"

#define THREADS_LIMIT 1024 /* those that wait included */

struct agent_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tutti_list_node jobs;
    uint32_t queued; /* jobs */
    uint32_t threads_max;
    uint32_t threads; /* all of them */
    uint32_t idle;    /* that wait for a job */
    uint32_t waiting; /* inside of a job: for an op */
    bool closed;
};

tutti_code
agent_pool_new(uint32_t threads_max, agent_pool **ret_pool, tutti_error *err)
{
    agent_pool *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no memory for threads of functions");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    tutti_list_init(&self->jobs);
    self->threads_max = threads_max;
    *ret_pool = self;
    return TUTTI_OK;
}

/* With the lock. */
static bool
may_run(const agent_pool *pool)
{
    return pool->threads - pool->idle - pool->waiting < pool->threads_max;
}

/* With the lock: threads that were started while others waited for ops, and are too many now. */
static bool
has_surplus(const agent_pool *pool)
{
    return pool->threads - pool->waiting > pool->threads_max;
}

/* With the lock: the next job; NULL: the thread ends. */
static agent_pool_job *
take_job(agent_pool *pool)
{
    bool surplus;

    pool->idle++;
    while (!pool->closed && !has_surplus(pool) &&
           (tutti_list_empty(&pool->jobs) || !may_run(pool))) {
        (void)pthread_cond_wait(&pool->changed, &pool->lock);
    }
    surplus = !pool->closed && has_surplus(pool);
    pool->idle--;
    if (surplus || tutti_list_empty(&pool->jobs)) {
        return NULL;
    }
    pool->queued--;
    return tutti_container_of(tutti_list_pop(&pool->jobs), agent_pool_job, link);
}

static void *
serve_pool(void *arg)
{
    agent_pool *pool = arg;
    agent_pool_job *job;

    (void)pthread_setname_np(pthread_self(), "tutti-function");
    (void)pthread_mutex_lock(&pool->lock);
    while ((job = take_job(pool)) != NULL) {
        (void)pthread_mutex_unlock(&pool->lock);
        job->on_run(job);
        (void)pthread_mutex_lock(&pool->lock);
        (void)pthread_cond_broadcast(&pool->changed); /* one more may run */
    }
    pool->threads--;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* With the lock: a thread for a job that no idle one takes. */
static void
start_thread(agent_pool *pool)
{
    pthread_t thread;
    int number;

    if (pool->queued <= pool->idle || pool->threads - pool->waiting >= pool->threads_max ||
        pool->threads >= THREADS_LIMIT) {
        return;
    }
    number = tutti_thread_start(&thread, serve_pool, pool);
    if (number != 0) {
        TUTTI_LOG("agent", ERROR,
                  "no thread for functions (errno %d): calls wait for the %u there are", number,
                  (unsigned)pool->threads);
        return;
    }
    (void)pthread_detach(thread);
    pool->threads++;
}

void
agent_pool_add(agent_pool *pool, agent_pool_job *job)
{
    (void)pthread_mutex_lock(&pool->lock);
    tutti_list_init(&job->link);
    tutti_list_add(&pool->jobs, &job->link);
    pool->queued++;
    start_thread(pool);
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

void
agent_pool_wait_begin(agent_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    pool->waiting++;
    start_thread(pool);
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

void
agent_pool_wait_end(agent_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    pool->waiting--;
    (void)pthread_mutex_unlock(&pool->lock);
}

bool
agent_pool_close(agent_pool *pool, uint64_t at_ns)
{
    bool over;

    (void)pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    (void)pthread_cond_broadcast(&pool->changed);
    while (pool->threads > 0 && tutti_cond_wait_until(&pool->changed, &pool->lock, at_ns)) {
    }
    over = pool->threads == 0;
    (void)pthread_mutex_unlock(&pool->lock);
    if (over) {
        (void)pthread_cond_destroy(&pool->changed);
        (void)pthread_mutex_destroy(&pool->lock);
        free(pool);
    }
    return over;
}
