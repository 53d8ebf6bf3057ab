/*
 * Changes of the store in a folder. A change goes first into a transaction of LMDB, then into
 * memory, and then the transaction is committed.
 *
 * The order has a reason. Only memory knows the limits, and memory can be taken back, but a
 * commit cannot. So everything that may refuse the change has been asked when the commit comes,
 * and only the disk can still say no. When it does, memory gets back what it had.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"
#include "store/memory/memory.h"

/* What one change is about, as it was before all of them. */
typedef struct step {
    unsigned char *copy; /* [owned] its key, and the value it had */
    tutti_store_entry old;
    bool was;        /* there was an entry */
    uint64_t digest; /* of the row that its key had */
    bool has_turned; /* it has another digest since */
} step;

static tutti_code
fail_memory(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a change");
}

/*
 * What the key has now is copied, since the entry in memory is replaced before it is known
 * whether the commit succeeds. All changes are remembered before the first is written: when a key
 * comes twice, both steps hold what was there before the first.
 */
static tutti_code
remember_change(store_lmdb *self, const tutti_store_change *change, step *one, tutti_error *err)
{
    tutti_store_entry entry = {0};

    one->was = tutti_store_get(self->memory, change->key, &entry, NULL) == TUTTI_OK;
    one->copy = malloc(change->key.size + entry.value.size);
    if (one->copy == NULL) {
        return fail_memory(err);
    }
    memcpy(one->copy, change->key.data, change->key.size);
    if (entry.value.size > 0) {
        memcpy(one->copy + change->key.size, entry.value.data, entry.value.size);
    }
    one->old = (tutti_store_entry){
        .key = {one->copy, change->key.size},
        .value = {one->copy + change->key.size, entry.value.size},
        .version = entry.version,
    };
    return TUTTI_OK;
}

/* Every change counts in the digest of the rows, which is written with the store's own row at the
 * end. */
tutti_code
store_lmdb_write_row(store_lmdb *self, MDB_txn *txn, const tutti_store_entry *entry, bool remove,
                     tutti_error *err)
{
    lmdb_name *name = store_lmdb_name_find(self, entry->key);
    int code;

    if (remove && name == NULL) {
        return TUTTI_OK;
    }
    if (name == NULL) {
        name = store_lmdb_name_new(self, entry->key, ++self->last_number);
    }
    if (name == NULL) {
        return fail_memory(err);
    }
    code = remove ? store_lmdb_del(self, txn, name->number)
                  : store_lmdb_put(self, txn, name->number, entry);
    if (code != MDB_SUCCESS) {
        return store_lmdb_fail(self, err, code, "write to");
    }
    store_lmdb_name_turn(self, name, remove ? 0 : store_lmdb_digest(name->number, entry));
    return TUTTI_OK;
}

/* The row gets the version that memory will give it, which is the one after its present one. */
static tutti_code
write_one(store_lmdb *self, MDB_txn *txn, const tutti_store_change *change, step *one,
          tutti_error *err)
{
    const lmdb_name *name = store_lmdb_name_find(self, change->key);
    const tutti_store_entry entry = {.key = change->key,
                                     .value = change->value,
                                     .version = tutti_store_version(self->memory) + 1};

    one->digest = name == NULL ? 0 : name->digest;
    TUTTI_TRY(store_lmdb_write_row(self, txn, &entry, change->remove, err));
    one->has_turned = store_lmdb_name_find(self, change->key) != NULL;
    return TUTTI_OK;
}

/*
 * The store's own row is part of the same transaction, so the folder never holds rows that its
 * own row does not count.
 */
static tutti_code
write_all_change(store_lmdb *self, MDB_txn *txn, const tutti_store_change *changes, size_t count,
                 step *steps, tutti_error *err)
{
    int own;
    size_t i;

    for (i = 0; i < count; i++) {
        TUTTI_TRY(remember_change(self, &changes[i], &steps[i], err));
    }
    for (i = 0; i < count; i++) {
        TUTTI_TRY(write_one(self, txn, &changes[i], &steps[i], err));
    }
    own = store_lmdb_put_own(self, txn, tutti_store_version(self->memory) + 1);
    return own == MDB_SUCCESS ? TUTTI_OK : store_lmdb_fail(self, err, own, "write to");
}

/*
 * Nothing was written, so the digests become what they were. The steps are undone from the last
 * to the first, as a key may be in several of them.
 */
static void
turn_back(store_lmdb *self, size_t count, const step *steps)
{
    while (count-- > 0) {
        if (steps[count].has_turned) {
            store_lmdb_name_turn(self, store_lmdb_name_find(self, steps[count].old.key),
                                 steps[count].digest);
        }
    }
}

/*
 * The commit failed, so memory gets back what it had. What was there before fits the limits; only
 * memory itself can be missing. If it is, the caller hears of that, as the entry is then lost in
 * memory though it is still in the folder.
 */
static tutti_code
take_back(store_lmdb *self, uint64_t version, size_t count, const step *steps, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < count; i++) {
        if (!steps[i].was) {
            tutti_store_memory_forget(self->memory, steps[i].old.key);
        } else if (tutti_store_memory_restore(self->memory, &steps[i].old, err) != TUTTI_OK) {
            code = TUTTI_RESOURCE_EXHAUSTED;
        }
    }
    tutti_store_memory_turn(self->memory, version);
    return code;
}

/*
 * Frees the steps, and the names of keys that are not in the store now: a new key whose change
 * failed, and a key that was removed.
 */
static void
end_steps(store_lmdb *self, size_t count, step *steps)
{
    tutti_store_entry entry;
    size_t i;

    for (i = 0; i < count; i++) {
        if (steps[i].copy != NULL &&
            tutti_store_get(self->memory, steps[i].old.key, &entry, NULL) != TUTTI_OK) {
            store_lmdb_name_free(self, store_lmdb_name_find(self, steps[i].old.key));
        }
        free(steps[i].copy);
    }
    free(steps);
}

/*
 * Changes the transaction and memory, and commits.
 *
 * [in, moved] txn  committed or aborted when this returns
 */
static tutti_code
change_both(store_lmdb *self, MDB_txn *txn, const tutti_store_change *changes, size_t count,
            step *steps, uint64_t *ret_version, tutti_error *err)
{
    const uint64_t before = tutti_store_version(self->memory);
    tutti_code code = write_all_change(self, txn, changes, count, steps, err);
    int done;

    if (code == TUTTI_OK) {
        code = tutti_store_apply(self->memory, changes, count, ret_version, err);
    }
    if (code != TUTTI_OK || *ret_version == before) { /* nothing has changed */
        mdb_txn_abort(txn);
        turn_back(self, count, steps);
        return code;
    }
    done = mdb_txn_commit(txn);
    if (done != MDB_SUCCESS) {
        turn_back(self, count, steps);
        code = take_back(self, before, count, steps, err);
        return code == TUTTI_OK ? store_lmdb_fail(self, err, done, "write to") : code;
    }
    (void)store_lmdb_check_length(self, NULL); /* it may be longer now; the next change tells */
    return TUTTI_OK;
}

tutti_code
store_lmdb_fail_broken(const store_lmdb *self, tutti_error *err)
{
    return store_lmdb_fail_format(err, self->path, "LMDB has found invalid pages");
}

/* LMDB jumps here instead of ending the process: somebody has spoilt its pages while it ran. Its
 * transaction stays as it is; it is never called again. */
static tutti_code
end_broken(store_lmdb *self, uint64_t before, size_t count, const step *steps, tutti_error *err)
{
    self->is_broken = true;
    turn_back(self, count, steps);
    if (tutti_store_version(self->memory) != before) {
        (void)take_back(self, before, count, steps, NULL);
    }
    return store_lmdb_fail_broken(self, err);
}

static tutti_code
change_guarded(store_lmdb *self, const tutti_store_change *changes, size_t count, step *steps,
               uint64_t *ret_version, tutti_error *err)
{
    /*
     * Nothing that is read after the jump is changed after setjmp(), so nothing needs `volatile`.
     */
    const uint64_t before = tutti_store_version(self->memory);
    MDB_txn *txn = NULL;

    if (setjmp(self->on_assert) != 0) {
        return end_broken(self, before, count, steps, err);
    }
    TUTTI_TRY(store_lmdb_begin(self, &txn, err));
    return change_both(self, txn, changes, count, steps, ret_version, err);
}

/* Who watches hears of the first change that cannot be written, and of the next that can. A store
 * that is full by its own limits is its caller's business. */
static void
tell_watcher(store_lmdb *self, tutti_code code, const tutti_error *err)
{
    const bool fails = code != TUTTI_OK && strcmp(err->reason, "STORE_LIMIT") != 0;

    if (fails != self->is_failing && self->on_write != NULL) {
        self->on_write(self->context, fails ? err : NULL);
    }
    self->is_failing = fails;
}

/*
 * The error is collected in `why` first: who watches must see it even when the caller passed NULL
 * for its own.
 */
tutti_code
store_lmdb_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                 uint64_t *ret_version, tutti_error *err)
{
    store_lmdb *self = store_lmdb_from(store);
    tutti_error why = {0};
    tutti_code code;
    step *steps;

    if (self->writer != NULL) {
        return store_lmdb_defer(self, changes, count, ret_version, err);
    }
    steps = calloc(count + 1, sizeof(*steps));
    if (steps == NULL) {
        return fail_memory(err);
    }
    code =
        self->is_broken ? store_lmdb_fail_broken(self, &why) : store_lmdb_check_place(self, &why);
    if (code == TUTTI_OK) {
        code = change_guarded(self, changes, count, steps, ret_version, &why);
    }
    tell_watcher(self, code, &why);
    end_steps(self, count, steps);
    return code == TUTTI_OK ? code : tutti_error_pass(err, &why);
}
