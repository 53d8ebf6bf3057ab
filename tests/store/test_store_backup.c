/*
 * Goal: a backup brings back what a store had at the moment it began, with its versions, into a folder
 * too; a file that is cut, damaged, or something else is refused, and nothing of it becomes durable.
 * Method: backups of stores in memory, as bytes; each cut and each flipped byte of a small one.
 */
#include "support/testing.h"

#include <unistd.h>

#include "store/backup/backup.h"
#include "store/lmdb/lmdb.h"
#include "store/store_folder.h"

#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})

typedef struct file_bytes {
    unsigned char *bytes;
    size_t size;
} file_bytes;

static void
set(tutti_store *store, const char *key, tutti_bytes value)
{
    tutti_error err;

    assert_ok(tutti_store_set(store, tutti_bytes_of(key), value, NULL, &err));
}

/* [in] between  runs behind each piece; NULL = nothing */
static file_bytes
back_up(tutti_store *store, void (*between)(tutti_store *store))
{
    tutti_store_backup *backup = NULL;
    file_bytes file = {0};
    tutti_bytes piece = {0};
    tutti_error err;

    assert_ok(tutti_store_backup_new(store, &backup, &err));
    do {
        assert_ok(tutti_store_backup_next(backup, &piece, &err));
        if (piece.size > 0) {
            file.bytes = realloc(file.bytes, file.size + piece.size);
            memcpy(file.bytes + file.size, piece.data, piece.size);
            file.size += piece.size;
        }
        if (between != NULL) {
            between(store);
        }
    } while (piece.size > 0);
    assert_int_equal(file.size, tutti_store_backup_bytes(tutti_store_backup_moment(backup)));
    tutti_store_backup_free(backup);
    return file;
}

/* [out] ret_store  what was restored, also in part */
static tutti_code
restore(const file_bytes *file, tutti_store *store, tutti_error *err)
{
    FILE *in = fmemopen(file->bytes, file->size == 0 ? 1 : file->size, "rb");
    tutti_store_snapshot *snapshot = NULL;
    tutti_code code;

    assert_non_null(in);
    if (file->size == 0) {
        (void)fgetc(in);
    }
    code = tutti_store_backup_open(in, "x.backup", &snapshot, err);
    if (code == TUTTI_OK) {
        code = tutti_store_take(store, snapshot, NULL, NULL, err);
    }
    tutti_store_snapshot_free(snapshot);
    (void)fclose(in);
    return code;
}

static void
assert_stored(tutti_store *store, const char *key, tutti_bytes value, uint64_t version)
{
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_store_get(store, tutti_bytes_of(key), &entry, &err));
    assert_true(tutti_bytes_equal(entry.value, value));
    assert_int_equal(entry.version, version);
}

static tutti_store *
make_small(void)
{
    tutti_store *store = store_in_memory();

    set(store, "alpha", BYTES("1"));
    set(store, "beta", BYTES(""));
    set(store, "gamma", BYTES("a longer value than the others have"));
    return store;
}

static void
test_backup__brings_back_keys_values_and_versions(void **state)
{
    tutti_store *store = make_small();
    tutti_store *fresh = store_in_memory();
    file_bytes file;
    tutti_error err;

    (void)state;
    assert_ok(tutti_store_delete(store, BYTES("alpha"), NULL, NULL, &err));
    file = back_up(store, NULL);
    assert_ok(restore(&file, fresh, &err));
    assert_int_equal(tutti_store_version(fresh), 4);
    assert_stored(fresh, "beta", BYTES(""), 2);
    assert_stored(fresh, "gamma", BYTES("a longer value than the others have"), 3);
    assert_fails(restore(&file, fresh, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "STORE_NOT_EMPTY");
    tutti_store_close(store);
    tutti_store_close(fresh);
    free(file.bytes);
}

static void
test_backup__of_an_empty_store_is_an_empty_store(void **state)
{
    tutti_store *store = store_in_memory();
    tutti_store *fresh = store_in_memory();
    const file_bytes file = back_up(store, NULL);
    tutti_error err;

    (void)state;
    assert_ok(restore(&file, fresh, &err));
    assert_int_equal(tutti_store_version(fresh), 0);
    tutti_store_close(store);
    tutti_store_close(fresh);
    free(file.bytes);
}

static unsigned char large[TUTTI_STORE_VALUE_MAX];
static int round_count;

static void
spoil_store(tutti_store *store)
{
    char key[16];
    int i;

    for (i = 0; i < 8; i++) {
        (void)snprintf(key, sizeof(key), "key%d", i);
        set(store, key, BYTES("spoilt"));
        (void)snprintf(key, sizeof(key), "key%d.%d", i, round_count);
        set(store, key, BYTES("new"));
    }
    round_count++;
}

static void
test_backup__is_of_one_moment_though_the_store_changes(void **state)
{
    tutti_store *store = store_in_memory();
    tutti_store *fresh = store_in_memory();
    char key[16];
    file_bytes file;
    tutti_store_stats stats;
    tutti_error err;
    int i;

    (void)state;
    for (i = 0; i < 8; i++) {
        large[0] = (unsigned char)i;
        (void)snprintf(key, sizeof(key), "key%d", i);
        set(store, key, (tutti_bytes){large, sizeof(large)});
    }
    file = back_up(store, spoil_store);
    assert_true(round_count > 4); /* it came in pieces */
    assert_ok(restore(&file, fresh, &err));
    tutti_store_stat(fresh, &stats);
    assert_int_equal(stats.key_count, 8);
    for (i = 0; i < 8; i++) {
        large[0] = (unsigned char)i;
        (void)snprintf(key, sizeof(key), "key%d", i);
        assert_stored(fresh, key, (tutti_bytes){large, sizeof(large)}, (uint64_t)i + 1);
    }
    tutti_store_close(store);
    tutti_store_close(fresh);
    free(file.bytes);
}

static void
test_backup__that_is_cut_is_refused_wherever(void **state)
{
    tutti_store *store = make_small();
    const file_bytes whole = back_up(store, NULL);
    tutti_error err;
    size_t size;

    (void)state;
    for (size = 0; size < whole.size; size++) {
        const file_bytes cut = {whole.bytes, size};
        tutti_store *fresh = store_in_memory();

        assert_fails(restore(&cut, fresh, &err), TUTTI_DATA_LOSS);
        assert_string_equal(err.reason, "BACKUP_FORMAT");
        assert_non_null(strstr(err.text, "cut"));
        assert_int_equal(tutti_store_version(fresh), 0);
        tutti_store_close(fresh);
    }
    tutti_store_close(store);
    free(whole.bytes);
}

static void
test_backup__with_any_wrong_byte_is_refused(void **state)
{
    tutti_store *store = make_small();
    const file_bytes file = back_up(store, NULL);
    tutti_error err;
    size_t i;
    int bit;

    (void)state;
    for (i = 0; i < file.size; i++) {
        for (bit = 0; bit < 8; bit += 7) {
            tutti_store *fresh = store_in_memory();

            file.bytes[i] ^= (unsigned char)(1 << bit);
            assert_int_not_equal(restore(&file, fresh, &err), TUTTI_OK);
            assert_string_equal(err.reason, "BACKUP_FORMAT");
            assert_int_equal(tutti_store_version(fresh), 0);
            file.bytes[i] ^= (unsigned char)(1 << bit);
            tutti_store_close(fresh);
        }
    }
    tutti_store_close(store);
    free(file.bytes);
}

static void
test_backup__with_something_behind_its_end_is_refused(void **state)
{
    tutti_store *store = make_small();
    tutti_store *fresh = store_in_memory();
    file_bytes file = back_up(store, NULL);
    tutti_error err;

    (void)state;
    file.bytes = realloc(file.bytes, file.size + 1);
    file.bytes[file.size++] = 'x';
    assert_fails(restore(&file, fresh, &err), TUTTI_DATA_LOSS);
    tutti_store_close(store);
    tutti_store_close(fresh);
    free(file.bytes);
}

static void
test_backup__of_another_kind_is_refused_by_name(void **state)
{
    char text[] = "#!/bin/sh and what else there may be in a file";
    char newer[] = "tutti backup 2\n";
    const file_bytes other = {(unsigned char *)text, sizeof(text)};
    const file_bytes later = {(unsigned char *)newer, sizeof(newer)};
    tutti_store *fresh = store_in_memory();
    tutti_error err;

    (void)state;
    assert_fails(restore(&other, fresh, &err), TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "x.backup is not a backup"));
    assert_fails(restore(&later, fresh, &err), TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "format"));
    tutti_store_close(fresh);
}

/* ------------------------------------------------------------------ folders */

static tutti_store *
open_folder(bool deferred)
{
    const tutti_store_lmdb_options options = {
        .path = store_folder, .sync = TUTTI_STORE_LMDB_FULL, .deferred = deferred};
    tutti_store *store = NULL;
    tutti_error err;

    assert_ok(tutti_store_lmdb_open(&options, &store, &err));
    return store;
}

static void
restore_to_folder(bool deferred)
{
    tutti_store *store = make_small();
    const file_bytes file = back_up(store, NULL);
    tutti_store *kept = open_folder(deferred);
    tutti_error err;

    assert_ok(restore(&file, kept, &err));
    tutti_store_close(kept);
    kept = open_folder(false);
    assert_int_equal(tutti_store_version(kept), 3);
    assert_stored(kept, "gamma", BYTES("a longer value than the others have"), 3);
    set(kept, "gamma", BYTES("goes on"));
    tutti_store_close(kept);
    kept = open_folder(false);
    assert_stored(kept, "gamma", BYTES("goes on"), 4);
    tutti_store_close(kept);
    tutti_store_close(store);
    free(file.bytes);
}

static void
test_restore__into_a_folder_is_there_after_a_restart(void **state)
{
    (void)state;
    restore_to_folder(true);
}

static void
test_restore__into_a_folder_that_is_written_at_once(void **state)
{
    (void)state;
    restore_to_folder(false);
}

static void
test_restore__of_a_damaged_file_leaves_an_empty_folder(void **state)
{
    tutti_store *store = make_small();
    const file_bytes file = back_up(store, NULL);
    tutti_store *kept = open_folder(true);
    tutti_store_stats stats;
    tutti_error err;

    (void)state;
    file.bytes[file.size - 1] ^= 1;
    assert_fails(restore(&file, kept, &err), TUTTI_DATA_LOSS);
    tutti_store_close(kept);
    kept = open_folder(true);
    tutti_store_stat(kept, &stats);
    assert_int_equal(stats.key_count, 0);
    assert_int_equal(tutti_store_version(kept), 0);
    file.bytes[file.size - 1] ^= 1;
    assert_ok(restore(&file, kept, &err)); /* it can be tried again */
    tutti_store_close(kept);
    tutti_store_close(store);
    free(file.bytes);
}

#define IN_FOLDER(function)                                                                        \
    cmocka_unit_test_setup_teardown(function, store_folder_begin, store_folder_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backup__brings_back_keys_values_and_versions),
        cmocka_unit_test(test_backup__of_an_empty_store_is_an_empty_store),
        cmocka_unit_test(test_backup__is_of_one_moment_though_the_store_changes),
        cmocka_unit_test(test_backup__that_is_cut_is_refused_wherever),
        cmocka_unit_test(test_backup__with_any_wrong_byte_is_refused),
        cmocka_unit_test(test_backup__with_something_behind_its_end_is_refused),
        cmocka_unit_test(test_backup__of_another_kind_is_refused_by_name),
        IN_FOLDER(test_restore__into_a_folder_is_there_after_a_restart),
        IN_FOLDER(test_restore__into_a_folder_that_is_written_at_once),
        IN_FOLDER(test_restore__of_a_damaged_file_leaves_an_empty_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
