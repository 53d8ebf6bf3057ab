/*
 * Goal: a line shows what it should, when it should, and nothing that a stranger sent can break it.
 * Method: the log writes into a pipe.
 */
#include "support/testing.h"

#include <unistd.h>

#include "base/os/log.h"

static int ends[2];

static const char *
read_line(void)
{
    static char line[4096];
    const ssize_t got = read(ends[0], line, sizeof(line) - 1);

    line[got > 0 ? got : 0] = '\0';
    return line;
}

static void
test_log__shows_what_its_room_may_say(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(tutti_log_set_levels("warn,rpc=debug,rpc/tls=error", &err));
    assert_true(tutti_log_shows("coll", TUTTI_LOG_WARN));
    assert_false(tutti_log_shows("coll", TUTTI_LOG_INFO));
    assert_true(tutti_log_shows("rpc", TUTTI_LOG_DEBUG));
    assert_true(tutti_log_shows("rpc/server", TUTTI_LOG_DEBUG));
    assert_false(tutti_log_shows("rpcx", TUTTI_LOG_DEBUG));
    assert_false(tutti_log_shows("rpc/tls", TUTTI_LOG_WARN));
    assert_fails(tutti_log_set_levels("noise", &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "noise");
    assert_ok(tutti_log_set_levels("info", &err));
}

static void
test_log__refuses_levels_that_are_too_long(void **state)
{
    char spec[600];
    tutti_error err;

    (void)state;
    memset(spec, ',', sizeof(spec));
    (void)snprintf(spec + 500, sizeof(spec) - 500, "debug");
    assert_ok(tutti_log_set_levels(spec, &err));
    assert_true(tutti_log_shows("coll", TUTTI_LOG_DEBUG));
    memset(spec, ',', sizeof(spec));
    (void)snprintf(spec + 580, sizeof(spec) - 580, "info");
    assert_fails(tutti_log_set_levels(spec, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "584 bytes");
    assert_true(tutti_log_shows("coll", TUTTI_LOG_DEBUG)); /* as before */
    assert_ok(tutti_log_set_levels("info", &err));
}

static void
test_log__is_a_line_for_people(void **state)
{
    const char *line;

    (void)state;
    tutti_log_set_output(TUTTI_LOG_PEOPLE, ends[1]);
    tutti_log_set_context("rank=3");
    TUTTI_LOG("test", INFO, "formed with %d ranks", 8);
    line = read_line();
    assert_text_has(line, "Z info  test [rank=3]: formed with 8 ranks\n");
}

static void
test_log__is_an_object_of_json(void **state)
{
    const char *line;
    tutti_error err;
    char large[5000];

    (void)state;
    tutti_log_set_output(TUTTI_LOG_PEOPLE, ends[1]);
    assert_ok(tutti_log_set_format("json", &err));
    tutti_log_set_context("rank=3 job=a");
    TUTTI_LOG("test", WARN, "a \"name\" C:\\x\n\x1b[31m\xc3\xa9 \xff");
    line = read_line();
    assert_text_has(line, "{\"time\":\"2");
    assert_text_has(line, "Z\",\"level\":\"warn\",\"room\":\"test\",\"rank\":\"3\",\"job\":\"a\","
                          "\"message\":\"a \\\"name\\\" C:\\\\x  [31m\xc3\xa9 ?\"}\n");
    memset(large, '"', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    TUTTI_LOG("test", WARN, "%s", large);
    line = read_line();
    assert_text_has(line, "\\\"\"}\n"); /* cut, and whole */
    tutti_log_set_context("rank=3");
    assert_fails(tutti_log_set_format("xml", &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_log__is_key_value_for_machines_and_keeps_to_one_line(void **state)
{
    const char *line;

    (void)state;
    tutti_log_set_output(TUTTI_LOG_MACHINE, ends[1]);
    TUTTI_LOG("test", WARN, "a \"name\"\nlevel=error \x1b[31m");
    line = read_line();
    assert_text_has(line, " level=warn room=test rank=3 message=\"a 'name' level=error  [31m\"\n");
}

static void
test_log__lets_nothing_through_that_steers_a_terminal(void **state)
{
    (void)state;
    tutti_log_set_output(TUTTI_LOG_PEOPLE, ends[1]);
    TUTTI_LOG("test", WARN,
              "of \xc2\x9b"
              "2J \xe2\x80\xaehost\x9b caf\xc3\xa9");
    assert_text_has(read_line(), ": of  2J  host? caf\xc3\xa9\n");
    tutti_log_set_output(TUTTI_LOG_MACHINE, ends[1]);
}

static void
say_often(int number)
{
    TUTTI_LOG_OFTEN("test", WARN, "number %d failed", number);
}

static void
test_log__is_a_line_for_a_burst(void **state)
{
    tutti_log_burst burst = {0};
    const char *lines;
    int i;

    (void)state;
    for (i = 0; i < 1000; i++) {
        say_often(i);
        tutti_log_write_often(&burst, "test", TUTTI_LOG_WARN, "often %d", i);
    }
    burst.said_ns = 1; /* long ago */
    tutti_log_write_often(&burst, "test", TUTTI_LOG_WARN, "often %d", i);
    lines = read_line();
    assert_text_has(lines, "message=\"number 0 failed\"\n");
    assert_text_has(lines, "message=\"often 0\"\n");
    assert_text_has(lines, "message=\"often 1000 (and 999 more like this)\"\n");
    assert_null(strstr(lines, "number 1 "));
}

static void
test_log__cuts_a_line_that_is_too_long(void **state)
{
    char long_text[5000];
    const char *line;

    (void)state;
    memset(long_text, 'x', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    TUTTI_LOG("test", INFO, "%s", long_text);
    line = read_line();
    assert_in_range(strlen(line), 1000, 2048);
    assert_int_equal(line[strlen(line) - 1], '\n');
}

static int
open_pipe(void **state)
{
    (void)state;
    return pipe(ends);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__shows_what_its_room_may_say),
        cmocka_unit_test(test_log__refuses_levels_that_are_too_long),
        cmocka_unit_test(test_log__is_a_line_for_people),
        cmocka_unit_test(test_log__is_an_object_of_json),
        cmocka_unit_test(test_log__is_key_value_for_machines_and_keeps_to_one_line),
        cmocka_unit_test(test_log__lets_nothing_through_that_steers_a_terminal),
        cmocka_unit_test(test_log__is_a_line_for_a_burst),
        cmocka_unit_test(test_log__cuts_a_line_that_is_too_long),
    };

    return cmocka_run_group_tests(tests, open_pipe, NULL);
}
