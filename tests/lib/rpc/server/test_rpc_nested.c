/*
 * Goal: a unary handler does not notice that its call came as a message of a stream.
 * Method: the echo server's chat, in which each message is a nested call of Unary.
 */
#include "rig.h"

#include <string.h>

#define MIB (1u << 20)

typedef struct talk {
    rig *rig;
    tutti_rpc_stream *stream;
} talk;

static int
talk_begin(void **state)
{
    static talk self;
    const echo_fields nest = {.text = "/nest"};
    tutti_rpc_message *message = NULL;
    echo_storage storage;
    tutti_error err;
    void *own = NULL;

    assert_int_equal(rig_begin(&own), 0);
    self.rig = own;
    assert_ok(tutti_rpc_stream_open(self.rig->channel, &echo_chat, NULL, &self.stream, &err));
    assert_ok(tutti_rpc_stream_write(self.stream, echo_request(&storage, &nest), NULL, &err));
    assert_ok(tutti_rpc_stream_read(self.stream, &message, &err));
    tutti_rpc_message_free(message);
    *state = &self;
    return 0;
}

static int
talk_end(void **state)
{
    talk *self = *state;
    void *own = self->rig;
    tutti_error err;

    assert_ok(tutti_rpc_stream_finish(self->stream, &err));
    return rig_end(&own);
}

/* One nested call; the answer's fields, its text copied. */
static echo_fields
ask(const talk *self, const echo_fields *fields, const tutti_rpc_blob *payload, char ret_text[256],
    size_t *ret_payload_bytes)
{
    tutti_rpc_message *message = NULL;
    echo_storage storage;
    echo_fields answer;
    tutti_error err;

    assert_ok(tutti_rpc_stream_write(self->stream, echo_request(&storage, fields), payload, &err));
    assert_ok(tutti_rpc_stream_read(self->stream, &message, &err));
    assert_non_null(message);
    answer = echo_response_fields(tutti_rpc_message_get(message));
    (void)snprintf(ret_text, 256, "%s", answer.text);
    answer.text = ret_text;
    *ret_payload_bytes = tutti_rpc_message_payload_bytes(message);
    tutti_rpc_message_free(message);
    return answer;
}

static void
test_nested__may_have_a_lease_of_its_own(void **state)
{
    const echo_fields own = {.text = "/lease", .count = 4711};
    const echo_fields none = {.text = "/lease"};
    char text[256];
    size_t bytes;

    (void)ask(*state, &own, NULL, text, &bytes);
    assert_string_equal(text, "4711");
    (void)ask(*state, &none, NULL, text, &bytes);
    assert_string_equal(text, ""); /* the stream has none */
}

static void
test_nested__has_a_request_and_a_payload(void **state)
{
    static unsigned char data[MIB];
    const tutti_rpc_blob blob = {.data = data, .size = sizeof(data)};
    const echo_fields fields = {.text = "hello"};
    char text[256];
    size_t bytes;
    echo_fields answer;

    memset(data, 3, sizeof(data));
    answer = ask(*state, &fields, &blob, text, &bytes);
    assert_string_equal(text, "hello");
    assert_int_equal(answer.number, MIB);
    assert_int_equal(answer.sum, 3 * MIB);
    assert_int_equal(bytes, 0);
}

static void
test_nested__is_answered_from_another_thread(void **state)
{
    const echo_fields fields = {.text = "/later"};
    char text[256];
    size_t bytes;
    int i;

    for (i = 0; i < 50; i++) {
        (void)ask(*state, &fields, NULL, text, &bytes);
        assert_string_equal(text, "/later");
    }
}

static void
test_nested__answers_with_a_payload_that_is_given_back(void **state)
{
    talk *self = *state;
    const echo_fields fields = {.text = "/payload", .count = 100000};
    char text[256];
    size_t bytes;

    (void)ask(self, &fields, NULL, text, &bytes);
    assert_int_equal(bytes, 100000);
    assert_int_equal(self->rig->server.made, 1);
    rig_await(self->rig->server.released, 1);
}

static void
test_nested__fails_without_ending_the_stream(void **state)
{
    const echo_fields bad = {.text = "x", .fail = TUTTI_OUT_OF_RANGE};
    const echo_fields good = {.text = "still here"};
    char text[256];
    size_t bytes;
    const echo_fields answer = ask(*state, &bad, NULL, text, &bytes);

    assert_int_equal(answer.number, TUTTI_OUT_OF_RANGE);
    assert_string_equal(text, "SHAPE_MISMATCH");
    (void)ask(*state, &good, NULL, text, &bytes);
    assert_string_equal(text, "still here");
}

static void
test_nested__knows_who_called_as_the_stream_does(void **state)
{
    const echo_fields peer = {.text = "/peer"};
    const echo_fields identity = {.text = "/identity"};
    const echo_fields deadline = {.text = "/deadline"};
    char text[256];
    size_t bytes;

    (void)ask(*state, &peer, NULL, text, &bytes);
    assert_text_has(text, "127.0.0.1");
    (void)ask(*state, &identity, NULL, text, &bytes);
    assert_string_equal(text, "");
    assert_int_equal(ask(*state, &deadline, NULL, text, &bytes).number,
                     0); /* the stream has none */
}

/* Does the page of numbers say `wanted`? */
static bool
shows(const talk *self, const char *wanted)
{
    tutti_page page;
    bool found;

    tutti_page_init(&page);
    tutti_rpc_server_expose(self->rig->server.server, &page);
    found = memmem(page.buf.data, page.buf.size, wanted, strlen(wanted)) != NULL;
    tutti_page_fini(&page);
    return found;
}

static void
test_nested__is_counted_as_a_call_of_its_own(void **state)
{
    const echo_fields bad = {.text = "x", .fail = TUTTI_OUT_OF_RANGE};
    const echo_fields good = {.text = "still here"};
    char text[256];
    size_t bytes;

    (void)ask(*state, &good, NULL, text, &bytes);
    (void)ask(*state, &bad, NULL, text, &bytes);
    (void)ask(*state, &good, NULL, text, &bytes);
    rig_await(shows(*state, "method=\"Unary\",code=\"OK\"} 2\n"), 1);
    rig_await(shows(*state, "method=\"Unary\",code=\"OUT_OF_RANGE\"} 1\n"), 1);
    rig_await(shows(*state, "call_duration_seconds_count{"), 1);
}

int
main(void)
{
#define TALK(name) cmocka_unit_test_setup_teardown(name, talk_begin, talk_end)
    const struct CMUnitTest tests[] = {
        TALK(test_nested__has_a_request_and_a_payload),
        TALK(test_nested__may_have_a_lease_of_its_own),
        TALK(test_nested__is_answered_from_another_thread),
        TALK(test_nested__answers_with_a_payload_that_is_given_back),
        TALK(test_nested__fails_without_ending_the_stream),
        TALK(test_nested__knows_who_called_as_the_stream_does),
        TALK(test_nested__is_counted_as_a_call_of_its_own),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
