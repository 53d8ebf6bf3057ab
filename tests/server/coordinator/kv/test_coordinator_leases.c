/*
 * Goal: keys go with their lease when nobody keeps it, and with nothing else.
 * Method: a coordinator with a clock we turn, over a store that survives it and one that does not.
 */
#include "support/testing.h"

#include <inttypes.h>

#include "server/coordinator/fixture.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/kv/multi.h"
#include "store/store_backend.h"

#define TTL (10 * SECOND)

static tutti_coordinator_lease
grant_as(uint64_t id, uint64_t ttl_ns)
{
    tutti_coordinator_lease lease = {0};
    tutti_error err;

    assert_ok(tutti_coordinator_lease_grant(fix.self, NULL, id, ttl_ns, &lease, &err));
    return lease;
}

static uint64_t
grant(void)
{
    return grant_as(0, TTL).id;
}

static void
set_with(const char *key, const char *value, uint64_t lease)
{
    const tutti_coordinator_key full = key_of(key);
    uint64_t version;
    tutti_error err;

    assert_ok(tutti_coordinator_key_set_leased(fix.self, &full, tutti_bytes_of(value), lease,
                                               &version, &err));
}

static bool
has_key(const char *key)
{
    const tutti_coordinator_key full = key_of(key);
    tutti_store_entry entry;

    return tutti_coordinator_key_get(fix.self, &full, &entry, NULL) == TUTTI_OK;
}

static void
keep_lease(uint64_t id)
{
    tutti_coordinator_lease lease;
    tutti_error err;

    assert_ok(tutti_coordinator_lease_keep(fix.self, NULL, id, &lease, &err));
    assert_int_equal(lease.left_ns, lease.ttl_ns);
}

static void
assert_no_lease(uint64_t id)
{
    tutti_coordinator_lease lease;
    tutti_error err;

    assert_fails(tutti_coordinator_lease_keep(fix.self, NULL, id, &lease, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_LEASE");
}

/* How many keys go with it. */
static uint64_t
keys_with(uint64_t id)
{
    static tutti_coordinator_lease leases[TUTTI_COORDINATOR_LEASE_PAGE];
    size_t count = 0;
    bool more = false;
    tutti_error err;

    assert_ok(tutti_coordinator_lease_list(fix.self, NULL, id - 1, leases, &count, &more, &err));
    assert_true(count > 0 && leases[0].id == id);
    return leases[0].key_count;
}

static void
test_lease__takes_its_keys_with_it(void **state)
{
    static watcher watch;
    uint64_t lease;
    tutti_error err;

    (void)state;
    lease = grant();
    assert_ok(watcher_start(&fix, &watch, NULL, "", &err));
    fixture_settle(&fix);
    set_with("a", "1", lease);
    set_with("b", "2", lease);
    set_with("c", "3", 0);
    assert_int_equal(keys_with(lease), 2);
    fixture_advance(&fix, TTL - MS);
    assert_true(has_key("a"));
    fixture_advance(&fix, 2 * MS);
    assert_false(has_key("a"));
    assert_false(has_key("b"));
    assert_true(has_key("c"));
    assert_string_equal(watch.text, "begun,set a=1,set b=2,set c=3,deleted a,deleted b,");
    assert_no_lease(lease);
    tutti_coordinator_watch_withdraw(&watch.watch);
}

static void
test_keep__begins_the_time_again(void **state)
{
    const uint64_t lease = grant();
    int i;

    (void)state;
    set_with("a", "1", lease);
    for (i = 0; i < 5; i++) {
        fixture_advance(&fix, TTL - MS);
        keep_lease(lease);
    }
    assert_true(has_key("a"));
    fixture_advance(&fix, TTL + MS);
    assert_false(has_key("a"));
}

static void
test_grant__of_a_number_that_is_there_keeps_it(void **state)
{
    (void)state;
    assert_int_equal(grant_as(7, TTL).id, 7);
    set_with("a", "1", 7);
    fixture_advance(&fix, TTL - MS);
    assert_int_equal(grant_as(7, 2 * TTL).key_count, 1);
    fixture_advance(&fix, 2 * TTL - MS);
    assert_true(has_key("a"));
    fixture_advance(&fix, 2 * MS);
    assert_false(has_key("a"));
    assert_int_equal(grant_as(7, TTL).key_count, 0); /* another one */
}

static void
test_set__moves_a_key_to_its_last_lease(void **state)
{
    const uint64_t first = grant();
    const uint64_t second = grant();

    (void)state;
    set_with("a", "1", first);
    set_with("b", "1", first);
    set_with("a", "2", second);
    set_with("b", "2", 0);
    assert_int_equal(keys_with(first), 0);
    assert_int_equal(keys_with(second), 1);
    fixture_advance(&fix, TTL - MS);
    keep_lease(second);
    fixture_advance(&fix, 2 * MS);
    assert_no_lease(first);
    assert_true(has_key("a"));
    fixture_advance(&fix, TTL);
    assert_false(has_key("a"));
    assert_true(has_key("b"));
}

static void
test_add__leaves_the_key_in_its_lease(void **state)
{
    const uint64_t lease = grant();
    const tutti_coordinator_change change = {key_of("n"), 0};
    tutti_coordinator_changed changed;
    tutti_error err;

    (void)state;
    set_with("n", "1", lease);
    assert_ok(tutti_coordinator_key_add(fix.self, &change, 1, &changed, &err));
    assert_ok(tutti_coordinator_key_append(fix.self, &change, BYTES("0"), &changed, &err));
    fixture_advance(&fix, TTL + MS);
    assert_false(has_key("n"));
}

static void
test_deleted_key__comes_back_without_its_lease(void **state)
{
    const uint64_t lease = grant();
    const tutti_coordinator_key key = key_of("a");
    bool existed = false;
    tutti_error err;

    (void)state;
    set_with("a", "1", lease);
    assert_ok(tutti_coordinator_key_delete(fix.self, &key, &existed, &err));
    assert_true(existed);
    assert_int_equal(keys_with(lease), 0);
    set_with("a", "2", 0);
    fixture_advance(&fix, TTL + MS);
    assert_true(has_key("a"));
}

static void
test_swap_and_multi_set__take_a_lease(void **state)
{
    const uint64_t lease = grant();
    const tutti_coordinator_swap_request swap = {
        .key = key_of("s"), .value = BYTES("1"), .lease = lease};
    const tutti_bytes names[] = {BYTES("a"), BYTES("b"), BYTES("a")};
    const tutti_bytes values[] = {BYTES("1"), BYTES("2"), BYTES("3")};
    const tutti_coordinator_keys keys = {NULL, names, 3};
    tutti_coordinator_swap swapped;
    uint64_t version;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_key_swap(fix.self, &swap, &swapped, &err));
    assert_true(swapped.swapped);
    assert_ok(tutti_coordinator_keys_set_leased(fix.self, &keys, values, lease, &version, &err));
    assert_int_equal(keys_with(lease), 3);
    fixture_advance(&fix, TTL + MS);
    assert_false(has_key("s") || has_key("a") || has_key("b"));
}

static void
test_unknown_lease__changes_nothing(void **state)
{
    const tutti_coordinator_key key = key_of("a");
    const tutti_bytes names[] = {BYTES("b")};
    const tutti_coordinator_keys keys = {NULL, names, 1};
    const tutti_coordinator_key elsewhere = {"other", BYTES("a")};
    const uint64_t lease = grant();
    uint64_t version;
    tutti_error err;

    (void)state;
    assert_fails(
        tutti_coordinator_key_set_leased(fix.self, &key, BYTES("1"), lease + 1, &version, &err),
        TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_LEASE");
    assert_fails(
        tutti_coordinator_keys_set_leased(fix.self, &keys, names, lease + 1, &version, &err),
        TUTTI_NOT_FOUND);
    /* A lease is of one job. */
    assert_fails(
        tutti_coordinator_key_set_leased(fix.self, &elsewhere, BYTES("1"), lease, &version, &err),
        TUTTI_NOT_FOUND);
    assert_false(has_key("a") || has_key("b"));
}

static void
test_revoke__deletes_at_once(void **state)
{
    const uint64_t lease = grant();
    bool existed = false;
    uint64_t count = 0;
    char key[16];
    tutti_error err;
    int i;

    (void)state;
    for (i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        set_with(key, "", lease);
    }
    assert_ok(tutti_coordinator_lease_revoke(fix.self, NULL, lease, &existed, &count, &err));
    assert_true(existed);
    assert_int_equal(count, 100);
    assert_false(has_key("k0") || has_key("k99"));
    assert_ok(tutti_coordinator_lease_revoke(fix.self, NULL, lease, &existed, &count, &err));
    assert_false(existed);
    assert_no_lease(lease);
}

static void
test_limits__say_their_options(void **state)
{
    const uint64_t wrong[] = {fix.options.lease_min_ns - MS, fix.options.lease_max_ns + MS};
    tutti_coordinator_lease lease;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        assert_fails(tutti_coordinator_lease_grant(fix.self, NULL, 0, wrong[i], &lease, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "LEASE_TTL");
        assert_text_has(err.text, "--lease-min, --lease-max");
    }
    for (i = 0; i < fix.options.lease_limit; i++) {
        (void)grant();
    }
    assert_fails(tutti_coordinator_lease_grant(fix.self, NULL, 0, TTL, &lease, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "LEASE_LIMIT");
}

static void
test_list__gives_pages_of_one_job(void **state)
{
    static tutti_coordinator_lease leases[TUTTI_COORDINATOR_LEASE_PAGE];
    tutti_coordinator_lease other;
    size_t count = 0;
    bool more = false;
    tutti_error err;
    uint64_t i;

    (void)state;
    for (i = 1; i <= TUTTI_COORDINATOR_LEASE_PAGE + 1; i++) {
        (void)grant_as(i, TTL);
    }
    assert_ok(tutti_coordinator_lease_grant(fix.self, "defaulu", 3, TTL, &other, &err));
    assert_ok(tutti_coordinator_lease_list(fix.self, NULL, 0, leases, &count, &more, &err));
    assert_true(more);
    assert_int_equal(leases[count - 1].id, TUTTI_COORDINATOR_LEASE_PAGE);
    assert_ok(tutti_coordinator_lease_list(fix.self, NULL, leases[count - 1].id, leases, &count,
                                           &more, &err));
    assert_false(more);
    assert_int_equal(count, 1);
    assert_ok(
        tutti_coordinator_lease_list(fix.self, NULL, UINT64_MAX, leases, &count, &more, &err));
    assert_int_equal(count, 0);
}

/* What kept the lease may lie unread while this process is busy, or did not run at all. */
static void
test_busy_coordinator__judges_when_it_has_read(void **state)
{
    const uint64_t lease = grant();

    (void)state;
    set_with("a", "1", lease);
    fixture_hold(&fix, TTL + SECOND);
    keep_lease(lease);
    fixture_settle(&fix);
    assert_true(has_key("a"));
    fixture_hold(&fix, 3 * TTL); /* but not for ever */
    fixture_settle(&fix);
    assert_false(has_key("a"));
}

static void
test_stopped_process__lets_leases_live(void **state)
{
    const uint64_t lease = grant();

    (void)state;
    set_with("a", "1", lease);
    fix.now_ns += 10 * TTL;
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    fixture_settle(&fix);
    assert_true(has_key("a"));
    fixture_advance(&fix, TTL + MS);
    assert_false(has_key("a"));
}

static void
test_restart__gives_a_lease_its_whole_time(void **state)
{
    const tutti_coordinator_key dropped = key_of("b");
    const uint64_t lease = grant();
    bool existed = false;
    tutti_error err;

    (void)state;
    set_with("a", "1", lease);
    set_with("b", "2", lease);
    set_with("c", "3", lease);
    set_with("c", "4", 0);
    assert_ok(tutti_coordinator_key_delete(fix.self, &dropped, &existed, &err));
    fixture_advance(&fix, TTL - MS);
    fixture_restart(&fix);
    assert_int_equal(keys_with(lease), 1);
    fixture_advance(&fix, TTL - MS);
    assert_true(has_key("a"));
    fixture_advance(&fix, 2 * MS);
    assert_false(has_key("a"));
    assert_true(has_key("c"));
    fixture_restart(&fix);
    assert_no_lease(lease);
    assert_true(has_key("c"));
}

/* As a crash between the deletion of a key and that of its record leaves it. */
static void
test_restart__drops_records_without_a_key(void **state)
{
    const uint64_t lease = grant();
    bool existed = false;
    tutti_error err;

    (void)state;
    set_with("a", "1", lease);
    assert_ok(tutti_store_delete(fix.store, BYTES("default\0a"), &existed, NULL, &err));
    assert_true(existed);
    fixture_restart(&fix);
    assert_int_equal(keys_with(lease), 0);
    set_with("a", "2", 0);
    fixture_advance(&fix, TTL + MS);
    assert_true(has_key("a"));
}

/* Without what an orderly end does before. */
static void
kill_coordinator(void)
{
    tutti_error err;

    tutti_coordinator_free(fix.self);
    assert_ok(tutti_coordinator_new(&fix.options, fix.store, &fix.self, &err));
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    assert_ok(tutti_coordinator_restore(fix.self, &err));
}

#define MANY 40 /* more than go in one slice */

/* Callers may have been told that it has ended: tests/sim has found it kept behind a restart. */
static void
test_restart__goes_on_with_the_end_of_a_lease(void **state)
{
    const uint64_t lease = grant();
    char name[16];
    int i;

    (void)state;
    for (i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "key %02d", i);
        set_with(name, "1", lease);
    }
    fixture_advance(&fix, TTL - MS);
    fix.now_ns += 2 * MS;
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    tutti_coordinator_run(fix.self);
    tutti_coordinator_turn(fix.self, true);
    assert_true(has_key(name)); /* the last one has not gone yet */
    assert_no_lease(lease);
    kill_coordinator();
    assert_no_lease(lease);
    fixture_settle(&fix);
    assert_false(has_key(name));
    fixture_restart(&fix);
    assert_no_lease(lease);
    (void)grant_as(lease, TTL);
    assert_int_equal(keys_with(lease), 0);
}

/* ------------------------------------------------------------------------------ a full disk */

/* The store of the fixture behind a disk that may be full: then no record is removed. */
typedef struct full_store {
    tutti_store base;
    tutti_store *inner;
    bool is_full;
} full_store;

static full_store full;

static tutti_code
full_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry, tutti_error *err)
{
    (void)store;
    return tutti_store_get(full.inner, key, ret_entry, err);
}

static tutti_code
full_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
         tutti_error *err)
{
    (void)store;
    return tutti_store_set(full.inner, key, value, ret_version, err);
}

static tutti_code
full_remove(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
            tutti_error *err)
{
    (void)store;
    return full.is_full && *(const char *)key.data == '!'
               ? TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_FULL", "the disk is full")
               : tutti_store_delete(full.inner, key, ret_existed, ret_version, err);
}

static tutti_code
full_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
           uint64_t *ret_version, tutti_error *err)
{
    (void)store;
    return tutti_store_apply(full.inner, changes, count, ret_version, err);
}

static tutti_code
full_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after, tutti_store_entry *ret_entry,
          tutti_error *err)
{
    (void)store;
    return tutti_store_next(full.inner, prefix, after, ret_entry, err);
}

static uint64_t
full_version(tutti_store *store)
{
    (void)store;
    return tutti_store_version(full.inner);
}

static void
full_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    (void)store;
    tutti_store_stat(full.inner, ret_stats);
}

static void
full_close(tutti_store *store)
{
    (void)store;
    tutti_store_close(full.inner);
}

static int
begin_full(void **state)
{
    static const tutti_store_ops ops = {.get = full_get,
                                        .set = full_set,
                                        .remove = full_remove,
                                        .apply = full_apply,
                                        .next = full_next,
                                        .version = full_version,
                                        .stat = full_stat,
                                        .close = full_close};
    const int failed = fixture_begin_durable(state);

    full = (full_store){.base = {.ops = &ops}, .inner = fix.store};
    fix.store = &full.base;
    kill_coordinator();
    return failed;
}

static bool
has_record(char letter)
{
    const char prefix[] = {'!', letter};
    tutti_store_entry entry;

    return tutti_store_next(fix.store, (tutti_bytes){prefix, sizeof(prefix)}, (tutti_bytes){0},
                            &entry, NULL) == TUTTI_OK;
}

/* A lease whose time is up, and one key of it, of which the records are still there. */
static uint64_t
end_on_full_disk(void)
{
    const uint64_t lease = grant();

    set_with("a", "1", lease);
    full.is_full = true;
    fixture_advance(&fix, TTL + 2 * MS);
    assert_false(has_key("a"));
    assert_true(has_record('l') && has_record('k'));
    return lease;
}

/* tests/sim has found records that stay. */
static void
test_full_disk__leaves_no_record_when_it_has_space_again(void **state)
{
    const uint64_t lease = end_on_full_disk();
    bool existed = false;
    uint64_t keys = 0;
    tutti_error err;

    (void)state;
    assert_fails(tutti_coordinator_lease_revoke(fix.self, NULL, lease, &existed, &keys, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_no_lease(lease);
    kill_coordinator(); /* it does not remove them when it starts, either */
    fixture_advance(&fix, 2 * SECOND);
    assert_true(has_record('l') && has_record('k'));
    full.is_full = false;
    fixture_advance(&fix, 2 * SECOND);
    assert_false(has_record('l'));
    assert_false(has_record('k'));
    (void)grant_as(lease, TTL);
    assert_int_equal(keys_with(lease), 0);
}

static void
test_full_disk__takes_no_key_that_was_set_anew(void **state)
{
    const uint64_t lease = end_on_full_disk();

    (void)state;
    set_with("a", "2", 0);
    kill_coordinator();
    fixture_settle(&fix);
    assert_true(has_key("a"));
    assert_no_lease(lease);
}

static int
begin_small(void **state)
{
    static tutti_coordinator_options options;

    (void)state;
    fixture_options(&options);
    options.lease_limit = 3;
    fixture_open(&fix, &options);
    return 0;
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)
#define DURABLE(function)                                                                          \
    cmocka_unit_test_setup_teardown(function, fixture_begin_durable, fixture_end)
#define FULL(function) cmocka_unit_test_setup_teardown(function, begin_full, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_lease__takes_its_keys_with_it),
        DURABLE(test_lease__takes_its_keys_with_it),
        SENTENCE(test_keep__begins_the_time_again),
        SENTENCE(test_grant__of_a_number_that_is_there_keeps_it),
        DURABLE(test_grant__of_a_number_that_is_there_keeps_it),
        SENTENCE(test_set__moves_a_key_to_its_last_lease),
        DURABLE(test_set__moves_a_key_to_its_last_lease),
        SENTENCE(test_add__leaves_the_key_in_its_lease),
        SENTENCE(test_deleted_key__comes_back_without_its_lease),
        DURABLE(test_deleted_key__comes_back_without_its_lease),
        SENTENCE(test_swap_and_multi_set__take_a_lease),
        DURABLE(test_swap_and_multi_set__take_a_lease),
        SENTENCE(test_unknown_lease__changes_nothing),
        SENTENCE(test_revoke__deletes_at_once),
        DURABLE(test_revoke__deletes_at_once),
        cmocka_unit_test_setup_teardown(test_limits__say_their_options, begin_small, fixture_end),
        SENTENCE(test_list__gives_pages_of_one_job),
        SENTENCE(test_busy_coordinator__judges_when_it_has_read),
        SENTENCE(test_stopped_process__lets_leases_live),
        DURABLE(test_restart__gives_a_lease_its_whole_time),
        DURABLE(test_restart__drops_records_without_a_key),
        DURABLE(test_restart__goes_on_with_the_end_of_a_lease),
        FULL(test_full_disk__leaves_no_record_when_it_has_space_again),
        FULL(test_full_disk__takes_no_key_that_was_set_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
