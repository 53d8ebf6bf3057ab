/*
 * Goal: a stream that is polled is the same to its user with a lane and without: order, sizes, what
 * finds no room, wake, half-close, errors, cancel, the end; writers and poller are different threads.
 * Method: each test runs twice against the echo server, in one process.
 */
#include "lane_guest.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

typedef struct duet {
    rig base;
    lane_guest with;
    bool has_lane;
    tutti_rpc_duplex *duplex;
    bool writing; /* WRITTEN is still to come */
} duet;

static const uint64_t long_ns = 20 * TUTTI_NS_PER_S;

static void
open_duplex(duet *self)
{
    const tutti_rpc_call_options options = {.lane = self->has_lane ? &self->with.end : NULL};
    tutti_error err;

    assert_ok(tutti_rpc_duplex_open(self->base.channel, &echo_chat, &options, &self->duplex, &err));
    self->writing = false;
}

static int
start_duet(void **state, bool has_lane)
{
    duet *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    echo_server_init(&self->base.server, "127.0.0.1:0");
    self->base.server.has_lanes = true;
    rig_start(&self->base, 2, NULL);
    self->has_lane = has_lane;
    if (has_lane) {
        lane_guest_open(&self->base, "", 1, &self->with);
    }
    open_duplex(self);
    *state = self;
    return 0;
}

static int
begin_plain(void **state)
{
    return start_duet(state, false);
}

static int
begin_lane(void **state)
{
    return start_duet(state, true);
}

static int
end_duet(void **state)
{
    duet *self = *state;
    tutti_error err;

    if (self->duplex != NULL) {
        (void)tutti_rpc_duplex_end(self->duplex, &err);
        tutti_rpc_duplex_free(self->duplex);
    }
    if (self->has_lane) {
        lane_guest_close(&self->with);
    }
    return rig_end(state);
}

static tutti_rpc_packed *
pack(const char *text, uint64_t number, size_t payload_bytes)
{
    static const char payload[1u << 20];
    const tutti_rpc_blob blob = {.data = payload, .size = payload_bytes};
    const echo_fields fields = {.text = text, .number = number};
    tutti_rpc_packed *packed = NULL;
    echo_storage storage;
    tutti_error err;

    assert_ok(tutti_rpc_pack(echo_request(&storage, &fields), payload_bytes > 0 ? &blob : NULL,
                             &packed, &err));
    return packed;
}

/* One event that is no NOTHING. [out] ret_number  of a MESSAGE */
static tutti_rpc_event
poll_one(duet *self, uint64_t *ret_number)
{
    tutti_rpc_message *message = NULL;
    tutti_rpc_event happened;
    tutti_error err;

    happened = tutti_rpc_duplex_poll(self->duplex, tutti_clock_ns() + long_ns, &message, &err);
    if (happened == TUTTI_RPC_MESSAGE) {
        *ret_number = echo_response_fields(tutti_rpc_message_get(message)).number;
        tutti_rpc_message_free(message);
    } else if (happened == TUTTI_RPC_WRITTEN) {
        self->writing = false;
    }
    return happened;
}

static void
say(duet *self, const char *text, uint64_t number, size_t payload_bytes)
{
    self->writing = !tutti_rpc_duplex_write(self->duplex, pack(text, number, payload_bytes), false);
}

/* The next message's number; WRITTEN may come before it, and a wake that was late. */
static uint64_t
hear(duet *self)
{
    uint64_t number = 0;
    tutti_rpc_event happened;
    unsigned woken = 0;

    do {
        happened = poll_one(self, &number);
    } while (happened == TUTTI_RPC_WRITTEN || (happened == TUTTI_RPC_NOTHING && woken++ < 2));
    assert_int_equal(happened, TUTTI_RPC_MESSAGE);
    return number;
}

static void
await_written(duet *self)
{
    uint64_t number;

    if (self->writing) {
        assert_int_equal(poll_one(self, &number), TUTTI_RPC_WRITTEN);
    }
}

static void
await_end(duet *self)
{
    uint64_t number = 0;
    tutti_rpc_event happened;

    do {
        happened = poll_one(self, &number);
    } while (happened == TUTTI_RPC_WRITTEN);
    assert_int_equal(happened, TUTTI_RPC_ENDED);
}

/* How it ended. */
static tutti_code
free_duplex(duet *self, tutti_error *err)
{
    const tutti_code code = tutti_rpc_duplex_end(self->duplex, err);

    tutti_rpc_duplex_free(self->duplex);
    self->duplex = NULL;
    return code;
}

static tutti_code
hear_end(duet *self, tutti_error *err)
{
    await_end(self);
    return free_duplex(self, err);
}

/* ------------------------------------------------------------------ messages */

static void
test_messages__come_back_in_their_order(void **state)
{
    duet *self = *state;
    tutti_error err;
    uint64_t i;

    for (i = 0; i < 2000; i++) {
        say(self, "hello", i, 0);
        assert_true(!self->has_lane || !self->writing);
        assert_int_equal(hear(self), i);
        await_written(self);
    }
    tutti_rpc_duplex_close(self->duplex);
    assert_int_equal(hear_end(self, &err), TUTTI_OK);
    assert_int_equal(self->base.server.half_close_count, 1);
    assert_int_equal(self->base.server.cancel_count, 0);
    assert_true(!self->has_lane || self->with.rings.out.own > 2000);
}

static void
test_large_messages__keep_their_place(void **state)
{
    duet *self = *state;
    static char large[60000];
    uint64_t i;

    memset(large, 'x', sizeof(large) - 1);
    for (i = 0; i < 200; i++) {
        say(self, i % 3 == 0 ? large : "small", i, i % 5 == 0 ? 300000 : 0);
        assert_int_equal(hear(self), i);
        await_written(self);
    }
}

/* The test's own queue: as many as there is room for, then answers. */
static void
test_more_than_the_ring_holds__waits_for_room(void **state)
{
    duet *self = *state;
    static char text[9000];
    uint64_t said = 0;
    uint64_t heard = 0;

    memset(text, 'y', sizeof(text) - 1);
    while (heard < 300) {
        uint64_t number = 0;

        if (!self->writing && said < 300) {
            say(self, text, said++, 0);
            continue;
        }
        if (poll_one(self, &number) == TUTTI_RPC_MESSAGE) {
            assert_int_equal(number, heard++);
        }
    }
}

/* ------------------------------------------------------------------ threads */

#define WRITES 3000

typedef struct writer {
    duet *self;
    sem_t room;
} writer;

static void *
write_all(void *arg)
{
    writer *own = arg;
    uint64_t i;

    for (i = 0; i < WRITES; i++) {
        tutti_rpc_packed *packed =
            pack("a text that takes some room in the ring", i, i % 500 == 499 ? 20000 : 0);

        /* Of the last one nobody may poll WRITTEN: its answer can come before that. */
        if (!tutti_rpc_duplex_write(own->self->duplex, packed, false) && i + 1 < WRITES) {
            while (sem_wait(&own->room) != 0) {
            }
        }
    }
    return NULL;
}

static void
test_one_thread__writes_while_another_one_polls(void **state)
{
    duet *self = *state;
    writer own = {.self = self};
    pthread_t thread;
    uint64_t heard = 0;

    assert_int_equal(sem_init(&own.room, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, write_all, &own), 0);
    while (heard < WRITES) {
        uint64_t number = 0;
        const tutti_rpc_event happened = poll_one(self, &number);

        if (happened == TUTTI_RPC_WRITTEN) {
            assert_int_equal(sem_post(&own.room), 0);
        } else {
            assert_int_equal(happened, TUTTI_RPC_MESSAGE);
            assert_int_equal(number, heard++);
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)sem_destroy(&own.room);
}

static void *
wake_many(void *arg)
{
    duet *self = arg;
    unsigned i;

    for (i = 0; i < 200; i++) {
        tutti_rpc_duplex_wake(self->duplex);
        rig_pause();
    }
    return NULL;
}

/* Each wake is seen at the latest by the poll that comes next; the last one by a poll without end. */
static void
test_wake__brings_who_polls_back(void **state)
{
    duet *self = *state;
    tutti_rpc_message *message = NULL;
    pthread_t thread;
    tutti_error err;
    unsigned i;

    tutti_rpc_duplex_wake(self->duplex); /* before the poll */
    assert_int_equal(tutti_rpc_duplex_poll(self->duplex, 0, &message, &err), TUTTI_RPC_NOTHING);
    say(self, "hello", 7, 0);
    assert_int_equal(hear(self), 7);
    await_written(self);
    for (i = 0; i < 5; i++) { /* asleep in it, by the lane or by gRPC */
        assert_int_equal(pthread_create(&thread, NULL, wake_many, self), 0);
        assert_int_equal(tutti_rpc_duplex_poll(self->duplex, 0, &message, &err), TUTTI_RPC_NOTHING);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)tutti_rpc_duplex_poll(self->duplex, 1, &message, &err);
    }
    say(self, "hello", 8, 0);
    assert_int_equal(hear(self), 8);
}

/* ------------------------------------------------------------------ ends */

static void
test_error__comes_behind_what_was_written(void **state)
{
    duet *self = *state;
    const echo_fields bad = {.fail = TUTTI_ABORTED};
    tutti_rpc_packed *packed = NULL;
    echo_storage storage;
    tutti_error err;

    say(self, "good", 1, 0);
    assert_int_equal(hear(self), 1);
    await_written(self);
    assert_ok(tutti_rpc_pack(echo_request(&storage, &bad), NULL, &packed, &err));
    self->writing = !tutti_rpc_duplex_write(self->duplex, packed, false);
    assert_int_equal(hear_end(self, &err), TUTTI_ABORTED);
}

static void *
cancel_duplex(void *arg)
{
    duet *self = arg;

    tutti_rpc_duplex_cancel(self->duplex);
    return NULL;
}

static void
test_cancel__ends_a_poll_that_waits(void **state)
{
    duet *self = *state;
    pthread_t thread;
    tutti_error err;

    say(self, "hello", 9, 0);
    assert_int_equal(hear(self), 9); /* the server has the stream */
    await_written(self);
    assert_int_equal(pthread_create(&thread, NULL, cancel_duplex, self), 0);
    await_end(self);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(free_duplex(self, &err), TUTTI_CANCELLED);
    rig_await(self->base.server.cancel_count, 1);
    rig_await(self->base.server.end_count, 1);
}

static void
test_drain__ends_it(void **state)
{
    duet *self = *state;
    tutti_error err;

    say(self, "hello", 4, 0);
    assert_int_equal(hear(self), 4);
    await_written(self);
    echo_server_drain_begin(&self->base.server);
    assert_int_equal(hear_end(self, &err), TUTTI_UNAVAILABLE);
    echo_server_drain_end(&self->base.server);
}

static void
test_stream__that_was_left_frees_all(void **state)
{
    duet *self = *state;
    tutti_error err;

    say(self, "hello", 1, 500000); /* on its way, or not */
    assert_int_equal(free_duplex(self, &err), TUTTI_CANCELLED);
}

/* ------------------------------------------------------------------ lanes alone */

static void
test_lane_of_nobody__is_refused_at_once(void **state)
{
    duet *self = *state;
    tutti_error err;

    memset(self->with.name, 'f', TUTTI_RPC_LANE_NAME_SIZE - 1);
    (void)free_duplex(self, &err);
    open_duplex(self);
    assert_int_equal(hear_end(self, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_LANE");
}

/* The server's side is in this process, so the test can scribble in what it writes. */
static void
test_scribbled_ring__ends_it(void **state)
{
    duet *self = *state;
    tutti_rpc_message *message = NULL;
    tutti_error err;

    say(self, "hello", 5, 0);
    assert_int_equal(hear(self), 5);
    atomic_store(self->with.rings.in.tail, self->with.rings.in.own + 0x7ffffff8u);
    assert_int_equal(tutti_rpc_duplex_poll(self->duplex, 0, &message, &err), TUTTI_RPC_ENDED);
    assert_int_equal(err.code, TUTTI_DATA_LOSS);
    assert_int_equal(free_duplex(self, &err), TUTTI_CANCELLED);
}

/* A thread that polls for ever wakes a few times each second: this is the processor's time of it. */
static void *
poll_for_ever(void *arg)
{
    duet *self = arg;
    tutti_rpc_message *message = NULL;
    struct timespec spent;
    tutti_error err;

    (void)tutti_rpc_duplex_poll(self->duplex, 0, &message, &err);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    assert_true(spent.tv_sec == 0);
    return (void *)(uintptr_t)(spent.tv_nsec / 1000);
}

static void
test_poll_that_waits__costs_next_to_nothing(void **state)
{
    duet *self = *state;
    void *spent_us = NULL;
    pthread_t thread;

    say(self, "hello", 5, 0);
    assert_int_equal(hear(self), 5);
    assert_int_equal(pthread_create(&thread, NULL, poll_for_ever, self), 0);
    (void)usleep(1000000); /* what is measured is that second */
    tutti_rpc_duplex_wake(self->duplex);
    assert_int_equal(pthread_join(thread, &spent_us), 0);
    assert_true((uintptr_t)spent_us < 50000);
}

#define BOTH(name)                                                                                 \
    {#name " by gRPC", name, begin_plain, end_duet, NULL},                                         \
    {                                                                                              \
#name " by a lane", name, begin_lane, end_duet, NULL                                       \
    }
#define LANE(name) cmocka_unit_test_setup_teardown(name, begin_lane, end_duet)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_messages__come_back_in_their_order),
        BOTH(test_large_messages__keep_their_place),
        BOTH(test_more_than_the_ring_holds__waits_for_room),
        BOTH(test_one_thread__writes_while_another_one_polls),
        BOTH(test_wake__brings_who_polls_back),
        BOTH(test_error__comes_behind_what_was_written),
        BOTH(test_cancel__ends_a_poll_that_waits),
        BOTH(test_drain__ends_it),
        BOTH(test_stream__that_was_left_frees_all),
        LANE(test_lane_of_nobody__is_refused_at_once),
        LANE(test_scribbled_ring__ends_it),
        LANE(test_poll_that_waits__costs_next_to_nothing),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
