/*
 * Changes that are written later: memory has a change at once, and a thread brings a batch of them
 * into the folder by one transaction.
 *
 * Who calls what: the store's thread has memory and the batch that is collected; the writer's
 * thread has LMDB, the names and the digests. They meet in store/commit/writer.c only. A batch that
 * cannot be written is not taken back from memory, where later changes lie on top of it: the
 * writer fails for good, and the owner ends.
 */
#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"
#include "store/memory/memory.h"

tutti_code
store_lmdb_defer(store_lmdb *self, const tutti_store_change *changes, size_t count,
                 uint64_t *ret_version, tutti_error *err)
{
    return tutti_store_batch_apply(tutti_store_writer_batch(self->writer), self->memory, changes,
                                   count, ret_version, err);
}

/* Removed keys keep their names until the batch is written, since a transaction that fails needs
 * nothing of them any more either. */
static void
free_names(store_lmdb *self, const tutti_store_batch *batch)
{
    const tutti_store_record *one = NULL;

    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        if (one->remove) {
            store_lmdb_name_free(self, store_lmdb_name_find(self, one->entry.key));
        }
    }
}

static tutti_code
fill_txn(store_lmdb *self, MDB_txn *txn, const tutti_store_batch *batch, tutti_error *err)
{
    const tutti_store_record *one = NULL;
    int own;

    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        TUTTI_TRY(store_lmdb_write_row(self, txn, &one->entry, one->remove, err));
    }
    own = store_lmdb_put_own(self, txn, batch->version);
    return own == MDB_SUCCESS ? TUTTI_OK : store_lmdb_fail(self, err, own, "write to");
}

/*
 * With `waits_once` LMDB has written the changed pages and the head that makes them count, and has
 * waited for neither: one wait is for both (docs/decisions/0044). If that fails nobody knows what the
 * disk has, and no later wait would tell: the mark in the lock file stays.
 */
static int
commit_once(store_lmdb *self, MDB_txn *txn)
{
    int code = mdb_txn_commit(txn);

    if (code == MDB_SUCCESS && self->waits_once) {
        code = mdb_env_sync(self->env, 1);
        self->is_broken = code != MDB_SUCCESS;
    }
    return code;
}

static tutti_code
write_txn(store_lmdb *self, const tutti_store_batch *batch, tutti_error *err)
{
    MDB_txn *txn = NULL;
    tutti_code code;
    int done;

    TUTTI_TRY(store_lmdb_begin(self, &txn, err));
    code = fill_txn(self, txn, batch, err);
    if (code != TUTTI_OK) {
        mdb_txn_abort(txn);
        return code;
    }
    done = commit_once(self, txn);
    if (done != MDB_SUCCESS) {
        return store_lmdb_fail(self, err, done, "write to");
    }
    free_names(self, batch);
    (void)store_lmdb_check_length(self, NULL); /* it may be longer now */
    return TUTTI_OK;
}

/* LMDB jumps back here when it finds its pages spoilt (apply.c). The jump stays on this thread. */
static tutti_code
write_batch(void *context, const tutti_store_batch *batch, tutti_error *err)
{
    store_lmdb *self = context;

    TUTTI_TRY(store_lmdb_check_place(self, err));
    if (setjmp(self->on_assert) != 0) {
        self->is_broken = true;
        return store_lmdb_fail_broken(self, err);
    }
    return write_txn(self, batch, err);
}

const tutti_store_writer_ops store_lmdb_writer_ops = {.write = write_batch};

static tutti_store_batch *
batch_to_fill(store_lmdb *self)
{
    return self->writer == NULL ? &self->filling : tutti_store_writer_batch(self->writer);
}

tutti_code
store_lmdb_put_back(tutti_store *store, const tutti_store_entry *entry, tutti_error *err)
{
    store_lmdb *self = store_lmdb_from(store);

    TUTTI_TRY(tutti_store_batch_put_back(batch_to_fill(self), entry, err));
    return tutti_store_memory_restore(self->memory, entry, err);
}

/* Without a writer the batch is written at once, as each change is. */
tutti_code
store_lmdb_begin_at(tutti_store *store, uint64_t version, tutti_error *err)
{
    store_lmdb *self = store_lmdb_from(store);
    tutti_store_batch *batch = batch_to_fill(self);

    batch->version = version;
    if (self->writer == NULL && version > 0) {
        TUTTI_TRY(write_batch(self, batch, err));
        tutti_store_batch_fini(batch);
    }
    tutti_store_memory_turn(self->memory, version);
    return TUTTI_OK;
}
