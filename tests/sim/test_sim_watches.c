/*
 * Goal: each way in which a watch can be told wrong, and each in which a lease can end wrong, is found, and what is right
 * is let pass.
 * Method: histories by hand.
 */
#include "support/testing.h"

#include "leases.h"
#include "watches.h"

static char words[400];

/* ------------------------------------------------------------------------------ watches */

#define SET(version_, key_, value_)                                                                \
    {                                                                                              \
        .kind = WATCHES_SET, .version = (version_), .key = key_, .value = (value_)                 \
    }
#define DELETED(version_, key_)                                                                    \
    {                                                                                              \
        .kind = WATCHES_DELETED, .version = (version_), .key = key_                                \
    }
#define BEGUN(version_)                                                                            \
    {                                                                                              \
        .kind = WATCHES_BEGUN, .version = (version_)                                               \
    }
#define RESUMED(version_)                                                                          \
    {                                                                                              \
        .kind = WATCHES_RESUMED, .version = (version_)                                             \
    }

/* The second one sets two keys at once. */
static const watches_change changes[] = {
    SET(1, "a/x", 1),  SET(2, "a/x", 2), SET(2, "a/y", 2), SET(3, "b", 3),
    DELETED(4, "a/x"), SET(5, "a/y", 5), DELETED(6, "b"),
};

#define assert_told(wanted, complete, ...)                                                         \
    do {                                                                                           \
        const watches_change told[] = {__VA_ARGS__};                                               \
        assert_int_equal(watches_check(changes, COUNT_OF(changes), told, COUNT_OF(told), "a/",     \
                                       complete, words, sizeof(words)),                            \
                         wanted);                                                                  \
    } while (0)

static void
test_watches__are_told_all_behind_where_they_began(void **state)
{
    (void)state;
    assert_told(true, true, BEGUN(0), SET(1, "a/x", 1), SET(2, "a/x", 2), SET(2, "a/y", 2),
                DELETED(4, "a/x"), SET(5, "a/y", 5));
    assert_told(true, true, BEGUN(2), DELETED(4, "a/x"), SET(5, "a/y", 5));
    assert_told(true, true, BEGUN(2), DELETED(4, "a/x"), RESUMED(6), SET(5, "a/y", 5));
    assert_told(true, true, BEGUN(0), SET(1, "a/x", 1), BEGUN(4), SET(5, "a/y", 5)); /* anew */
    assert_told(true, true, BEGUN(5));
    assert_told(true, false, BEGUN(2), DELETED(4, "a/x"));
}

static void
test_watches__must_not_be_told_out_of_order(void **state)
{
    (void)state;
    assert_told(false, false, BEGUN(2), SET(5, "a/y", 5), DELETED(4, "a/x"));
    assert_told(false, false, BEGUN(1), SET(2, "a/y", 2), SET(2, "a/x", 2));
}

static void
test_watches__must_not_be_told_twice(void **state)
{
    (void)state;
    assert_told(false, false, BEGUN(2), DELETED(4, "a/x"), DELETED(4, "a/x"));
    assert_told(false, false, BEGUN(2), DELETED(4, "a/x"), RESUMED(6), DELETED(4, "a/x"));
    assert_told(false, false, BEGUN(4), DELETED(4, "a/x"));
}

static void
test_watches__must_not_miss_a_change(void **state)
{
    (void)state;
    assert_told(false, false, BEGUN(2), SET(5, "a/y", 5));
    assert_told(false, false, BEGUN(0), SET(1, "a/x", 1), SET(2, "a/x", 2), DELETED(4, "a/x"));
    assert_told(false, false, BEGUN(0), SET(1, "a/x", 1), RESUMED(2), DELETED(4, "a/x"));
    assert_told(false, true, BEGUN(2), DELETED(4, "a/x"));
    assert_text_has(words, "told nothing");
}

static void
test_watches__must_not_be_told_what_has_not_happened(void **state)
{
    (void)state;
    assert_told(false, false, BEGUN(2), SET(4, "a/x", 1));
    assert_told(false, false, BEGUN(2), DELETED(4, "a/z"));
    assert_told(false, false, BEGUN(4), SET(5, "a/y", 6));
    assert_told(false, false, BEGUN(5), SET(7, "a/y", 6));
    assert_told(false, false, SET(1, "a/x", 1));
    assert_told(false, false, {.kind = WATCHES_BEGUN, .version = 2, .floor = 3});
}

/* ------------------------------------------------------------------------------ leases */

#define GRANT(from, to, ttl)                                                                       \
    {                                                                                              \
        LEASES_GRANT, (from), (to), true, (ttl)                                                    \
    }
#define EVENT(kind, from, to)                                                                      \
    {                                                                                              \
        LEASES_##kind, (from), (to), true, 0                                                       \
    }
#define MAYBE(kind, from, to)                                                                      \
    {                                                                                              \
        LEASES_##kind, (from), (to), false, 0                                                      \
    }
#define SLACK 5

#define assert_leased(wanted, until, ...)                                                          \
    do {                                                                                           \
        const leases_event events[] = {__VA_ARGS__};                                               \
        assert_int_equal(                                                                          \
            leases_check(events, COUNT_OF(events), SLACK, until, words, sizeof(words)), wanted);   \
    } while (0)

static void
test_leases__end_when_nobody_has_kept_them_for_their_time(void **state)
{
    (void)state;
    assert_leased(true, 999, GRANT(10, 12, 100), EVENT(GONE, 113, 113));
    assert_leased(true, 999, GRANT(10, 12, 100), EVENT(KEEP, 60, 62), EVENT(GONE, 164, 164));
    assert_leased(true, 999, GRANT(10, 12, 100), MAYBE(KEEP, 60, 62), EVENT(GONE, 164, 164));
    assert_leased(true, 999, GRANT(10, 12, 100), MAYBE(KEEP, 60, 62), EVENT(GONE, 112, 112));
    assert_leased(true, 999, GRANT(10, 12, 100), EVENT(RESTART, 60, 80), EVENT(GONE, 181, 181));
    assert_leased(true, 999, GRANT(10, 12, 100), EVENT(KEEP, 130, 170), EVENT(RESTART, 160, 161),
                  EVENT(GONE, 271, 271));
    assert_leased(true, 999, GRANT(10, 12, 100), EVENT(REVOKE, 60, 62), EVENT(GONE, 61, 61));
    assert_leased(true, 100, GRANT(10, 12, 100));
    assert_leased(true, 999, GRANT(10, 12, 100), EVENT(MISSED, 500, 502));
    assert_leased(true, 999, GRANT(10, 12, 100), GRANT(20, 22, 10), EVENT(GONE, 33, 33));
}

static void
test_leases__must_not_end_early(void **state)
{
    (void)state;
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(GONE, 109, 109));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(KEEP, 60, 62), EVENT(GONE, 115, 115));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(MISSED, 50, 55));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(RESTART, 60, 80), EVENT(GONE, 115, 115));
}

static void
test_leases__must_not_end_late(void **state)
{
    (void)state;
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(GONE, 120, 120));
    assert_leased(false, 999, GRANT(10, 12, 100));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(KEEP, 130, 132), EVENT(GONE, 233, 233));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(KEEP, 130, 150), EVENT(RESTART, 160, 161),
                  EVENT(GONE, 262, 262));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(REVOKE, 60, 62), EVENT(GONE, 90, 90));
    assert_text_has(words, "should have ended");
}

/* As by a leader that leads no more. */
static void
test_leases__must_not_come_back(void **state)
{
    (void)state;
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(GONE, 113, 113), EVENT(KEEP, 114, 115),
                  EVENT(GONE, 215, 215));
    assert_leased(false, 999, GRANT(10, 12, 100), EVENT(MISSED, 113, 114), EVENT(KEEP, 115, 116));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watches__are_told_all_behind_where_they_began),
        cmocka_unit_test(test_watches__must_not_be_told_out_of_order),
        cmocka_unit_test(test_watches__must_not_be_told_twice),
        cmocka_unit_test(test_watches__must_not_miss_a_change),
        cmocka_unit_test(test_watches__must_not_be_told_what_has_not_happened),
        cmocka_unit_test(test_leases__end_when_nobody_has_kept_them_for_their_time),
        cmocka_unit_test(test_leases__must_not_end_early),
        cmocka_unit_test(test_leases__must_not_end_late),
        cmocka_unit_test(test_leases__must_not_come_back),
    };

    return cmocka_run_group_tests_name("sim/watches", tests, NULL, NULL);
}
