/*
 * Goal: a store that waits once for each transaction has after a power cut what was durable, and of the
 * transaction that was under way all or nothing; a store that was closed never loses a change by that.
 * Method: data.mdb before and behind a transaction, and any sectors of the one in the place of those of
 * the other, with the head that makes the transaction count and without; each opened and compared with
 * a store in memory, and the next transaction goes on there.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/lmdb/lmdb.h"
#include "store/store_folder.h"

#define ROUNDS 250
#define KEYS 60
#define ROOM (16U << 20)
#define SECTOR 512U
#define PAGE 4096U

static unsigned char before[ROOM];
static unsigned char behind[ROOM];
static unsigned char mixed[ROOM];
static unsigned char value_bytes[20000];

/* No machine goes down here, so nobody waits for the disk. */
__attribute__((visibility("default"))) int
fdatasync(int file)
{
    (void)file;
    return 0;
}

static tutti_code
open_full(tutti_store **ret_store, tutti_error *err)
{
    const tutti_store_lmdb_options options = {
        .path = store_folder, .sync = TUTTI_STORE_LMDB_FULL, .deferred = true};

    return tutti_store_lmdb_open(&options, ret_store, err);
}

/* The same changes for the same seed: one to four, of small and of large values. */
static void
change_by(tutti_store *store, unsigned seed)
{
    const unsigned count = 1 + store_draw(&seed, 4);
    unsigned i;
    tutti_error err;

    for (i = 0; i < count; i++) {
        char key[16];
        const tutti_bytes value = {value_bytes,
                                   store_draw(&seed, store_draw(&seed, 4) == 0 ? 20000 : 200)};

        (void)snprintf(key, sizeof(key), "key%u", store_draw(&seed, KEYS));
        if (store_draw(&seed, 4) == 0 && i > 0) {
            assert_ok(tutti_store_delete(store, tutti_bytes_of(key), NULL, NULL, &err));
        } else {
            value_bytes[0] = (unsigned char)store_draw(&seed, 256);
            assert_ok(tutti_store_set(store, tutti_bytes_of(key), value, NULL, &err));
        }
    }
}

static void
write_mark_of(const char *first)
{
    char path[128];
    FILE *mark;

    (void)snprintf(path, sizeof(path), "%s/tutti.lock", store_folder);
    mark = fopen(path, "w");
    assert_non_null(mark);
    assert_true(fprintf(mark, "%s\nholds a store\n", first) > 0);
    assert_int_equal(fclose(mark), 0);
}

static bool
differs(size_t at)
{
    return memcmp(before + at, behind + at, SECTOR) != 0;
}

/* The sectors in which the two differ, without those of the heads. */
static unsigned
count_differing(size_t size)
{
    unsigned count = 0;
    size_t at;

    for (at = (size_t)2 * PAGE; at < size; at += SECTOR) {
        count += differs(at);
    }
    return count;
}

typedef enum loss {
    LOSE_NOTHING,
    LOSE_ALL,
    LOSE_ONE, /* but not the head */
    LOSE_HEADS,
    LOSE_SOME,
    LOSS_COUNT
} loss;

static void
mix_sectors(loss kind, size_t size, unsigned *seed)
{
    const unsigned lost = store_draw(seed, count_differing(size) + (count_differing(size) == 0));
    unsigned number = 0;
    size_t at;

    memcpy(mixed, behind, size);
    for (at = 0; at < size; at += SECTOR) {
        const bool is_head = at < (size_t)2 * PAGE;
        const bool is_one = !is_head && differs(at) && number++ == lost;

        if (kind == LOSE_ALL || (kind == LOSE_ONE && is_one) || (kind == LOSE_HEADS && is_head) ||
            (kind == LOSE_SOME && store_draw(seed, 2) == 0)) {
            memcpy(mixed + at, before + at, SECTOR);
        }
    }
}

/* One transaction, of which a part is left. [out] ret_lost  data.mdb is not what it was behind it */
static void
cut_one(loss kind, const char *mark, unsigned *seed, unsigned change_seed, bool *ret_lost)
{
    tutti_store *store = NULL;
    tutti_error err;
    size_t size;

    memset(before, 0, sizeof(before));
    memset(behind, 0, sizeof(behind));
    assert_ok(open_full(&store, &err));
    (void)store_file_read(before, ROOM);
    change_by(store, change_seed);
    assert_ok(tutti_store_settle(store, &err));
    tutti_store_close(store);
    size = store_file_read(behind, ROOM);
    mix_sectors(kind, size, seed);
    *ret_lost = memcmp(mixed, behind, size) != 0;
    store_file_write(mixed, size);
    write_mark_of(mark);
}

static void
test_store_cut__has_all_of_a_transaction_or_nothing(void **state)
{
    tutti_store *mirror = store_in_memory();
    unsigned counts[2][LOSS_COUNT] = {0}; /* [went back] */
    unsigned seed = 5;
    unsigned i;

    (void)state;
    for (i = 0; i < ROUNDS; i++) {
        const loss kind = (loss)(i % LOSS_COUNT);
        tutti_store *store = NULL;
        tutti_error err;
        bool is_lost;

        cut_one(kind, "full", &seed, i, &is_lost);
        assert_ok(open_full(&store, &err));
        if (tutti_store_version(store) != tutti_store_version(mirror)) {
            change_by(mirror, i);
        } else {
            assert_true(is_lost);
        }
        assert_true(store_equals(store, mirror));
        counts[tutti_store_lmdb_went_back(store)][kind]++;
        tutti_store_close(store);
    }
    assert_int_equal(counts[1][LOSE_NOTHING] + counts[1][LOSE_ALL] + counts[1][LOSE_HEADS], 0);
    assert_true(counts[1][LOSE_ONE] > 10 && counts[1][LOSE_SOME] > 5);
    tutti_store_close(mirror);
}

static void
test_store_cut__that_was_closed_is_refused_when_its_last_change_is_damaged(void **state)
{
    unsigned refused = 0;
    unsigned seed = 5;
    unsigned i;

    (void)state;
    for (i = 0; i < 20; i++) {
        tutti_store *mirror = store_in_memory();
        tutti_store *store = NULL;
        tutti_error err;
        bool is_lost;

        store_folder_end(NULL);
        assert_int_equal(store_folder_begin(NULL), 0);
        assert_ok(open_full(&store, &err));
        change_by(store, 1000 + i);
        assert_ok(tutti_store_settle(store, &err));
        tutti_store_close(store);
        change_by(mirror, 1000 + i);
        cut_one(LOSE_ONE, "", &seed, i, &is_lost);
        change_by(mirror, i);
        if (open_full(&store, &err) == TUTTI_OK) {
            assert_true(store_equals(store, mirror));
            tutti_store_close(store);
        } else {
            assert_string_equal(err.reason, "STORE_FORMAT");
            refused++;
        }
        tutti_store_close(mirror);
    }
    assert_true(refused > 5);
}

/* What would be gone back to is damaged as well: it is refused, and the file is as it was. */
static void
test_store_cut__of_which_nothing_is_whole_stays_as_it_is(void **state)
{
    tutti_store *store = NULL;
    unsigned seed = 1;
    unsigned i;
    size_t size;
    bool is_lost;
    tutti_error err;

    (void)state;
    for (i = 0; i < 5; i++) {
        cut_one(LOSE_NOTHING, "full", &seed, i, &is_lost);
    }
    size = store_file_read(mixed, ROOM);
    memset(mixed + (size_t)2 * PAGE, 0, size - (size_t)2 * PAGE);
    store_file_write(mixed, size);
    assert_fails(open_full(&store, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_FORMAT");
    assert_int_equal(store_file_read(behind, ROOM), size);
    assert_memory_equal(mixed, behind, size);
}

#define SENTENCE(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, store_folder_begin, store_folder_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_store_cut__has_all_of_a_transaction_or_nothing),
        SENTENCE(test_store_cut__that_was_closed_is_refused_when_its_last_change_is_damaged),
        SENTENCE(test_store_cut__of_which_nothing_is_whole_stays_as_it_is),
    };

    return cmocka_run_group_tests_name("store/cut", tests, NULL, NULL);
}
