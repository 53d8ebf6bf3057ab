/*
 * Goal: as many jobs run at once as may, those that wait are not counted, and a pool that has jobs
 * which do not return says so. Method: jobs that stop at a gate until the test opens it.
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/os/thread.h"
#include "server/agent/function/pool.h"
#include "support/testing.h"

#define JOBS 16
#define HANGS_NS (20 * TUTTI_NS_PER_S)

/* Jobs stop here. */
typedef struct stop_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned inside;
    unsigned ended;
    unsigned open; /* that many may leave */
    bool waits;    /* inside they only wait */
    agent_pool *pool;
} stop_gate;

typedef struct stop {
    agent_pool_job job;
    stop_gate *gate;
} stop;

static void
run_stop(agent_pool_job *job)
{
    stop_gate *gate = tutti_container_of(job, stop, job)->gate;
    const bool waits = gate->waits; /* the test may change it once this job has ended */

    if (waits) {
        agent_pool_wait_begin(gate->pool);
    }
    (void)pthread_mutex_lock(&gate->lock);
    gate->inside++;
    (void)pthread_cond_broadcast(&gate->changed);
    while (gate->open == 0) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->open--;
    gate->inside--;
    gate->ended++;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
    if (waits) {
        agent_pool_wait_end(gate->pool);
    }
}

static void
gate_open(stop_gate *self, uint32_t threads)
{
    tutti_error err;

    *self = (stop_gate){.inside = 0};
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    assert_ok(agent_pool_new(threads, &self->pool, &err));
}

static void
gate_add(stop_gate *self, stop *stops, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; i++) {
        stops[i] = (stop){.job.on_run = run_stop, .gate = self};
        agent_pool_add(self->pool, &stops[i].job);
    }
}

/* With so many inside, or ended. */
static void
gate_wait(stop_gate *self, const unsigned *what, unsigned count)
{
    const uint64_t until = tutti_clock_ns() + HANGS_NS;

    (void)pthread_mutex_lock(&self->lock);
    while (*what < count) {
        if (!tutti_cond_wait_until(&self->changed, &self->lock, until)) {
            fail_msg("%u, wanted %u", *what, count);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
}

static void
gate_let(stop_gate *self, unsigned count)
{
    (void)pthread_mutex_lock(&self->lock);
    self->open += count;
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static unsigned
gate_inside(stop_gate *self)
{
    unsigned inside;

    (void)pthread_mutex_lock(&self->lock);
    inside = self->inside;
    (void)pthread_mutex_unlock(&self->lock);
    return inside;
}

static void
gate_close(stop_gate *self)
{
    assert_true(agent_pool_close(self->pool, tutti_clock_ns() + HANGS_NS));
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
}

static void
test_pool__runs_as_many_as_may_and_then_the_others(void **state)
{
    stop stops[JOBS];
    stop_gate gate;
    unsigned left;

    (void)state;
    gate_open(&gate, 3);
    gate_add(&gate, stops, JOBS);
    gate_wait(&gate, &gate.inside, 3);
    for (left = JOBS; left > 0; left--) {
        assert_true(gate_inside(&gate) <= 3);
        gate_let(&gate, 1);
        gate_wait(&gate, &gate.ended, JOBS - left + 1);
    }
    gate_close(&gate);
}

static void
test_pool__does_not_count_those_that_wait(void **state)
{
    stop stops[JOBS];
    stop_gate gate;

    (void)state;
    gate_open(&gate, 1);
    gate.waits = true;
    gate_add(&gate, stops, JOBS);
    gate_wait(&gate, &gate.inside, JOBS);
    gate_let(&gate, JOBS);
    gate_wait(&gate, &gate.ended, JOBS);
    gate_close(&gate);
}

/* Is this thread of the process one of a pool? */
static bool
is_of_pool(const char *thread)
{
    char path[300];
    char name[32] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", thread);
    file = fopen(path, "r");
    if (file == NULL) { /* it has ended meanwhile */
        return false;
    }
    if (fgets(name, sizeof(name), file) == NULL) {
        name[0] = '\0';
    }
    (void)fclose(file);
    return strcmp(name, "tutti-function\n") == 0;
}

static unsigned
count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    unsigned count = 0;

    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        count += entry->d_name[0] != '.' && is_of_pool(entry->d_name) ? 1 : 0;
    }
    (void)closedir(tasks);
    return count;
}

/* Threads leave a pool before they have ended. */
static void
wait_for_threads(unsigned most)
{
    const uint64_t until = tutti_clock_ns() + HANGS_NS;

    while (count_threads() > most) {
        assert_true(tutti_clock_ns() < until);
        (void)sched_yield();
    }
}

static void
test_pool__keeps_no_more_threads_than_may_run(void **state)
{
    stop stops[JOBS];
    stop_gate gate;

    (void)state;
    wait_for_threads(0); /* those of other tests */
    gate_open(&gate, 2);
    gate.waits = true;
    gate_add(&gate, stops, JOBS);
    gate_wait(&gate, &gate.inside, JOBS);
    assert_true(count_threads() >= JOBS);
    gate_let(&gate, JOBS);
    gate_wait(&gate, &gate.ended, JOBS);
    wait_for_threads(2);
    gate.waits = false; /* those that stay still run jobs */
    gate_add(&gate, stops, 2);
    gate_wait(&gate, &gate.inside, 2);
    gate_let(&gate, 2);
    gate_close(&gate);
}

static void
test_pool__that_is_closed_says_whether_jobs_still_run(void **state)
{
    stop stops[2];
    stop_gate gate;

    (void)state;
    gate_open(&gate, 1);
    gate_add(&gate, stops, 2);
    gate_wait(&gate, &gate.inside, 1);
    assert_false(agent_pool_close(gate.pool, tutti_clock_ns()));
    gate_let(&gate, 2);
    gate_close(&gate); /* what was added before has run */
    assert_int_equal(gate.ended, 2);
}

static void
test_pool__without_jobs_has_no_threads(void **state)
{
    stop_gate gate;

    (void)state;
    gate_open(&gate, 1);
    assert_true(agent_pool_close(gate.pool, 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool__runs_as_many_as_may_and_then_the_others),
        cmocka_unit_test(test_pool__does_not_count_those_that_wait),
        cmocka_unit_test(test_pool__keeps_no_more_threads_than_may_run),
        cmocka_unit_test(test_pool__that_is_closed_says_whether_jobs_still_run),
        cmocka_unit_test(test_pool__without_jobs_has_no_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
