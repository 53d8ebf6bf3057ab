/*
 * Goal: keys of a job behave like a c10d store, and stay the job's.
 * Method: a coordinator with a clock we turn over the store in memory.
 */
#include "support/testing.h"

#include <inttypes.h>

#include "server/coordinator/fixture.h"

static uint64_t
set_in(const char *job, const char *key, const char *value)
{
    const tutti_coordinator_key full = {job, tutti_bytes_of(key)};
    uint64_t version = 0;
    tutti_error err;

    assert_ok(tutti_coordinator_key_set(fix.self, &full, tutti_bytes_of(value), &version, &err));
    return version;
}

static uint64_t
set(const char *key, const char *value)
{
    return set_in(NULL, key, value);
}

static bool
remove_key(const char *key)
{
    const tutti_coordinator_key full = key_of(key);
    bool existed = false;
    tutti_error err;

    assert_ok(tutti_coordinator_key_delete(fix.self, &full, &existed, &err));
    return existed;
}

static void
assert_stored_in(const char *job, const char *key, const char *value)
{
    const tutti_coordinator_key full = {job, tutti_bytes_of(key)};
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_coordinator_key_get(fix.self, &full, &entry, &err));
    assert_true(tutti_bytes_equal(entry.key, tutti_bytes_of(key)));
    assert_true(tutti_bytes_equal(entry.value, tutti_bytes_of(value)));
}

static void
test_key__is_read_back_with_its_version(void **state)
{
    const tutti_coordinator_key key = key_of("k");
    tutti_store_entry entry;
    uint64_t version;
    tutti_error err;

    (void)state;
    assert_fails(tutti_coordinator_key_get(fix.self, &key, &entry, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_KEY");
    assert_text_has(err.text, "no key \"k\" in job default");
    (void)set("other", "x");
    version = set("k", "v");
    assert_ok(tutti_coordinator_key_get(fix.self, &key, &entry, &err));
    assert_int_equal(entry.version, version);
    assert_stored_in("default", "k", "v");
    assert_true(remove_key("k"));
    assert_false(remove_key("k"));
}

static void
test_jobs__never_see_each_others_keys(void **state)
{
    const tutti_coordinator_key key = {"a", BYTES("k")};
    tutti_store_entry entry;
    tutti_error err;

    (void)state;
    (void)set_in("a/b", "k", "in a/b");
    (void)set_in("a", "/b\0k", "in a");
    assert_fails(tutti_coordinator_key_get(fix.self, &key, &entry, &err), TUTTI_NOT_FOUND);
    (void)set_in("a", "k", "in a");
    assert_stored_in("a/b", "k", "in a/b");
    assert_stored_in("a", "k", "in a");
}

static void
test_key__of_a_bad_size_or_job_is_refused(void **state)
{
    static char big[TUTTI_COORDINATOR_KEY_MAX + 1];
    const tutti_coordinator_key none = {NULL, BYTES("")};
    const tutti_coordinator_key largest = {NULL, {big, sizeof(big) - 1}};
    const tutti_coordinator_key larger = {NULL, {big, sizeof(big)}};
    const tutti_coordinator_key elsewhere = {"no job", BYTES("k")};
    uint64_t version;
    tutti_error err;

    (void)state;
    assert_fails(tutti_coordinator_key_set(fix.self, &none, BYTES("v"), &version, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_KEY");
    assert_fails(tutti_coordinator_key_set(fix.self, &larger, BYTES("v"), &version, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "1025 bytes, need 1 to 1024");
    assert_ok(tutti_coordinator_key_set(fix.self, &largest, BYTES("v"), &version, &err));
    assert_fails(tutti_coordinator_key_set(fix.self, &elsewhere, BYTES("v"), &version, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_NAME");
}

static void
test_swap__follows_its_rules(void **state)
{
    static const struct {
        const char *stored; /* NULL = no key */
        const char *expected;
        bool swapped;
        const char *now; /* NULL = no key */
        bool missing_is_empty;
    } cases[] = {
        {NULL, NULL, true, "new", false},   {NULL, "old", false, NULL, false},
        {"old", "old", true, "new", false}, {"old", "x", false, "old", false},
        {"old", NULL, false, "old", false}, {"", "", true, "new", false},
        {NULL, "", false, NULL, false},     {"old", "", false, "old", false},
        {"new", "new", true, "new", false}, {NULL, "", true, "new", true},
        {NULL, "old", false, NULL, true},   {"old", "", false, "old", true},
        {"", "", true, "new", true},
    };
    const tutti_coordinator_key key = key_of("k");
    size_t i;
    tutti_error err;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const tutti_bytes expected =
            tutti_bytes_of(cases[i].expected == NULL ? "" : cases[i].expected);
        const tutti_coordinator_swap_request request = {
            .key = key,
            .expected = cases[i].expected == NULL ? NULL : &expected,
            .missing_is_empty = cases[i].missing_is_empty,
            .value = BYTES("new")};
        tutti_coordinator_swap swap;

        (void)remove_key("k");
        if (cases[i].stored != NULL) {
            (void)set("k", cases[i].stored);
        }
        assert_ok(tutti_coordinator_key_swap(fix.self, &request, &swap, &err));
        assert_int_equal(swap.swapped, cases[i].swapped);
        assert_int_equal(swap.exists, cases[i].now != NULL);
        if (cases[i].now != NULL) {
            assert_true(tutti_bytes_equal(swap.entry.value, tutti_bytes_of(cases[i].now)));
            assert_true(tutti_bytes_equal(swap.entry.key, BYTES("k")));
            assert_true(swap.entry.version > 0);
        }
    }
}

static tutti_code
add(const char *key, int64_t delta, int64_t *ret_value, tutti_error *err)
{
    const tutti_coordinator_change change = {.key = key_of(key)};
    tutti_coordinator_changed changed = {.number = *ret_value};
    const tutti_code code = tutti_coordinator_key_add(fix.self, &change, delta, &changed, err);

    *ret_value = changed.number;
    return code;
}

static void
test_add__counts_in_decimal_text(void **state)
{
    int64_t value = 0;
    tutti_error err;

    (void)state;
    assert_ok(add("n", 5, &value, &err));
    assert_int_equal(value, 5);
    assert_ok(add("n", -12, &value, &err));
    assert_int_equal(value, -7);
    assert_stored_in(NULL, "n", "-7");
    (void)set("n", "41");
    assert_ok(add("n", 1, &value, &err));
    assert_int_equal(value, 42);
    assert_ok(add("zero", 0, &value, &err));
    assert_stored_in(NULL, "zero", "0");
}

static void
test_add__refuses_what_is_no_number(void **state)
{
    static const char *const bad[] = {"",
                                      "x",
                                      "1x",
                                      " 1",
                                      "+1",
                                      "-",
                                      "1.0",
                                      "0x1",
                                      "1 ",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "123456789012345678901234567890"};
    int64_t value = 77;
    size_t i;
    tutti_error err;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        (void)set("n", bad[i]);
        assert_fails(add("n", 1, &value, &err), TUTTI_FAILED_PRECONDITION);
        assert_string_equal(err.reason, "NOT_A_NUMBER");
        assert_stored_in(NULL, "n", bad[i]);
    }
    assert_int_equal(value, 77);
}

static void
test_add__refuses_what_does_not_fit(void **state)
{
    int64_t value = 0;
    tutti_error err;

    (void)state;
    (void)set("n", "9223372036854775806");
    assert_ok(add("n", 1, &value, &err));
    assert_true(value == INT64_MAX);
    assert_fails(add("n", 1, &value, &err), TUTTI_OUT_OF_RANGE);
    assert_string_equal(err.reason, "OVERFLOW");
    assert_stored_in(NULL, "n", "9223372036854775807");
    (void)set("n", "-9223372036854775808");
    assert_fails(add("n", -1, &value, &err), TUTTI_OUT_OF_RANGE);
    assert_ok(add("n", INT64_MAX, &value, &err));
    assert_int_equal(value, -1);
}

static void
list(const char *prefix, const char *after, uint32_t page_size, char *ret_text, bool *ret_more)
{
    const tutti_coordinator_list_request request = {
        .prefix = key_of(prefix), .after = tutti_bytes_of(after), .page_size = page_size};
    tutti_coordinator_page page = {0};
    tutti_error err;
    size_t i;

    assert_ok(tutti_coordinator_key_list(fix.self, &request, &page, &err));
    ret_text[0] = '\0';
    for (i = 0; i < page.count; i++) {
        (void)strncat(ret_text, page.entries[i].key.data, page.entries[i].key.size);
        (void)strcat(ret_text, "=");
        (void)strncat(ret_text, page.entries[i].value.data, page.entries[i].value.size);
        (void)strcat(ret_text, ",");
    }
    *ret_more = page.more;
    tutti_coordinator_page_fini(&page);
}

static void
test_list__gives_pages_in_order(void **state)
{
    char text[256];
    bool more = false;

    (void)state;
    (void)set("b/2", "y");
    (void)set("b/1", "x");
    (void)set("c", "z");
    (void)set("b/3", "");
    (void)set_in("elsewhere", "b/0", "w");
    list("b/", "", 2, text, &more);
    assert_string_equal(text, "b/1=x,b/2=y,");
    assert_true(more);
    list("b/", "b/2", 2, text, &more);
    assert_string_equal(text, "b/3=,");
    assert_false(more);
    list("", "", 0, text, &more);
    assert_string_equal(text, "b/1=x,b/2=y,b/3=,c=z,");
    list("", "c", 0, text, &more);
    assert_string_equal(text, "");
    assert_false(more);
    list("b/", "b/1", 1, text, &more);
    assert_string_equal(text, "b/2=y,");
    assert_true(more);
}

static void
test_list__ends_a_page_before_2_mib(void **state)
{
    static char big[900 << 10];
    tutti_coordinator_list_request request = {.prefix = key_of("")};
    tutti_coordinator_page page = {0};
    char key[8];
    uint64_t version;
    tutti_error err;
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        tutti_coordinator_key full = {NULL, {key, 2}};

        (void)snprintf(key, sizeof(key), "k%d", i);
        assert_ok(tutti_coordinator_key_set(fix.self, &full, (tutti_bytes){big, sizeof(big)},
                                            &version, &err));
    }
    assert_ok(tutti_coordinator_key_list(fix.self, &request, &page, &err));
    assert_int_equal(page.count, 2);
    assert_true(page.more);
    tutti_coordinator_page_fini(&page);
    request.keys_only = true;
    assert_ok(tutti_coordinator_key_list(fix.self, &request, &page, &err));
    assert_int_equal(page.count, 5);
    assert_int_equal(page.entries[4].value.size, 0);
    tutti_coordinator_page_fini(&page);
    request.page_size = 1001;
    assert_fails(tutti_coordinator_key_list(fix.self, &request, &page, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "PAGE_LIMIT");
}

static void
test_count__counts_a_prefix_however_long_it_takes(void **state)
{
    const tutti_coordinator_key all = key_of("");
    const tutti_coordinator_key some = key_of("k1");
    static counter counters[2];
    char key[16];
    tutti_error err;
    int i;

    (void)state;
    (void)set_in("elsewhere", "k1", "w");
    for (i = 0; i < 5000; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        (void)set(key, "");
    }
    assert_ok(counter_start(&fix, &counters[0], &all, &err));
    assert_ok(counter_start(&fix, &counters[1], &some, &err));
    fixture_run(&fix, false);
    assert_int_equal(counters[0].answer_count, 0); /* in slices */
    fixture_settle(&fix);
    assert_int_equal(counters[0].answer_count, 1);
    assert_int_equal(counters[0].number, 5000);
    assert_int_equal(counters[1].number, 1111);
    assert_ok(counter_start(&fix, &counters[0], &all, &err));
    fixture_run(&fix, false);
    tutti_coordinator_count_withdraw(&counters[0].count);
    fixture_settle(&fix);
    assert_int_equal(counters[0].answer_count, 0);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_key__is_read_back_with_its_version),
        SENTENCE(test_jobs__never_see_each_others_keys),
        SENTENCE(test_key__of_a_bad_size_or_job_is_refused),
        SENTENCE(test_swap__follows_its_rules),
        SENTENCE(test_add__counts_in_decimal_text),
        SENTENCE(test_add__refuses_what_is_no_number),
        SENTENCE(test_add__refuses_what_does_not_fit),
        SENTENCE(test_list__gives_pages_in_order),
        SENTENCE(test_list__ends_a_page_before_2_mib),
        SENTENCE(test_count__counts_a_prefix_however_long_it_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
