/*
 * Goal: what people read is exact, and never leaves its buffer.
 * Method: small buffers and known values.
 */
#include <errno.h>

#include "support/testing.h"

#include "base/error/text.h"

static void
test_text__that_does_not_fit_is_cut_and_says_so(void **state)
{
    char buffer[8];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    (void)state;
    tutti_text_add(&text, "%s", "12345");
    assert_false(text.cut);
    tutti_text_add(&text, "%s", "6789");
    assert_true(text.cut);
    assert_string_equal(buffer, "1234567");
    tutti_text_add(&text, "more");
    assert_string_equal(buffer, "1234567");
}

static void
test_text_ranks__are_written_as_runs(void **state)
{
    static const uint32_t ranks[] = {0, 1, 2, 5, 7, 8, 12};
    char buffer[64];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    (void)state;
    tutti_text_add_ranks(&text, ranks, COUNT_OF(ranks), 10);
    assert_string_equal(buffer, "0-2, 5, 7, 8, 12");
    text = tutti_text_in(buffer, sizeof(buffer));
    tutti_text_add_ranks(&text, ranks, COUNT_OF(ranks), 2);
    assert_string_equal(buffer, "0-2, 5, and 3 more");
}

static void
test_text_bytes__read_as_people_say_them(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *wanted;
    } cases[] = {
        {0, "0 bytes"},        {1023, "1023 bytes"},      {1024, "1 KiB"},
        {1536, "1.5 KiB"},     {64ULL << 20, "64 MiB"},   {3ULL << 29, "1.5 GiB"},
        {1ULL << 40, "1 TiB"}, {UINT64_MAX, "16384 PiB"},
    };
    char buffer[64];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        tutti_text text = tutti_text_in(buffer, sizeof(buffer));

        tutti_text_add_bytes(&text, cases[i].bytes);
        assert_string_equal(buffer, cases[i].wanted);
    }
}

static void
test_text_shape_and_count__have_brackets_and_plural(void **state)
{
    static const int64_t dims[] = {2, 3};
    char buffer[64];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    (void)state;
    tutti_text_add_shape(&text, dims, 2);
    tutti_text_add_shape(&text, dims, 0);
    tutti_text_add_count(&text, 1, "rank");
    tutti_text_add_count(&text, 2, "rank");
    assert_string_equal(buffer, "[2, 3][]1 rank2 ranks");
}

static void
test_fail__writes_code_reason_place_and_words(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_KEY", "key of %d bytes", 3),
                     TUTTI_NOT_FOUND);
    assert_int_equal(err.code, TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_KEY");
    assert_string_equal(err.text, "key of 3 bytes");
    assert_text_has(err.where, "tests/lib/base/test_base_text.c:");
    assert_int_equal(err.rank, TUTTI_ERROR_RANK_NONE);
    assert_int_equal(TUTTI_FAIL(NULL, TUTTI_INTERNAL, "nobody reads this"), TUTTI_INTERNAL);
}

static void
test_fail_errno__keeps_the_number_and_says_what_it_means(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(TUTTI_FAIL_ERRNO(&err, 2, "could not open %s", "/x"), TUTTI_NOT_FOUND);
    assert_string_equal(err.text, "could not open /x: No such file or directory");
    assert_string_equal(err.domain, "errno");
    assert_int_equal(err.cause, 2);
    assert_string_equal(err.reason, "SYSTEM_ERROR");
    (void)TUTTI_FAIL_ERRNO(&err, EMFILE, "could not open %s", "/x");
    assert_string_equal(err.reason, "SYSTEM_LIMIT");
    (void)TUTTI_FAIL_ERRNO(&err, EADDRINUSE, "could not listen");
    assert_string_equal(err.reason, "ADDRESS_IN_USE");
    (void)TUTTI_FAIL_ERRNO(&err, ENOMEM, "could not open %s", "/x");
    assert_string_equal(err.reason, "NO_MEMORY");
    assert_int_equal(TUTTI_FAIL_MEMORY(&err, "no memory for %s", "x"), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "NO_MEMORY");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__that_does_not_fit_is_cut_and_says_so),
        cmocka_unit_test(test_text_ranks__are_written_as_runs),
        cmocka_unit_test(test_text_bytes__read_as_people_say_them),
        cmocka_unit_test(test_text_shape_and_count__have_brackets_and_plural),
        cmocka_unit_test(test_fail__writes_code_reason_place_and_words),
        cmocka_unit_test(test_fail_errno__keeps_the_number_and_says_what_it_means),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
