/*
 * Goal: conditions hand over in virtual time, as POSIX has them: nobody misses what is told while it waits, and a wait
 * with a time ends at that time.
 * Method: tasks of the kernel, with the program's calls wrapped as those of the product.
 */
#include "support/testing.h"

#include <pthread.h>

#include "base/os/clock.h"
#include "base/os/thread.h"
#include "kernel.h"

#define ITEMS 200

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int full; /* one place for an item */
    int taken;
    uint64_t waited_ns;
    bool in_time;
} our;

static void
open_our(void)
{
    memset(&our, 0, sizeof(our));
    (void)pthread_mutex_init(&our.lock, NULL);
    tutti_cond_init(&our.changed);
}

static void *
run_taker(void *arg)
{
    (void)arg;
    (void)pthread_mutex_lock(&our.lock);
    while (our.taken < ITEMS) {
        while (our.full == 0) {
            (void)pthread_cond_wait(&our.changed, &our.lock);
        }
        our.full = 0;
        our.taken++;
        (void)pthread_cond_broadcast(&our.changed);
    }
    (void)pthread_mutex_unlock(&our.lock);
    return NULL;
}

static void *
run_giver(void *arg)
{
    pthread_t taker;
    int i;

    (void)arg;
    (void)pthread_create(&taker, NULL, run_taker, NULL);
    (void)pthread_mutex_lock(&our.lock);
    for (i = 0; i < ITEMS; i++) {
        while (our.full == 1) {
            (void)pthread_cond_wait(&our.changed, &our.lock);
        }
        our.full = 1;
        (void)pthread_cond_signal(&our.changed);
    }
    (void)pthread_mutex_unlock(&our.lock);
    (void)pthread_join(taker, NULL);
    return NULL;
}

static void
test_conditions__hand_over_each_item(void **state)
{
    uint64_t seed;

    (void)state;
    for (seed = 1; seed <= 20; seed++) {
        sim_open(seed, false);
        open_our();
        sim_run(sim_task_new(0, run_giver, NULL));
        assert_int_equal(our.taken, ITEMS);
        sim_close();
    }
}

static void *
run_waiter(void *arg)
{
    const uint64_t begun_ns = sim_now_ns();

    (void)arg;
    (void)pthread_mutex_lock(&our.lock);
    while (tutti_cond_wait_until(&our.changed, &our.lock, begun_ns + TUTTI_NS_PER_S)) {
    }
    (void)pthread_mutex_unlock(&our.lock);
    our.waited_ns = sim_now_ns() - begun_ns;
    return NULL;
}

static void
test_conditions__end_a_wait_at_its_time(void **state)
{
    uint64_t seed;

    (void)state;
    for (seed = 1; seed <= 200; seed++) {
        sim_open(seed, false);
        open_our();
        sim_run(sim_task_new(0, run_waiter, NULL));
        assert_true(our.waited_ns >= TUTTI_NS_PER_S);
        assert_true(our.waited_ns < TUTTI_NS_PER_S + TUTTI_NS_PER_MS);
        sim_close();
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions__hand_over_each_item),
        cmocka_unit_test(test_conditions__end_a_wait_at_its_time),
    };

    return cmocka_run_group_tests_name("sim/threads", tests, NULL, NULL);
}
