/*
 * Goal: a call with a token counts once, also when the coordinator was killed and started again
 * between the call and its repetition.
 * Method: a second core on the store of the first; a clock we turn.
 */
#include <stdio.h>
#include <string.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/queue.h"
#include "support/testing.h"

static tutti_coordinator_change
change_of(const char *key, uint64_t token)
{
    return (tutti_coordinator_change){.key = {NULL, tutti_bytes_of(key)}, .token = token};
}

static tutti_coordinator_changed
add(const char *key, uint64_t token)
{
    const tutti_coordinator_change change = change_of(key, token);
    tutti_coordinator_changed changed = {0};
    tutti_error err;

    assert_ok(tutti_coordinator_key_add(fix.self, &change, 5, &changed, &err));
    return changed;
}

static tutti_coordinator_changed
push(const char *key, const char *value, uint64_t token)
{
    const tutti_coordinator_change change = change_of(key, token);
    tutti_coordinator_changed changed = {0};
    tutti_error err;

    assert_ok(
        tutti_coordinator_queue_push(fix.self, &change, tutti_bytes_of(value), &changed, &err));
    return changed;
}

typedef struct taker {
    tutti_coordinator_take take;
    char value[32];
    uint64_t version;
} taker;

static void
on_taken(tutti_coordinator_take *take, const tutti_store_entry *entry, const tutti_error *err)
{
    taker *one = tutti_container_of(take, taker, take);

    assert_null(err);
    (void)snprintf(one->value, sizeof(one->value), "%.*s", (int)entry->value.size,
                   (const char *)entry->value.data);
    one->version = entry->version;
}

static taker
take(const char *key, bool from_queue, uint64_t token)
{
    const tutti_coordinator_take_request request = {.key = {NULL, tutti_bytes_of(key)},
                                                    .from_queue = from_queue,
                                                    .token = token,
                                                    .deadline_ns = fix.now_ns + SECOND};
    static taker one;
    tutti_error err;

    one = (taker){.take = {.on_answer = on_taken}};
    assert_ok(tutti_coordinator_take_start(fix.self, &request, &one.take, &err));
    fixture_settle(&fix);
    return one;
}

static size_t
record_count(void)
{
    tutti_store_entry entry = {0};
    size_t count = 0;

    while (tutti_store_next(fix.store, BYTES("!a"), entry.key, &entry, NULL) == TUTTI_OK) {
        count++;
    }
    return count;
}

static void
test_retry__over_a_restart_counts_once(void **state)
{
    tutti_coordinator_changed first;
    tutti_coordinator_changed again;
    tutti_error err;
    const tutti_coordinator_change append = change_of("text", 9);

    (void)state;
    first = add("n", 7);
    assert_ok(tutti_coordinator_key_append(fix.self, &append, BYTES("abc"), &again, &err));
    fixture_restart(&fix);
    again = add("n", 7);
    assert_int_equal(again.number, 5);
    assert_int_equal(again.version, first.version);
    assert_int_equal(add("n", 8).number, 10);
    assert_ok(tutti_coordinator_key_append(fix.self, &append, BYTES("abc"), &again, &err));
    assert_int_equal(again.number, 3);
}

static void
test_retry__of_queues_over_a_restart_pushes_and_takes_once(void **state)
{
    taker first;
    taker again;

    (void)state;
    assert_int_equal(push("q", "one", 1).number, 1);
    assert_int_equal(push("q", "two", 2).number, 2);
    (void)push("k", "unused", 0);
    first = take("q", true, 3);
    assert_string_equal(first.value, "one");
    fixture_restart(&fix);
    assert_int_equal(push("q", "two", 2).number, 2);
    again = take("q", true, 3);
    assert_string_equal(again.value, "one");
    assert_int_equal(again.version, first.version);
    assert_string_equal(take("q", true, 4).value, "two");
}

/* The window goes on counting while nobody runs; what is over leaves no record behind for long. */
static void
test_retry__is_forgotten_after_the_window(void **state)
{
    uint64_t token;

    (void)state;
    for (token = 1; token <= 20; token++) {
        (void)add("n", token);
    }
    assert_int_equal(record_count(), 20);
    fixture_restart(&fix);
    assert_int_equal(add("n", 20).number, 100);
    fixture_advance(&fix, fix.options.retry_window_ns + SECOND);
    fixture_restart(&fix);
    assert_int_equal(add("n", 20).number, 105);
    for (token = 101; token < 112; token++) {
        (void)add("n", token);
    }
    assert_int_equal(record_count(), 12); /* each takes two old ones along */
}

static void
reopen_with_bytes(uint64_t retry_bytes_limit)
{
    tutti_coordinator_options options = fix.options;

    fixture_close(&fix);
    options.retry_bytes_limit = retry_bytes_limit;
    fixture_open(&fix, &options);
}

static void
test_retry__keeps_within_its_bytes(void **state)
{
    uint64_t token;

    (void)state;
    reopen_with_bytes(4096);
    for (token = 1; token <= 200; token++) {
        (void)add("n", token);
    }
    assert_true(record_count() < 50);
    fixture_restart(&fix);
    assert_int_equal(add("n", 200).number, 1000); /* the last one is among them */
    assert_int_equal(add("n", 1).number, 1005);   /* the first one is not */
}

/* The store has their records in the order of their keys. */
static void
test_retry__drops_the_oldest_first_also_over_a_restart(void **state)
{
    uint64_t token;

    (void)state;
    reopen_with_bytes(4096);
    for (token = 200; token > 0; token--) {
        (void)add("n", token);
        fixture_advance(&fix, SECOND / 100);
    }
    fixture_restart(&fix);
    for (token = 500; token < 505; token++) {
        (void)add("n", token);
    }
    assert_int_equal(add("n", 1).number, 1000); /* the newest before the restart */
}

static void
test_retry__of_spoiled_records_is_a_call_of_its_own(void **state)
{
    tutti_store_entry entry = {0};
    unsigned char key[128];
    tutti_error err;

    (void)state;
    (void)add("n", 7);
    assert_ok(tutti_store_next(fix.store, BYTES("!a"), entry.key, &entry, &err));
    memcpy(key, entry.key.data, entry.key.size);
    assert_ok(
        tutti_store_set(fix.store, (tutti_bytes){key, entry.key.size}, BYTES("short"), NULL, &err));
    assert_ok(tutti_store_set(fix.store, BYTES("!a"), BYTES("no key"), NULL, &err));
    fixture_restart(&fix);
    assert_int_equal(add("n", 7).number, 10);
}

#define SENTENCE(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, fixture_begin_durable, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_retry__over_a_restart_counts_once),
        SENTENCE(test_retry__of_queues_over_a_restart_pushes_and_takes_once),
        SENTENCE(test_retry__is_forgotten_after_the_window),
        SENTENCE(test_retry__keeps_within_its_bytes),
        SENTENCE(test_retry__drops_the_oldest_first_also_over_a_restart),
        SENTENCE(test_retry__of_spoiled_records_is_a_call_of_its_own),
    };

    return cmocka_run_group_tests_name("coordinator/retry", tests, NULL, NULL);
}
