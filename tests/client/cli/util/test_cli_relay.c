/*
 * Goal: what programs print comes out line by line with their rank in front, and nothing is lost.
 * Method: a pipe and a file in memory.
 */
#include "support/testing.h"

#include <unistd.h>

#include "client/cli/util/relay.h"

/* A relay into memory. */
typedef struct rig {
    relay relay;
    FILE *to;
    char *text;
    size_t size;
    int input;
} rig;

static void
open_rig(rig *one, const char *prefix)
{
    *one = (rig){.input = -1};
    one->to = open_memstream(&one->text, &one->size);
    assert_non_null(one->to);
    assert_true(relay_open(&one->relay, one->to, prefix, &one->input));
}

static void
put(rig *one, const char *bytes, size_t size)
{
    while (size > 0) {
        const size_t piece = size < 4096 ? size : 4096;

        assert_int_equal(write(one->input, bytes, piece), piece);
        relay_move(&one->relay);
        bytes += piece;
        size -= piece;
    }
}

static void
close_rig(rig *one)
{
    (void)close(one->input);
    relay_close(&one->relay);
    (void)fclose(one->to);
}

static void
test_relay__puts_the_prefix_before_each_line(void **state)
{
    rig one;

    (void)state;
    open_rig(&one, "[3] ");
    put(&one, "one\ntw", 6);
    assert_string_equal(one.text, "[3] one\n"); /* a line appears as a whole */
    put(&one, "o\n\nend", 6);
    close_rig(&one);
    assert_string_equal(one.text, "[3] one\n[3] two\n[3] \n[3] end\n");
    free(one.text);
}

static void
test_relay__without_prefix_passes_bytes_on_at_once(void **state)
{
    rig one;

    (void)state;
    open_rig(&one, "");
    put(&one, "10%\r20%", 7);
    assert_string_equal(one.text, "10%\r20%");
    close_rig(&one);
    assert_string_equal(one.text, "10%\r20%");
    free(one.text);
}

static void
test_relay__passes_a_line_without_end_on_in_pieces(void **state)
{
    const size_t size = RELAY_LINE_MAX + 5000;
    char *line = malloc(size);
    rig one;

    (void)state;
    assert_non_null(line);
    memset(line, 'x', size);
    open_rig(&one, "[0] ");
    put(&one, line, size);
    assert_int_equal(one.size, 4 + RELAY_LINE_MAX);
    close_rig(&one);
    assert_int_equal(one.size, 4 + size + 1); /* one prefix, one line end */
    assert_string_equal(one.text + one.size - 2, "x\n");
    free(one.text);
    free(line);
}

static void
test_relay__closes_when_the_program_does(void **state)
{
    rig one;

    (void)state;
    open_rig(&one, "[0] ");
    (void)close(one.input);
    relay_move(&one.relay);
    assert_int_equal(one.relay.descriptor, -1);
    relay_close(&one.relay);
    relay_close(&one.relay); /* once more is nothing */
    (void)fclose(one.to);
    assert_int_equal(one.size, 0);
    free(one.text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relay__puts_the_prefix_before_each_line),
        cmocka_unit_test(test_relay__without_prefix_passes_bytes_on_at_once),
        cmocka_unit_test(test_relay__passes_a_line_without_end_on_in_pieces),
        cmocka_unit_test(test_relay__closes_when_the_program_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
