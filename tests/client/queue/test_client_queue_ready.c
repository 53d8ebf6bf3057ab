/*
 * Goal: completions reach exactly one taker each, whoever polls, and nobody sleeps when there is
 * something or when it is over.
 * Method: a source without gRPC, whose polls sleep until an event is given or they are woken; many
 * threads; the thread sanitizer in its preset.
 */
#include "support/testing.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/os/clock.h"
#include "base/os/thread.h"
#include "client/queue/ready.h"

#define TAKERS 4
#define PUTTERS 3
#define EACH 2000
#define PAST_NS 1

typedef struct event {
    tutti_list_node link;
    atomic_int taken;
} event;

typedef struct rig {
    queue_ready ready;
    pthread_mutex_t lock; /* of what the source has */
    pthread_cond_t changed;
    tutti_list_node given; /* what the next poll puts */
    bool woken;
    atomic_int inside; /* polls at one time */
    atomic_int taken;
    event events[PUTTERS * EACH];
} rig;

static void
poll_fake(queue_ready *ready, uint64_t deadline_ns)
{
    rig *self = tutti_container_of(ready, rig, ready);
    tutti_list_node *link = NULL;
    bool in_time = true;

    assert_int_equal(atomic_fetch_add(&self->inside, 1), 0);
    (void)pthread_mutex_lock(&self->lock);
    while (in_time && !self->woken && (link = tutti_list_pop(&self->given)) == NULL) {
        in_time = tutti_cond_wait_until(&self->changed, &self->lock, deadline_ns);
    }
    self->woken = false;
    (void)pthread_mutex_unlock(&self->lock);
    if (link != NULL) {
        queue_ready_put(ready, link);
    }
    atomic_fetch_sub(&self->inside, 1);
}

static void
wake_fake(queue_ready *ready)
{
    rig *self = tutti_container_of(ready, rig, ready);

    (void)pthread_mutex_lock(&self->lock);
    self->woken = true;
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static const queue_source fake = {.poll = poll_fake, .wake = wake_fake};

static int
set_up(void **state)
{
    rig *self = calloc(1, sizeof(*self));
    int i;

    assert_non_null(self);
    queue_ready_init(&self->ready, &fake);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    tutti_list_init(&self->given);
    for (i = 0; i < PUTTERS * EACH; i++) {
        tutti_list_init(&self->events[i].link);
    }
    *state = self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;

    queue_ready_fini(&self->ready);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
    return 0;
}

/* The source's next event. */
static void
give(rig *self, event *what)
{
    (void)pthread_mutex_lock(&self->lock);
    tutti_list_add(&self->given, &what->link);
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
test_ready__is_polled_by_who_takes(void **state)
{
    rig *self = *state;

    give(self, &self->events[0]);
    give(self, &self->events[1]);
    assert_ptr_equal(queue_ready_take(&self->ready, QUEUE_NEVER), &self->events[0].link);
    assert_ptr_equal(queue_ready_take(&self->ready, PAST_NS), &self->events[1].link);
    assert_null(queue_ready_take(&self->ready, PAST_NS));
    give(self, &self->events[2]);
    assert_true(queue_ready_glance(&self->ready)); /* it is ready from then on */
    assert_ptr_equal(self->ready.done.next, &self->events[2].link);
    assert_ptr_equal(queue_ready_take(&self->ready, QUEUE_NEVER), &self->events[2].link);
}

static bool
is_readable(int fd)
{
    struct pollfd waits = {.fd = fd, .events = POLLIN};

    return poll(&waits, 1, 0) == 1;
}

static void
test_ready__shows_by_its_descriptor_that_a_take_would_not_wait(void **state)
{
    rig *self = *state;
    tutti_error err;
    int fd = -1;

    queue_ready_put(&self->ready, &self->events[0].link);
    assert_ok(queue_ready_fd(&self->ready, &fd, &err));
    assert_true(is_readable(fd));
    queue_ready_put(&self->ready, &self->events[1].link);
    assert_non_null(queue_ready_take(&self->ready, QUEUE_NEVER));
    assert_true(is_readable(fd));
    assert_non_null(queue_ready_take(&self->ready, QUEUE_NEVER));
    assert_false(is_readable(fd));
    queue_ready_end(&self->ready);
    assert_true(is_readable(fd));
    assert_null(queue_ready_take(&self->ready, QUEUE_NEVER));
    assert_true(is_readable(fd));
}

static void *
take_until_it_is_over(void *arg)
{
    rig *self = arg;
    tutti_list_node *link;

    while ((link = queue_ready_take(&self->ready, QUEUE_NEVER)) != NULL) {
        assert_int_equal(atomic_fetch_add(&tutti_container_of(link, event, link)->taken, 1), 0);
        atomic_fetch_add(&self->taken, 1);
    }
    return NULL;
}

typedef struct putter {
    rig *rig;
    int number;
} putter;

/* Half of them by the source, half beside it. */
static void *
put_many(void *arg)
{
    const putter *self = arg;
    int i;

    for (i = 0; i < EACH; i++) {
        event *what = &self->rig->events[self->number * EACH + i];

        if (i % 2 == 0) {
            give(self->rig, what);
        } else {
            queue_ready_put(&self->rig->ready, &what->link);
        }
    }
    return NULL;
}

static void
wait_for_all(rig *self)
{
    while (atomic_load(&self->taken) < PUTTERS * EACH) {
        (void)sched_yield();
    }
}

static void
put_by_threads(rig *self)
{
    pthread_t threads[PUTTERS];
    putter putters[PUTTERS];
    int i;

    for (i = 0; i < PUTTERS; i++) {
        putters[i] = (putter){self, i};
        assert_int_equal(pthread_create(&threads[i], NULL, put_many, &putters[i]), 0);
    }
    for (i = 0; i < PUTTERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static void
test_ready__gives_each_to_one_of_many_takers(void **state)
{
    rig *self = *state;
    pthread_t takers[TAKERS];
    int i;

    for (i = 0; i < TAKERS; i++) {
        assert_int_equal(pthread_create(&takers[i], NULL, take_until_it_is_over, self), 0);
    }
    put_by_threads(self);
    wait_for_all(self);
    queue_ready_end(&self->ready);
    for (i = 0; i < TAKERS; i++) {
        (void)pthread_join(takers[i], NULL);
    }
    assert_int_equal(atomic_load(&self->taken), PUTTERS * EACH);
}

static void
take_all_there_is(queue_ready *ready)
{
    rig *self = tutti_container_of(ready, rig, ready);

    while (queue_ready_take(ready, PAST_NS) != NULL) {
        atomic_fetch_add(&self->taken, 1);
    }
}

static void *
serve_all(void *arg)
{
    rig *self = arg;

    queue_ready_serve(&self->ready, take_all_there_is);
    return NULL;
}

static void
test_ready__is_served_by_a_thread(void **state)
{
    rig *self = *state;
    pthread_t server;

    assert_int_equal(pthread_create(&server, NULL, serve_all, self), 0);
    put_by_threads(self);
    wait_for_all(self);
    queue_ready_dry(&self->ready);
    queue_ready_put(&self->ready, &self->events[0].link); /* behind the source's end */
    queue_ready_end(&self->ready);
    (void)pthread_join(server, NULL);
    assert_int_equal(atomic_load(&self->taken), PUTTERS * EACH + 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ready__is_polled_by_who_takes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_ready__shows_by_its_descriptor_that_a_take_would_not_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ready__gives_each_to_one_of_many_takers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_ready__is_served_by_a_thread, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
