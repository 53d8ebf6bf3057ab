/* The sentences that hold for every backend of the store. */
#include "support/testing.h"

#include "store/contract.h"
#include "store/memory/memory.h"
#include "support/sweep.h"

#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})
#define BYTES_MAX STORE_CONTRACT_BYTES_MAX
#define KEYS_MAX STORE_CONTRACT_KEYS_MAX

static const store_contract_backend *tested;

static int
begin(void **state)
{
    tutti_store *store = NULL;
    tutti_error err;

    assert_ok(tested->open(&store, &err));
    *state = store;
    return 0;
}

static int
end(void **state)
{
    tutti_store_close(*state);
    return 0;
}

static void
set(tutti_store *store, const char *key, const char *value)
{
    tutti_error err;

    assert_ok(tutti_store_set(store, tutti_bytes_of(key), tutti_bytes_of(value), NULL, &err));
}

static void
assert_stored(tutti_store *store, const char *key, const char *value)
{
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_store_get(store, tutti_bytes_of(key), &entry, &err));
    assert_true(tutti_bytes_equal(entry.key, tutti_bytes_of(key)));
    assert_true(tutti_bytes_equal(entry.value, tutti_bytes_of(value)));
}

static void
test_store_get__of_an_absent_key_is_not_found(void **state)
{
    tutti_store_entry entry = {.value = BYTES("untouched"), .version = 7};
    tutti_error err;

    assert_fails(tutti_store_get(*state, BYTES("group/7"), &entry, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_KEY");
    assert_string_equal(entry.value.data, "untouched");
    assert_int_equal(entry.version, 7);
}

static void
test_store_set__is_read_back_byte_by_byte(void **state)
{
    const tutti_bytes key = BYTES("a\0\xff");
    const tutti_bytes value = BYTES("\0\x01zero");
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_store_set(*state, key, value, NULL, &err));
    assert_ok(tutti_store_set(*state, BYTES("a"), BYTES("other"), NULL, &err));
    assert_ok(tutti_store_get(*state, key, &entry, &err));
    assert_true(tutti_bytes_equal(entry.key, key));
    assert_true(tutti_bytes_equal(entry.value, value));
}

static void
test_store_set__overwrites_whatever_the_size(void **state)
{
    set(*state, "key", "short");
    set(*state, "key", "longer than before");
    assert_stored(*state, "key", "longer than before");
    set(*state, "key", "LONGER THAN BEFORE");
    assert_stored(*state, "key", "LONGER THAN BEFORE");
    set(*state, "key", "");
    assert_stored(*state, "key", "");
    set(*state, "key", "back");
    assert_stored(*state, "key", "back");
}

static void
test_store_set__takes_what_the_store_itself_lent(void **state)
{
    tutti_store_entry entry;
    tutti_error err;

    set(*state, "from", "value");
    set(*state, "to", "something longer");
    assert_ok(tutti_store_get(*state, BYTES("from"), &entry, &err));
    assert_ok(tutti_store_set(*state, BYTES("to"), entry.value, NULL, &err));
    assert_stored(*state, "to", "value");
    assert_ok(tutti_store_get(*state, BYTES("to"), &entry, &err));
    entry.value.size -= 2; /* a part of its own bytes */
    assert_ok(tutti_store_set(*state, entry.key, entry.value, NULL, &err));
    assert_stored(*state, "to", "val");
}

static void
test_store_version__rises_with_every_change_and_with_nothing_else(void **state)
{
    tutti_store_entry entry;
    uint64_t first = 0;
    uint64_t second = 0;
    uint64_t third = 0;
    bool existed = true;
    tutti_error err;

    assert_int_equal(tutti_store_version(*state), 0);
    assert_ok(tutti_store_set(*state, BYTES("a"), BYTES("1"), &first, &err));
    assert_ok(tutti_store_set(*state, BYTES("b"), BYTES("2"), &second, &err));
    assert_true(first > 0 && second > first);
    assert_ok(tutti_store_get(*state, BYTES("a"), &entry, &err));
    assert_int_equal(entry.version, first);
    assert_ok(tutti_store_delete(*state, BYTES("absent"), &existed, &third, &err));
    assert_false(existed);
    assert_int_equal(third, second);
    assert_ok(tutti_store_delete(*state, BYTES("a"), &existed, &third, &err));
    assert_true(existed);
    assert_true(third > second);
    assert_int_equal(tutti_store_version(*state), third);
}

static void
test_store_delete__forgets_the_key(void **state)
{
    tutti_store_entry entry;
    tutti_store_stats stats;
    tutti_error err;

    set(*state, "key", "value");
    assert_ok(tutti_store_delete(*state, BYTES("key"), NULL, NULL, &err));
    assert_fails(tutti_store_get(*state, BYTES("key"), &entry, &err), TUTTI_NOT_FOUND);
    tutti_store_stat(*state, &stats);
    assert_int_equal(stats.key_count, 0);
    assert_int_equal(stats.used_bytes, 0);
}

/* The keys of a walk, with a comma behind each. */
static void
walk(tutti_store *store, tutti_bytes prefix, tutti_bytes after, char *ret_keys)
{
    tutti_store_entry entry = {.key = after};
    tutti_error err;

    *ret_keys = '\0';
    while (tutti_store_next(store, prefix, entry.key, &entry, &err) == TUTTI_OK) {
        (void)strncat(ret_keys, entry.key.data, entry.key.size);
        (void)strcat(ret_keys, ",");
    }
    assert_int_equal(err.code, TUTTI_NOT_FOUND);
}

static void
test_store_next__walks_a_prefix_in_order(void **state)
{
    static const char *const keys[] = {"b/2", "a", "b/10", "b", "b/1", "c", "b/"};
    char got[128];
    size_t i;

    for (i = 0; i < COUNT_OF(keys); i++) {
        set(*state, keys[i], "x");
    }
    walk(*state, BYTES("b/"), BYTES(""), got);
    assert_string_equal(got, "b/,b/1,b/10,b/2,");
    walk(*state, BYTES(""), BYTES(""), got);
    assert_string_equal(got, "a,b,b/,b/1,b/10,b/2,c,");
    walk(*state, BYTES("d"), BYTES(""), got);
    assert_string_equal(got, "");
}

static void
test_store_next__goes_on_behind_any_key_there_or_not(void **state)
{
    char got[128];

    set(*state, "a", "x");
    set(*state, "b/1", "x");
    set(*state, "b/3", "x");
    set(*state, "c", "x");
    walk(*state, BYTES("b/"), BYTES("b/1"), got);
    assert_string_equal(got, "b/3,");
    walk(*state, BYTES("b/"), BYTES("b/2"), got);
    assert_string_equal(got, "b/3,");
    walk(*state, BYTES("b/"), BYTES("a"), got);
    assert_string_equal(got, "b/1,b/3,");
    walk(*state, BYTES("b/"), BYTES("c"), got);
    assert_string_equal(got, "");
}

static void
test_store_next__survives_changes_between_its_steps(void **state)
{
    tutti_store_entry entry;
    char key[8];
    tutti_error err;

    set(*state, "a", "x");
    set(*state, "b", "x");
    set(*state, "c", "x");
    assert_ok(tutti_store_next(*state, BYTES(""), BYTES(""), &entry, &err));
    memcpy(key, entry.key.data, entry.key.size);
    assert_ok(tutti_store_delete(*state, BYTES("a"), NULL, NULL, &err));
    assert_ok(tutti_store_delete(*state, BYTES("b"), NULL, NULL, &err));
    set(*state, "aa", "x");
    assert_ok(tutti_store_next(*state, BYTES(""), (tutti_bytes){key, 1}, &entry, &err));
    assert_true(tutti_bytes_equal(entry.key, BYTES("aa")));
}

static void
test_store__refuses_keys_and_values_out_of_range(void **state)
{
    static char big[TUTTI_STORE_VALUE_MAX + 1];
    tutti_store_entry entry;
    tutti_error err;

    assert_fails(tutti_store_set(*state, BYTES(""), BYTES("x"), NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_KEY");
    assert_string_equal(err.text, "key of 0 bytes, need 1 to 2048");
    assert_fails(tutti_store_set(*state, (tutti_bytes){big, TUTTI_STORE_KEY_MAX + 1}, BYTES("x"),
                                 NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_store_get(*state, BYTES(""), &entry, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_store_delete(*state, BYTES(""), NULL, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_store_set(*state, BYTES("k"), (tutti_bytes){big, sizeof(big)}, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "VALUE_LIMIT");
    assert_int_equal(tutti_store_version(*state), 0);
}

static void
test_store_set__takes_a_key_of_the_largest_size(void **state)
{
    static char key[TUTTI_STORE_KEY_MAX];
    tutti_store_entry entry;
    tutti_error err;

    memset(key, 'k', sizeof(key));
    assert_ok(tutti_store_set(*state, (tutti_bytes){key, sizeof(key)}, BYTES("x"), NULL, &err));
    assert_ok(tutti_store_get(*state, (tutti_bytes){key, sizeof(key)}, &entry, &err));
}

static void
test_store_set__beyond_the_key_limit_changes_nothing(void **state)
{
    char key[16];
    uint64_t version;
    tutti_error err;
    int i;

    for (i = 0; i < KEYS_MAX; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i);
        set(*state, key, "x");
    }
    version = tutti_store_version(*state);
    assert_fails(tutti_store_set(*state, BYTES("one more"), BYTES("x"), NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "STORE_LIMIT");
    assert_text_has(err.text, "--store-keys-limit");
    assert_int_equal(tutti_store_version(*state), version);
    set(*state, "key 3", "overwriting is no new key");
    assert_ok(tutti_store_delete(*state, BYTES("key 4"), NULL, NULL, &err));
    set(*state, "one more", "x");
}

static void
test_store_set__beyond_the_byte_limit_changes_nothing(void **state)
{
    static char big[BYTES_MAX];
    tutti_store_stats stats;
    tutti_error err;

    assert_ok(tutti_store_set(*state, BYTES("k"), (tutti_bytes){big, sizeof(big) - 1}, NULL, &err));
    tutti_store_stat(*state, &stats);
    assert_int_equal(stats.used_bytes, BYTES_MAX);
    assert_fails(tutti_store_set(*state, BYTES("k"), (tutti_bytes){big, sizeof(big)}, NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "STORE_LIMIT");
    assert_text_has(err.text, "--store-bytes-limit");
    assert_fails(tutti_store_set(*state, BYTES("l"), BYTES(""), NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    set(*state, "k", "shrinking is fine");
    set(*state, "l", "and makes room");
    tutti_store_stat(*state, &stats);
    assert_int_equal(stats.key_count, 2);
    assert_int_equal(stats.used_bytes,
                     strlen("kl") + strlen("shrinking is fine") + strlen("and makes room"));
}

static uint64_t
apply(tutti_store *store, const tutti_store_change *changes, size_t count)
{
    uint64_t version = 0;
    tutti_error err;

    assert_ok(tutti_store_apply(store, changes, count, &version, &err));
    return version;
}

static void
test_store_apply__changes_several_keys_with_one_version(void **state)
{
    const tutti_store_change changes[] = {
        {BYTES("a"), BYTES("new"), false, false},   {BYTES("b"), BYTES(""), true, false},
        {BYTES("c"), BYTES("first"), false, false}, {BYTES("absent"), BYTES(""), true, false},
        {BYTES("c"), BYTES("last"), false, false},
    };
    tutti_store_entry entry;
    tutti_store_stats stats;
    uint64_t version;
    tutti_error err;

    set(*state, "a", "old");
    set(*state, "b", "goes");
    version = tutti_store_version(*state);
    assert_int_equal(apply(*state, changes, COUNT_OF(changes)), version + 1);
    assert_int_equal(tutti_store_version(*state), version + 1);
    assert_stored(*state, "a", "new");
    assert_stored(*state, "c", "last");
    assert_fails(tutti_store_get(*state, BYTES("b"), &entry, &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_store_get(*state, BYTES("a"), &entry, &err));
    assert_int_equal(entry.version, version + 1);
    tutti_store_stat(*state, &stats);
    assert_int_equal(stats.key_count, 2);
    assert_int_equal(stats.used_bytes, strlen("anew") + strlen("clast"));
    assert_int_equal(apply(*state, &changes[3], 1), version + 1); /* nothing went */
    assert_int_equal(apply(*state, NULL, 0), version + 1);
}

static void
test_store_apply__takes_what_the_store_itself_lent(void **state)
{
    tutti_store_change changes[2] = {{.remove = true}, {.key = BYTES("to")}};
    tutti_store_entry entry;
    tutti_error err;

    set(*state, "from", "value");
    set(*state, "to", "other");
    assert_ok(tutti_store_get(*state, BYTES("from"), &entry, &err));
    changes[0].key = entry.key;
    changes[1].value = entry.value;
    (void)apply(*state, changes, 2);
    assert_stored(*state, "to", "value");
    assert_fails(tutti_store_get(*state, BYTES("from"), &entry, &err), TUTTI_NOT_FOUND);
}

static void
test_store_apply__beyond_a_limit_changes_nothing(void **state)
{
    static char big[BYTES_MAX];
    const tutti_store_change bytes[] = {
        {BYTES("a"), BYTES("longer than before"), false, false},
        {BYTES("b"), BYTES(""), true, false},
        {BYTES("c"), {big, sizeof(big)}, false, false},
    };
    tutti_store_change keys[KEYS_MAX];
    char names[KEYS_MAX][8];
    tutti_store_stats before;
    tutti_store_stats after;
    tutti_error err;
    int i;

    set(*state, "a", "one");
    set(*state, "b", "two");
    tutti_store_stat(*state, &before);
    assert_fails(tutti_store_apply(*state, bytes, 3, NULL, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "STORE_LIMIT");
    assert_text_has(err.text, "--store-bytes-limit");
    for (i = 0; i < KEYS_MAX; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "k%d", i);
        keys[i] = (tutti_store_change){tutti_bytes_of(names[i]), BYTES(""), false, false};
    }
    assert_fails(tutti_store_apply(*state, keys, KEYS_MAX, NULL, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "--store-keys-limit");
    assert_stored(*state, "a", "one");
    assert_stored(*state, "b", "two");
    tutti_store_stat(*state, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(tutti_store_version(*state), 2);
    keys[0] = (tutti_store_change){BYTES("a"), BYTES(""), true, false};
    keys[1] = (tutti_store_change){BYTES("b"), BYTES(""), true, false};
    (void)apply(*state, keys, KEYS_MAX); /* what goes makes room */
}

static void
test_store_apply__of_an_exempt_change_passes_the_limits(void **state)
{
    static char big[BYTES_MAX];
    tutti_store_change change = {.key = BYTES("record"), .value = {big, sizeof(big)}};
    tutti_store_entry entry;
    tutti_error err;

    assert_fails(tutti_store_apply(*state, &change, 1, NULL, &err), TUTTI_RESOURCE_EXHAUSTED);
    change.exempt = true;
    assert_ok(tutti_store_apply(*state, &change, 1, NULL, &err));
    assert_ok(tutti_store_get(*state, change.key, &entry, &err));
    assert_int_equal(entry.value.size, sizeof(big));
    assert_fails(tutti_store_set(*state, BYTES("a"), BYTES("x"), NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "STORE_LIMIT");
    change.remove = true;
    assert_ok(tutti_store_apply(*state, &change, 1, NULL, &err));
    set(*state, "a", "x");
}

static void
test_store_apply__refuses_all_for_one_bad_key(void **state)
{
    static char big[TUTTI_STORE_VALUE_MAX + 1];
    const tutti_store_change key[] = {{BYTES("a"), BYTES("x"), false, false},
                                      {BYTES(""), BYTES(""), true, false}};
    const tutti_store_change value[] = {{BYTES("a"), BYTES("x"), false, false},
                                        {BYTES("b"), {big, sizeof(big)}, false, false}};
    tutti_error err;

    assert_fails(tutti_store_apply(*state, key, 2, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_KEY");
    assert_fails(tutti_store_apply(*state, value, 2, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "VALUE_LIMIT");
    assert_int_equal(tutti_store_version(*state), 0);
}

/* Open, fill and change; whatever fails says so and leaves the store whole. */
static tutti_code
live(tutti_store **ret_store, tutti_error *err)
{
    tutti_code code = tested->open(ret_store, err);

    if (code == TUTTI_OK) {
        code = tutti_store_set(*ret_store, BYTES("a"), BYTES("one"), NULL, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_store_set(*ret_store, BYTES("b"), BYTES("two"), NULL, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_store_set(*ret_store, BYTES("a"), BYTES("longer"), NULL, err);
    }
    if (code == TUTTI_OK) {
        const tutti_store_change changes[] = {{BYTES("b"), BYTES(""), true, false},
                                              {BYTES("c"), BYTES("three"), false, false},
                                              {BYTES("d"), BYTES("four"), false, false}};

        code = tutti_store_apply(*ret_store, changes, COUNT_OF(changes), NULL, err);
    }
    return code;
}

static void
test_store__without_memory_fails_and_stays_whole(void **state)
{
    tutti_store_entry entry;
    bool failed = true;
    size_t n;

    (void)state;
    for (n = 0; failed; n++) {
        tutti_store *store = NULL;
        tutti_error err;
        tutti_code code;

        sweep_fail_at(n);
        code = live(&store, &err);
        failed = sweep_stop();
        assert_int_equal(code, failed ? TUTTI_RESOURCE_EXHAUSTED : TUTTI_OK);
        if (store != NULL && tutti_store_get(store, BYTES("a"), &entry, NULL) == TUTTI_OK) {
            assert_true(tutti_bytes_equal(entry.value, BYTES("one")) ||
                        tutti_bytes_equal(entry.value, BYTES("longer")));
        }
        tutti_store_close(store);
    }
    assert_true(n > 2);
}

/* ------------------------------------------------------------------ as a whole */

static void
assert_given(tutti_store_snapshot *snapshot, const char *key, const char *value, uint64_t version)
{
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_store_snapshot_next(snapshot, &entry, &err));
    assert_true(tutti_bytes_equal(entry.key, tutti_bytes_of(key)));
    assert_true(tutti_bytes_equal(entry.value, tutti_bytes_of(value)));
    assert_int_equal(entry.version, version);
}

static void
assert_no_further(tutti_store_snapshot *snapshot)
{
    tutti_store_entry entry;
    tutti_error err;

    assert_fails(tutti_store_snapshot_next(snapshot, &entry, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_KEY");
}

static void
test_store_snapshot__has_the_moment_whatever_changes_behind_it(void **state)
{
    const tutti_store_change much[] = {
        {.key = BYTES("d"), .value = BYTES("other")},
        {.key = BYTES("z"), .value = {"", 0}},
        {.key = BYTES("c"), .remove = true},
    };
    tutti_store_snapshot *snapshot = NULL;
    tutti_error err;

    set(*state, "a", "1");
    set(*state, "b", "2");
    set(*state, "c", "3");
    set(*state, "d", "4");
    set(*state, "e", "5");
    assert_ok(tutti_store_snapshot_new(*state, &snapshot, &err));
    assert_int_equal(tutti_store_snapshot_moment(snapshot)->version, 5);
    assert_int_equal(tutti_store_snapshot_moment(snapshot)->stats.key_count, 5);
    assert_int_equal(tutti_store_snapshot_moment(snapshot)->stats.used_bytes, 10);
    set(*state, "b", "x");    /* of the same size */
    set(*state, "aa", "new"); /* between what was there */
    assert_given(snapshot, "a", "1", 1);
    set(*state, "a", "changed once it was given");
    assert_ok(tutti_store_apply(*state, much, COUNT_OF(much), NULL, &err));
    assert_given(snapshot, "b", "2", 2);
    assert_given(snapshot, "c", "3", 3);
    assert_ok(tutti_store_delete(*state, BYTES("e"), NULL, NULL, &err));
    set(*state, "e", "5"); /* the same again is another version */
    assert_given(snapshot, "d", "4", 4);
    assert_given(snapshot, "e", "5", 5);
    assert_no_further(snapshot);
    tutti_store_snapshot_free(snapshot);
    assert_stored(*state, "b", "x");
}

/* A change that is refused is made and taken back, under the eyes of the snapshot. */
static void
test_store_snapshot__gives_what_was_taken_back_once(void **state)
{
    static char large[BYTES_MAX];
    const tutti_store_change changes[] = {{.key = BYTES("a"), .value = BYTES("x")},
                                          {.key = BYTES("b"), .value = {large, sizeof(large)}}};
    tutti_store_snapshot *snapshot = NULL;
    tutti_error err;

    set(*state, "a", "1");
    set(*state, "b", "2");
    assert_ok(tutti_store_snapshot_new(*state, &snapshot, &err));
    assert_fails(tutti_store_apply(*state, changes, COUNT_OF(changes), NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_given(snapshot, "a", "1", 1);
    assert_given(snapshot, "b", "2", 2);
    assert_no_further(snapshot);
    tutti_store_snapshot_free(snapshot);
}

static void
test_store_snapshot__may_be_one_of_several(void **state)
{
    tutti_store_snapshot *first = NULL;
    tutti_store_snapshot *second = NULL;
    tutti_error err;

    set(*state, "a", "1");
    assert_ok(tutti_store_snapshot_new(*state, &first, &err));
    set(*state, "a", "2");
    assert_ok(tutti_store_snapshot_new(*state, &second, &err));
    set(*state, "a", "3");
    assert_given(second, "a", "2", 2);
    tutti_store_snapshot_free(second);
    assert_given(first, "a", "1", 1);
    tutti_store_snapshot_free(first); /* before its end */
}

static void
test_store_take__has_all_with_its_versions(void **state)
{
    tutti_store_snapshot *snapshot = NULL;
    tutti_store *other = NULL;
    tutti_store_entry entry;
    tutti_store_stats stats;
    uint64_t version = 0;
    tutti_error err;

    assert_ok(tutti_store_memory_open(NULL, &other, &err));
    set(other, "a", "gone");
    set(other, "b", "");
    set(other, "c", "3");
    assert_ok(tutti_store_delete(other, BYTES("a"), NULL, NULL, &err));
    assert_ok(tutti_store_snapshot_new(other, &snapshot, &err));
    assert_ok(tutti_store_take(*state, snapshot, NULL, NULL, &err));
    tutti_store_snapshot_free(snapshot);
    tutti_store_close(other);
    assert_int_equal(tutti_store_version(*state), 4);
    assert_ok(tutti_store_get(*state, BYTES("c"), &entry, &err));
    assert_int_equal(entry.version, 3);
    assert_stored(*state, "b", "");
    tutti_store_stat(*state, &stats);
    assert_int_equal(stats.key_count, 2);
    assert_int_equal(stats.used_bytes, 3);
    assert_ok(tutti_store_set(*state, BYTES("c"), BYTES("4"), &version, &err));
    assert_int_equal(version, 5);
}

static void
test_store_take__is_refused_where_something_was(void **state)
{
    tutti_store_snapshot *snapshot = NULL;
    tutti_store *other = NULL;
    tutti_error err;

    assert_ok(tutti_store_memory_open(NULL, &other, &err));
    set(other, "a", "1");
    assert_ok(tutti_store_snapshot_new(other, &snapshot, &err));
    set(*state, "b", "2");
    assert_fails(tutti_store_take(*state, snapshot, NULL, NULL, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "STORE_NOT_EMPTY");
    assert_ok(tutti_store_delete(*state, BYTES("b"), NULL, NULL, &err));
    assert_fails(tutti_store_take(*state, snapshot, NULL, NULL, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "STORE_NOT_EMPTY");
    assert_int_equal(tutti_store_version(*state), 2);
    tutti_store_snapshot_free(snapshot);
    tutti_store_close(other);
}

static void
test_store_close__of_nothing_is_fine(void **state)
{
    (void)state;
    tutti_store_close(NULL);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int
store_contract_run(const store_contract_backend *backends, size_t count)
{
    const struct CMUnitTest sentences[] = {
        SENTENCE(test_store_get__of_an_absent_key_is_not_found),
        SENTENCE(test_store_set__is_read_back_byte_by_byte),
        SENTENCE(test_store_set__overwrites_whatever_the_size),
        SENTENCE(test_store_set__takes_what_the_store_itself_lent),
        SENTENCE(test_store_version__rises_with_every_change_and_with_nothing_else),
        SENTENCE(test_store_delete__forgets_the_key),
        SENTENCE(test_store_next__walks_a_prefix_in_order),
        SENTENCE(test_store_next__goes_on_behind_any_key_there_or_not),
        SENTENCE(test_store_next__survives_changes_between_its_steps),
        SENTENCE(test_store__refuses_keys_and_values_out_of_range),
        SENTENCE(test_store_set__takes_a_key_of_the_largest_size),
        SENTENCE(test_store_set__beyond_the_key_limit_changes_nothing),
        SENTENCE(test_store_set__beyond_the_byte_limit_changes_nothing),
        SENTENCE(test_store_apply__changes_several_keys_with_one_version),
        SENTENCE(test_store_apply__takes_what_the_store_itself_lent),
        SENTENCE(test_store_apply__beyond_a_limit_changes_nothing),
        SENTENCE(test_store_apply__of_an_exempt_change_passes_the_limits),
        SENTENCE(test_store_apply__refuses_all_for_one_bad_key),
        SENTENCE(test_store_snapshot__has_the_moment_whatever_changes_behind_it),
        SENTENCE(test_store_snapshot__gives_what_was_taken_back_once),
        SENTENCE(test_store_snapshot__may_be_one_of_several),
        SENTENCE(test_store_take__has_all_with_its_versions),
        SENTENCE(test_store_take__is_refused_where_something_was),
        cmocka_unit_test(test_store_close__of_nothing_is_fine),
    };
    const struct CMUnitTest sweeps[] = {
        cmocka_unit_test(test_store__without_memory_fails_and_stays_whole),
    };
    int failed = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        tested = &backends[i];
        failed += cmocka_run_group_tests_name(tested->name, sentences, NULL, NULL);
        if (tested->sweeps) {
            failed += cmocka_run_group_tests_name(tested->name, sweeps, NULL, NULL);
        }
    }
    return failed;
}
