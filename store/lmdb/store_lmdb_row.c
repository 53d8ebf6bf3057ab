/* Rows of LMDB, and the numbers under which they lie. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/lmdb/store_lmdb_private.h"

tutti_code
store_lmdb_fail(tutti_error *err, int code, const char *what)
{
    if (code == MDB_MAP_FULL || code == ENOSPC || code == ENOMEM || code == MDB_TXN_FULL) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_LIMIT",
                             "could not %s the store: %s", what, mdb_strerror(code));
        tutti_error_set_cause(err, "lmdb", code);
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    if (code > 0) {
        return TUTTI_FAIL_ERRNO(err, code, "could not %s the store", what);
    }
    (void)TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT", "could not %s the store: %s", what,
                         mdb_strerror(code));
    tutti_error_set_cause(err, "lmdb", code);
    return TUTTI_DATA_LOSS;
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

static void
write_number(unsigned char *to, uint64_t number, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(number >> (8 * i));
    }
}

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

int
store_lmdb_put_version(store_lmdb *self, MDB_txn *txn, uint64_t version)
{
    const tutti_store_entry own = {.key = tutti_bytes_of("tutti store 1"), .version = version};

    return store_lmdb_put(self, txn, 0, &own);
}

int
store_lmdb_del(store_lmdb *self, MDB_txn *txn, uint64_t number)
{
    unsigned char storage[8];
    const tutti_bytes key = tutti_map_key_u64(storage, number);
    MDB_val name = {key.size, storage};
    const int code = mdb_del(txn, self->rows, &name, NULL);

    return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
}
