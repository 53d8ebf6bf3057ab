/*
 * Goal: what steers a terminal is told from text, and no bytes come through that are no text.
 * Method: the borders of each range.
 */
#include "support/testing.h"

#include "base/data/utf8.h"

static void
expect_cleaned(const char *from, const char *wanted)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%s", from);
    assert_int_equal(tutti_utf8_clean(text), strlen(wanted));
    assert_string_equal(text, wanted);
}

static void
test_utf8__measures_characters(void **state)
{
    (void)state;
    assert_int_equal(tutti_utf8_size("a", 1), 1);
    assert_int_equal(tutti_utf8_size("\xc3\xa4", 2), 2);
    assert_int_equal(tutti_utf8_size("\xe2\x82\xac", 3), 3);
    assert_int_equal(tutti_utf8_size("\xf0\x9f\x8e\xb6", 4), 4);
    assert_int_equal(tutti_utf8_size("\xf4\x8f\xbf\xbf", 4), 4);
    assert_int_equal(tutti_utf8_size("", 0), 0);
    assert_int_equal(tutti_utf8_size("", 1), 0);                 /* NUL */
    assert_int_equal(tutti_utf8_size("\xe2\x82\xac", 2), 0);     /* cut */
    assert_int_equal(tutti_utf8_size("\x9b", 1), 0);             /* a byte of C1 alone */
    assert_int_equal(tutti_utf8_size("\xc1\x9b", 2), 0);         /* overlong */
    assert_int_equal(tutti_utf8_size("\xe0\x9f\xbf", 3), 0);     /* overlong */
    assert_int_equal(tutti_utf8_size("\xf0\x8f\xbf\xbf", 4), 0); /* overlong */
    assert_int_equal(tutti_utf8_size("\xed\xa0\x80", 3), 0);     /* a surrogate */
    assert_int_equal(tutti_utf8_size("\xf4\x90\x80\x80", 4), 0); /* above U+10FFFF */
}

static void
test_utf8__knows_what_steers(void **state)
{
    static const char *const steer[] = {
        "\x01",         "\x1b",         "\x1f",         "\x7f",         "\xc2\x80",
        "\xc2\x9b",     "\xc2\x9f",     "\xd8\x9c",     "\xe2\x80\x8e", "\xe2\x80\x8f",
        "\xe2\x80\xa8", "\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"};
    static const char *const plain[] = {" ",
                                        "~",
                                        "\xc2\xa0",
                                        "\xd8\x9b",
                                        "\xe2\x80\x8d",
                                        "\xe2\x80\x90",
                                        "\xe2\x80\xa7",
                                        "\xe2\x80\xaf",
                                        "\xe2\x81\xa5",
                                        "\xe2\x81\xaa",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x8e\xb6"};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(steer); i++) {
        assert_true(tutti_utf8_steers(steer[i], strlen(steer[i])));
    }
    for (i = 0; i < COUNT_OF(plain); i++) {
        assert_false(tutti_utf8_steers(plain[i], strlen(plain[i])));
    }
}

static void
test_utf8__cleans_a_text(void **state)
{
    (void)state;
    expect_cleaned("", "");
    expect_cleaned("caf\xc3\xa9 \xf0\x9f\x8e\xb6", "caf\xc3\xa9 \xf0\x9f\x8e\xb6");
    expect_cleaned("a\nb\x1b[2J", "a b [2J");
    expect_cleaned("\xc2\x9b"
                   "31m\xe2\x80\xae"
                   "x",
                   " 31m x");
    expect_cleaned("\x9b\xc3(\xe2\x82", "??"
                                        "(??");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8__measures_characters),
        cmocka_unit_test(test_utf8__knows_what_steers),
        cmocka_unit_test(test_utf8__cleans_a_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
