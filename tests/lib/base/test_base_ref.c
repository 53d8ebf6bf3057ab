/*
 * Goal: a ref has one way to be written, and who reads it finds what was written.
 * Method: tables of good and bad ones; printf's word for what is made.
 */
#include "support/testing.h"

#include <inttypes.h>

#include "base/data/ref.h"

static const tutti_ref refs[] = {
    {0, 1, 0},
    {0, UINT64_C(0x0123456789abcdef), 1},
    {10, UINT64_C(0xf000000000000000), 100},
    {UINT32_MAX, UINT64_MAX, UINT64_MAX},
};

static void
test_format__is_what_printf_would_write(void **state)
{
    char text[TUTTI_REF_SIZE];
    char wanted[TUTTI_REF_SIZE];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(refs); i++) {
        (void)snprintf(wanted, sizeof(wanted), "tensor:%" PRIu32 ".%016" PRIx64 ".%" PRIu64,
                       refs[i].rank, refs[i].incarnation, refs[i].number);
        tutti_ref_format(&refs[i], "tensor", text, sizeof(text));
        assert_string_equal(text, wanted);
    }
}

static void
test_format__has_room_for_the_longest_and_cuts_at_the_size(void **state)
{
    const tutti_ref *longest = &refs[COUNT_OF(refs) - 1];
    char text[TUTTI_REF_SIZE + 1];

    (void)state;
    tutti_ref_format(longest, "fifteen_letters", text, TUTTI_REF_SIZE);
    assert_int_equal(strlen(text), TUTTI_REF_SIZE - 1);
    text[6] = '#';
    tutti_ref_format(longest, "work", text, 6);
    assert_string_equal(text, "work:");
    assert_int_equal(text[6], '#');
    tutti_ref_format(longest, "work", text, 1);
    assert_string_equal(text, "");
}

static void
test_parse__gives_what_was_formatted(void **state)
{
    char text[TUTTI_REF_SIZE];
    tutti_ref got;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(refs); i++) {
        tutti_ref_format(&refs[i], "work", text, sizeof(text));
        assert_true(tutti_ref_parse(text, "work", &got));
        assert_int_equal(got.rank, refs[i].rank);
        assert_int_equal(got.incarnation, refs[i].incarnation);
        assert_int_equal(got.number, refs[i].number);
        assert_false(tutti_ref_parse(text, "wor", &got));
        assert_false(tutti_ref_parse(text, "works", &got));
    }
}

static void
test_parse__takes_no_other_way_to_write_it(void **state)
{
    static const char *const bad[] = {
        "",
        "t",
        "tensor",
        "tensor:",
        "tensor:0",
        "tensor:0.",
        "tensor:.0123456789abcdef.1",
        "tensor:0.0123456789abcdef",
        "tensor:0.0123456789abcdef.",
        "tensor:0.0123456789abcdef.1 ",
        "tensor:0.0123456789abcdef.1.",
        "tensor:0.0123456789abcdef.01",
        "tensor:0.0123456789abcdef.-1",
        "tensor:0.0123456789abcdef.+1",
        "tensor:0.0123456789abcdef. 1",
        "tensor:0.0123456789abcdef.1x",
        "tensor:0.0123456789abcdef.18446744073709551616",
        "tensor:0.0123456789abcdef.99999999999999999999",
        "tensor:0.0000000000000000.1",
        "tensor:0.0123456789abcde.1",
        "tensor:0.0123456789abcdef0.1",
        "tensor:0.0123456789ABCDEF.1",
        "tensor:0.0x23456789abcdef.1",
        "tensor:00.0123456789abcdef.1",
        "tensor:-0.0123456789abcdef.1",
        "tensor:+1.0123456789abcdef.1",
        "tensor: 1.0123456789abcdef.1",
        "tensor:4294967296.0123456789abcdef.1",
        "tensor:18446744073709551616.0123456789abcdef.1",
        "Tensor:0.0123456789abcdef.1",
        " tensor:0.0123456789abcdef.1",
        "work:0.0123456789abcdef.1",
    };
    tutti_ref got = {7, 7, 7};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        if (tutti_ref_parse(bad[i], "tensor", &got)) {
            fail_msg("taken: \"%s\"", bad[i]);
        }
    }
    assert_int_equal(got.rank + got.incarnation + got.number, 21); /* written on success only */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format__is_what_printf_would_write),
        cmocka_unit_test(test_format__has_room_for_the_longest_and_cuts_at_the_size),
        cmocka_unit_test(test_parse__gives_what_was_formatted),
        cmocka_unit_test(test_parse__takes_no_other_way_to_write_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
