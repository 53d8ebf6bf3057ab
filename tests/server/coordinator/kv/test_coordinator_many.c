/*
 * Goal: many keys in one call are read, stored and looked for together; values grow.
 * Method: a coordinator with a clock we turn over the store in memory.
 */
#include "server/coordinator/fixture.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/multi.h"
#include "support/testing.h"

static const tutti_bytes abc[] = {{"a", 1}, {"b", 1}, {"c", 1}};

static void
set(const char *key, const char *value)
{
    const tutti_coordinator_key full = key_of(key);
    uint64_t version;
    tutti_error err;

    assert_ok(tutti_coordinator_key_set(fix.self, &full, tutti_bytes_of(value), &version, &err));
}

static void
assert_stored(const char *key, const char *value)
{
    const tutti_coordinator_key full = key_of(key);
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_coordinator_key_get(fix.self, &full, &entry, &err));
    assert_true(tutti_bytes_equal(entry.value, tutti_bytes_of(value)));
}

/* A MultiGet that waits. */
typedef struct reader {
    tutti_coordinator_key_wait wait;
    int answer_count;
    char text[64]; /* values, each with a comma behind it */
    bool failed;
    tutti_error err;
} reader;

static void
add_values(const tutti_coordinator_page *page, char *ret_text)
{
    size_t i;

    ret_text[0] = '\0';
    for (i = 0; i < page->count; i++) {
        (void)strncat(ret_text, page->entries[i].value.data, page->entries[i].value.size);
        (void)strcat(ret_text, ",");
    }
}

static void
on_values(tutti_coordinator_key_wait *wait, uint64_t version, const tutti_error *err)
{
    reader *one = tutti_container_of(wait, reader, wait);

    (void)version;
    one->answer_count++;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    } else {
        add_values(wait->values, one->text);
    }
}

static tutti_code
read_when_there(reader *one, const tutti_bytes *keys, size_t count, tutti_error *err)
{
    const tutti_coordinator_wait_request request = {
        .keys = keys, .count = count, .with_values = true, .deadline_ns = fix.now_ns + SECOND};

    *one = (reader){.wait = {.on_answer = on_values}};
    return tutti_coordinator_key_wait_start(fix.self, &request, &one->wait, err);
}

static void
test_multi_get__waits_for_all_and_reads_them_together(void **state)
{
    static reader one;
    tutti_error err;

    (void)state;
    set("a", "1");
    assert_ok(read_when_there(&one, abc, 3, &err));
    fixture_settle(&fix);
    set("b", "");
    set("a", "changed");
    assert_int_equal(one.answer_count, 0);
    set("c", "3");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_string_equal(one.text, "changed,,3,");
}

static void
test_multi_get__whose_time_is_up_names_the_missing(void **state)
{
    static reader one;
    tutti_error err;

    (void)state;
    set("b", "2");
    assert_ok(read_when_there(&one, abc, 3, &err));
    fixture_advance(&fix, SECOND + MS);
    assert_true(one.failed);
    assert_string_equal(one.err.reason, "TIMEOUT");
    assert_text_has(one.err.text, "2 of 3 keys did not come in time: \"a\", \"c\"");
}

static void
test_multi_get__at_once_names_the_missing_too(void **state)
{
    const tutti_coordinator_keys keys = {NULL, abc, 3};
    tutti_coordinator_page page = {0};
    char text[64];
    tutti_error err;

    (void)state;
    set("b", "2");
    assert_fails(tutti_coordinator_keys_get(fix.self, &keys, &page, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_KEY");
    assert_text_has(err.text, "2 of 3 keys are not there: \"a\", \"c\"");
    set("a", "1");
    set("c", "3");
    assert_ok(tutti_coordinator_keys_get(fix.self, &keys, &page, &err));
    add_values(&page, text);
    assert_string_equal(text, "1,2,3,");
    tutti_coordinator_page_fini(&page);
}

static void
test_multi_get__of_more_than_an_answer_holds_is_refused(void **state)
{
    static char big[1 << 20];
    const tutti_bytes keys[] = {BYTES("a"), BYTES("a"), BYTES("a"), BYTES("b")};
    const tutti_coordinator_keys request = {NULL, keys, 4};
    const tutti_coordinator_key key = key_of("a");
    tutti_coordinator_page page = {0};
    static reader one;
    uint64_t version;
    tutti_error err;

    (void)state;
    assert_ok(
        tutti_coordinator_key_set(fix.self, &key, (tutti_bytes){big, sizeof(big)}, &version, &err));
    set("b", "x");
    assert_fails(tutti_coordinator_keys_get(fix.self, &request, &page, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MULTI_LIMIT");
    tutti_coordinator_page_fini(&page);
    assert_ok(read_when_there(&one, keys, 4, &err));
    fixture_settle(&fix);
    assert_string_equal(one.err.reason, "MULTI_LIMIT");
    assert_ok(read_when_there(&one, &keys[2], 2, &err));
    tutti_coordinator_key_wait_withdraw(&one.wait);
}

static void
test_multi__without_keys_or_with_too_many_is_refused(void **state)
{
    static tutti_bytes many[TUTTI_COORDINATOR_WAIT_KEYS_MAX + 1];
    tutti_coordinator_keys keys = {NULL, many, 0};
    tutti_coordinator_page page = {0};
    static bool exist[TUTTI_COORDINATOR_WAIT_KEYS_MAX + 1];
    static reader one;
    uint64_t version;
    bool all;
    tutti_error err;

    (void)state;
    for (keys.count = 0; keys.count <= COUNT_OF(many); keys.count += COUNT_OF(many)) {
        assert_fails(tutti_coordinator_keys_get(fix.self, &keys, &page, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "KEYS_LIMIT");
        assert_fails(tutti_coordinator_keys_set(fix.self, &keys, many, &version, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "KEYS_LIMIT");
        assert_fails(tutti_coordinator_keys_check(fix.self, &keys, exist, &all, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_fails(read_when_there(&one, many, keys.count, &err), TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "KEYS_LIMIT");
    }
}

static void
test_multi_set__stores_all_or_none(void **state)
{
    static char big[1 << 20];
    const tutti_coordinator_keys keys = {NULL, abc, 3};
    const tutti_bytes good[] = {BYTES("1"), BYTES(""), BYTES("3")};
    const tutti_bytes large[] = {BYTES("x"), {big, sizeof(big)}, {big, sizeof(big) + 1}};
    const tutti_bytes heavy[] = {{big, sizeof(big)}, {big, sizeof(big)}, {big, sizeof(big)}};
    static waiter one;
    const tutti_coordinator_wait_request wait = {
        .keys = abc, .count = 3, .deadline_ns = fix.now_ns + SECOND};
    uint64_t version = 0;
    tutti_error err;

    (void)state;
    set("a", "before");
    assert_ok(waiter_start(&fix, &one, &wait, &err));
    assert_fails(tutti_coordinator_keys_set(fix.self, &keys, heavy, &version, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "MULTI_LIMIT");
    assert_fails(tutti_coordinator_keys_set(fix.self, &keys, large, &version, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "VALUE_LIMIT");
    fixture_settle(&fix);
    assert_stored("a", "before");
    assert_int_equal(one.answer_count, 0);
    assert_ok(tutti_coordinator_keys_set(fix.self, &keys, good, &version, &err));
    fixture_settle(&fix);
    assert_int_equal(version, 2);
    assert_int_equal(one.answer_count, 1);
    assert_stored("a", "1");
    assert_stored("b", "");
    assert_stored("c", "3");
}

static void
test_multi_set__tells_who_watches_each_key(void **state)
{
    const tutti_coordinator_keys keys = {NULL, abc, 2};
    const tutti_bytes values[] = {BYTES("1"), BYTES("2")};
    static watcher one;
    uint64_t version;
    tutti_error err;

    (void)state;
    assert_ok(watcher_start(&fix, &one, NULL, "", &err));
    fixture_settle(&fix);
    assert_ok(tutti_coordinator_keys_set(fix.self, &keys, values, &version, &err));
    fixture_settle(&fix);
    assert_string_equal(one.text, "begun,set a=1,set b=2,");
    assert_int_equal(one.version, version);
}

static void
test_check__says_of_each_key_whether_it_is_there(void **state)
{
    const tutti_coordinator_keys keys = {NULL, abc, 3};
    bool exist[3];
    bool all = true;
    tutti_error err;

    (void)state;
    set("b", "");
    assert_ok(tutti_coordinator_keys_check(fix.self, &keys, exist, &all, &err));
    assert_false(all);
    assert_false(exist[0]);
    assert_true(exist[1]);
    set("a", "");
    set("c", "");
    assert_ok(tutti_coordinator_keys_check(fix.self, &keys, exist, &all, &err));
    assert_true(all);
}

static void
test_append__makes_values_longer_up_to_the_limit(void **state)
{
    static char big[(1 << 20) - 5];
    const tutti_coordinator_change change = {.key = key_of("k")};
    tutti_coordinator_changed changed = {0};
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_key_append(fix.self, &change, BYTES("po"), &changed, &err));
    assert_int_equal(changed.number, 2);
    assert_ok(tutti_coordinator_key_append(fix.self, &change, BYTES("tato"), &changed, &err));
    assert_ok(tutti_coordinator_key_append(fix.self, &change, BYTES(""), &changed, &err));
    assert_int_equal(changed.number, 6);
    assert_stored("k", "potato");
    assert_fails(tutti_coordinator_key_append(fix.self, &change, (tutti_bytes){big, sizeof(big)},
                                              &changed, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "VALUE_LIMIT");
    assert_stored("k", "potato");
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_multi_get__waits_for_all_and_reads_them_together),
        SENTENCE(test_multi_get__whose_time_is_up_names_the_missing),
        SENTENCE(test_multi_get__at_once_names_the_missing_too),
        SENTENCE(test_multi_get__of_more_than_an_answer_holds_is_refused),
        SENTENCE(test_multi__without_keys_or_with_too_many_is_refused),
        SENTENCE(test_multi_set__stores_all_or_none),
        SENTENCE(test_multi_set__tells_who_watches_each_key),
        SENTENCE(test_check__says_of_each_key_whether_it_is_there),
        SENTENCE(test_append__makes_values_longer_up_to_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
