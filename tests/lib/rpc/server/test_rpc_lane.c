/*
 * Goal: a stream whose messages go through a lane is to both sides like any other: order, sizes,
 * half-close, errors, cancel and the end; and a client that scribbles in the lane ends its own
 * stream alone.
 * Method: blocking streams with lanes against the echo server, in one process. Each test runs with
 * two loops, of which the second one dozes.
 */
#include "lane_guest.h"

#include <pthread.h>
#include <unistd.h>

static int
begin_busy(void **state, uint64_t busy_ns)
{
    rig *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    echo_server_init(&self->server, "127.0.0.1:0");
    self->server.has_lanes = true;
    self->server.busy_ns = busy_ns;
    rig_start(self, 2, NULL);
    *state = self;
    return 0;
}

static int
begin(void **state)
{
    return begin_busy(state, 0);
}

/* Its thread hardly ever sleeps while messages come. */
static int
begin_awake(void **state)
{
    return begin_busy(state, 10 * TUTTI_NS_PER_MS);
}

static tutti_rpc_stream *
open_stream(const rig *self, const tutti_rpc_stub *stub, const lane_guest *with)
{
    const tutti_rpc_call_options options = {.lane = &with->end};
    tutti_rpc_stream *stream = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_stream_open(self->channel, stub, &options, &stream, &err));
    return stream;
}

static void
say(tutti_rpc_stream *stream, const echo_fields *fields, size_t payload_bytes)
{
    static const char payload[1u << 20];
    const tutti_rpc_blob blob = {.data = payload, .size = payload_bytes};
    echo_storage storage;
    tutti_error err;

    assert_ok(tutti_rpc_stream_write(stream, echo_request(&storage, fields),
                                     payload_bytes > 0 ? &blob : NULL, &err));
}

/* UINT64_MAX at the end. */
static uint64_t
hear(tutti_rpc_stream *stream, char text[256])
{
    tutti_rpc_message *message = NULL;
    echo_fields fields;
    tutti_error err;

    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    if (message == NULL) {
        return UINT64_MAX;
    }
    fields = echo_response_fields(tutti_rpc_message_get(message));
    if (text != NULL) {
        (void)snprintf(text, 256, "%s", fields.text);
    }
    tutti_rpc_message_free(message);
    return fields.number;
}

/* ------------------------------------------------------------------ messages */

static void
test_chat__goes_through_the_lane_on_its_thread(void **state)
{
    rig *self = *state;
    lane_guest with;
    tutti_rpc_stream *stream;
    char text[256];
    tutti_error err;
    uint64_t i;

    lane_guest_open(self, "", 1, &with);
    stream = open_stream(self, &echo_chat, &with);
    for (i = 0; i < 3000; i++) {
        const echo_fields fields = {.text = "/thread", .number = i};

        say(stream, &fields, 0);
        assert_int_equal(hear(stream, text), i);
        assert_string_equal(text, "tutti-lanes");
    }
    assert_true(with.rings.out.own > 3000); /* bytes have gone through the memory */
    assert_ok(tutti_rpc_stream_writes_done(stream, &err));
    assert_int_equal(hear(stream, NULL), UINT64_MAX);
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    rig_await(self->server.end_count, 1);
    assert_int_equal(self->server.half_close_count, 1);
    assert_int_equal(self->server.cancel_count, 0);
    lane_guest_close(&with);
}

static void
test_large_messages__go_by_grpc_and_keep_their_place(void **state)
{
    rig *self = *state;
    lane_guest with;
    tutti_rpc_stream *stream;
    static char large[60000];
    tutti_error err;
    uint64_t i;

    memset(large, 'x', sizeof(large) - 1);
    lane_guest_open(self, "", 2, &with);
    stream = open_stream(self, &echo_chat, &with);
    for (i = 0; i < 200; i++) {
        const echo_fields fields = {.text = i % 3 == 0 ? large : "small", .number = i};

        say(stream, &fields, i % 5 == 0 ? 300000 : 0);
        if (i % 2 == 1) { /* two at a time */
            assert_int_equal(hear(stream, NULL), i - 1);
            assert_int_equal(hear(stream, NULL), i);
        }
    }
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    lane_guest_close(&with);
}

/* More than the ring holds, before anything is read: what finds no room waits. */
static void
test_answers__that_find_no_room_wait_for_it(void **state)
{
    rig *self = *state;
    lane_guest with;
    tutti_rpc_stream *stream;
    static char text[9000];
    tutti_error err;
    uint64_t heard;
    uint64_t i;

    memset(text, 'y', sizeof(text) - 1);
    lane_guest_open(self, "", 3, &with);
    stream = open_stream(self, &echo_chat, &with);
    for (i = 0; i < 20 * 12; i++) { /* both rings together hold 14 */
        const echo_fields fields = {.text = text, .number = i};

        say(stream, &fields, 0);
        for (heard = 0; i % 12 == 11 && heard < 12; heard++) {
            assert_int_equal(hear(stream, NULL), i - 11 + heard);
        }
    }
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    lane_guest_close(&with);
}

static void *
write_many(void *arg)
{
    uint64_t i;

    for (i = 0; i < 5000; i++) {
        const echo_fields fields = {.text = "a text that takes some room in the ring", .number = i};

        say(arg, &fields, i % 1000 == 999 ? 20000 : 0);
    }
    return NULL;
}

static void
test_one_thread__writes_while_another_one_reads(void **state)
{
    rig *self = *state;
    lane_guest with;
    tutti_rpc_stream *stream;
    pthread_t thread;
    tutti_error err;
    uint64_t i;

    lane_guest_open(self, "", 4, &with);
    stream = open_stream(self, &echo_chat, &with);
    assert_int_equal(pthread_create(&thread, NULL, write_many, stream), 0);
    for (i = 0; i < 5000; i++) {
        assert_int_equal(hear(stream, NULL), i);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    lane_guest_close(&with);
}

static void
test_nested_calls__go_through_the_lane(void **state)
{
    rig *self = *state;
    const echo_fields nest = {.text = "/nest"};
    lane_guest with;
    tutti_rpc_stream *stream;
    tutti_error err;
    uint64_t i;

    lane_guest_open(self, "", 5, &with);
    stream = open_stream(self, &echo_chat, &with);
    say(stream, &nest, 0);
    (void)hear(stream, NULL);
    for (i = 0; i < 100; i++) {
        const echo_fields fields = {.text = i % 2 == 0 ? "now" : "/later"};
        char text[256];

        say(stream, &fields, 0);
        (void)hear(stream, text);
        assert_string_equal(text, fields.text);
    }
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    lane_guest_close(&with);
}

/* ------------------------------------------------------------------ ends */

static void
test_error__of_the_server_comes_behind_what_it_wrote(void **state)
{
    rig *self = *state;
    const echo_fields good = {.number = 1};
    const echo_fields bad = {.fail = TUTTI_ABORTED};
    lane_guest with;
    tutti_rpc_stream *stream;
    tutti_error err;

    lane_guest_open(self, "", 6, &with);
    stream = open_stream(self, &echo_chat, &with);
    say(stream, &good, 0);
    say(stream, &bad, 0);
    assert_int_equal(hear(stream, NULL), 1);
    assert_int_equal(hear(stream, NULL), UINT64_MAX);
    assert_int_equal(tutti_rpc_stream_finish(stream, &err), TUTTI_ABORTED);
    lane_guest_close(&with);
}

static void *
cancel_stream(void *arg)
{
    tutti_rpc_stream_cancel(arg);
    return NULL;
}

static void
test_cancel__wakes_who_waits_and_is_heard(void **state)
{
    rig *self = *state;
    const echo_fields fields = {.number = 9};
    lane_guest with;
    tutti_rpc_stream *stream;
    pthread_t thread;
    tutti_error err;

    lane_guest_open(self, "", 7, &with);
    stream = open_stream(self, &echo_chat, &with);
    say(stream, &fields, 0);
    assert_int_equal(hear(stream, NULL), 9); /* the server has the stream */
    assert_false(tutti_rpc_stream_wait(stream, tutti_clock_ns() + TUTTI_NS_PER_MS));
    assert_int_equal(pthread_create(&thread, NULL, cancel_stream, stream), 0);
    assert_int_equal(hear(stream, NULL), UINT64_MAX);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(tutti_rpc_stream_finish(stream, &err), TUTTI_CANCELLED);
    rig_await(self->server.cancel_count, 1);
    rig_await(self->server.end_count, 1);
    lane_guest_close(&with);
}

static void
test_drain__ends_streams_with_lanes(void **state)
{
    rig *self = *state;
    const echo_fields fields = {.number = 8};
    lane_guest with;
    tutti_rpc_stream *stream;
    tutti_error err;

    lane_guest_open(self, "", 8, &with);
    stream = open_stream(self, &echo_chat, &with);
    say(stream, &fields, 0);
    assert_int_equal(hear(stream, NULL), 8); /* the server has the stream */
    echo_server_drain_begin(&self->server);
    assert_int_equal(hear(stream, NULL), UINT64_MAX);
    assert_int_equal(tutti_rpc_stream_finish(stream, &err), TUTTI_UNAVAILABLE);
    echo_server_drain_end(&self->server);
    lane_guest_close(&with);
}

static void
test_lanes__are_gone_with_their_streams(void **state)
{
    rig *self = *state;
    const size_t before = rig_descriptors();
    unsigned i;

    for (i = 0; i < 50; i++) {
        const echo_fields fields = {.number = i};
        lane_guest with;
        tutti_rpc_stream *stream;
        tutti_error err;

        lane_guest_open(self, "", (unsigned char)(10 + i), &with);
        stream = open_stream(self, &echo_chat, &with);
        say(stream, &fields, 0);
        assert_int_equal(hear(stream, NULL), i);
        assert_ok(tutti_rpc_stream_finish(stream, &err));
        lane_guest_close(&with);
    }
    rig_await(tutti_rpc_lanes_count(self->server.lanes), 0);
    rig_await(rig_descriptors() <= before + 2, 1); /* the connection has some */
}

/* ------------------------------------------------------------------ refused */

static void
test_stream__that_names_no_lane_of_its_own_is_refused(void **state)
{
    rig *self = *state;
    lane_guest others;
    lane_guest twice;
    tutti_rpc_stream *first;
    tutti_rpc_stream *stream;
    const echo_fields fields = {.number = 3};
    tutti_error err;

    lane_guest_open(self, "somebody", 1, &others);
    stream = open_stream(self, &echo_chat, &others); /* another caller's */
    assert_int_equal(tutti_rpc_stream_finish(stream, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_LANE");
    lane_guest_open(self, "", 2, &twice);
    first = open_stream(self, &echo_chat, &twice);
    say(first, &fields, 0);
    assert_int_equal(hear(first, NULL), 3);
    assert_ok(tutti_rpc_stream_finish(first, &err));
    stream = open_stream(self, &echo_chat, &twice); /* a name is good once */
    assert_int_equal(tutti_rpc_stream_finish(stream, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_LANE");
    lane_guest_close(&twice);
    lane_guest_close(&others);
}

static void
test_scribbled_ring__ends_its_stream_and_no_other(void **state)
{
    rig *self = *state;
    const echo_fields fields = {.number = 5};
    lane_guest bad;
    lane_guest good;
    tutti_rpc_stream *broken;
    tutti_rpc_stream *stream;
    tutti_error err;

    lane_guest_open(self, "", 1, &bad);
    lane_guest_open(self, "", 2, &good);
    broken = open_stream(self, &echo_chat, &bad);
    stream = open_stream(self, &echo_chat, &good);
    say(broken, &fields, 0);
    assert_int_equal(hear(broken, NULL), 5);
    atomic_store(bad.rings.out.tail, bad.rings.out.own + 0x7ffffff8u);
    bad.rings.out.own += 0x7ffffff8u;
    (void)!write(bad.rings.bell, &(uint64_t){1}, 8);
    assert_int_equal(hear(broken, NULL), UINT64_MAX);
    assert_int_equal(tutti_rpc_stream_finish(broken, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BROKEN_LANE");
    say(stream, &fields, 0);
    assert_int_equal(hear(stream, NULL), 5);
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    lane_guest_close(&bad);
    lane_guest_close(&good);
}

static void
test_bytes__that_are_no_message_are_refused_as_over_grpc(void **state)
{
    static const unsigned char garbage[] = {0xff, 0xff, 0xff, 0xff};
    const tutti_bytes part = {garbage, sizeof(garbage)};
    rig *self = *state;
    lane_guest with;
    tutti_rpc_stream *stream;
    tutti_error err;

    lane_guest_open(self, "", 1, &with);
    stream = open_stream(self, &echo_chat, &with);
    assert_true(tutti_lane_put(&with.rings, &part, 1, TUTTI_RPC_LANE_BYTES));
    assert_int_equal(hear(stream, NULL), UINT64_MAX);
    assert_int_equal(tutti_rpc_stream_finish(stream, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "MALFORMED_MESSAGE");
    lane_guest_close(&with);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, rig_end)
#define AWAKE(name)                                                                                \
    {                                                                                              \
#name " of a thread that polls", name, begin_awake, rig_end, NULL                          \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_chat__goes_through_the_lane_on_its_thread),
        CASE(test_large_messages__go_by_grpc_and_keep_their_place),
        CASE(test_answers__that_find_no_room_wait_for_it),
        AWAKE(test_answers__that_find_no_room_wait_for_it),
        CASE(test_one_thread__writes_while_another_one_reads),
        CASE(test_nested_calls__go_through_the_lane),
        CASE(test_error__of_the_server_comes_behind_what_it_wrote),
        CASE(test_cancel__wakes_who_waits_and_is_heard),
        CASE(test_drain__ends_streams_with_lanes),
        CASE(test_lanes__are_gone_with_their_streams),
        CASE(test_stream__that_names_no_lane_of_its_own_is_refused),
        CASE(test_scribbled_ring__ends_its_stream_and_no_other),
        CASE(test_bytes__that_are_no_message_are_refused_as_over_grpc),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
