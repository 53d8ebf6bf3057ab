/*
 * Rows of LMDB, the numbers under which they lie, and the digest over all of them.
 *
 * The digest is a sum of one hash per row, modulo 2^64. A sum can be kept up to date by adding
 * and subtracting when a row changes, and does not depend on the order of the rows. It protects
 * against accidents, such as a disk that lost a write; somebody who forges a file can make it
 * agree.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"

#define PROBE_BYTES (1 << 20)
#define OWN_BYTES 32 /* rows, their digest, the change of LMDB, the digest of this row: 8 each */

tutti_code
store_lmdb_fail_format(tutti_error *err, const char *path, const char *what)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                          "%s/data.mdb is damaged, %s: restore the folder from a backup, or "
                          "move it away to begin with an empty store",
                          path, what);
}

tutti_code
store_lmdb_fail_went_back(const store_lmdb *self, const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(
        err, TUTTI_DATA_LOSS, "STORE_WENT_BACK",
        "%s/data.mdb is not what this coordinator has written, %s: was the folder "
        "restored or replaced? Start the coordinator again to use what is there now",
        self->path, what);
}

/*
 * After a write that failed LMDB refuses all others, though what it has written before is whole: the
 * next process opens it as if this one had died.
 */
static tutti_code
fail_stopped(const store_lmdb *self, tutti_error *err)
{
    return TUTTI_FAIL_FOR(
        err, TUTTI_UNAVAILABLE, "STORE_STOPPED",
        "the store %s is written no more, since the disk has failed a write: look at "
        "the disk, and start the coordinator again. What is stored is whole",
        self->path);
}

/*
 * A full disk has a reason of its own, since the operator can do something about it while the
 * process runs.
 */
static tutti_code
fail_full(const store_lmdb *self, tutti_error *err, int number)
{
    char reason[128];

    (void)TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_FULL",
                         "the disk of the store %s is full, and nothing was changed (%s): make "
                         "room there, or delete keys",
                         self->path, strerror_r(number, reason, sizeof(reason)));
    tutti_error_set_cause(err, "errno", number);
    return TUTTI_RESOURCE_EXHAUSTED;
}

/*
 * LMDB turns a write that was too short into EIO, which hides that the disk is full. So a small
 * file is allocated beside the store, and the system's answer to that is taken: ENOSPC, EDQUOT; 0
 * = there is room, and the EIO was real.
 */
static int
ask_for_room(const store_lmdb *self)
{
    char file[PATH_MAX];
    int number;
    int probe;

    if ((size_t)snprintf(file, sizeof(file), "%s/tutti.probe", self->path) >= sizeof(file)) {
        return 0;
    }
    probe = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (probe < 0) {
        return errno;
    }
    number = posix_fallocate(probe, 0, PROBE_BYTES);
    (void)close(probe);
    (void)unlink(file);
    return number;
}

/*
 * Positive codes are the system's, negative ones are LMDB's own. Those of LMDB that say a limit
 * is reached have a reason of their own; all others mean that the file is not what it should be.
 */
tutti_code
store_lmdb_fail(const store_lmdb *self, tutti_error *err, int code, const char *what)
{
    const int number = code == EIO ? ask_for_room(self) : code;

    if (number == ENOSPC || number == EDQUOT) {
        return fail_full(self, err, number);
    }
    if (code == MDB_MAP_FULL || code == ENOMEM || code == MDB_TXN_FULL) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_LIMIT",
                             "could not %s the store %s: %s", what, self->path, mdb_strerror(code));
        tutti_error_set_cause(err, "lmdb", code);
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    if (code > 0) {
        return TUTTI_FAIL_ERRNO(err, code, "could not %s the store %s", what, self->path);
    }
    (void)(code == MDB_PANIC ? fail_stopped(self, err)
                             : store_lmdb_fail_format(err, self->path, mdb_strerror(code)));
    tutti_error_set_cause(err, "lmdb", code);
    return err == NULL ? TUTTI_DATA_LOSS : err->code;
}

lmdb_name *
store_lmdb_name_find(const store_lmdb *self, tutti_bytes key)
{
    tutti_map_node *node = tutti_map_find(&self->names, key);

    return node == NULL ? NULL : tutti_container_of(node, lmdb_name, node);
}

lmdb_name *
store_lmdb_name_new(store_lmdb *self, tutti_bytes key, uint64_t number)
{
    lmdb_name *name = calloc(1, sizeof(*name) + key.size);

    if (name != NULL) {
        memcpy(name->key, key.data, key.size);
        name->number = number;
        name->node.key = (tutti_bytes){name->key, key.size};
        (void)tutti_map_add(&self->names, &name->node);
    }
    return name;
}

void
store_lmdb_name_free(store_lmdb *self, lmdb_name *name)
{
    if (name != NULL) {
        tutti_map_remove(&self->names, &name->node);
        free(name);
    }
}

/*
 * Rows without a digest are not counted, so `row_count` follows from the digest before and after.
 */
void
store_lmdb_name_turn(store_lmdb *self, lmdb_name *name, uint64_t digest)
{
    self->row_count += (digest != 0) - (uint64_t)(name->digest != 0);
    self->digest_sum += digest - name->digest;
    name->digest = digest;
}

/* For a given state two words never give the same one: a single wrong word is always seen. */
static uint64_t
mix_hash(uint64_t state, uint64_t word)
{
    state = (state ^ word) * 0x9E3779B97F4A7C15U;
    return state ^ state >> 29;
}

/*
 * The size goes in first: else the end of a key and the start of a value could be swapped unseen.
 */
static uint64_t
mix_bytes(uint64_t state, tutti_bytes bytes)
{
    const unsigned char *at = bytes.data;
    size_t left = bytes.size;
    uint64_t word;

    state = mix_hash(state, bytes.size);
    for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        state = mix_hash(state, word);
    }
    word = 0;
    if (left > 0) {
        memcpy(&word, at, left);
    }
    return mix_hash(state, word);
}

uint64_t
store_lmdb_digest(uint64_t number, const tutti_store_entry *entry)
{
    uint64_t state = mix_hash(mix_hash(1, number), entry->version);

    state = mix_bytes(mix_bytes(state, entry->key), entry->value);
    /* 0 means that there is no row. */
    return state == 0 ? 1 : state;
}

static void
write_number(unsigned char *to, uint64_t number, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(number >> (8 * i));
    }
}

static uint64_t
read_row_number(const unsigned char *from)
{
    uint64_t number = 0;
    size_t i;

    for (i = 0; i < sizeof(number); i++) {
        number |= (uint64_t)from[i] << 8 * i;
    }
    return number;
}

/*
 * LMDB reserves the space, and the row is written straight into its page: no copy is put together
 * first.
 */
int
store_lmdb_put(store_lmdb *self, MDB_txn *txn, uint64_t number, const tutti_store_entry *entry)
{
    unsigned char storage[8];
    const tutti_bytes key = tutti_map_key_u64(storage, number);
    MDB_val name = {key.size, storage};
    MDB_val row = {LMDB_ROW_HEAD + entry->key.size + entry->value.size, NULL};
    const int code = mdb_put(txn, self->rows, &name, &row, MDB_RESERVE);
    unsigned char *at = row.mv_data;

    if (code != MDB_SUCCESS) {
        return code;
    }
    write_number(at, entry->version, 8);
    write_number(at + 8, entry->key.size, 4);
    memcpy(at + LMDB_ROW_HEAD, entry->key.data, entry->key.size);
    if (entry->value.size > 0) {
        memcpy(at + LMDB_ROW_HEAD + entry->key.size, entry->value.data, entry->value.size);
    }
    return MDB_SUCCESS;
}

/*
 * The digest of this row covers all of it but the digest itself. It is what tells an own row that
 * is whole from one that is not.
 */
static tutti_store_entry
fill_own(const store_lmdb *self, unsigned char value[OWN_BYTES], uint64_t version, uint64_t txn)
{
    tutti_store_entry own = {
        .key = tutti_bytes_of(LMDB_OWN_KEY), .value = {value, OWN_BYTES - 8}, .version = version};

    write_number(value, self->row_count, 8);
    write_number(value + 8, self->digest_sum, 8);
    write_number(value + 16, txn, 8);
    write_number(value + 24, store_lmdb_digest(0, &own), 8);
    own.value.size = OWN_BYTES;
    return own;
}

int
store_lmdb_put_own(store_lmdb *self, MDB_txn *txn, uint64_t version)
{
    unsigned char value[OWN_BYTES];
    const tutti_store_entry own = fill_own(self, value, version, mdb_txn_id(txn));

    return store_lmdb_put(self, txn, 0, &own);
}

/* The row is built again from what was read, and both must be equal byte for byte. */
bool
store_lmdb_own_agrees(const store_lmdb *self, const tutti_store_entry *own, uint64_t txn)
{
    unsigned char value[OWN_BYTES];

    return tutti_bytes_equal(own->value, fill_own(self, value, own->version, txn).value);
}

/*
 * Reads bytes that nobody has checked yet: only a row of exactly the right size, key and digest
 * counts.
 */
uint64_t
store_lmdb_own_txn(tutti_bytes row)
{
    const size_t key_bytes = sizeof(LMDB_OWN_KEY) - 1;
    const unsigned char *key = (const unsigned char *)row.data + LMDB_ROW_HEAD;
    const unsigned char *value = key + key_bytes;
    tutti_store_entry own = {.key = {key, key_bytes}, .value = {value, OWN_BYTES - 8}};

    if (row.size != LMDB_ROW_HEAD + key_bytes + OWN_BYTES ||
        memcmp(key, LMDB_OWN_KEY, key_bytes) != 0) {
        return 0;
    }
    own.version = read_row_number(row.data);
    return read_row_number(value + 24) == store_lmdb_digest(0, &own) ? read_row_number(value + 16)
                                                                     : 0;
}

/*
 * The own row has a digest of all rows, and LMDB's number of the change. So it is another one in each
 * file that is not as we have left it.
 */
static tutti_code
check_own(store_lmdb *self, MDB_txn *txn, tutti_error *err)
{
    unsigned char storage[8];
    const tutti_bytes key = tutti_map_key_u64(storage, 0);
    MDB_val name = {key.size, storage};
    MDB_val row;
    tutti_store_entry own = {0};
    const int found = mdb_get(txn, self->rows, &name, &row);

    if (found != MDB_SUCCESS || store_lmdb_own_txn((tutti_bytes){row.mv_data, row.mv_size}) == 0) {
        return store_lmdb_fail_format(err, self->path, "the store's own row is not there");
    }
    own.version = read_row_number(row.mv_data);
    own.value = (tutti_bytes){(unsigned char *)row.mv_data + row.mv_size - OWN_BYTES, OWN_BYTES};
    return store_lmdb_own_agrees(self, &own, mdb_txn_id(txn) - 1)
               ? TUTTI_OK
               : store_lmdb_fail_went_back(self, "its last change is another one", err);
}

tutti_code
store_lmdb_begin(store_lmdb *self, MDB_txn **ret_txn, tutti_error *err)
{
    MDB_txn *txn = NULL;
    const int done = mdb_txn_begin(self->env, NULL, 0, &txn);
    tutti_code code;

    if (done != MDB_SUCCESS) {
        return store_lmdb_fail(self, err, done, "write to");
    }
    code = check_own(self, txn, err);
    if (code == TUTTI_OK) {
        *ret_txn = txn;
    } else {
        mdb_txn_abort(txn);
    }
    return code;
}

/* A row that is not there is no failure: its key was set and removed in the same change. */
int
store_lmdb_del(store_lmdb *self, MDB_txn *txn, uint64_t number)
{
    unsigned char storage[8];
    const tutti_bytes key = tutti_map_key_u64(storage, number);
    MDB_val name = {key.size, storage};
    const int code = mdb_del(txn, self->rows, &name, NULL);

    return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
}
