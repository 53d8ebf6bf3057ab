/*
 * Goal: streams of all kinds bring their messages in order, end as they should on both sides, and
 * keep little in memory when one side is slow.
 * Method: blocking streams against the echo server.
 */
#include "rig.h"
#include "rpc/util/process.h"

#include <assert.h>

#include "rpc/loop/loop_private.h"

#define MIB (1u << 20)

static tutti_rpc_stream *
open_stream(const rig *self, const tutti_rpc_stub *stub)
{
    tutti_rpc_stream *stream = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_stream_open(self->channel, stub, NULL, &stream, &err));
    return stream;
}

static tutti_code
send(tutti_rpc_stream *stream, const echo_fields *fields, const tutti_rpc_blob *payload)
{
    echo_storage storage;

    return tutti_rpc_stream_write(stream, echo_request(&storage, fields), payload, NULL);
}

/* The next message's fields; false at the end. */
static bool
receive(tutti_rpc_stream *stream, uint64_t *ret_number, size_t *ret_payload_bytes)
{
    tutti_rpc_message *message = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    if (message == NULL) {
        return false;
    }
    *ret_number = echo_response_fields(tutti_rpc_message_get(message)).number;
    if (ret_payload_bytes != NULL) {
        *ret_payload_bytes = tutti_rpc_message_payload_bytes(message);
    }
    tutti_rpc_message_free(message);
    return true;
}

static void
test_upload__counts_what_was_sent(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_upload);
    static const char data[1000] = {1};
    const tutti_rpc_blob blob = {.data = data, .size = sizeof(data)};
    const echo_fields fields = {.text = "hi"};
    tutti_rpc_message *answer = NULL;
    tutti_error err;
    int i;

    for (i = 0; i < 100; i++) {
        assert_int_equal(send(stream, &fields, &blob), TUTTI_OK);
    }
    assert_ok(tutti_rpc_stream_writes_done(stream, &err));
    assert_ok(tutti_rpc_stream_read(stream, &answer, &err));
    assert_int_equal(echo_response_fields(tutti_rpc_message_get(answer)).count, 100);
    assert_int_equal(echo_response_fields(tutti_rpc_message_get(answer)).number, 100000);
    assert_int_equal(echo_response_fields(tutti_rpc_message_get(answer)).sum, 100);
    tutti_rpc_message_free(answer);
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    rig_await(self->server.end_count, 1);
    assert_int_equal(self->server.half_close_count, 1);
    assert_int_equal(self->server.cancel_count, 0);
}

static void
test_upload__that_is_refused_midway_says_why(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_upload);
    echo_fields fields = {.text = "hi"};
    tutti_code code = TUTTI_OK;
    tutti_error err;

    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    fields.fail = TUTTI_OUT_OF_RANGE;
    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    fields.fail = 0;
    while (code == TUTTI_OK) { /* until the news is here */
        code = send(stream, &fields, NULL);
    }
    assert_int_equal(code, TUTTI_ABORTED);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_OUT_OF_RANGE);
    assert_string_equal(err.reason, "SHAPE_MISMATCH");
    rig_await(self->server.end_count, 1);
}

static void
test_upload__of_a_client_that_vanishes_is_cancelled(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_upload);
    const echo_fields fields = {.text = "hi"};
    tutti_error err;

    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    rig_await(self->server.message_count, 1);
    tutti_rpc_stream_cancel(stream);
    rig_await(self->server.cancel_count, 1);
    rig_await(self->server.end_count, 1);
    assert_int_equal(self->server.half_close_count, 0);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_CANCELLED);
    rig_await(tutti_rpc_server_call_count(self->server.server), 0);
}

static void
test_upload__with_a_malformed_message_is_refused(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_upload);
    const echo_fields bad = {.text = "\xff"};
    tutti_error err;

    assert_int_equal(send(stream, &bad, NULL), TUTTI_OK);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "UTF-8");
    rig_await(self->server.end_count, 1);
    assert_int_equal(self->server.message_count, 0); /* the handler never saw it ... */
    assert_int_equal(self->server.cancel_count, 1);  /* ... but was told */
}

static void
test_download__brings_all_messages_in_order(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_download);
    const echo_fields fields = {.count = 500, .number = 1000};
    uint64_t number = 0;
    size_t bytes = 0;
    uint64_t i;
    tutti_error err;

    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    assert_ok(tutti_rpc_stream_writes_done(stream, &err));
    for (i = 0; i < 500; i++) {
        assert_true(receive(stream, &number, &bytes));
        assert_int_equal(number, i);
        assert_int_equal(bytes, 1000);
    }
    assert_false(receive(stream, &number, &bytes));
    assert_false(receive(stream, &number, &bytes)); /* the end stays the end */
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    rig_await(self->server.end_count, 1);
    rig_await(self->server.released, 500);
    assert_int_equal(self->server.made, 500);
    assert_int_equal(self->server.cancel_count, 0);
}

/* The first one takes the header with it, whose end gRPC tells only when it has left. */
static void
test_download__of_writes_that_wait_for_each_other(void **state)
{
    rig *self = *state;
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + 20 * TUTTI_NS_PER_S};
    const echo_fields fields = {.text = "/together", .count = 3, .number = 10};
    tutti_rpc_stream *stream = NULL;
    uint64_t number = 0;
    uint64_t i;
    tutti_error err;

    assert_ok(tutti_rpc_stream_open(self->channel, &echo_download, &options, &stream, &err));
    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    for (i = 0; i < 3; i++) {
        assert_true(receive(stream, &number, NULL));
        assert_int_equal(number, i);
    }
    assert_false(receive(stream, &number, NULL));
    assert_ok(tutti_rpc_stream_finish(stream, &err));
}

static void
test_download__that_fails_brings_messages_then_the_error(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_download);
    const echo_fields fields = {.count = 2, .number = 10, .fail = TUTTI_DATA_LOSS};
    uint64_t number = 0;
    tutti_error err;

    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    assert_true(receive(stream, &number, NULL));
    assert_true(receive(stream, &number, NULL));
    assert_false(receive(stream, &number, NULL));
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_DATA_LOSS);
    assert_int_equal(err.rank, 3);
}

static void
test_download__that_is_left_early_is_cancelled(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_download);
    const echo_fields fields = {.count = 1000000, .number = 100000};
    uint64_t number = 0;
    tutti_error err;

    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    assert_true(receive(stream, &number, NULL));
    tutti_rpc_stream_cancel(stream);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_CANCELLED);
    rig_await(self->server.end_count, 1);
    rig_await(self->server.released, self->server.made);
}

static void
test_download__of_a_slow_reader_keeps_little_in_memory(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_download);
    const echo_fields fields = {.count = 400, .number = MIB};
    uint64_t number = 0;
    size_t before;
    size_t seen = 0;
    size_t i;
    tutti_error err;

    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    assert_true(receive(stream, &number, NULL));
    before = rig_memory();
    for (i = 0; i < 300; i++) { /* the writer has time to run ahead, as far as it may */
        rig_pause();
        seen = self->server.made > seen ? self->server.made : seen;
    }
    assert_in_range(seen, 1, 40); /* of 400 MiB */
    if (!RIG_SANITIZED) {
        assert_in_range(rig_memory(), 0, before + 64 * MIB);
    }
    tutti_rpc_stream_cancel(stream);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_CANCELLED);
    rig_await(self->server.end_count, 1);
    rig_await(self->server.released, self->server.made);
}

/* The writer of an upload whose reader does not read. */
typedef struct writer {
    tutti_rpc_stream *stream;
    atomic_size_t written;
    atomic_size_t made;
    atomic_size_t released;
    char *data;
    tutti_code last;
} writer;

static void
count_release(void *arg)
{
    rpc_tag_acquire(arg);
    (void)atomic_fetch_add(&((writer *)arg)->released, 1);
}

static void *
write_until_it_ends(void *arg)
{
    writer *self = arg;
    const tutti_rpc_blob blob = {self->data, MIB, count_release, self};
    echo_fields fields = {.text = "/slow"};

    self->last = TUTTI_OK;
    while (self->last == TUTTI_OK && self->written < 400) {
        (void)atomic_fetch_add(&self->made, 1);
        self->last = send(self->stream, &fields, &blob);
        fields.text = "";
        (void)atomic_fetch_add(&self->written, self->last == TUTTI_OK ? 1 : 0);
    }
    return NULL;
}

static void
test_upload__to_a_slow_reader_makes_the_writer_wait(void **state)
{
    rig *self = *state;
    writer out = {.stream = open_stream(self, &echo_upload), .data = calloc(1, MIB)};
    pthread_t thread;
    size_t seen;
    size_t i;
    tutti_error err;

    assert_non_null(out.data);
    assert_int_equal(pthread_create(&thread, NULL, write_until_it_ends, &out), 0);
    rig_await(self->server.message_count, 1);
    for (i = 0; i < 300; i++) {
        rig_pause();
    }
    seen = out.written;
    assert_in_range(seen, 1, 40); /* of 400 MiB */
    assert_in_range(out.made - out.released, 0, 2);
    echo_server_release(&self->server); /* now it reads, and all of it gets through */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(out.written, 400);
    assert_ok(tutti_rpc_stream_finish(out.stream, &err));
    rig_await(out.released, 400);
    assert_int_equal(self->server.message_count, 400);
    free(out.data);
}

static void
test_chat__answers_every_message(void **state)
{
    rig *self = *state;
    tutti_rpc_stream *stream = open_stream(self, &echo_chat);
    echo_fields fields = {.text = "hi"};
    uint64_t number = 0;
    tutti_error err;

    for (fields.number = 0; fields.number < 500; fields.number++) {
        assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
        assert_true(receive(stream, &number, NULL));
        assert_int_equal(number, fields.number);
    }
    assert_ok(tutti_rpc_stream_writes_done(stream, &err));
    assert_false(receive(stream, &number, NULL));
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    rig_await(self->server.end_count, 1);
    assert_int_equal(self->server.half_close_count, 1);
}

static void *
write_five_hundred(void *arg)
{
    echo_fields fields = {.text = "hi"};

    for (fields.number = 0; fields.number < 500; fields.number++) {
        if (send(arg, &fields, NULL) != TUTTI_OK) {
            return arg;
        }
    }
    return tutti_rpc_stream_writes_done(arg, NULL) == TUTTI_OK ? NULL : arg;
}

static void
test_chat__is_written_and_read_by_two_threads(void **state)
{
    tutti_rpc_stream *stream = open_stream(*state, &echo_chat);
    uint64_t number = 0;
    uint64_t wanted = 0;
    void *failed = NULL;
    pthread_t thread;
    tutti_error err;

    assert_int_equal(pthread_create(&thread, NULL, write_five_hundred, stream), 0);
    while (receive(stream, &number, NULL)) {
        assert_int_equal(number, wanted);
        wanted++;
    }
    assert_int_equal(wanted, 500);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_ok(tutti_rpc_stream_finish(stream, &err));
}

static void
test_chat__is_finished_by_another_thread_behind_the_write_in_flight(void **state)
{
    rig *self = *state;
    const echo_fields fields = {.text = "/finish", .number = 7};
    uint64_t number = 0;
    size_t i;
    tutti_error err;

    for (i = 0; i < 300; i++) {
        tutti_rpc_stream *stream = open_stream(self, &echo_chat);

        assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
        assert_true(receive(stream, &number, NULL)); /* the answer is never lost */
        assert_int_equal(number, 7);
        assert_false(receive(stream, &number, NULL));
        assert_ok(tutti_rpc_stream_finish(stream, &err));
    }
    rig_await(self->server.end_count, 300);
}

/* Returns the name of the loop that a chat of this server runs on. */
static void
ask_for_thread(bool quiet, char ret_name[256])
{
    const echo_fields fields = {.text = "/thread"};
    tutti_rpc_message *message = NULL;
    tutti_rpc_stream *stream;
    rig self;
    tutti_error err;

    echo_server_init(&self.server, "127.0.0.1:0");
    self.server.quiet_chat = quiet;
    rig_start(&self, 2, NULL);
    stream = open_stream(&self, &echo_chat);
    assert_int_equal(send(stream, &fields, NULL), TUTTI_OK);
    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    (void)snprintf(ret_name, 256, "%s", echo_response_fields(tutti_rpc_message_get(message)).text);
    tutti_rpc_message_free(message);
    assert_ok(tutti_rpc_stream_writes_done(stream, &err));
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    rig_stop(&self);
}

static void
test_stream__that_is_quiet_runs_on_the_quiet_loop(void **state)
{
    char name[256];

    (void)state;
    ask_for_thread(false, name);
    assert_string_equal(name, "rpc-echo");
    ask_for_thread(true, name);
    assert_string_equal(name, "rpc-main");
}

static void
test_stream__to_nobody_says_who_could_not_be_reached(void **state)
{
    tutti_rpc_channel *channel = NULL;
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *message = NULL;
    tutti_error err;

    (void)state;
    assert_ok(tutti_rpc_channel_open("127.0.0.1:1", NULL, &channel, &err));
    assert_ok(tutti_rpc_stream_open(channel, &echo_chat, NULL, &stream, &err));
    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    assert_null(message);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "could not reach 127.0.0.1:1");
    tutti_rpc_channel_close(channel);
}

#define STREAM_TEST(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        STREAM_TEST(test_upload__counts_what_was_sent),
        STREAM_TEST(test_upload__that_is_refused_midway_says_why),
        STREAM_TEST(test_upload__of_a_client_that_vanishes_is_cancelled),
        STREAM_TEST(test_upload__with_a_malformed_message_is_refused),
        STREAM_TEST(test_download__brings_all_messages_in_order),
        STREAM_TEST(test_download__that_fails_brings_messages_then_the_error),
        STREAM_TEST(test_download__of_writes_that_wait_for_each_other),
        STREAM_TEST(test_download__that_is_left_early_is_cancelled),
        STREAM_TEST(test_download__of_a_slow_reader_keeps_little_in_memory),
        STREAM_TEST(test_upload__to_a_slow_reader_makes_the_writer_wait),
        STREAM_TEST(test_chat__answers_every_message),
        STREAM_TEST(test_chat__is_written_and_read_by_two_threads),
        STREAM_TEST(test_chat__is_finished_by_another_thread_behind_the_write_in_flight),
        cmocka_unit_test(test_stream__that_is_quiet_runs_on_the_quiet_loop),
        STREAM_TEST(test_stream__to_nobody_says_who_could_not_be_reached),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
