/*
 * Goal: a bell wakes who polls it, each time, without being read; and whatever somebody else has done to it, ringing
 * it neither blocks nor fails to wake.
 * Method: eventfds in an edge-triggered epoll, made full and blocking; what is no eventfd; threads; a child of fork.
 * A ring that blocks is ended by an alarm.
 */
#include "support/testing.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/os/bell.h"
#include "support/hostile_bell.h"

#define RINGS 1000 /* more than events that a context holds */
#define THREADS 4
#define BLOCKED_S 60

typedef struct desk {
    int bell;
    int poller;
} desk;

static int
begin(void **state)
{
    desk *self = calloc(1, sizeof(*self));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};

    assert_non_null(self);
    assert_true(tutti_bell_can_ring());
    self->bell = tutti_bell_open();
    self->poller = epoll_create1(EPOLL_CLOEXEC);
    assert_true(self->bell >= 0 && self->poller >= 0);
    assert_int_equal(epoll_ctl(self->poller, EPOLL_CTL_ADD, self->bell, &event), 0);
    (void)alarm(BLOCKED_S);
    *state = self;
    return 0;
}

static int
end(void **state)
{
    desk *self = *state;

    (void)alarm(0);
    (void)close(self->bell);
    (void)close(self->poller);
    free(self);
    return 0;
}

static bool
is_woken(const desk *self)
{
    struct epoll_event event;

    return epoll_wait(self->poller, &event, 1, 0) == 1;
}

static void
check_each_ring_wakes(const desk *self)
{
    int i;

    for (i = 0; i < RINGS; i++) {
        tutti_bell_ring(self->bell);
        assert_true(is_woken(self));
        assert_false(is_woken(self));
    }
}

static uint64_t
count_of(int bell)
{
    uint64_t count = 0;

    assert_int_equal(read(bell, &count, sizeof(count)), sizeof(count));
    return count;
}

static void
test_bell__wakes_at_each_ring_though_nobody_reads_it(void **state)
{
    const desk *self = *state;

    check_each_ring_wakes(self);
    assert_int_equal(count_of(self->bell), RINGS);
}

static void
test_bell__that_is_full_and_blocks_wakes_all_the_same(void **state)
{
    const desk *self = *state;

    spoil_bell(self->bell);
    (void)is_woken(self);
    check_each_ring_wakes(self);
}

static void
test_bell__that_is_none_is_let_alone(void **state)
{
    static const char filling[65536];
    int pipes[2];

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(fcntl(pipes[1], F_SETFL, O_NONBLOCK), 0);
    while (write(pipes[1], filling, sizeof(filling)) > 0) {
    }
    assert_int_equal(fcntl(pipes[1], F_SETFL, 0), 0);
    tutti_bell_ring(pipes[1]);
    assert_int_equal(close(pipes[0]) + close(pipes[1]), 0);
    tutti_bell_ring(pipes[1]);
    tutti_bell_ring(-1);
}

static void *
ring_often(void *arg)
{
    const desk *self = arg;
    int i;

    for (i = 0; i < RINGS; i++) {
        tutti_bell_ring(self->bell);
    }
    return NULL;
}

static void
test_bell__counts_the_rings_of_all_threads(void **state)
{
    desk *self = *state;
    pthread_t threads[THREADS];
    int i;

    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ring_often, self), 0);
    }
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(count_of(self->bell), THREADS * RINGS);
}

static void
test_bell__is_rung_by_the_child_of_a_fork(void **state)
{
    const desk *self = *state;
    int status = -1;
    pid_t child;

    tutti_bell_ring(self->bell);
    child = fork();
    if (child == 0) {
        tutti_bell_ring(self->bell);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    tutti_bell_ring(self->bell);
    assert_int_equal(status, 0);
    assert_int_equal(count_of(self->bell), 3);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_bell__wakes_at_each_ring_though_nobody_reads_it),
        CASE(test_bell__that_is_full_and_blocks_wakes_all_the_same),
        CASE(test_bell__that_is_none_is_let_alone),
        CASE(test_bell__counts_the_rings_of_all_threads),
        CASE(test_bell__is_rung_by_the_child_of_a_fork),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
