/*
 * The folder of the store: its lock, LMDB's files, and reading all rows into memory.
 *
 * The order at the start is important. First comes the lock, so that nobody else writes. Then
 * check.c looks at data.mdb. Only then does LMDB map the file, since it ends the process when it
 * meets a page that is missing or spoilt. Then all rows are read and their digest is compared,
 * and at the end the lock file says that the folder is in use.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"
#include "store/memory/memory.h"

#define DEFAULT_BYTES_MAX (256ULL << 20)
#define SPARE_BYTES (64ULL << 20)
#define PATH_BYTES 4096

/* The folder that is there already may be of any mode: who made it decides who may read it. */
static tutti_code
make_folder(const char *path, tutti_error *err)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make the store's folder %s", path);
    }
    return TUTTI_OK;
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

/*
 * How much address space LMDB may map. Pages are half full at worst, each row has a head, and a
 * change needs pages beside the old ones: hence four times the limit and a reserve. The space
 * costs no memory until it is used.
 */
static size_t
map_bytes(const tutti_store_lmdb_options *options)
{
    const uint64_t most = options->bytes_max == 0 ? DEFAULT_BYTES_MAX : options->bytes_max;
    const uint64_t limit = (uint64_t)1 << 40;

    return (size_t)((most < limit ? most : limit) * 4 + SPARE_BYTES);
}

/*
 * LMDB calls this when one of its assertions fails, and ends the process when it returns. So it
 * does not return: it jumps to the setjmp() of the call that is under way.
 */
static void
leave_lmdb(MDB_env *env, const char *text)
{
    store_lmdb *self = mdb_env_get_userctx(env);

    (void)text;
    longjmp(self->on_assert, 1);
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
    if (code == MDB_SUCCESS) {
        code = mdb_env_set_userctx(self->env, self);
    }
    if (code == MDB_SUCCESS) {
        code = mdb_env_set_assert(self->env, leave_lmdb);
    }
    if (code == MDB_SUCCESS) { /* no lock of LMDB's: one thread, and our own */
        code = mdb_env_open(self->env, options->path, sync | MDB_NOLOCK | MDB_NOTLS, 0600);
    }
    return code;
}

/* ------------------------------------------------------------------------------ reading */

/*
 * Sizes and versions in a row have the lowest byte first; the numbers that are LMDB's keys have
 * the highest first, as LMDB sorts by bytes.
 */
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

/*
 * Nothing here trusts the bytes: each size is compared with what is left of the row before it is
 * used.
 */
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
    return true;
}

/*
 * A store of the format before has a row without digest. It is taken as it is; settle_own then
 * writes the new one.
 */
static tutti_code
take_own(store_lmdb *self, const tutti_store_entry *entry, tutti_error *err)
{
    if (!tutti_bytes_equal(entry->key, tutti_bytes_of(LMDB_OWN_KEY)) &&
        (!tutti_bytes_equal(entry->key, tutti_bytes_of(LMDB_OWN_KEY_BEFORE)) ||
         entry->value.size > 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_FORMAT",
                              "the store %s was written by another version: need \"%s\"",
                              self->path, LMDB_OWN_KEY);
    }
    tutti_store_memory_turn(self->memory, entry->version);
    return TUTTI_OK;
}

/*
 * A version above that of the whole store, or a key that comes twice, is no state in which a
 * store can be.
 */
static tutti_code
take_row(store_lmdb *self, uint64_t number, const tutti_store_entry *entry, tutti_error *err)
{
    lmdb_name *name = NULL;

    if (entry->version == 0 || entry->version > tutti_store_version(self->memory) ||
        store_lmdb_name_find(self, entry->key) != NULL) {
        return store_lmdb_fail_format(err, self->path, "it has an invalid row");
    }
    name = store_lmdb_name_new(self, entry->key, number);
    if (name == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for what the store holds");
    }
    store_lmdb_name_turn(self, name, store_lmdb_digest(number, entry));
    self->last_number = number;
    return tutti_store_memory_restore(self->memory, entry, err);
}

/* The store's own row comes first, as its number is 0. [out] ret_own  key.size 0 = there is none */
static tutti_code
read_rows(store_lmdb *self, MDB_cursor *cursor, tutti_store_entry *ret_own, tutti_error *err)
{
    MDB_val name;
    MDB_val row;
    tutti_code code = TUTTI_OK;
    int found = mdb_cursor_get(cursor, &name, &row, MDB_FIRST);

    while (found == MDB_SUCCESS && code == TUTTI_OK) {
        tutti_store_entry entry = {0};
        uint64_t number;

        if (name.mv_size != 8 || !parse_row(&row, &entry)) {
            return store_lmdb_fail_format(err, self->path, "it has an invalid row");
        }
        number = read_big(name.mv_data);
        if ((ret_own->key.size == 0) != (number == 0)) {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_FORMAT",
                                  "the folder %s holds a database that is not a store", self->path);
        }
        if (number == 0) {
            *ret_own = entry;
            code = take_own(self, &entry, err);
        } else {
            code = take_row(self, number, &entry, err);
        }
        found = mdb_cursor_get(cursor, &name, &row, MDB_NEXT);
    }
    if (code == TUTTI_OK && found != MDB_SUCCESS && found != MDB_NOTFOUND) {
        code = store_lmdb_fail(self, err, found, "read");
    }
    return code;
}

/* Rows must be those that the store's own row counts; of a store that is new or of the format
 * before, that row is written now. */
static tutti_code
settle_own(store_lmdb *self, MDB_txn *txn, const tutti_store_entry *own, tutti_error *err)
{
    const tutti_bytes key = own->key;
    int code;

    if (key.size > 0 && tutti_bytes_equal(key, tutti_bytes_of(LMDB_OWN_KEY))) {
        /*
         * This transaction's number is one above that of the last change. LMDB does not write a
         * transaction that changes nothing, so the next start gets the same number.
         */
        return store_lmdb_own_agrees(self, own, mdb_txn_id(txn) - 1)
                   ? TUTTI_OK
                   : store_lmdb_fail_format(err, self->path, "its rows do not match their digest");
    }
    if (key.size == 0 && self->holds_store) {
        return store_lmdb_fail_format(err, self->path,
                                      "it is empty, but a store was written to it before");
    }
    code = store_lmdb_put_own(self, txn, own->version);
    return code == MDB_SUCCESS ? TUTTI_OK : store_lmdb_fail(self, err, code, "write to");
}

static tutti_code
load_in(store_lmdb *self, MDB_txn *txn, tutti_error *err)
{
    tutti_store_entry own = {0};
    MDB_cursor *cursor = NULL;
    tutti_code code;
    int done = mdb_dbi_open(txn, NULL, 0, &self->rows);

    if (done == MDB_SUCCESS) {
        done = mdb_cursor_open(txn, self->rows, &cursor);
    }
    if (done != MDB_SUCCESS) {
        return store_lmdb_fail(self, err, done, "read");
    }
    code = read_rows(self, cursor, &own, err);
    mdb_cursor_close(cursor);
    return code == TUTTI_OK ? settle_own(self, txn, &own, err) : code;
}

/*
 * Reads everything in a transaction that may write, since settle_own may have to. The handle of
 * the rows stays valid after the commit.
 */
static tutti_code
load_lmdb_file(store_lmdb *self, tutti_error *err)
{
    MDB_txn *txn = NULL;
    tutti_code code;
    int done;

    if (setjmp(self->on_assert) != 0) {
        return store_lmdb_fail_format(err, self->path, "LMDB has found invalid pages");
    }
    done = mdb_txn_begin(self->env, NULL, 0, &txn);
    if (done != MDB_SUCCESS) {
        return store_lmdb_fail(self, err, done, "read");
    }
    code = load_in(self, txn, err);
    if (code != TUTTI_OK) {
        mdb_txn_abort(txn);
        return code;
    }
    done = mdb_txn_commit(txn);
    return done == MDB_SUCCESS ? TUTTI_OK : store_lmdb_fail(self, err, done, "write to");
}

/* ------------------------------------------------------------------------------ the file */

/*
 * Cutting the file while it is mapped makes LMDB's next access to a lost page a SIGBUS. This
 * finds most such cases before LMDB does; who cuts the file between this check and the access
 * still ends the process.
 */
tutti_code
store_lmdb_check_length(store_lmdb *self, tutti_error *err)
{
    struct stat now;
    int file;

    if (mdb_env_get_fd(self->env, &file) != MDB_SUCCESS || fstat(file, &now) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not look at %s/data.mdb", self->path);
    }
    if ((uint64_t)now.st_size < self->file_bytes) {
        return store_lmdb_fail_format(err, self->path, "another process has made the file shorter");
    }
    self->file_bytes = (uint64_t)now.st_size;
    return TUTTI_OK;
}

/* Who replaces the file, or its folder, leaves us one that nobody will open again. */
tutti_code
store_lmdb_check_place(store_lmdb *self, tutti_error *err)
{
    char path[PATH_BYTES];
    struct stat open_one;
    struct stat there;
    int file;

    (void)snprintf(path, sizeof(path), "%s/data.mdb", self->path);
    if (mdb_env_get_fd(self->env, &file) != MDB_SUCCESS || fstat(file, &open_one) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not look at %s", path);
    }
    if (stat(path, &there) != 0 || there.st_ino != open_one.st_ino ||
        there.st_dev != open_one.st_dev) {
        return store_lmdb_fail_went_back(self, "it is not the file that was opened", err);
    }
    return store_lmdb_check_length(self, err);
}

/* [out] ret_fresh  there is no file, or an empty one and no store before it */
static tutti_code
check_file(const store_lmdb *self, bool *ret_fresh, tutti_error *err)
{
    char path[PATH_BYTES];
    struct stat now;
    tutti_code code = TUTTI_OK;
    int file;

    (void)snprintf(path, sizeof(path), "%s/data.mdb", self->path);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno != ENOENT) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not open %s", path);
    }
    *ret_fresh = file < 0 || (fstat(file, &now) == 0 && now.st_size == 0);
    if (*ret_fresh && self->holds_store) {
        code = store_lmdb_fail_format(err, self->path, file < 0 ? "it is gone" : "it is empty");
    } else if (!*ret_fresh) {
        code = store_lmdb_check(file, self->path, self->was_cut, err);
    }
    if (file >= 0) {
        (void)close(file);
    }
    return code;
}

/* A file that was begun and not completed would be refused ever after. */
static void
remove_begun(const store_lmdb *self)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/data.mdb", self->path);
    (void)unlink(path);
}

/*
 * The folder is synced after LMDB has made its files, also when LMDB failed: what it made is then
 * removed again.
 */
static tutti_code
open_checked(store_lmdb *self, const tutti_store_lmdb_options *options, tutti_error *err)
{
    bool is_fresh = false;
    tutti_code code = check_file(self, &is_fresh, err);
    int opened;

    if (code != TUTTI_OK) {
        return code;
    }
    opened = open_env(self, options);
    sync_folder(options);
    if (opened != MDB_SUCCESS) {
        code = store_lmdb_fail(self, err, opened, "open");
        if (is_fresh) {
            remove_begun(self);
        }
        return code;
    }
    code = load_lmdb_file(self, err);
    return code == TUTTI_OK ? store_lmdb_check_length(self, err) : code;
}

/* ------------------------------------------------------------------------------ going back */

/* As if nothing had been read. */
static void
forget_rows(store_lmdb *self)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&self->names)) != NULL) {
        tutti_store_memory_forget(self->memory, node->key);
        store_lmdb_name_free(self, tutti_container_of(node, lmdb_name, node));
    }
    tutti_store_memory_turn(self->memory, 0);
    self->row_count = 0;
    self->digest_sum = 0;
    self->last_number = 0;
    mdb_env_close(self->env);
    self->env = NULL;
}

static tutti_code
open_before(store_lmdb *self, int file, const tutti_store_lmdb_options *options, tutti_error *err)
{
    lmdb_head taken;
    tutti_code code = store_lmdb_go_back(file, self->path, &taken, err);

    if (code != TUTTI_OK) {
        return code;
    }
    forget_rows(self);
    code = open_checked(self, options, err);
    if (code != TUTTI_OK) {
        (void)store_lmdb_put_head(file, self->path, &taken, NULL);
    }
    self->went_back = code == TUTTI_OK;
    return code;
}

/*
 * A process that waits once for each change may leave the last one on the disk in part, if the
 * machine goes down: its head, and not all of its pages. Nobody has been answered then, and the
 * change before it is whole, since LMDB writes no page that the change before uses. The digest tells:
 * a change of which anything is missing does not agree with it. What is said if neither is whole is
 * what was wrong with the last one.
 */
static tutti_code
open_whole(store_lmdb *self, const tutti_store_lmdb_options *options, tutti_error *err)
{
    tutti_error why = {0};
    const tutti_code code = open_checked(self, options, &why);
    char path[PATH_BYTES];
    int file = -1;

    if (code == TUTTI_DATA_LOSS && self->left_open) {
        (void)snprintf(path, sizeof(path), "%s/data.mdb", self->path);
        file = open(path, O_RDWR | O_CLOEXEC);
    }
    if (file >= 0) {
        (void)open_before(self, file, options, NULL);
        (void)close(file);
    }
    return code == TUTTI_OK || self->went_back ? TUTTI_OK : tutti_error_pass(err, &why);
}

tutti_code
store_lmdb_open_file(store_lmdb *self, const tutti_store_lmdb_options *options, tutti_error *err)
{
    tutti_code code = make_folder(options->path, err);

    if (code == TUTTI_OK) {
        code = store_lmdb_lock(self, options->path, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    store_lmdb_read_mark(self);
    code = open_whole(self, options, err);
    if (code == TUTTI_OK) {
        code = store_lmdb_take_mark(self, options, err);
    }
    self->is_open = code == TUTTI_OK;
    return code;
}

/*
 * The mark is cleared only when the disk has everything. After a failure it stays, and the next
 * start says that the store may have lost changes. Closing the descriptor drops the lock, so it
 * comes last.
 */
void
store_lmdb_close_file(store_lmdb *self)
{
    if (self->env != NULL) {
        if (self->is_open && !self->is_broken && mdb_env_sync(self->env, 1) == MDB_SUCCESS) {
            store_lmdb_clear_mark(self);
        }
        mdb_env_close(self->env);
    }
    if (self->lock >= 0) {
        (void)close(self->lock);
    }
}
