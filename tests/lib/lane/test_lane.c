/*
 * Goal: messages come out of a lane as they went in, in their order, also where the ring wraps and
 * when it is full; a sleeper is woken; what the other side scribbles is found and harms nothing.
 * Method: both sides in one process, over the same memory, with threads where they wait.
 */
#include "support/testing.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "lane/lane.h"
#include "support/hostile_bell.h"

#define MANY 20000

typedef struct sides {
    tutti_lane server;
    tutti_lane client;
    void *data; /* the client's mapping */
    int fd;
} sides;

static int
begin(void **state)
{
    sides *self = calloc(1, sizeof(*self));
    tutti_error err;

    assert_non_null(self);
    assert_ok(tutti_lane_create(&self->server, 0, &self->fd, &err));
    self->data = mmap(NULL, tutti_lane_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, 0);
    assert_true(self->data != MAP_FAILED);
    assert_ok(tutti_lane_attach(&self->client, self->data, tutti_lane_bytes(),
                                dup(self->server.bell), &err));
    *state = self;
    return 0;
}

static int
end(void **state)
{
    sides *self = *state;

    tutti_lane_close(&self->client);
    tutti_lane_close(&self->server);
    assert_int_equal(munmap(self->data, tutti_lane_bytes()), 0);
    assert_int_equal(close(self->fd), 0);
    free(self);
    return 0;
}

/* `bytes` bytes that tell which message they are of. */
static void
fill(unsigned char *message, size_t bytes, uint64_t number)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        message[i] = (unsigned char)(number * 31 + i * 7);
    }
}

static size_t
size_of(uint64_t number)
{
    return (size_t)(number * 2654435761u % 700);
}

static bool
put(tutti_lane *lane, uint64_t number, size_t bytes)
{
    static _Thread_local unsigned char message[TUTTI_LANE_MESSAGE_MAX];
    const size_t first = bytes / 3;
    tutti_bytes parts[2];

    fill(message, bytes, number);
    parts[0] = (tutti_bytes){message, first};
    parts[1] = (tutti_bytes){message + first, bytes - first};
    return tutti_lane_put(lane, parts, 2, (uint32_t)number);
}

/* False: nothing is there. */
static bool
take(tutti_lane *lane, uint64_t number, size_t bytes)
{
    static _Thread_local unsigned char wanted[TUTTI_LANE_MESSAGE_MAX];
    static _Thread_local unsigned char message[TUTTI_LANE_MESSAGE_MAX];
    uint32_t kind = 0;
    size_t size = 0;

    if (tutti_lane_peek(lane, &size, &kind) != TUTTI_LANE_MESSAGE) {
        return false;
    }
    assert_int_equal(size, bytes);
    assert_int_equal(kind, (uint32_t)number);
    tutti_lane_take(lane, message);
    fill(wanted, bytes, number);
    assert_memory_equal(message, wanted, bytes);
    return true;
}

/* ------------------------------------------------------------------ messages */

static void
test_messages__keep_order_and_bytes_where_the_ring_wraps(void **state)
{
    sides *self = *state;
    uint64_t i;

    for (i = 0; i < 2000; i++) {
        assert_true(put(&self->client, i, size_of(i)));
        assert_true(take(&self->server, i, size_of(i)));
        assert_true(put(&self->server, i, size_of(i + 1)));
        assert_true(take(&self->client, i, size_of(i + 1)));
    }
    assert_false(take(&self->server, 0, 0));
}

static void
test_ring__that_is_full_takes_no_more_until_there_is_room(void **state)
{
    sides *self = *state;
    uint64_t count = 0;

    assert_false(tutti_lane_fits(&self->client, TUTTI_LANE_MESSAGE_MAX + 1));
    while (put(&self->client, count, TUTTI_LANE_MESSAGE_MAX)) {
        count++;
    }
    assert_int_equal(count, 3); /* of 64 KiB with heads */
    assert_true(tutti_lane_is_crowded(&self->client, TUTTI_LANE_MESSAGE_MAX));
    assert_true(tutti_lane_may_sleep(&self->client));
    assert_true(take(&self->server, 0, TUTTI_LANE_MESSAGE_MAX)); /* wakes who waits for room */
    tutti_lane_sleep(&self->client, tutti_clock_ns() + 60 * TUTTI_NS_PER_S); /* at once */
    assert_false(tutti_lane_is_crowded(&self->client, TUTTI_LANE_MESSAGE_MAX));
    assert_true(put(&self->client, count, TUTTI_LANE_MESSAGE_MAX));
}

/* ------------------------------------------------------------------ sleeping */

static bool
rings(const tutti_lane *lane)
{
    struct pollfd look = {.fd = lane->bell, .events = POLLIN};

    return poll(&look, 1, 0) == 1;
}

static void
test_bell__rings_for_a_server_that_sleeps_and_for_no_other(void **state)
{
    sides *self = *state;

    assert_true(put(&self->client, 1, 8));
    assert_false(rings(&self->server));
    assert_false(tutti_lane_may_sleep(&self->server)); /* a message is there */
    assert_true(take(&self->server, 1, 8));
    assert_true(tutti_lane_may_sleep(&self->server));
    assert_false(rings(&self->server));
    assert_true(put(&self->client, 2, 8));
    assert_true(rings(&self->server));
}

#define UP_SLEEPS (256 + 128) /* docs/lanes.md */
#define CLOSED 16
#define BLOCKED_S 60

/* A client that polls, as Go's does. */
static void
test_client_bell__rings_for_a_client_that_asks_for_it_and_for_no_other(void **state)
{
    sides *self = *state;
    _Atomic uint32_t *sleeps = (void *)((unsigned char *)self->data + UP_SLEEPS);
    struct pollfd look = {.events = POLLIN};
    eventfd_t rung = 0;
    tutti_error err;

    assert_ok(tutti_lane_add_client_bell(&self->server, &err));
    look.fd = self->server.client_bell;
    assert_true(put(&self->server, 1, 8)); /* nobody sleeps */
    atomic_store(sleeps, 1);
    assert_true(put(&self->server, 2, 8)); /* somebody does, in a futex */
    assert_int_equal(atomic_load(sleeps), 0);
    assert_int_equal(poll(&look, 1, 0), 0);
    atomic_store(sleeps, 2);
    assert_true(put(&self->server, 3, 8));
    assert_int_equal(atomic_load(sleeps), 0);
    assert_int_equal(poll(&look, 1, 0), 1);
    assert_int_equal(eventfd_read(look.fd, &rung), 0);
    assert_int_equal(rung, 1);
    atomic_store(sleeps, 2);
    tutti_lane_shut(&self->server);
    assert_int_equal(poll(&look, 1, 0), 1);
    assert_int_equal(((unsigned char *)self->data)[CLOSED], 1);
}

/* The flag is the client's to set, at any time: each write of the server then rings. */
static void
test_bells__that_the_other_side_has_spoilt_hold_up_neither(void **state)
{
    sides *self = *state;
    _Atomic uint32_t *sleeps = (void *)((unsigned char *)self->data + UP_SLEEPS);
    tutti_error err;

    assert_ok(tutti_lane_add_client_bell(&self->server, &err));
    spoil_bell(self->server.client_bell);
    spoil_bell(self->client.bell);
    (void)alarm(BLOCKED_S);
    atomic_store(sleeps, 2);
    assert_true(put(&self->server, 1, 8));
    assert_int_equal(atomic_load(sleeps), 0);
    assert_true(tutti_lane_may_sleep(&self->server));
    assert_true(put(&self->client, 1, 8));
    assert_false(tutti_lane_may_sleep(&self->server));
    tutti_lane_wake_self(&self->server);
    atomic_store(sleeps, 2);
    tutti_lane_shut(&self->server);
    (void)alarm(0);
}

static void
test_close__wakes_the_other_side_and_is_seen(void **state)
{
    sides *self = *state;

    assert_true(tutti_lane_may_sleep(&self->client));
    assert_true(put(&self->server, 1, 8));
    tutti_lane_shut(&self->server);
    assert_true(tutti_lane_is_closed(&self->client));
    assert_true(take(&self->client, 1, 8)); /* what was written before is there */
    assert_false(tutti_lane_may_sleep(&self->client));
}

static void *
answer_all(void *arg)
{
    sides *self = arg;
    uint64_t i;

    for (i = 0; i < MANY; i++) {
        while (!take(&self->server, i, size_of(i))) {
            struct pollfd look = {.fd = self->server.bell, .events = POLLIN};
            uint64_t times;

            if (tutti_lane_may_sleep(&self->server)) {
                assert_int_equal(poll(&look, 1, 60000), 1); /* a lost wake-up is a time-out */
                (void)!read(self->server.bell, &times, sizeof(times));
            }
        }
        assert_true(put(&self->server, i, size_of(i + 1)));
    }
    return NULL;
}

static void
test_two_threads__that_wait_for_each_other_lose_no_wake_up(void **state)
{
    sides *self = *state;
    pthread_t thread;
    uint64_t i;

    assert_int_equal(pthread_create(&thread, NULL, answer_all, self), 0);
    for (i = 0; i < MANY; i++) {
        assert_true(put(&self->client, i, size_of(i)));
        while (!take(&self->client, i, size_of(i + 1))) {
            const uint64_t until_ns = tutti_clock_ns() + 60 * TUTTI_NS_PER_S;

            if (tutti_lane_may_sleep(&self->client)) {
                tutti_lane_sleep(&self->client, until_ns);
                assert_true(tutti_clock_ns() < until_ns);
            }
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *
wake_later(void *arg)
{
    tutti_lane_wake_self(arg);
    return NULL;
}

static void
test_wake_self__ends_a_sleep(void **state)
{
    sides *self = *state;
    const uint64_t until_ns = tutti_clock_ns() + 60 * TUTTI_NS_PER_S;
    pthread_t thread;

    assert_true(tutti_lane_may_sleep(&self->client));
    assert_int_equal(pthread_create(&thread, NULL, wake_later, &self->client), 0);
    tutti_lane_sleep(&self->client, until_ns);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(tutti_clock_ns() < until_ns);
}

/* ------------------------------------------------------------------ a hostile side */

static void
test_positions__that_make_no_sense_are_found(void **state)
{
    static const uint32_t tails[] = {1, 4, 65537, 65544, 0x80000000u, 0xfffffff8u};
    sides *self = *state;
    uint32_t kind;
    size_t size;
    size_t i;

    for (i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        atomic_store(self->client.out.tail, tails[i]);
        assert_int_equal(tutti_lane_peek(&self->server, &size, &kind), TUTTI_LANE_BROKEN);
    }
    atomic_store(self->client.out.tail, 0);
    assert_int_equal(tutti_lane_peek(&self->server, &size, &kind), TUTTI_LANE_NOTHING);
}

static void
test_sizes__beyond_the_ring_and_the_limit_are_found(void **state)
{
    static const uint32_t sizes[] = {17, 64, TUTTI_LANE_MESSAGE_MAX + 1, 0xffffffffu};
    sides *self = *state;
    uint32_t kind;
    size_t size;
    size_t i;

    assert_true(put(&self->client, 1, 16));
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memcpy(self->client.out.bytes, &sizes[i], sizeof(sizes[i]));
        assert_int_equal(tutti_lane_peek(&self->server, &size, &kind), TUTTI_LANE_BROKEN);
    }
}

static void
test_head__that_makes_no_sense_leaves_no_room(void **state)
{
    sides *self = *state;

    atomic_store(self->client.in.head, 12345678);
    assert_false(put(&self->server, 1, 8));
    assert_true(tutti_lane_is_crowded(&self->server, 8));
}

static void
test_attach__wants_a_lane_of_this_version(void **state)
{
    sides *self = *state;
    tutti_lane lane;
    tutti_error err;

    assert_int_equal(tutti_lane_attach(&lane, self->data, 4096, dup(self->server.bell), &err),
                     TUTTI_DATA_LOSS);
    assert_int_equal(tutti_lane_attach(&lane, self->data, tutti_lane_bytes(), -1, &err),
                     TUTTI_DATA_LOSS);
    memset(self->data, 0, 8);
    assert_int_equal(
        tutti_lane_attach(&lane, self->data, tutti_lane_bytes(), dup(self->server.bell), &err),
        TUTTI_DATA_LOSS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_messages__keep_order_and_bytes_where_the_ring_wraps),
        CASE(test_ring__that_is_full_takes_no_more_until_there_is_room),
        CASE(test_bell__rings_for_a_server_that_sleeps_and_for_no_other),
        CASE(test_client_bell__rings_for_a_client_that_asks_for_it_and_for_no_other),
        CASE(test_bells__that_the_other_side_has_spoilt_hold_up_neither),
        CASE(test_close__wakes_the_other_side_and_is_seen),
        CASE(test_two_threads__that_wait_for_each_other_lose_no_wake_up),
        CASE(test_wake_self__ends_a_sleep),
        CASE(test_positions__that_make_no_sense_are_found),
        CASE(test_sizes__beyond_the_ring_and_the_limit_are_found),
        CASE(test_head__that_makes_no_sense_leaves_no_room),
        CASE(test_attach__wants_a_lane_of_this_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
