/*
 * Goal: what people type is taken as meant, or refused with the form that is wanted.
 * Method: tables of good and bad words.
 */
#include "support/testing.h"

#include "base/data/id.h"
#include "base/error/text.h"
#include "tutti/types.h"

static void
test_parse_bytes__takes_units_and_refuses_the_rest(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},          {"17", 17}, {"4KiB", 4096}, {"64M", 64 << 20}, {"1.5 GiB", 3u << 29},
        {"2t", 2ULL << 40}};
    static const char *const bad[] = {"",    "x",    "-1", "4 KB2", "9e99",
                                      "nan", "1..2", " 1", "0x10",  "1e3"};
    uint64_t bytes = 0;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(good); i++) {
        assert_ok(tutti_parse_bytes(good[i].text, &bytes, &err));
        assert_int_equal(bytes, good[i].bytes);
    }
    bytes = 77;
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(tutti_parse_bytes(bad[i], &bytes, &err), TUTTI_INVALID_ARGUMENT);
        assert_text_has(err.text, "write 64KiB");
    }
    assert_int_equal(bytes, 77); /* outputs are written on success only */
}

static void
test_parse_ns__takes_units_and_wants_one(void **state)
{
    uint64_t ns = 0;
    tutti_error err;

    (void)state;
    assert_ok(tutti_parse_ns("250ms", &ns, &err));
    assert_int_equal(ns, 250000000);
    assert_ok(tutti_parse_ns("1.5s", &ns, &err));
    assert_int_equal(ns, 1500000000);
    assert_ok(tutti_parse_ns("0", &ns, &err));
    assert_int_equal(ns, 0);
    assert_fails(tutti_parse_ns("10", &ns, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_ns("1e3ms", &ns, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_ns("-1s", &ns, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_parse_ranks__takes_lists_and_ranges(void **state)
{
    uint32_t ranks[6];
    size_t count = 0;
    tutti_error err;

    (void)state;
    assert_ok(tutti_parse_ranks("3,0-2", ranks, 6, &count, &err));
    assert_int_equal(count, 4);
    assert_int_equal(ranks[0], 3);
    assert_int_equal(ranks[3], 2);
    assert_ok(tutti_parse_ranks("0-5", ranks, 6, &count, &err));
    assert_fails(tutti_parse_ranks("0-6", ranks, 6, &count, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_ranks("", ranks, 6, &count, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_ranks("2-1", ranks, 6, &count, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_ranks("1,", ranks, 6, &count, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_ranks("0-4294967295", ranks, 6, &count, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_parse_uint_and_bool__refuse_what_is_out_of_range(void **state)
{
    uint64_t number = 0;
    bool yes = false;
    tutti_error err;

    (void)state;
    assert_ok(tutti_parse_uint("65535", 65535, &number, &err));
    assert_fails(tutti_parse_uint("65536", 65535, &number, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_uint("-1", 65535, &number, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_parse_uint("99999999999999999999", UINT64_MAX, &number, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_ok(tutti_parse_bool("Yes", &yes, &err));
    assert_true(yes);
    assert_fails(tutti_parse_bool("maybe", &yes, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_compare_numeric__orders_as_people_do(void **state)
{
    (void)state;
    assert_true(tutti_compare_numeric("host-2", "host-10") < 0);
    assert_true(tutti_compare_numeric("host-10", "host-2") > 0);
    assert_true(tutti_compare_numeric("a", "b") < 0);
    assert_true(tutti_compare_numeric("a1b2", "a1b10") < 0);
    assert_true(tutti_compare_numeric("a", "a1") < 0);
    assert_true(tutti_compare_numeric("a07", "a7") != 0);
    assert_int_equal(tutti_compare_numeric("a7", "a7"), 0);
}

static void
test_check_name__says_which_rule_is_broken(void **state)
{
    char longest[TUTTI_NAME_MAX + 2];
    tutti_error err;

    (void)state;
    assert_ok(tutti_check_name("dp/0.a-b_c", "group", &err));
    assert_fails(tutti_check_name("", "group", &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "group name of 0 bytes, need 1 to 127");
    assert_fails(tutti_check_name("a b", "group", &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_check_name("../x", "group", &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_check_name("tensor:1", "tensor", &err), TUTTI_INVALID_ARGUMENT);
    memset(longest, 'a', sizeof(longest));
    longest[TUTTI_NAME_MAX] = '\0';
    assert_ok(tutti_check_name(longest, "group", &err));
    longest[TUTTI_NAME_MAX] = 'a';
    longest[TUTTI_NAME_MAX + 1] = '\0';
    assert_fails(tutti_check_name(longest, "group", &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_id__survives_its_text(void **state)
{
    const uint64_t id = tutti_id_draw();
    char text[TUTTI_ID_TEXT_SIZE];
    uint64_t back = 0;
    tutti_error err;

    (void)state;
    assert_int_not_equal(id, tutti_id_draw());
    tutti_id_format(id, text);
    assert_ok(tutti_id_parse(text, &back, &err));
    assert_int_equal(back, id);
    assert_fails(tutti_id_parse("123", &back, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_id_parse("0000000000000000", &back, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_id_parse("00000000000000001", &back, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_dtype_and_reduce__have_names_both_ways(void **state)
{
    int number;

    (void)state;
    for (number = 1; number <= TUTTI_DTYPE_FP8_E5M2; number++) {
        const tutti_dtype dtype = (tutti_dtype)number;

        assert_int_equal(tutti_dtype_parse(tutti_dtype_name(dtype)), dtype);
        assert_in_range(tutti_dtype_bytes(dtype), 1, 16);
    }
    for (number = 1; number <= TUTTI_REDUCE_PREMUL_SUM; number++) {
        const tutti_reduce reduce = (tutti_reduce)number;

        assert_int_equal(tutti_reduce_parse(tutti_reduce_name(reduce)), reduce);
    }
    assert_int_equal(tutti_dtype_parse("float32"), TUTTI_DTYPE_FP32);
    assert_int_equal(tutti_dtype_parse("fp99"), TUTTI_DTYPE_NONE);
    assert_int_equal(tutti_dtype_bytes(TUTTI_DTYPE_NONE), 0);
    assert_int_equal(tutti_reduce_parse("Product"), TUTTI_REDUCE_PROD);
    assert_int_equal(tutti_reduce_parse("median"), TUTTI_REDUCE_NONE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_bytes__takes_units_and_refuses_the_rest),
        cmocka_unit_test(test_parse_ns__takes_units_and_wants_one),
        cmocka_unit_test(test_parse_ranks__takes_lists_and_ranges),
        cmocka_unit_test(test_parse_uint_and_bool__refuse_what_is_out_of_range),
        cmocka_unit_test(test_compare_numeric__orders_as_people_do),
        cmocka_unit_test(test_check_name__says_which_rule_is_broken),
        cmocka_unit_test(test_id__survives_its_text),
        cmocka_unit_test(test_dtype_and_reduce__have_names_both_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
