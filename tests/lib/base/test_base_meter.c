/*
 * Goal: what is counted is shown as Prometheus reads it, whatever the labels hold.
 * Method: pages are compared as text.
 */
#include <stdlib.h>
#include <string.h>

#include "support/testing.h"

#include "base/os/clock.h"
#include "base/os/meter.h"

static tutti_page page;

static int
begin(void **state)
{
    (void)state;
    tutti_page_init(&page);
    return 0;
}

static int
end(void **state)
{
    (void)state;
    tutti_page_fini(&page);
    return 0;
}

static const char *
text(void)
{
    (void)tutti_buf_add(&page.buf, "", 1, NULL);
    return (const char *)page.buf.data;
}

static void
test_page__shows_a_family_and_its_samples(void **state)
{
    (void)state;
    tutti_page_family(&page, "a_total", "counter", "How many.");
    tutti_page_number(&page, "a_total", "", 3);
    tutti_page_number(&page, "a_total", "kind=\"x\"", UINT64_MAX);
    tutti_page_seconds(&page, "b_seconds", "", 1500 * TUTTI_NS_PER_MS);
    assert_string_equal(text(), "# HELP a_total How many.\n# TYPE a_total counter\na_total 3\n"
                                "a_total{kind=\"x\"} 18446744073709551615\n"
                                "b_seconds 1.500000000\n");
    assert_false(page.failed);
}

static void
test_labels__escape_what_would_end_them(void **state)
{
    char labels[TUTTI_PAGE_LABELS_MAX];

    (void)state;
    tutti_page_labels(labels, (const char *const[]){"a", "x\"y\\z\n\x7f", "b", "", NULL});
    assert_string_equal(labels, "a=\"x\\\"y\\\\z  \",b=\"\"");
}

static void
test_labels__that_are_too_long_are_cut_and_still_closed(void **state)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    char name[TUTTI_PAGE_LABELS_MAX * 2];

    (void)state;
    memset(name, '"', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    tutti_page_labels(labels, (const char *const[]){"a", name, "b", "left out", NULL});
    assert_in_range(strlen(labels), TUTTI_PAGE_LABELS_MAX / 2, TUTTI_PAGE_LABELS_MAX - 1);
    assert_int_equal(labels[strlen(labels) - 1], '"');
    assert_int_equal(labels[strlen(labels) - 2], '"');  /* the last escaped one, ... */
    assert_int_equal(labels[strlen(labels) - 3], '\\'); /* ... with its backslash */
    assert_null(strstr(labels, "left out"));
}

static void
test_meter__counts_into_the_bucket_of_each_bound(void **state)
{
    tutti_meter meter = {0};

    (void)state;
    tutti_meter_add(&meter, 25 * TUTTI_NS_PER_US); /* its own bound: still inside */
    tutti_meter_add(&meter, 25 * TUTTI_NS_PER_US + 1);
    tutti_meter_add(&meter, 3600 * TUTTI_NS_PER_S);
    assert_int_equal(tutti_meter_count(&meter), 3);
    tutti_page_meter(&page, "d_seconds", "k=\"v\"", &meter);
    assert_non_null(strstr(text(), "d_seconds_bucket{k=\"v\",le=\"2.5e-05\"} 1\n"));
    assert_non_null(strstr(text(), "d_seconds_bucket{k=\"v\",le=\"0.0001\"} 2\n"));
    assert_non_null(strstr(text(), "d_seconds_bucket{k=\"v\",le=\"60\"} 2\n"));
    assert_non_null(strstr(text(), "d_seconds_bucket{k=\"v\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(text(), "d_seconds_sum{k=\"v\"} 3600.000050001\n"));
    assert_non_null(strstr(text(), "d_seconds_count{k=\"v\"} 3\n"));
}

static void
test_page__that_grows_beyond_its_limit_fails_as_a_whole(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < TUTTI_PAGE_BYTES_MAX / 8 && !page.failed; i++) {
        tutti_page_number(&page, "number", "", i);
    }
    assert_true(page.failed);
    assert_in_range(page.buf.size, 1, TUTTI_PAGE_BYTES_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_page__shows_a_family_and_its_samples, begin, end),
        cmocka_unit_test(test_labels__escape_what_would_end_them),
        cmocka_unit_test(test_labels__that_are_too_long_are_cut_and_still_closed),
        cmocka_unit_test_setup_teardown(test_meter__counts_into_the_bucket_of_each_bound, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_page__that_grows_beyond_its_limit_fails_as_a_whole,
                                        begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
