/*
 * Goal: who asks whether ranks can be reached is told of each, in time, whatever becomes of them.
 * Method: engines over a fake network, ranks that live, are dead, or are none.
 */
#include <pthread.h>

#include "base/os/clock.h"
#include "support/testing.h"
#include "support/world.h"

#define LONG_NS (20 * TUTTI_NS_PER_S)
#define SHORT_NS (100 * TUTTI_NS_PER_MS)

/* What a probe came to. */
typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
    size_t reach_count;
    tutti_coll_reach reaches[WORLD_MAX];
} answer;

static world all;
static answer announced;

static void
on_done(void *arg, const tutti_coll_reach *reaches, size_t count)
{
    answer *self = arg;

    (void)pthread_mutex_lock(&self->lock);
    self->count++;
    self->reach_count = count;
    memcpy(self->reaches, reaches, count * sizeof(*reaches));
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
start(const uint32_t *ranks, size_t count, uint64_t wait_ns)
{
    tutti_error err;

    announced = (answer){.count = 0};
    (void)pthread_mutex_init(&announced.lock, NULL);
    (void)pthread_cond_init(&announced.changed, NULL);
    assert_ok(tutti_coll_probe(all.engines[0], ranks, count, wait_ns, on_done, &announced, &err));
}

static void
wait_for_answer(void)
{
    (void)pthread_mutex_lock(&announced.lock);
    while (announced.count == 0) {
        (void)pthread_cond_wait(&announced.changed, &announced.lock);
    }
    (void)pthread_mutex_unlock(&announced.lock);
}

static void
test_probe__reaches_ranks_that_live(void **state)
{
    static const uint32_t ranks[] = {2, 1};

    (void)state;
    world_open(&all, world_transport_fake, 3);
    start(ranks, COUNT_OF(ranks), LONG_NS);
    wait_for_answer();
    assert_int_equal(announced.reach_count, 2);
    assert_int_equal(announced.reaches[0].rank, 2);
    assert_true(announced.reaches[0].reached && announced.reaches[1].reached);
    assert_true(announced.reaches[1].trip_ns > 0);
    world_close(&all);
    assert_int_equal(announced.count, 1);
}

static void
test_probe__of_a_dead_rank_ends_when_its_time_is_up(void **state)
{
    static const uint32_t ranks[] = {1, 2};
    uint64_t wait_ns = SHORT_NS;

    (void)state;
    world_open(&all, world_transport_fake, 3);
    world_kill(&all, 2);
    do { /* a busy machine may need more than a short time to reach rank 1 */
        start(ranks, COUNT_OF(ranks), wait_ns);
        wait_for_answer();
        wait_ns *= 2;
    } while (!announced.reaches[0].reached && wait_ns < LONG_NS);
    assert_true(announced.reaches[0].reached);
    assert_false(announced.reaches[1].reached);
    assert_true(announced.reaches[1].why[0] != '\0');
    world_close(&all);
}

static void
test_probe__of_a_lost_rank_says_why(void **state)
{
    static const uint32_t ranks[] = {1};

    (void)state;
    world_open(&all, world_transport_fake, 2);
    tutti_coll_lose_peer(all.engines[0], 1, 0, "left: pod deleted");
    start(ranks, 1, SHORT_NS);
    wait_for_answer();
    assert_false(announced.reaches[0].reached);
    assert_string_equal(announced.reaches[0].why, "it is gone: left: pod deleted");
    world_close(&all);
}

static void
test_probe__of_nobody_is_over_at_once(void **state)
{
    (void)state;
    world_open(&all, world_transport_fake, 2);
    start(NULL, 0, LONG_NS);
    wait_for_answer();
    assert_int_equal(announced.reach_count, 0);
    world_close(&all);
}

static void
test_probe__ends_with_the_engine(void **state)
{
    static const uint32_t ranks[] = {1};
    tutti_error err;

    (void)state;
    world_open(&all, world_transport_fake, 2);
    world_kill(&all, 1);
    start(ranks, 1, LONG_NS);
    tutti_coll_engine_refuse(all.engines[0]);
    wait_for_answer();
    assert_false(announced.reaches[0].reached);
    assert_fails(tutti_coll_probe(all.engines[0], ranks, 1, LONG_NS, on_done, &announced, &err),
                 TUTTI_UNAVAILABLE);
    world_close(&all);
    assert_int_equal(announced.count, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe__reaches_ranks_that_live),
        cmocka_unit_test(test_probe__of_a_dead_rank_ends_when_its_time_is_up),
        cmocka_unit_test(test_probe__of_a_lost_rank_says_why),
        cmocka_unit_test(test_probe__of_nobody_is_over_at_once),
        cmocka_unit_test(test_probe__ends_with_the_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
