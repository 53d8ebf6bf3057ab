/*
 * Goal: what a process leaves in the folder, the next one finds; nobody else gets in meanwhile.
 * Method: a folder opened again and again; children that are killed; files that are not a store.
 */
#include "support/testing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/lmdb/lmdb.h"
#include "store/store_folder.h"

#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})

/* LMDB's calls come here: how often it waits for the disk. */
static int syncs;

__attribute__((visibility("default"))) int
fdatasync(int file)
{
    (void)file;
    syncs++;
    return 0;
}

static tutti_code
open_with(uint64_t bytes_max, tutti_store **ret_store, tutti_error *err)
{
    const tutti_store_lmdb_options options = {.path = store_folder, .bytes_max = bytes_max};

    return tutti_store_lmdb_open(&options, ret_store, err);
}

static tutti_store *
open_again(void)
{
    tutti_store *store = NULL;
    tutti_error err;

    assert_ok(open_with(0, &store, &err));
    return store;
}

static void
set(tutti_store *store, tutti_bytes key, tutti_bytes value)
{
    tutti_error err;

    assert_ok(tutti_store_set(store, key, value, NULL, &err));
}

static void
test_store_lmdb__keeps_entries_and_versions(void **state)
{
    static char long_key[TUTTI_STORE_KEY_MAX];
    tutti_store *store = open_again();
    tutti_store_entry entry;
    tutti_store_stats stats;
    tutti_error err;

    (void)state;
    memset(long_key, 'k', sizeof(long_key));
    set(store, BYTES("a"), BYTES("one"));
    set(store, BYTES("gone"), BYTES("two"));
    set(store, (tutti_bytes){long_key, sizeof(long_key)}, BYTES("long"));
    set(store, (tutti_bytes){long_key, sizeof(long_key) - 1}, BYTES(""));
    assert_ok(tutti_store_delete(store, BYTES("gone"), NULL, NULL, &err));
    set(store, BYTES("a"), BYTES("three"));
    tutti_store_close(store);

    store = open_again();
    assert_int_equal(tutti_store_version(store), 6);
    assert_ok(tutti_store_get(store, BYTES("a"), &entry, &err));
    assert_true(tutti_bytes_equal(entry.value, BYTES("three")));
    assert_int_equal(entry.version, 6);
    assert_ok(tutti_store_get(store, (tutti_bytes){long_key, sizeof(long_key)}, &entry, &err));
    assert_true(tutti_bytes_equal(entry.value, BYTES("long")));
    assert_int_equal(entry.version, 3);
    assert_int_equal(tutti_store_get(store, BYTES("gone"), &entry, NULL), TUTTI_NOT_FOUND);
    tutti_store_stat(store, &stats);
    assert_int_equal(stats.key_count, 3);
    set(store, BYTES("b"), BYTES("four"));
    assert_int_equal(tutti_store_version(store), 7);
    tutti_store_close(store);
}

/* Counts, for times say nothing: see docs/decisions/0017. */
static void
test_store_lmdb__waits_for_the_disk_as_it_is_told(void **state)
{
    static const struct {
        tutti_store_lmdb_sync sync;
        int per_change;
    } rows[] = {
        {TUTTI_STORE_LMDB_NONE, 0}, {TUTTI_STORE_LMDB_ORDER, 1}, {TUTTI_STORE_LMDB_FULL, 1}};
    size_t i;
    int n;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const tutti_store_lmdb_options options = {.path = store_folder, .sync = rows[i].sync};
        tutti_store *store = NULL;
        tutti_error err;

        assert_ok(tutti_store_lmdb_open(&options, &store, &err));
        syncs = 0;
        for (n = 0; n < 100; n++) {
            set(store, BYTES("a"), BYTES("one"));
        }
        assert_int_equal(syncs, 100 * rows[i].per_change);
        tutti_store_close(store);
    }
}

static void
test_store_lmdb__that_is_deferred_waits_for_the_disk_once_for_many_changes(void **state)
{
    const tutti_store_lmdb_options options = {
        .path = store_folder, .sync = TUTTI_STORE_LMDB_FULL, .deferred = true};
    tutti_store *store = NULL;
    tutti_store_entry entry;
    tutti_error err;
    int begun;
    int n;

    (void)state;
    assert_ok(tutti_store_lmdb_open(&options, &store, &err));
    begun = syncs;
    for (n = 0; n < 100; n++) {
        set(store, BYTES("a"), BYTES("one"));
    }
    set(store, BYTES("gone"), BYTES("two"));
    assert_ok(tutti_store_delete(store, BYTES("gone"), NULL, NULL, &err));
    assert_int_equal(tutti_store_durable(store), 0);
    tutti_store_close(store);
    assert_in_range(syncs - begun, 1, 3); /* the transaction, and the end */

    store = open_again();
    assert_int_equal(tutti_store_version(store), 102);
    assert_ok(tutti_store_get(store, BYTES("a"), &entry, &err));
    assert_int_equal(entry.version, 100);
    assert_int_equal(tutti_store_get(store, BYTES("gone"), &entry, NULL), TUTTI_NOT_FOUND);
    set(store, BYTES("gone"), BYTES("again"));
    tutti_store_close(store);
    store = open_again();
    assert_ok(tutti_store_get(store, BYTES("gone"), &entry, &err));
    tutti_store_close(store);
}

/* What a machine that was started anew finds: the mark of its last life. */
static void
test_store_lmdb__says_that_a_machine_went_down_with_it(void **state)
{
    char path[128];
    tutti_store *store = open_again();
    FILE *mark;

    (void)state;
    assert_false(tutti_store_lmdb_was_cut(store));
    tutti_store_close(store);
    store = open_again();
    assert_false(tutti_store_lmdb_was_cut(store));
    tutti_store_close(store);
    (void)snprintf(path, sizeof(path), "%s/tutti.lock", store_folder);
    mark = fopen(path, "w");
    assert_non_null(mark);
    assert_true(fputs("0b00-of-another-life", mark) >= 0);
    assert_int_equal(fclose(mark), 0);
    store = open_again();
    assert_true(tutti_store_lmdb_was_cut(store));
    tutti_store_close(store);
    store = open_again();
    assert_false(tutti_store_lmdb_was_cut(store));
    tutti_store_close(store);
}

static void
test_store_lmdb__keeps_what_a_killed_process_was_told(void **state)
{
    tutti_store *store;
    tutti_store_entry entry;
    tutti_error err;
    int pipes[2];
    char told = 0;
    int status = 0;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const tutti_store_change changes[] = {{BYTES("x"), BYTES("1"), false, false},
                                              {BYTES("y"), BYTES("2"), false, false}};

        store = NULL;
        if (open_with(0, &store, NULL) == TUTTI_OK &&
            tutti_store_apply(store, changes, COUNT_OF(changes), NULL, NULL) == TUTTI_OK) {
            told = 1;
        }
        (void)!write(pipes[1], &told, 1);
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(read(pipes[0], &told, 1), 1);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    assert_int_equal(told, 1);
    store = open_again();
    assert_ok(tutti_store_get(store, BYTES("x"), &entry, &err));
    assert_ok(tutti_store_get(store, BYTES("y"), &entry, &err));
    assert_int_equal(entry.version, 1);
    tutti_store_close(store);
}

static void
test_store_lmdb__is_open_once(void **state)
{
    tutti_store *store = open_again();
    tutti_store *second = NULL;
    tutti_error err;

    (void)state;
    assert_fails(open_with(0, &second, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "STORE_BUSY");
    assert_non_null(strstr(err.text, store_folder));
    assert_null(second);
    tutti_store_close(store);
    tutti_store_close(open_again());
}

static void
test_store_lmdb__goes_on_after_a_change_beyond_its_limit(void **state)
{
    static const char large[4096];
    tutti_store *store = NULL;
    tutti_error err;

    (void)state;
    assert_ok(open_with(1000, &store, &err));
    assert_fails(tutti_store_set(store, BYTES("a"), BYTES(large), NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_int_equal(tutti_store_version(store), 0);
    set(store, BYTES("a"), BYTES("small"));
    tutti_store_close(store);
    store = open_again();
    assert_int_equal(tutti_store_version(store), 1);
    tutti_store_close(store);
}

static void
test_store_lmdb__refuses_what_is_no_store(void **state)
{
    static const char junk[8192] = "these are not pages of a database";
    char path[128];
    tutti_store *store = NULL;
    tutti_error err;
    FILE *file;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(junk, 1, sizeof(junk), file), sizeof(junk));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(open_with(0, &store, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_FORMAT");
    assert_null(store);
}

static void
test_store_lmdb__says_where_it_could_not_be_made(void **state)
{
    const tutti_store_lmdb_options options = {.path = "/proc/no/such/place"};
    tutti_store *store = NULL;
    tutti_error err;

    (void)state;
    assert_int_not_equal(tutti_store_lmdb_open(&options, &store, &err), TUTTI_OK);
    assert_non_null(strstr(err.text, "/proc/no/such/place"));
    assert_null(store);
}

#define SENTENCE(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, store_folder_begin, store_folder_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_store_lmdb__keeps_entries_and_versions),
        SENTENCE(test_store_lmdb__waits_for_the_disk_as_it_is_told),
        SENTENCE(test_store_lmdb__that_is_deferred_waits_for_the_disk_once_for_many_changes),
        SENTENCE(test_store_lmdb__says_that_a_machine_went_down_with_it),
        SENTENCE(test_store_lmdb__keeps_what_a_killed_process_was_told),
        SENTENCE(test_store_lmdb__is_open_once),
        SENTENCE(test_store_lmdb__goes_on_after_a_change_beyond_its_limit),
        SENTENCE(test_store_lmdb__refuses_what_is_no_store),
        SENTENCE(test_store_lmdb__says_where_it_could_not_be_made),
    };

    return cmocka_run_group_tests_name("store/lmdb", tests, NULL, NULL);
}
