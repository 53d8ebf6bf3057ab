/* What the files of this backend share. Private to this folder. */
#ifndef TUTTI_STORE_LMDB_PRIVATE_H
#define TUTTI_STORE_LMDB_PRIVATE_H

#include <lmdb.h>
#include <setjmp.h>

#include "base/data/map.h"
#include "store/commit/writer.h"
#include "store/lmdb/lmdb.h"
#include "store/store_backend.h"

/* LMDB's keys are short, ours need not be: each of ours has a number there. */
typedef struct lmdb_name {
    tutti_map_node node;
    uint64_t number;
    uint64_t digest; /* of its row; 0 = there is none yet, or no more */
    unsigned char key[];
} lmdb_name;

typedef struct store_lmdb {
    tutti_store base;
    tutti_store *memory;        /* [owned] all that is stored */
    tutti_store_writer *writer; /* [owned] NULL = a change is written at once. Its thread has all
                                   below, once the store is open */
    tutti_store_batch filling;  /* what is put back into an empty store, without a writer */
    tutti_map names;
    uint64_t last_number;
    MDB_env *env;
    MDB_dbi rows;
    char *path;          /* [owned] */
    uint64_t row_count;  /* with a digest */
    uint64_t digest_sum; /* of all rows, modulo 2^64 */
    uint64_t file_bytes; /* that data.mdb had at least, once */
    int lock;            /* descriptor of the folder's lock file; -1 = none */
    bool was_cut;
    bool left_open; /* by a process that waited once for each change (mark.c) */
    bool went_back; /* to the change before the last one */
    bool waits_once;
    bool is_open;
    bool holds_store; /* the lock file says so */
    bool is_broken;   /* LMDB has found the file spoilt; it is not called any more */
    bool is_failing;  /* the last change could not be written */
    jmp_buf on_assert;
    void (*on_write)(void *context, const tutti_error *why);
    void *context;
} store_lmdb;

/* What lies under a number in LMDB; number 0 is the store itself. */
#define LMDB_ROW_HEAD 12 /* version, size of the key: little-endian; then key and value */

/* [in] what  "write to", with the store behind it */
tutti_code store_lmdb_fail(const store_lmdb *self, tutti_error *err, int code, const char *what);

/* STORE_FORMAT: data.mdb is damaged. [in] what  "page 7 is cut off" */
tutti_code store_lmdb_fail_format(tutti_error *err, const char *path, const char *what);

/* STORE_WENT_BACK. [in] what  "it is not the file that was opened" */
tutti_code store_lmdb_fail_went_back(const store_lmdb *self, const char *what, tutti_error *err);

lmdb_name *store_lmdb_name_find(const store_lmdb *self, tutti_bytes key);

/* NULL = no memory. The key is not there yet. */
lmdb_name *store_lmdb_name_new(store_lmdb *self, tutti_bytes key, uint64_t number);
void store_lmdb_name_free(store_lmdb *self, lmdb_name *name); /* NULL is fine */

/* Of a row's bytes; never 0. */
uint64_t store_lmdb_digest(uint64_t number, const tutti_store_entry *entry);

/* The digest of a key's row is another one now; 0 = it has no row. */
void store_lmdb_name_turn(store_lmdb *self, lmdb_name *name, uint64_t digest);

/* One row; and the store's own, which says its format and its version, in which change of LMDB it
 * was written, and the count and the digest of all other rows. MDB's codes. */
int store_lmdb_put(store_lmdb *self, MDB_txn *txn, uint64_t number, const tutti_store_entry *entry);
int store_lmdb_put_own(store_lmdb *self, MDB_txn *txn, uint64_t version);

/*
 * A transaction that may write; the folder's rows are those that were written last.
 *
 * TUTTI_DATA_LOSS  STORE_WENT_BACK: somebody has put another data.mdb, or an older one, in its place
 */
tutti_code store_lmdb_begin(store_lmdb *self, MDB_txn **ret_txn, tutti_error *err);

/* Does the store's own row say what was read? [in] txn  in which LMDB wrote it last */
bool store_lmdb_own_agrees(const store_lmdb *self, const tutti_store_entry *own, uint64_t txn);

/* In which change of LMDB the store's own row was written; 0 = it is not such a row. */
uint64_t store_lmdb_own_txn(tutti_bytes row);

#define LMDB_OWN_KEY "tutti store 2"
#define LMDB_OWN_KEY_BEFORE "tutti store 1" /* without a digest */
int store_lmdb_del(store_lmdb *self, MDB_txn *txn, uint64_t number);

/* file.c: the folder, its lock, and what lies in it; closed by close_file, also when
 * this fails. */
tutti_code store_lmdb_open_file(store_lmdb *self, const tutti_store_lmdb_options *options,
                                tutti_error *err);
void store_lmdb_close_file(store_lmdb *self);

/* mark.c: the lock of the folder, and what its file says of who had the folder open last. */
tutti_code store_lmdb_lock(store_lmdb *self, const char *path, tutti_error *err);
void store_lmdb_read_mark(store_lmdb *self);
void store_lmdb_clear_mark(store_lmdb *self); /* the disk has everything */

/* The store could be read. From now on an empty data.mdb is a loss and not a new store; and what is
 * left open is to be looked at as `sync` says. */
tutti_code store_lmdb_take_mark(store_lmdb *self, const tutti_store_lmdb_options *options,
                                tutti_error *err);

/* Is data.mdb as long as it was? Asked before each change: LMDB would end the process. */
tutti_code store_lmdb_check_length(store_lmdb *self, tutti_error *err);

/* ... and is it the file that is open? TUTTI_DATA_LOSS  STORE_WENT_BACK */
tutti_code store_lmdb_check_place(store_lmdb *self, tutti_error *err);

/* check.c: is data.mdb what LMDB may have written? It need not be, and nothing happens.
 * [in] was_cut  a machine went down with it, and its two heads need not be neighbours
 *
 * TUTTI_DATA_LOSS  STORE_FORMAT */
tutti_code store_lmdb_check(int file, const char *path, bool was_cut, tutti_error *err);

/* The head of data.mdb that was written last, and where it lies. */
typedef struct lmdb_head {
    uint64_t at;
    unsigned char bytes[136];
} lmdb_head;

/* check.c: take away the head of the last change, so that the change before it is the last one; and
 * put it back. [in] file  may be written
 *
 * TUTTI_DATA_LOSS  STORE_FORMAT: there is no change before it that is whole */
tutti_code store_lmdb_go_back(int file, const char *path, lmdb_head *ret_taken, tutti_error *err);
tutti_code store_lmdb_put_head(int file, const char *path, const lmdb_head *head, tutti_error *err);

/* apply.c */
tutti_code store_lmdb_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                            uint64_t *ret_version, tutti_error *err);
store_lmdb *store_lmdb_from(tutti_store *store);

/* deferred.c: changes that are written later, together. */
extern const tutti_store_writer_ops store_lmdb_writer_ops; /* with a store_lmdb as context */
tutti_code store_lmdb_defer(store_lmdb *self, const tutti_store_change *changes, size_t count,
                            uint64_t *ret_version, tutti_error *err);

/* As tutti_store_ops has them; all is one transaction. */
tutti_code store_lmdb_put_back(tutti_store *store, const tutti_store_entry *entry,
                               tutti_error *err);
tutti_code store_lmdb_begin_at(tutti_store *store, uint64_t version, tutti_error *err);

/* The row of a key as a transaction has it from now on: `entry`, or none. Its name and digest go
 * with it; a name that is left without a row is the caller's to free. */
tutti_code store_lmdb_write_row(store_lmdb *self, MDB_txn *txn, const tutti_store_entry *entry,
                                bool remove, tutti_error *err);

/* The file has been spoilt while it was open. */
tutti_code store_lmdb_fail_broken(const store_lmdb *self, tutti_error *err);

#endif
