/* What the files of this backend share. Private to this folder. */
#ifndef TUTTI_STORE_LMDB_PRIVATE_H
#define TUTTI_STORE_LMDB_PRIVATE_H

#include <lmdb.h>

#include "base/map.h"
#include "store/lmdb/store_lmdb.h"
#include "store/store_backend.h"

/* LMDB's keys are short, ours need not be: each of ours has a number there. */
typedef struct lmdb_name {
    tutti_map_node node;
    uint64_t number;
    unsigned char key[];
} lmdb_name;

typedef struct store_lmdb {
    tutti_store base;
    tutti_store *memory; /* [owned] all that is stored */
    tutti_map names;
    uint64_t last_number;
    MDB_env *env;
    MDB_dbi rows;
    int lock; /* descriptor of the folder's lock file; -1 = none */
    bool was_cut;
} store_lmdb;

/* What lies under a number in LMDB; number 0 is the store itself. */
#define LMDB_ROW_HEAD 12 /* version, size of the key: little-endian; then key and value */

/* [in] what  "write to", with the store behind it */
tutti_code store_lmdb_fail(tutti_error *err, int code, const char *what);

lmdb_name *store_lmdb_name_find(const store_lmdb *self, tutti_bytes key);

/* NULL = no memory. The key is not there yet. */
lmdb_name *store_lmdb_name_new(store_lmdb *self, tutti_bytes key, uint64_t number);
void store_lmdb_name_free(store_lmdb *self, lmdb_name *name); /* NULL is fine */

/* One row; and the store's own, which says its format and its version. MDB's codes. */
int store_lmdb_put(store_lmdb *self, MDB_txn *txn, uint64_t number, const tutti_store_entry *entry);
int store_lmdb_put_version(store_lmdb *self, MDB_txn *txn, uint64_t version);
int store_lmdb_del(store_lmdb *self, MDB_txn *txn, uint64_t number);

/* store_lmdb_file.c: the folder, its lock, and what lies in it; closed by close_file, also when
 * this fails. */
tutti_code store_lmdb_open_file(store_lmdb *self, const tutti_store_lmdb_options *options,
                                tutti_error *err);
void store_lmdb_close_file(store_lmdb *self);

/* store_lmdb_apply.c */
tutti_code store_lmdb_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                            uint64_t *ret_version, tutti_error *err);
store_lmdb *store_lmdb_from(tutti_store *store);

#endif
