/*
 * Goal: what is taken is taken by one caller, in order, and once even when the call comes again.
 * Method: a coordinator with a clock we turn over the store in memory.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/multi.h"
#include "server/coordinator/kv/queue.h"
#include "server/coordinator/member/members.h"
#include "support/testing.h"

typedef struct taker {
    tutti_coordinator_take take;
    int answer_count;
    char value[64];
    uint64_t version;
    bool failed;
    tutti_error err;
} taker;

static void
on_taken(tutti_coordinator_take *take, const tutti_store_entry *entry, const tutti_error *err)
{
    taker *one = tutti_container_of(take, taker, take);

    one->answer_count++;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    } else {
        assert_true(entry->value.size < sizeof(one->value));
        memcpy(one->value, entry->value.data, entry->value.size);
        one->value[entry->value.size] = '\0';
        one->version = entry->version;
    }
}

static tutti_code
start(taker *one, const tutti_coordinator_take_request *request, tutti_error *err)
{
    *one = (taker){.take = {.on_answer = on_taken}};
    return tutti_coordinator_take_start(fix.self, request, &one->take, err);
}

/* Waits a second at most. */
static void
pop_with(taker *one, const char *key, uint64_t token)
{
    const tutti_coordinator_take_request request = {
        .key = key_of(key), .from_queue = true, .token = token, .deadline_ns = fix.now_ns + SECOND};
    tutti_error err;

    assert_ok(start(one, &request, &err));
}

static void
take(taker *one, const char *key)
{
    const tutti_coordinator_take_request request = {.key = key_of(key),
                                                    .deadline_ns = fix.now_ns + SECOND};
    tutti_error err;

    assert_ok(start(one, &request, &err));
}

static int64_t
push_with(const char *key, const char *value, uint64_t token)
{
    const tutti_coordinator_change change = {key_of(key), token};
    tutti_coordinator_changed changed = {0};
    tutti_error err;

    assert_ok(
        tutti_coordinator_queue_push(fix.self, &change, tutti_bytes_of(value), &changed, &err));
    return changed.number;
}

static int64_t
push(const char *key, const char *value)
{
    return push_with(key, value, 0);
}

static void
set(const char *key, const char *value)
{
    const tutti_coordinator_key full = key_of(key);
    uint64_t version;
    tutti_error err;

    assert_ok(tutti_coordinator_key_set(fix.self, &full, tutti_bytes_of(value), &version, &err));
}

static uint64_t
length(const char *key)
{
    const tutti_coordinator_key full = key_of(key);
    uint64_t count = 99;
    tutti_error err;

    assert_ok(tutti_coordinator_queue_length(fix.self, &full, &count, &err));
    return count;
}

static bool
exists(const char *key)
{
    const tutti_bytes bytes = tutti_bytes_of(key);
    const tutti_coordinator_keys keys = {NULL, &bytes, 1};
    bool each = false;
    bool all = false;
    tutti_error err;

    assert_ok(tutti_coordinator_keys_check(fix.self, &keys, &each, &all, &err));
    assert_int_equal(each, all);
    return all;
}

static void
assert_took(const taker *one, const char *value)
{
    assert_int_equal(one->answer_count, 1);
    assert_false(one->failed);
    assert_string_equal(one->value, value);
}

static void
assert_waits(const taker *one)
{
    assert_int_equal(one->answer_count, 0);
}

static void
test_queue__gives_back_in_order_and_is_gone_when_empty(void **state)
{
    static taker takers[3];
    tutti_store_stats stats;
    size_t i;

    (void)state;
    assert_int_equal(length("q"), 0);
    assert_int_equal(push("q", "a"), 1);
    assert_int_equal(push("q", ""), 2);
    assert_int_equal(push("q", "c"), 3);
    assert_int_equal(push("other", "x"), 1);
    assert_int_equal(length("q"), 3);
    assert_true(exists("q"));
    for (i = 0; i < 3; i++) {
        pop_with(&takers[i], "q", 0);
    }
    fixture_settle(&fix);
    assert_took(&takers[0], "a");
    assert_took(&takers[1], "");
    assert_took(&takers[2], "c");
    assert_true(takers[2].version > takers[0].version);
    assert_int_equal(length("q"), 0);
    assert_false(exists("q"));
    tutti_store_stat(fix.store, &stats);
    assert_int_equal(stats.key_count, 2); /* of the other queue */
}

static void
test_pop__waits_and_who_came_first_is_served_first(void **state)
{
    static taker takers[3];

    (void)state;
    pop_with(&takers[0], "q", 0);
    pop_with(&takers[1], "q", 0);
    fixture_settle(&fix);
    (void)push("q", "a");
    pop_with(&takers[2], "q", 0);
    fixture_settle(&fix);
    assert_took(&takers[0], "a");
    assert_waits(&takers[1]);
    assert_waits(&takers[2]);
    (void)push("q", "b");
    (void)push("q", "c");
    fixture_settle(&fix);
    assert_took(&takers[1], "b");
    assert_took(&takers[2], "c");
    assert_int_equal(length("q"), 0);
}

static void
test_pop__that_goes_away_leaves_its_value_to_the_next(void **state)
{
    static taker takers[2];

    (void)state;
    pop_with(&takers[0], "q", 0);
    pop_with(&takers[1], "q", 0);
    fixture_settle(&fix);
    (void)push("q", "a");
    tutti_coordinator_take_withdraw(&takers[0].take);
    fixture_settle(&fix);
    assert_waits(&takers[0]);
    assert_took(&takers[1], "a");
}

static void
test_pop__whose_time_is_up_names_the_queue(void **state)
{
    static taker one;

    (void)state;
    pop_with(&one, "q", 0);
    fixture_advance(&fix, SECOND + MS);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(one.err.code, TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(one.err.reason, "TIMEOUT");
    assert_text_has(one.err.text, "nothing came to queue \"q\"");
    (void)push("q", "a");
    fixture_settle(&fix);
    assert_int_equal(length("q"), 1); /* it took nothing */
    take(&one, "k");
    fixture_advance(&fix, SECOND + MS);
    assert_text_has(one.err.text, "key \"k\" did not come");
}

static void
test_pop__at_once_of_an_empty_queue_is_not_found(void **state)
{
    tutti_coordinator_take_request request = {.key = key_of("q"),
                                              .from_queue = true,
                                              .at_once = true,
                                              .deadline_ns = fix.now_ns + SECOND};
    static taker takers[2];
    tutti_error err;

    (void)state;
    assert_fails(start(&takers[0], &request, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "QUEUE_EMPTY");
    assert_text_has(err.text, "queue \"q\" of job default is empty");
    (void)push("q", "a");
    assert_ok(start(&takers[0], &request, &err));
    assert_ok(start(&takers[1], &request, &err)); /* the value is still there */
    fixture_settle(&fix);
    assert_took(&takers[0], "a");
    assert_true(takers[1].failed);
    assert_string_equal(takers[1].err.reason, "QUEUE_EMPTY");
    request.from_queue = false;
    assert_fails(start(&takers[0], &request, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_KEY");
}

static void
test_take__gets_a_key_alone_after_those_that_read(void **state)
{
    const tutti_bytes keys[] = {BYTES("k")};
    const tutti_coordinator_wait_request request = {
        .keys = keys, .count = 1, .with_values = true, .deadline_ns = fix.now_ns + SECOND};
    static taker takers[2];
    static waiter reader;
    tutti_error err;

    (void)state;
    take(&takers[0], "k");
    take(&takers[1], "k");
    assert_ok(waiter_start(&fix, &reader, &request, &err));
    fixture_settle(&fix);
    set("k", "v");
    fixture_settle(&fix);
    assert_int_equal(reader.answer_count, 1);
    assert_false(reader.failed);
    assert_took(&takers[0], "v");
    assert_waits(&takers[1]);
    assert_false(exists("k"));
    set("k", "w");
    fixture_settle(&fix);
    assert_took(&takers[1], "w");
}

static void
test_queue__and_key_of_one_name_do_not_meet(void **state)
{
    const tutti_coordinator_key key = key_of("k");
    tutti_store_entry entry;
    static taker one;
    bool existed = true;
    tutti_error err;

    (void)state;
    (void)push("k", "queued");
    assert_fails(tutti_coordinator_key_get(fix.self, &key, &entry, &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_coordinator_key_delete(fix.self, &key, &existed, &err));
    assert_false(existed);
    set("k", "stored");
    take(&one, "k");
    fixture_settle(&fix);
    assert_took(&one, "stored");
    pop_with(&one, "k", 0);
    fixture_settle(&fix);
    assert_took(&one, "queued");
}

static void
test_wait__sees_a_queue_that_is_not_empty(void **state)
{
    const tutti_bytes keys[] = {BYTES("q")};
    tutti_coordinator_wait_request request = {
        .keys = keys, .count = 1, .deadline_ns = fix.now_ns + SECOND};
    static waiter looks;
    static waiter reads;
    tutti_error err;

    (void)state;
    assert_ok(waiter_start(&fix, &looks, &request, &err));
    request.with_values = true;
    assert_ok(waiter_start(&fix, &reads, &request, &err));
    (void)push("q", "a");
    fixture_settle(&fix);
    assert_int_equal(looks.answer_count, 1);
    assert_int_equal(reads.answer_count, 0); /* there is no value to read */
    fixture_advance(&fix, SECOND + MS);
    assert_string_equal(reads.err.reason, "TIMEOUT");
}

static void
test_token__makes_a_repeated_call_count_once(void **state)
{
    const tutti_coordinator_change change = {key_of("n"), 7};
    tutti_coordinator_changed first = {0};
    tutti_coordinator_changed second = {0};
    static taker takers[3];
    tutti_error err;

    (void)state;
    assert_int_equal(push_with("q", "a", 1), 1);
    assert_int_equal(push_with("q", "a", 1), 1);
    assert_int_equal(push_with("q", "b", 2), 2);
    assert_int_equal(push_with("other", "c", 1), 1); /* a token belongs to its key */
    pop_with(&takers[0], "q", 1);
    fixture_settle(&fix);
    pop_with(&takers[1], "q", 1);
    pop_with(&takers[2], "q", 2);
    fixture_settle(&fix);
    assert_took(&takers[0], "a");
    assert_took(&takers[1], "a");
    assert_int_equal(takers[1].version, takers[0].version);
    assert_took(&takers[2], "b");
    assert_ok(tutti_coordinator_key_add(fix.self, &change, 5, &first, &err));
    assert_ok(tutti_coordinator_key_add(fix.self, &change, 5, &second, &err));
    assert_int_equal(second.number, 5);
    assert_int_equal(second.version, first.version);
    assert_ok(tutti_coordinator_key_append(fix.self, &change, BYTES("0"), &first, &err));
    assert_ok(tutti_coordinator_key_append(fix.self, &change, BYTES("0"), &second, &err));
    assert_int_equal(second.number, 2);
    fixture_advance(&fix, fix.options.retry_window_ns + SECOND);
    assert_ok(tutti_coordinator_key_add(fix.self, &change, 5, &second, &err));
    assert_int_equal(second.number, 55); /* too late: it counts again */
}

static void
test_token__of_a_call_that_waits_takes_its_place(void **state)
{
    static taker takers[3];

    (void)state;
    pop_with(&takers[0], "q", 5);
    pop_with(&takers[1], "q", 6);
    fixture_settle(&fix);
    pop_with(&takers[2], "q", 5);
    assert_int_equal(takers[0].answer_count, 1);
    assert_int_equal(takers[0].err.code, TUTTI_ABORTED);
    assert_string_equal(takers[0].err.reason, "SUPERSEDED");
    (void)push("q", "a");
    (void)push("q", "b");
    fixture_settle(&fix);
    assert_took(&takers[1], "a");
    assert_took(&takers[2], "b");
}

static void
test_answers__are_kept_up_to_a_limit(void **state)
{
    static char big[3000];
    tutti_coordinator_options options;
    const tutti_coordinator_change change = {key_of("q"), 0};
    tutti_coordinator_changed changed;
    static taker one;
    uint64_t token;
    tutti_error err;

    (void)state;
    fixture_close(&fix);
    fixture_options(&options);
    options.retry_bytes_limit = 4096;
    fixture_open(&fix, &options);
    memset(big, 'x', 60);
    for (token = 1; token <= 100; token++) {
        assert_ok(tutti_coordinator_queue_push(fix.self, &change, (tutti_bytes){big, 60}, &changed,
                                               &err));
        pop_with(&one, "q", token);
        fixture_settle(&fix);
    }
    pop_with(&one, "q", 100);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1); /* the newest is there */
    pop_with(&one, "q", 1);
    fixture_settle(&fix);
    assert_waits(&one); /* the oldest is not */
}

static void
test_queue__goes_with_its_job(void **state)
{
    const tutti_coordinator_member member = member_of(0);
    tutti_store_stats stats;
    tutti_error err;

    (void)state;
    form_world(&fix, 1);
    (void)push("q", "a");
    (void)push("q", "b");
    set("k", "v");
    assert_ok(tutti_coordinator_leave(fix.self, &member, NULL, &err));
    fixture_advance(&fix, fix.options.job_linger_ns + SECOND);
    tutti_store_stat(fix.store, &stats);
    assert_int_equal(stats.key_count, 0);
    assert_int_equal(length("q"), 0);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_queue__gives_back_in_order_and_is_gone_when_empty),
        SENTENCE(test_pop__waits_and_who_came_first_is_served_first),
        SENTENCE(test_pop__that_goes_away_leaves_its_value_to_the_next),
        SENTENCE(test_pop__whose_time_is_up_names_the_queue),
        SENTENCE(test_pop__at_once_of_an_empty_queue_is_not_found),
        SENTENCE(test_take__gets_a_key_alone_after_those_that_read),
        SENTENCE(test_queue__and_key_of_one_name_do_not_meet),
        SENTENCE(test_wait__sees_a_queue_that_is_not_empty),
        SENTENCE(test_token__makes_a_repeated_call_count_once),
        SENTENCE(test_token__of_a_call_that_waits_takes_its_place),
        SENTENCE(test_answers__are_kept_up_to_a_limit),
        SENTENCE(test_queue__goes_with_its_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
