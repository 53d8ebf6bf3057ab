/* The folder: its lock, LMDB's files, and reading all of it into memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "store/lmdb/store_lmdb_private.h"
#include "store/memory/store_memory.h"

#define DEFAULT_BYTES_MAX (256ULL << 20)
#define SPARE_BYTES (64ULL << 20)
#define PATH_BYTES 4096

static tutti_code
make_folder(const char *path, tutti_error *err)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make the store's folder %s", path);
    }
    return TUTTI_OK;
}

/* Two coordinators on one folder would give the same numbers to different things. */
static tutti_code
take_lock(store_lmdb *self, const char *path, tutti_error *err)
{
    char file[PATH_BYTES];

    if ((size_t)snprintf(file, sizeof(file), "%s/tutti.lock", path) >= sizeof(file)) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "the store's path has %zu bytes, at most %d",
                          strlen(path), PATH_BYTES - 16);
    }
    self->lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (self->lock < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not open %s", file);
    }
    if (flock(self->lock, LOCK_EX | LOCK_NB) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_BUSY",
                              "another process has the store %s open: stop it, or give this one a "
                              "folder of its own",
                              path);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ who had it last */

#define BOOT_BYTES 64

/* The lock file says in which life of which machine the folder was open unsafely; "" = it was not.
 */
static void
write_mark(const store_lmdb *self, const char *boot)
{
    const int cut = ftruncate(self->lock, 0);
    const ssize_t put = pwrite(self->lock, boot, strlen(boot), 0);

    (void)cut; /* a cast of the call is not enough for gcc */
    (void)put;
}

static void
take_mark(store_lmdb *self, const tutti_store_lmdb_options *options)
{
    char before[BOOT_BYTES + 1] = "";
    char now[BOOT_BYTES + 1] = "";
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (file >= 0) {
        (void)!read(file, now, BOOT_BYTES);
        (void)close(file);
    }
    (void)!pread(self->lock, before, BOOT_BYTES, 0);
    self->was_cut = before[0] != '\0' && strcmp(before, now) != 0;
    write_mark(self, options->sync == TUTTI_STORE_LMDB_NONE ? now : "");
}

/* That the folder has new files is to be on the disk as well. */
static void
sync_folder(const tutti_store_lmdb_options *options)
{
    const int folder = options->sync == TUTTI_STORE_LMDB_NONE
                           ? -1
                           : open(options->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder >= 0) {
        (void)fsync(folder);
        (void)close(folder);
    }
}

/* Pages are half full at worst, and a row has a head. */
static size_t
map_bytes(const tutti_store_lmdb_options *options)
{
    const uint64_t most = options->bytes_max == 0 ? DEFAULT_BYTES_MAX : options->bytes_max;
    const uint64_t limit = (uint64_t)1 << 40;

    return (size_t)((most < limit ? most : limit) * 4 + SPARE_BYTES);
}

static int
open_env(store_lmdb *self, const tutti_store_lmdb_options *options)
{
    static const unsigned flags[] = {MDB_NOSYNC, MDB_NOMETASYNC, 0};
    const unsigned sync = flags[options->sync];
    int code = mdb_env_create(&self->env);

    if (code == MDB_SUCCESS) {
        code = mdb_env_set_mapsize(self->env, map_bytes(options));
    }
    if (code == MDB_SUCCESS) { /* one thread, and a lock of our own */
        code = mdb_env_open(self->env, options->path, sync | MDB_NOLOCK | MDB_NOTLS, 0600);
    }
    return code;
}

/* ------------------------------------------------------------------------------ reading */

static uint64_t
read_little(const unsigned char *from, size_t bytes)
{
    uint64_t number = 0;

    while (bytes-- > 0) {
        number = number << 8 | from[bytes];
    }
    return number;
}

static uint64_t
read_big(const unsigned char *from)
{
    uint64_t number = 0;
    size_t i;

    for (i = 0; i < 8; i++) {
        number = number << 8 | from[i];
    }
    return number;
}

static bool
parse_row(const MDB_val *row, tutti_store_entry *ret_entry)
{
    const unsigned char *at = row->mv_data;
    uint64_t key_size;

    if (row->mv_size < LMDB_ROW_HEAD) {
        return false;
    }
    key_size = read_little(at + 8, 4);
    if (key_size == 0 || key_size > TUTTI_STORE_KEY_MAX ||
        key_size > row->mv_size - LMDB_ROW_HEAD ||
        row->mv_size - LMDB_ROW_HEAD - key_size > TUTTI_STORE_VALUE_MAX) {
        return false;
    }
    ret_entry->version = read_little(at, 8);
    ret_entry->key = (tutti_bytes){at + LMDB_ROW_HEAD, key_size};
    ret_entry->value =
        (tutti_bytes){at + LMDB_ROW_HEAD + key_size, row->mv_size - LMDB_ROW_HEAD - key_size};
    return ret_entry->version > 0 || key_size > 0;
}

static tutti_code
fail_row(tutti_error *err, const char *what)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                          "the store has %s: keep the folder for a look, and start with another",
                          what);
}

static tutti_code
take_row(store_lmdb *self, uint64_t number, const tutti_store_entry *entry, tutti_error *err)
{
    if (number == 0) {
        if (!tutti_bytes_equal(entry->key, tutti_bytes_of("tutti store 1"))) {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_FORMAT",
                                  "the store is of another version: need \"tutti store 1\"");
        }
        tutti_store_memory_turn(self->memory, entry->version);
        return TUTTI_OK;
    }
    if (entry->version == 0 || entry->version > tutti_store_version(self->memory) ||
        store_lmdb_name_find(self, entry->key) != NULL) {
        return fail_row(err, "a row that cannot be");
    }
    if (store_lmdb_name_new(self, entry->key, number) == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for what the store holds");
    }
    self->last_number = number;
    return tutti_store_memory_restore(self->memory, entry, err);
}

/* The store's own row comes first, as its number is 0. */
static tutti_code
read_rows(store_lmdb *self, MDB_cursor *cursor, tutti_error *err)
{
    MDB_val name;
    MDB_val row;
    tutti_code code = TUTTI_OK;
    bool first = true;
    int found = mdb_cursor_get(cursor, &name, &row, MDB_FIRST);

    while (found == MDB_SUCCESS && code == TUTTI_OK) {
        tutti_store_entry entry = {0};
        uint64_t number;

        if (name.mv_size != 8 || !parse_row(&row, &entry)) {
            return fail_row(err, "a row that is too short or too long");
        }
        number = read_big(name.mv_data);
        if (first != (number == 0)) {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_FORMAT",
                                  "the folder holds a database that is not a store");
        }
        first = false;
        code = take_row(self, number, &entry, err);
        found = mdb_cursor_get(cursor, &name, &row, MDB_NEXT);
    }
    if (code == TUTTI_OK && found != MDB_SUCCESS && found != MDB_NOTFOUND) {
        code = store_lmdb_fail(err, found, "read");
    }
    return code;
}

static tutti_code
load(store_lmdb *self, tutti_error *err)
{
    MDB_txn *txn = NULL;
    MDB_cursor *cursor = NULL;
    tutti_code code = TUTTI_OK;
    int done = mdb_txn_begin(self->env, NULL, 0, &txn);

    if (done == MDB_SUCCESS) {
        done = mdb_dbi_open(txn, NULL, 0, &self->rows);
    }
    if (done == MDB_SUCCESS) {
        done = mdb_cursor_open(txn, self->rows, &cursor);
    }
    if (done == MDB_SUCCESS) {
        code = read_rows(self, cursor, err);
        mdb_cursor_close(cursor);
    }
    if (done == MDB_SUCCESS && code == TUTTI_OK) {
        done = mdb_txn_commit(txn);
    } else if (txn != NULL) {
        mdb_txn_abort(txn);
    }
    return done == MDB_SUCCESS ? code : store_lmdb_fail(err, done, "read");
}

tutti_code
store_lmdb_open_file(store_lmdb *self, const tutti_store_lmdb_options *options, tutti_error *err)
{
    tutti_code code = make_folder(options->path, err);
    int opened;

    if (code == TUTTI_OK) {
        code = take_lock(self, options->path, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    take_mark(self, options);
    opened = open_env(self, options);
    sync_folder(options);
    return opened == MDB_SUCCESS ? load(self, err) : store_lmdb_fail(err, opened, "open");
}

void
store_lmdb_close_file(store_lmdb *self)
{
    if (self->env != NULL) {
        if (mdb_env_sync(self->env, 1) == MDB_SUCCESS) {
            write_mark(self, "");
        }
        mdb_env_close(self->env);
    }
    if (self->lock >= 0) {
        (void)close(self->lock);
    }
}
