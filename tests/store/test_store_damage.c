/*
 * Goal: whatever happens to data.mdb, the store holds what it held or refuses to open; a signal
 * never ends the process. A store that nobody has touched is never refused.
 * Method: a folder filled at random beside a store in memory; copies of it cut, flipped and
 * overwritten at random places, each opened, compared, changed and opened again by a child.
 */
#include "support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/lmdb/lmdb.h"
#include "store/store_folder.h"

#define DAMAGES 200
#define FILE_ROOM (32U << 20)
#define PAGE 4096U
#define KEYS 120
#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})

static unsigned char value_bytes[40000];

/* No machine goes down here, so nobody waits for the disk. */
__attribute__((visibility("default"))) int
fdatasync(int file)
{
    (void)file;
    return 0;
}

static bool heads_fail; /* LMDB writes its heads alone, and pages whole */

__attribute__((visibility("default"))) ssize_t
pwrite64(int file, const void *from, size_t size, off64_t at)
{
    if (heads_fail && size < PAGE) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pwrite64, file, from, size, at);
}

__attribute__((visibility("default"))) ssize_t
pwrite(int file, const void *from, size_t size, off_t at)
{
    return pwrite64(file, from, size, at);
}

static tutti_code
open_folder(tutti_store **ret_store, tutti_error *err)
{
    const tutti_store_lmdb_options options = {.path = store_folder};

    return tutti_store_lmdb_open(&options, ret_store, err);
}

/* One to three keys set or deleted, the same in both. Sizes from nothing to several pages. */
static tutti_code
change(tutti_store *store, tutti_store *mirror, unsigned *seed, tutti_error *err)
{
    static const unsigned sizes[] = {1, 40, 300, 2500, sizeof(value_bytes)};
    char keys[3][16];
    tutti_store_change changes[3];
    const unsigned count = 1 + store_draw(seed, 3);
    const unsigned first = store_draw(seed, KEYS);
    tutti_code code;
    unsigned i;

    for (i = 0; i < count; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "key%u", first + i);
        changes[i] = (tutti_store_change){
            .key = tutti_bytes_of(keys[i]),
            .value = {value_bytes + store_draw(seed, 100),
                      store_draw(seed, sizes[store_draw(seed, COUNT_OF(sizes))]) * 99 / 100},
            .remove = store_draw(seed, 3) == 0,
        };
    }
    code = tutti_store_apply(store, changes, count, NULL, err);
    if (code == TUTTI_OK) {
        (void)tutti_store_apply(mirror, changes, count, NULL, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ the file */

/* Returns the size it has then. */
static size_t
damage(unsigned char *file, size_t size, unsigned *seed)
{
    const unsigned pages = (unsigned)(size / PAGE);
    const size_t at = (size_t)store_draw(seed, pages) * PAGE;
    unsigned i;

    switch (store_draw(seed, 8)) {
    case 0:
        return at;
    case 1:
        return store_draw(seed, (unsigned)size);
    case 2: /* a bit of a head */
        i = 16 + store_draw(seed, 136);
        file[store_draw(seed, 2) * PAGE + i] ^= (unsigned char)(1U << store_draw(seed, 8));
        return size;
    case 3: /* a bit of a page's first bytes */
        file[at + store_draw(seed, 40)] ^= (unsigned char)(1U << store_draw(seed, 8));
        return size;
    case 4: /* any bit */
        file[store_draw(seed, (unsigned)size)] ^= (unsigned char)(1U << store_draw(seed, 8));
        return size;
    case 5:
        memset(file + at, 0, PAGE);
        return size;
    case 6: /* a page as it was of another */
        memmove(file + at, file + (size_t)store_draw(seed, pages) * PAGE, PAGE);
        return size;
    default:
        for (i = store_draw(seed, 64) + 1; i > 0; i--) {
            file[at + store_draw(seed, PAGE)] = (unsigned char)store_draw(seed, 256);
        }
        return size;
    }
}

/* ------------------------------------------------------------------------------ sentences */

static void
test_store_damage__a_store_that_nobody_touched_is_never_refused(void **state)
{
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    unsigned seed = 7;
    unsigned i;
    unsigned n;
    tutti_error err;

    (void)state;
    for (i = 0; i < 150; i++) {
        assert_ok(open_folder(&store, &err));
        assert_true(store_equals(store, mirror));
        for (n = store_draw(&seed, 20); n > 0; n--) {
            assert_ok(change(store, mirror, &seed, &err));
        }
        tutti_store_close(store);
    }
    tutti_store_close(mirror);
}

/* A child is killed at any moment of its changes, and what it left is whole. */
static void
test_store_damage__what_a_killed_process_leaves_is_never_refused(void **state)
{
    unsigned round;

    (void)state;
    for (round = 0; round < 30; round++) {
        tutti_store *mirror = store_in_memory();
        tutti_store *store = NULL;
        tutti_error err;
        int pipes[2];
        char word;
        unsigned n;
        unsigned seed = round;
        pid_t child;

        assert_int_equal(pipe(pipes), 0);
        child = fork();
        if (child == 0) {
            if (open_folder(&store, NULL) != TUTTI_OK) {
                _exit(1);
            }
            for (;;) {
                if (change(store, mirror, &seed, NULL) != TUTTI_OK ||
                    write(pipes[1], "c", 1) != 1) {
                    _exit(1);
                }
            }
        }
        (void)close(pipes[1]);
        for (n = 0; n < 5 + 3 * round; n++) {
            assert_int_equal(read(pipes[0], &word, 1), 1);
        }
        (void)kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        (void)close(pipes[0]);
        assert_ok(open_folder(&store, &err));
        tutti_store_close(store);
        tutti_store_close(mirror);
    }
}

enum {
    WAS_RIGHT = 10,
    WAS_REFUSED,
    WAS_WRONG
};

/* In a child: opened, compared, changed, opened again. */
static int
try_it(tutti_store *mirror, unsigned *seed)
{
    static const int fatal[] = {SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGILL};
    tutti_store *store = NULL;
    tutti_error err = {0};
    tutti_code code;
    unsigned n;

    for (n = 0; n < COUNT_OF(fatal); n++) { /* cmocka catches them */
        (void)signal(fatal[n], SIG_DFL);
    }
    code = open_folder(&store, &err);
    if (code != TUTTI_OK) {
        return strcmp(err.reason, "STORE_FORMAT") == 0 && strstr(err.text, store_folder) != NULL
                   ? WAS_REFUSED
                   : WAS_WRONG;
    }
    if (!store_equals(store, mirror)) {
        return WAS_WRONG;
    }
    for (n = 0; n < 60; n++) {
        if (change(store, mirror, seed, &err) != TUTTI_OK) {
            return WAS_WRONG;
        }
    }
    tutti_store_close(store);
    if (open_folder(&store, &err) != TUTTI_OK || !store_equals(store, mirror)) {
        return WAS_WRONG;
    }
    tutti_store_close(store);
    return WAS_RIGHT;
}

/* [out] ret_counts  how many were right, and how many were refused */
static void
damage_copies(unsigned seed, unsigned count, unsigned ret_counts[2])
{
    unsigned char *good = malloc(FILE_ROOM);
    unsigned char *bad = malloc(FILE_ROOM);
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    unsigned i;
    size_t size;
    tutti_error err;

    print_message("seed %u: %u damages\n", seed, count);
    assert_ok(open_folder(&store, &err));
    for (i = 0; i < 400; i++) {
        assert_ok(change(store, mirror, &seed, &err));
    }
    tutti_store_close(store);
    size = store_file_read(good, FILE_ROOM);
    for (i = 0; i < count; i++) {
        int status = 0;
        pid_t child;

        memcpy(bad, good, size);
        store_file_write(bad, damage(bad, size, &seed));
        child = fork();
        if (child == 0) {
            _exit(try_it(mirror, &seed));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) < WAS_RIGHT ||
            WEXITSTATUS(status) > WAS_REFUSED) {
            fail_msg("damage %u: signal %d, exit %d", i, WTERMSIG(status), WEXITSTATUS(status));
        }
        ret_counts[WEXITSTATUS(status) - WAS_RIGHT]++;
    }
    print_message("%u refused, %u right\n", ret_counts[1], ret_counts[0]);
    tutti_store_close(mirror);
    free(good);
    free(bad);
}

static void
test_store_damage__is_refused_or_does_no_harm(void **state)
{
    unsigned counts[2] = {0};

    (void)state;
    damage_copies(4, DAMAGES, counts);
    assert_true(counts[0] > 0 && counts[1] > counts[0]);
}

/* TUTTI_SEED=N repeats what it has printed. TUTTI_DAMAGES=N does more of them. */
static void
test_store_damage__is_refused_or_does_no_harm_with_any_seed(void **state)
{
    const char *seed = getenv("TUTTI_SEED");
    const char *many = getenv("TUTTI_DAMAGES");
    unsigned counts[2] = {0};

    (void)state;
    damage_copies(seed == NULL ? (unsigned)time(NULL) : (unsigned)strtoul(seed, NULL, 10),
                  many == NULL ? DAMAGES / 2 : (unsigned)strtoul(many, NULL, 10), counts);
}

static void
test_store_damage__a_file_that_is_empty_or_gone_is_no_new_store(void **state)
{
    static unsigned char unused;
    char path[128];
    tutti_store *store = NULL;
    tutti_error err;

    (void)state;
    assert_ok(open_folder(&store, &err));
    tutti_store_close(store);
    store_file_write(&unused, 0);
    assert_fails(open_folder(&store, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_FORMAT");
    assert_text_has(err.text, "it is empty");
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    assert_int_equal(unlink(path), 0);
    assert_fails(open_folder(&store, &err), TUTTI_DATA_LOSS);
    assert_text_has(err.text, "it is gone");
    assert_text_has(err.text, "move it away to begin with an empty store");
}

/* Reading needs no file; writing says what is wrong. */
static void
test_store_damage__a_file_that_is_cut_while_it_is_open_is_written_no_more(void **state)
{
    char path[128];
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    tutti_store_entry entry;
    struct stat now;
    unsigned seed = 1;
    unsigned i;
    tutti_error err;

    (void)state;
    assert_ok(open_folder(&store, &err));
    for (i = 0; i < 50; i++) {
        assert_ok(change(store, mirror, &seed, &err));
    }
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(truncate(path, now.st_size - PAGE), 0);
    assert_fails(change(store, mirror, &seed, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_FORMAT");
    assert_true(store_equals(store, mirror));
    assert_int_equal(tutti_store_next(store, (tutti_bytes){0}, (tutti_bytes){0}, &entry, &err),
                     TUTTI_OK);
    tutti_store_close(store);
    tutti_store_close(mirror);
}

/* The file has grown with the last change, and is cut to what it was before that. */
static void
test_store_damage__a_file_that_is_cut_by_what_the_last_change_added_is_written_no_more(void **state)
{
    char path[128];
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    struct stat before;
    struct stat now;
    unsigned seed = 1;
    tutti_error err;

    (void)state;
    assert_ok(open_folder(&store, &err));
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    assert_int_equal(stat(path, &now), 0);
    do {
        before = now;
        assert_ok(change(store, mirror, &seed, &err));
        assert_int_equal(stat(path, &now), 0);
    } while (now.st_size < before.st_size + 2 * PAGE || before.st_size < 20 * PAGE);
    assert_int_equal(truncate(path, before.st_size), 0);
    assert_fails(change(store, mirror, &seed, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_FORMAT");
    assert_true(store_equals(store, mirror));
    tutti_store_close(store);
    tutti_store_close(mirror);
}

static unsigned char kept_file[4u << 20];

/* As `cp` and `tar` do it, into the same file; and as a restored folder is, another file of that name. */
static void
check_older_file(bool deferred, bool in_place)
{
    const tutti_store_lmdb_options options = {.path = store_folder, .deferred = deferred};
    char path[128];
    tutti_store *store = NULL;
    tutti_store_entry entry;
    size_t size;
    unsigned i;
    tutti_error err;

    assert_ok(tutti_store_lmdb_open(&options, &store, &err));
    for (i = 0; i < 3; i++) { /* then the file has pages to spare, and grows no more */
        assert_ok(tutti_store_set(store, BYTES("a"), (tutti_bytes){value_bytes, i == 0 ? 40000 : 1},
                                  NULL, &err));
        assert_ok(tutti_store_settle(store, &err));
    }
    size = store_file_read(kept_file, sizeof(kept_file));
    assert_ok(tutti_store_set(store, BYTES("a"), BYTES("2"), NULL, &err));
    assert_ok(tutti_store_settle(store, &err));
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    assert_true(in_place || unlink(path) == 0);
    store_file_write(kept_file, size);
    (void)tutti_store_set(store, BYTES("b"), BYTES("3"), NULL, &err);
    if (deferred) {
        assert_fails(tutti_store_settle(store, &err), TUTTI_DATA_LOSS);
    }
    assert_string_equal(err.reason, "STORE_WENT_BACK");
    assert_ok(tutti_store_get(store, BYTES("a"), &entry, &err)); /* to be rescued */
    assert_true(tutti_bytes_equal(entry.value, BYTES("2")));
    tutti_store_close(store);
    assert_ok(tutti_store_lmdb_open(&options, &store, &err));
    assert_int_equal(tutti_store_version(store), 3);
    tutti_store_close(store);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/tutti.lock", store_folder);
    assert_int_equal(unlink(path), 0);
}

static void
test_store_damage__an_older_file_in_its_place_is_written_no_more(void **state)
{
    (void)state;
    check_older_file(false, false);
    check_older_file(false, true);
    check_older_file(true, false);
    check_older_file(true, true);
}

/* LMDB writes no more then, and the file is whole. */
static void
test_store_damage__a_write_that_failed_does_not_make_a_damaged_file(void **state)
{
    tutti_store *store = NULL;
    tutti_store_entry entry;
    unsigned i;
    tutti_error err;

    (void)state;
    assert_ok(open_folder(&store, &err));
    assert_ok(tutti_store_set(store, BYTES("a"), BYTES("1"), NULL, &err));
    heads_fail = true;
    assert_true(tutti_store_set(store, BYTES("b"), BYTES("2"), NULL, &err) != TUTTI_OK);
    heads_fail = false;
    for (i = 0; i < 2; i++) {
        assert_fails(tutti_store_set(store, BYTES("b"), BYTES("2"), NULL, &err), TUTTI_UNAVAILABLE);
        assert_string_equal(err.reason, "STORE_STOPPED");
        assert_text_has(err.text, "start the coordinator again");
    }
    tutti_store_close(store);
    assert_ok(open_folder(&store, &err));
    assert_ok(tutti_store_get(store, BYTES("a"), &entry, &err));
    assert_ok(tutti_store_set(store, BYTES("b"), BYTES("2"), NULL, &err));
    tutti_store_close(store);
}

/* Both heads say that the tree begins with page 1, which no tree does: LMDB asserts, which would
 * end the process. */
static void
test_store_damage__heads_that_are_spoilt_while_it_is_open_are_written_no_more(void **state)
{
    static const unsigned char root[8] = {1};
    char path[128];
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    unsigned seed = 1;
    int file;
    unsigned i;
    tutti_error err;

    (void)state;
    assert_ok(open_folder(&store, &err));
    for (i = 0; i < 100; i++) {
        assert_ok(change(store, mirror, &seed, &err));
    }
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    file = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(file >= 0);
    for (i = 0; i < 2; i++) {
        assert_int_equal(pwrite(file, root, sizeof(root), i * PAGE + 128), sizeof(root));
    }
    assert_int_equal(close(file), 0);
    for (i = 0; i < 3; i++) {
        assert_fails(change(store, mirror, &seed, &err), TUTTI_DATA_LOSS);
        assert_string_equal(err.reason, "STORE_FORMAT");
        assert_true(store_equals(store, mirror));
    }
    tutti_store_close(store);
    assert_fails(open_folder(&store, &err), TUTTI_DATA_LOSS);
    tutti_store_close(mirror);
}

/* LMDB finds them where it needs them. */
static void
test_store_damage__pages_that_are_spoilt_while_it_is_open_are_written_no_more(void **state)
{
    static const unsigned char none[2] = {0};
    char path[128];
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    struct stat now;
    unsigned seed = 1;
    off_t at;
    int file;
    unsigned i;
    tutti_error err;

    (void)state;
    assert_ok(open_folder(&store, &err));
    for (i = 0; i < 100; i++) {
        assert_ok(change(store, mirror, &seed, &err));
    }
    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    file = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &now), 0);
    for (at = 2 * PAGE; at < now.st_size; at += PAGE) {
        assert_int_equal(pwrite(file, none, sizeof(none), at + 10), sizeof(none));
    }
    assert_int_equal(close(file), 0);
    for (i = 0; i < 3; i++) {
        assert_fails(change(store, mirror, &seed, &err), TUTTI_DATA_LOSS);
        assert_string_equal(err.reason, "STORE_FORMAT");
        assert_true(store_equals(store, mirror));
    }
    tutti_store_close(store);
    assert_fails(open_folder(&store, &err), TUTTI_DATA_LOSS);
    tutti_store_close(mirror);
}

/* A store of before there was a digest: number, and version, key's size, key, value. */
static void
test_store_damage__a_store_of_the_format_before_is_taken_over(void **state)
{
    static const char rows[2][32] = {"\5\0\0\0\0\0\0\0\15\0\0\0tutti store 1",
                                     "\4\0\0\0\0\0\0\0\1\0\0\0kvalue"};
    static const size_t sizes[2] = {25, 18};
    tutti_store *store = NULL;
    tutti_store_entry entry;
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi;
    unsigned i;
    tutti_error err;

    (void)state;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, store_folder, MDB_NOLOCK, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    for (i = 0; i < 2; i++) {
        unsigned char number[8] = {0, 0, 0, 0, 0, 0, 0, (unsigned char)i};
        char row[32];
        MDB_val key = {8, number};
        MDB_val value = {sizes[i], row};

        memcpy(row, rows[i], sizeof(row));
        assert_int_equal(mdb_put(txn, dbi, &key, &value, 0), 0);
    }
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    for (i = 0; i < 2; i++) { /* the second time it is one of now */
        assert_ok(open_folder(&store, &err));
        assert_int_equal(tutti_store_version(store), 5);
        assert_ok(tutti_store_get(store, tutti_bytes_of("k"), &entry, &err));
        assert_true(tutti_bytes_equal(entry.value, tutti_bytes_of("value")));
        assert_int_equal(entry.version, 4);
        tutti_store_close(store);
    }
}

/* ------------------------------------------------------------------------------ a full disk */

static unsigned told[2]; /* that it can be written again, that it cannot */

static void
on_write(void *context, const tutti_error *why)
{
    (void)context;
    told[why == NULL ? 0 : 1]++;
}

static bool
write_text(const char *path, const char *text)
{
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

    if (file >= 0) {
        (void)close(file);
    }
    return done;
}

static bool
mount_small_disk(void)
{
    char users[64];
    char groups[64];

    (void)snprintf(users, sizeof(users), "0 %u 1", (unsigned)getuid());
    (void)snprintf(groups, sizeof(groups), "0 %u 1", (unsigned)getgid());
    if (unshare(CLONE_NEWNS) != 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_text("/proc/self/uid_map", users) ||
         !write_text("/proc/self/setgroups", "deny") ||
         !write_text("/proc/self/gid_map", groups))) {
        return false;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", store_folder, "tmpfs", 0, "size=256k") == 0;
}

/* In a child with a disk of 256 KiB of its own. 77 = this machine does not give it one. */
static int
fill_disk(void)
{
    const tutti_store_lmdb_options options = {.path = store_folder, .on_write = on_write};
    tutti_store *mirror = store_in_memory();
    tutti_store *store = NULL;
    tutti_error err = {0};
    unsigned seed = 3;
    unsigned i;

    if (!mount_small_disk()) {
        return 77;
    }
    if (tutti_store_lmdb_open(&options, &store, &err) != TUTTI_OK) {
        return 1;
    }
    for (i = 0; i < 1000 && change(store, mirror, &seed, &err) == TUTTI_OK; i++) {
    }
    if (i == 1000 || strcmp(err.reason, "STORE_FULL") != 0 ||
        strstr(err.text, store_folder) == NULL) {
        (void)fprintf(stderr, "%s %s\n", err.reason, err.text);
        return 2;
    }
    if (told[0] != 0 || told[1] != 1 ||
        (change(store, mirror, &seed, &err) == TUTTI_OK) != (told[0] == 1) || told[1] != 1 ||
        !store_equals(store, mirror)) {
        return 3;
    }
    tutti_store_close(store);
    if (tutti_store_lmdb_open(&options, &store, &err) != TUTTI_OK || !store_equals(store, mirror)) {
        (void)fprintf(stderr, "%s %s\n", err.reason, err.text);
        return 4;
    }
    tutti_store_close(store);
    return 0;
}

static void
test_store_damage__a_full_disk_is_called_a_full_disk(void **state)
{
    int status = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        _exit(fill_disk());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        SKIP("this user may not mount anything");
    }
    assert_int_equal(status, 0);
}

#define SENTENCE(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, store_folder_begin, store_folder_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_store_damage__a_store_that_nobody_touched_is_never_refused),
        SENTENCE(test_store_damage__what_a_killed_process_leaves_is_never_refused),
        SENTENCE(test_store_damage__is_refused_or_does_no_harm),
        SENTENCE(test_store_damage__is_refused_or_does_no_harm_with_any_seed),
        SENTENCE(test_store_damage__a_file_that_is_empty_or_gone_is_no_new_store),
        SENTENCE(test_store_damage__a_file_that_is_cut_while_it_is_open_is_written_no_more),
        SENTENCE(
            test_store_damage__a_file_that_is_cut_by_what_the_last_change_added_is_written_no_more),
        SENTENCE(test_store_damage__an_older_file_in_its_place_is_written_no_more),
        SENTENCE(test_store_damage__a_write_that_failed_does_not_make_a_damaged_file),
        SENTENCE(test_store_damage__heads_that_are_spoilt_while_it_is_open_are_written_no_more),
        SENTENCE(test_store_damage__pages_that_are_spoilt_while_it_is_open_are_written_no_more),
        SENTENCE(test_store_damage__a_store_of_the_format_before_is_taken_over),
        SENTENCE(test_store_damage__a_full_disk_is_called_a_full_disk),
    };
    size_t i;

    for (i = 0; i < sizeof(value_bytes); i++) {
        value_bytes[i] = (unsigned char)(i * 7 + i / 251);
    }
    return cmocka_run_group_tests_name("store/damage", tests, NULL, NULL);
}
