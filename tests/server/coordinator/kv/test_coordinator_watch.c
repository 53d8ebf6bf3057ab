/*
 * Goal: who waits for keys or watches them hears of every change, once, and keys go with their job.
 * Method: a coordinator with a clock we turn over the store in memory.
 */
#include "support/testing.h"

#include "server/coordinator/fixture.h"
#include "server/coordinator/kv/multi.h"

static watcher watchers[4];

static void
reopen(const tutti_coordinator_options *options)
{
    fixture_close(&fix);
    fixture_open(&fix, options);
}

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

static tutti_code
add(const char *key, int64_t delta, int64_t *ret_value, tutti_error *err)
{
    const tutti_coordinator_change change = {.key = key_of(key)};
    tutti_coordinator_changed changed = {0};
    const tutti_code code = tutti_coordinator_key_add(fix.self, &change, delta, &changed, err);

    *ret_value = changed.number;
    return code;
}

/* ------------------------------------------------------------------------------ wait */

static void
wait_for(waiter *one, const tutti_bytes *keys, size_t count)
{
    const tutti_coordinator_wait_request request = {
        .keys = keys, .count = count, .deadline_ns = fix.now_ns + 10 * SECOND};
    tutti_error err;

    assert_ok(waiter_start(&fix, one, &request, &err));
    assert_int_equal(one->answer_count, 0);
}

static void
test_wait__is_over_when_all_keys_exist(void **state)
{
    const tutti_bytes keys[] = {BYTES("a"), BYTES("b"), BYTES("a"), BYTES("c")};
    static waiter one;
    uint64_t version;

    (void)state;
    (void)set("b", "x");
    wait_for(&one, keys, 4);
    fixture_settle(&fix);
    (void)set("a", "x");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 0);
    (void)set_in("elsewhere", "c", "x");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 0);
    version = set("c", "x");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
    assert_int_equal(one.version, version);
}

static void
test_wait__for_keys_that_are_there_is_over_at_once(void **state)
{
    const tutti_bytes keys[] = {BYTES("a")};
    static waiter one;

    (void)state;
    (void)set("a", "");
    wait_for(&one, keys, 1);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
}

static void
test_wait__wants_all_keys_at_one_moment(void **state)
{
    const tutti_bytes keys[] = {BYTES("a"), BYTES("b")};
    static waiter one;

    (void)state;
    wait_for(&one, keys, 2);
    (void)set("a", "x");
    (void)remove_key("a");
    (void)set("b", "x");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 0);
    (void)set("a", "x");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
}

static void
test_wait__by_add_and_swap_is_woken_too(void **state)
{
    const tutti_bytes keys[] = {BYTES("n"), BYTES("s")};
    const tutti_coordinator_swap_request request = {.key = key_of("s"), .value = BYTES("v")};
    tutti_coordinator_swap swap;
    static waiter one;
    int64_t value;
    tutti_error err;

    (void)state;
    wait_for(&one, keys, 2);
    assert_ok(add("n", 1, &value, &err));
    assert_ok(tutti_coordinator_key_swap(fix.self, &request, &swap, &err));
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
}

static void
test_wait__that_times_out_lists_the_missing_keys(void **state)
{
    static tutti_bytes keys[20];
    static char names[20][8];
    static waiter one;
    static waiter odd;
    const tutti_bytes odd_keys[] = {BYTES("a\0\xff\"\n")};
    size_t i;

    (void)state;
    for (i = 0; i < 20; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "k%zu", i);
        keys[i] = tutti_bytes_of(names[i]);
    }
    wait_for(&one, keys, 20);
    wait_for(&odd, odd_keys, 1);
    (void)set("k1", "x");
    fixture_advance(&fix, 10 * SECOND);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(one.err.code, TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(one.err.reason, "TIMEOUT");
    assert_text_has(one.err.text, "19 of 20 keys did not come in time: \"k0\", \"k2\", ");
    assert_text_has(one.err.text, "\"k16\", and 3 more");
    assert_text_has(odd.err.text, "\"a\\x00\\xff\\x22\\x0a\"");
    (void)set("k0", "x");
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
}

static void
test_wait__whose_last_key_came_in_time_is_answered_when_we_are_late(void **state)
{
    const tutti_bytes keys[] = {BYTES("a")};
    static waiter one;

    (void)state;
    wait_for(&one, keys, 1);
    (void)set("a", "x");
    fix.now_ns += 11 * SECOND; /* the deadline passes before the answer's turn comes */
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
}

static void
test_wait__that_was_withdrawn_hears_nothing(void **state)
{
    const tutti_bytes keys[] = {BYTES("a")};
    static waiter waiters[2];

    (void)state;
    wait_for(&waiters[0], keys, 1);
    wait_for(&waiters[1], keys, 1);
    tutti_coordinator_key_wait_withdraw(&waiters[0].wait);
    (void)set("a", "x");
    tutti_coordinator_key_wait_withdraw(&waiters[1].wait); /* its answer was on the way */
    fixture_advance(&fix, 20 * SECOND);
    assert_int_equal(waiters[0].answer_count + waiters[1].answer_count, 0);
}

static void
test_wait__of_a_bad_request_is_refused(void **state)
{
    static tutti_bytes keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX + 1];
    tutti_coordinator_wait_request request = {.keys = keys};
    tutti_coordinator_options options;
    static waiter one;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(keys); i++) {
        keys[i] = BYTES("key");
    }
    assert_fails(waiter_start(&fix, &one, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "WAIT_LIMIT");
    request.count = COUNT_OF(keys);
    assert_fails(waiter_start(&fix, &one, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "1025 keys to wait for, need 1 to 1024");
    keys[3] = BYTES("");
    request.count = 4;
    assert_fails(waiter_start(&fix, &one, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_KEY");
    fixture_options(&options);
    options.wait_bytes_limit = 4096;
    reopen(&options);
    request.count = 1024;
    keys[3] = BYTES("key");
    assert_fails(waiter_start(&fix, &one, &request, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "--wait-bytes-limit");
}

/* ------------------------------------------------------------------------------ watch */

static void
watch(watcher *one, const char *prefix)
{
    tutti_error err;

    assert_ok(watcher_start(&fix, one, NULL, prefix, &err));
}

static void
test_watch__tells_every_change_of_its_prefix_in_order(void **state)
{
    int64_t value;
    uint64_t version;
    tutti_error err;

    (void)state;
    version = set("a/0", "before");
    watch(&watchers[0], "a/");
    (void)set("a/1", "1"); /* before the first message has left */
    fixture_settle(&fix);
    assert_string_equal(watchers[0].text, "begun,set a/1=1,");
    assert_int_equal(version + 1, watchers[0].version);
    (void)set("b", "x");
    (void)set_in("elsewhere", "a/1", "x");
    (void)set("a/", "");
    assert_ok(add("a/n", 3, &value, &err));
    (void)remove_key("a/1");
    (void)remove_key("a/absent");
    fixture_settle(&fix);
    assert_string_equal(watchers[0].text, "begun,set a/1=1,set a/=,set a/n=3,deleted a/1,");
}

static void
test_watches__of_different_prefixes_each_get_theirs(void **state)
{
    (void)state;
    watch(&watchers[0], "");
    watch(&watchers[1], "ab");
    watch(&watchers[2], "abc");
    watch(&watchers[3], "ab");
    fixture_settle(&fix);
    (void)set("abd", "1");
    (void)set("a", "2");
    (void)set("abc", "3");
    fixture_settle(&fix);
    assert_string_equal(watchers[0].text, "begun,set abd=1,set a=2,set abc=3,");
    assert_string_equal(watchers[1].text, "begun,set abd=1,set abc=3,");
    assert_string_equal(watchers[2].text, "begun,set abc=3,");
    assert_string_equal(watchers[3].text, "begun,set abd=1,set abc=3,");
    tutti_coordinator_watch_withdraw(&watchers[2].watch);
    tutti_coordinator_watch_withdraw(&watchers[1].watch);
    (void)set("abc", "4");
    fixture_settle(&fix);
    assert_string_equal(watchers[1].text, "begun,set abd=1,set abc=3,");
    assert_string_equal(watchers[3].text, "begun,set abd=1,set abc=3,set abc=4,");
}

static void
test_watcher__that_reads_slowly_keeps_all_up_to_the_limit(void **state)
{
    (void)state;
    watch(&watchers[0], "");
    fixture_settle(&fix);
    watchers[0].stuck = true;
    (void)set("k", "1");
    fixture_settle(&fix);
    (void)set("k", "2");
    (void)set("k", "3");
    fixture_settle(&fix);
    assert_string_equal(watchers[0].text, "begun,set k=1,");
    watchers[0].stuck = false;
    fixture_settle(&fix);
    assert_string_equal(watchers[0].text, "begun,set k=1,set k=2,set k=3,");
}

static void
assert_slow(const watcher *one, const char *limit)
{
    assert_int_equal(one->end_count, 1);
    assert_int_equal(one->err.code, TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(one->err.reason, "SLOW_WATCHER");
    assert_text_has(one->err.text, limit);
}

static void
test_watcher__that_is_too_slow_is_ended(void **state)
{
    int i;

    (void)state;
    watch(&watchers[0], "");
    watch(&watchers[1], "");
    fixture_settle(&fix);
    watchers[0].stuck = true;
    for (i = 0; i < 1025; i++) { /* one is in flight, 1024 wait */
        (void)set("k", "x");
        fixture_settle(&fix);
    }
    assert_int_equal(watchers[0].end_count, 0);
    (void)set("k", "x");
    fixture_settle(&fix);
    assert_slow(&watchers[0], "--watch-changes-limit");
    assert_int_equal(watchers[1].end_count, 0);
    assert_int_equal(watchers[1].change_count, 1 + 1026);
}

static void
test_watcher__of_too_many_bytes_is_ended(void **state)
{
    static char big[1 << 20];
    const tutti_coordinator_key key = key_of("k");
    uint64_t version;
    tutti_error err;
    int i;

    (void)state;
    watch(&watchers[0], "");
    fixture_settle(&fix);
    watchers[0].stuck = true;
    for (i = 0; i < 5; i++) {
        assert_int_equal(watchers[0].end_count, 0);
        assert_ok(tutti_coordinator_key_set(fix.self, &key, (tutti_bytes){big, sizeof(big)},
                                            &version, &err));
        fixture_settle(&fix);
    }
    assert_slow(&watchers[0], "--watch-backlog-limit");
}

static void
test_watchers__together_hold_no_more_than_the_limit(void **state)
{
    tutti_coordinator_options options;
    char value[1000];

    (void)state;
    fixture_options(&options);
    options.watch_bytes_limit = 4096;
    options.watcher_limit = 2;
    reopen(&options);
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    watch(&watchers[0], "a");
    watch(&watchers[1], "b");
    assert_fails(watcher_start(&fix, &watchers[2], NULL, "c", NULL), TUTTI_RESOURCE_EXHAUSTED);
    fixture_settle(&fix);
    watchers[0].stuck = true;
    watchers[1].stuck = true;
    (void)set("a", "in flight");
    (void)set("b", "in flight");
    fixture_settle(&fix);
    (void)set("a", value);
    (void)set("a", value);
    (void)set("a", value);
    fixture_settle(&fix);
    (void)set("b", value);
    fixture_settle(&fix);
    assert_int_equal(watchers[0].end_count, 0);
    assert_slow(&watchers[1], "--watch-bytes-limit");
}

/* ------------------------------------------------------------------------------ going on */

/* One that goes on behind the version that `before` was told last, of which `skip` changes were told. */
static tutti_code
go_on(watcher *one, const char *prefix, uint64_t from, uint32_t skip, tutti_error *err)
{
    const tutti_coordinator_watch_place place = {tutti_coordinator_watch_history(fix.self), from,
                                                 skip};

    return watcher_start_at(&fix, one, NULL, prefix, &place, err);
}

static void
stop_watch(watcher *one)
{
    tutti_coordinator_watch_withdraw(&one->watch);
    fixture_settle(&fix);
}

static void
assert_gap(const char *prefix, uint64_t from)
{
    tutti_error err;

    assert_int_equal(go_on(&watchers[3], prefix, from, 0, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "WATCH_GAP");
}

static void
begin_watch(watcher *one, const char *prefix)
{
    tutti_error err;

    assert_ok(watcher_start(&fix, one, NULL, prefix, &err));
    fixture_settle(&fix);
}

static void
must_go_on(watcher *one, const char *prefix, uint64_t from, uint32_t skip)
{
    tutti_error err;

    assert_ok(go_on(one, prefix, from, skip, &err));
    fixture_settle(&fix);
}

static void
test_watch__goes_on_where_another_has_ended(void **state)
{
    uint64_t version;

    (void)state;
    begin_watch(&watchers[0], "a/");
    version = set("a/1", "x");
    fixture_settle(&fix);
    stop_watch(&watchers[0]);
    (void)set("a/2", "y");
    (void)set("a/2", "z");
    (void)set("b/1", "elsewhere");
    assert_true(remove_key("a/1"));
    must_go_on(&watchers[1], "a/", version, 1);
    assert_string_equal(watchers[1].text, "begun,set a/2=y,set a/2=z,deleted a/1,");
    (void)set("a/3", "w");
    fixture_settle(&fix);
    assert_string_equal(watchers[1].text, "begun,set a/2=y,set a/2=z,deleted a/1,set a/3=w,");
}

static void
test_watch__goes_on_inside_of_changes_of_one_version(void **state)
{
    const tutti_bytes keys[] = {BYTES("a/1"), BYTES("a/2"), BYTES("a/3")};
    const tutti_bytes values[] = {BYTES("x"), BYTES("y"), BYTES("z")};
    const tutti_coordinator_keys all = {.keys = keys, .count = 3};
    uint64_t version = 0;
    tutti_error err;

    (void)state;
    begin_watch(&watchers[0], "a/");
    assert_ok(tutti_coordinator_keys_set(fix.self, &all, values, &version, &err));
    fixture_settle(&fix);
    must_go_on(&watchers[1], "a/", version, 2);
    assert_string_equal(watchers[1].text, "begun,set a/3=z,");
}

static void
test_watch__goes_on_at_the_next_coordinator(void **state)
{
    tutti_coordinator_options options = fix.options;
    uint64_t version;

    (void)state;
    options.durable = true;
    reopen(&options);
    begin_watch(&watchers[0], "a/");
    version = set("a/1", "x");
    fixture_settle(&fix);
    (void)set("a/1", "y");
    stop_watch(&watchers[0]);
    (void)set("a/2", "z");
    assert_true(remove_key("a/1"));
    fixture_restart(&fix);
    (void)set("a/3", "w"); /* before the watch has found the way */
    fixture_restart(&fix);
    must_go_on(&watchers[1], "a/", version, 1);
    assert_string_equal(watchers[1].text, "begun,set a/1=y,set a/2=z,deleted a/1,set a/3=w,");
}

static void
test_watch__does_not_go_on_where_changes_are_not_known(void **state)
{
    uint64_t version;
    uint64_t gone;
    tutti_error err;
    size_t i;
    tutti_coordinator_watch_place other = {1, 1, 0};

    (void)state;
    assert_gap("a/", 1); /* nobody has watched that */
    begin_watch(&watchers[0], "a/");
    version = tutti_store_version(fix.store);
    assert_gap("a/", version);     /* before it began */
    assert_gap("a/", version + 2); /* not yet */
    assert_int_equal(watcher_start_at(&fix, &watchers[3], NULL, "a/", &other, &err),
                     TUTTI_FAILED_PRECONDITION); /* of another store */
    gone = set("a/1", "0");
    for (i = 0; i < 5000; i++) {
        version = set("a/1", "1");
        fixture_settle(&fix);
        watchers[0].text[0] = '\0';
    }
    assert_gap("a/", gone);
    must_go_on(&watchers[1], "a/", version, 0);
    assert_string_equal(watchers[1].text, "begun,set a/1=1,");
    stop_watch(&watchers[0]);
    stop_watch(&watchers[1]);
    fixture_advance(&fix, fix.options.retry_window_ns + SECOND);
    assert_gap("a/", version); /* forgotten */
}

static void
test_watch__does_not_go_on_over_a_spoiled_history(void **state)
{
    static const unsigned char third[] = {'!', 'h', 0, 0, 0, 2};
    tutti_coordinator_options options = fix.options;
    uint64_t versions[5];
    tutti_error err;
    size_t i;

    (void)state;
    options.durable = true;
    reopen(&options);
    begin_watch(&watchers[0], "a/");
    for (i = 0; i < 5; i++) {
        versions[i] = set("a/1", "x");
    }
    fixture_settle(&fix);
    stop_watch(&watchers[0]);
    assert_ok(tutti_store_delete(fix.store, (tutti_bytes){third, sizeof(third)}, NULL, NULL, &err));
    fixture_restart(&fix);
    assert_gap("a/", versions[1]);
    assert_gap("a/", versions[3]);
    must_go_on(&watchers[1], "a/", versions[3] + 1, 0);
    assert_string_equal(watchers[1].text, "begun,set a/1=x,");
}

/* More changes than are kept, and a coordinator that is started again and again meanwhile. */
static void
test_watch__goes_on_over_many_coordinators(void **state)
{
    tutti_coordinator_options options = fix.options;
    char wanted[64];
    uint64_t version;
    size_t i;

    (void)state;
    options.durable = true;
    reopen(&options);
    begin_watch(&watchers[0], "a/");
    version = set("a/1", "first");
    for (i = 0; i < 10000; i++) {
        if (i % 97 == 0) {
            fixture_settle(&fix);
            stop_watch(&watchers[0]);
            (void)set("a/2", "missed");
            fixture_restart(&fix);
            must_go_on(&watchers[0], "a/", version, 1);
            (void)snprintf(wanted, sizeof(wanted), "begun,set a/2=missed,");
            assert_string_equal(watchers[0].text, wanted);
            version = watchers[0].version;
        }
        version = set("a/1", "1");
        fixture_settle(&fix);
        assert_int_equal(watchers[0].version, version);
        watchers[0].text[0] = '\0';
    }
}

static void
test_watch__of_a_quiet_prefix_goes_on_whatever_others_do(void **state)
{
    tutti_coordinator_options options = fix.options;
    uint64_t version;
    size_t i;

    (void)state;
    options.durable = true;
    reopen(&options);
    begin_watch(&watchers[0], "quiet/");
    begin_watch(&watchers[1], "loud/");
    version = set("quiet/1", "x");
    for (i = 0; i < 5000; i++) {
        (void)set("loud/1", "1");
        fixture_settle(&fix);
        watchers[1].text[0] = '\0';
    }
    assert_gap("quiet/", version); /* that change itself is no more kept */
    stop_watch(&watchers[0]);
    stop_watch(&watchers[1]);
    fixture_restart(&fix);
    must_go_on(&watchers[2], "quiet/", version + 1, 0);
    assert_string_equal(watchers[2].text, "begun,");
}

/* ------------------------------------------------------------------------------ a job's end */

static void
end_job(void)
{
    const tutti_coordinator_member member = member_of(0);
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, NULL, &err));
}

static void
test_keys__go_with_a_job_that_was_formed(void **state)
{
    tutti_store_stats stats;
    char key[16];
    int i;

    (void)state;
    (void)set_in("elsewhere", "stays", "x");
    for (i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        (void)set(key, "x");
    }
    watch(&watchers[0], "k17");
    form_world(&fix, 1);
    end_job();
    fixture_advance(&fix, 59 * SECOND);
    assert_stored_in(NULL, "k1", "x");
    fixture_advance(&fix, 1 * SECOND);
    tutti_store_stat(fix.store, &stats);
    assert_int_equal(stats.key_count, 1);
    assert_int_equal(watchers[0].change_count, 1 + 11);
    assert_text_has(watchers[0].text, "begun,deleted k17,deleted k170,");
}

static void
test_keys__of_the_next_job_are_not_those_that_are_going(void **state)
{
    const tutti_coordinator_key old = key_of("k999");
    tutti_store_entry entry;
    char key[16];
    tutti_error err;
    int i;

    (void)state;
    for (i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        (void)set(key, "x");
    }
    form_world(&fix, 1);
    end_job();
    fixture_advance(&fix, 60 * SECOND - 1);
    fix.now_ns += 1;
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    fixture_run(&fix, false); /* one slice: most of them are still there */
    (void)set("new", "y");
    assert_fails(tutti_coordinator_key_get(fix.self, &old, &entry, &err), TUTTI_NOT_FOUND);
    fixture_advance(&fix, 1 * SECOND);
    assert_stored_in(NULL, "new", "y");
}

static void
test_keys__of_a_job_that_begins_anew_stay(void **state)
{
    (void)state;
    (void)set("k", "x");
    form_world(&fix, 1);
    end_job();
    fixture_advance(&fix, 30 * SECOND);
    form_world(&fix, 1);
    assert_stored_in(NULL, "k", "x");
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_wait__is_over_when_all_keys_exist),
        SENTENCE(test_wait__for_keys_that_are_there_is_over_at_once),
        SENTENCE(test_wait__wants_all_keys_at_one_moment),
        SENTENCE(test_wait__by_add_and_swap_is_woken_too),
        SENTENCE(test_wait__that_times_out_lists_the_missing_keys),
        SENTENCE(test_wait__whose_last_key_came_in_time_is_answered_when_we_are_late),
        SENTENCE(test_wait__that_was_withdrawn_hears_nothing),
        SENTENCE(test_wait__of_a_bad_request_is_refused),
        SENTENCE(test_watch__tells_every_change_of_its_prefix_in_order),
        SENTENCE(test_watches__of_different_prefixes_each_get_theirs),
        SENTENCE(test_watcher__that_reads_slowly_keeps_all_up_to_the_limit),
        SENTENCE(test_watcher__that_is_too_slow_is_ended),
        SENTENCE(test_watcher__of_too_many_bytes_is_ended),
        SENTENCE(test_watchers__together_hold_no_more_than_the_limit),
        SENTENCE(test_watch__goes_on_where_another_has_ended),
        SENTENCE(test_watch__goes_on_inside_of_changes_of_one_version),
        SENTENCE(test_watch__goes_on_at_the_next_coordinator),
        SENTENCE(test_watch__does_not_go_on_where_changes_are_not_known),
        SENTENCE(test_watch__does_not_go_on_over_a_spoiled_history),
        SENTENCE(test_watch__goes_on_over_many_coordinators),
        SENTENCE(test_watch__of_a_quiet_prefix_goes_on_whatever_others_do),
        SENTENCE(test_keys__go_with_a_job_that_was_formed),
        SENTENCE(test_keys__of_the_next_job_are_not_those_that_are_going),
        SENTENCE(test_keys__of_a_job_that_begins_anew_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
