/*
 * The checks that every backend shares. They stand here and not in the backends for two reasons:
 * a bad key or value must be refused the same way whatever the store is, and a backend that
 * breaks its promise (a version that does not grow, a walk that goes back) is stopped by an
 * assertion at the call that shows it.
 */
#include "store/store.h"

#include <assert.h>
#include <semaphore.h>

#include "base/error/fail.h"
#include "store/store_backend.h"

static tutti_code
check_key(tutti_bytes key, tutti_error *err)
{
    if (key.size == 0 || key.size > TUTTI_STORE_KEY_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_KEY",
                              "key of %zu bytes, need 1 to %d", key.size, TUTTI_STORE_KEY_MAX);
    }
    return TUTTI_OK;
}

static tutti_code
check_value(tutti_bytes value, tutti_error *err)
{
    if (value.size > TUTTI_STORE_VALUE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "VALUE_LIMIT",
                              "value of %zu bytes, at most %u", value.size, TUTTI_STORE_VALUE_MAX);
    }
    return TUTTI_OK;
}

tutti_code
tutti_store_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry, tutti_error *err)
{
    tutti_store_entry entry = {0};

    assert(store != NULL && ret_entry != NULL);
    TUTTI_TRY(check_key(key, err));
    TUTTI_TRY(store->ops->get(store, key, &entry, err));
    assert(tutti_bytes_equal(entry.key, key) && entry.value.size <= TUTTI_STORE_VALUE_MAX);
    assert(entry.version > 0 && entry.version <= store->ops->version(store));
    *ret_entry = entry;
    return TUTTI_OK;
}

tutti_code
tutti_store_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
                tutti_error *err)
{
    uint64_t before;
    uint64_t version = 0;

    assert(store != NULL);
    TUTTI_TRY(check_key(key, err));
    TUTTI_TRY(check_value(value, err));
    before = store->ops->version(store);
    TUTTI_TRY(store->ops->set(store, key, value, &version, err));
    assert(version > before); /* every change has a version of its own */
    if (ret_version != NULL) {
        *ret_version = version;
    }
    return TUTTI_OK;
}

tutti_code
tutti_store_delete(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
                   tutti_error *err)
{
    uint64_t before;
    uint64_t version = 0;
    bool existed = false;

    assert(store != NULL);
    TUTTI_TRY(check_key(key, err));
    before = store->ops->version(store);
    TUTTI_TRY(store->ops->remove(store, key, &existed, &version, err));
    assert(existed ? version > before : version == before);
    if (ret_existed != NULL) {
        *ret_existed = existed;
    }
    if (ret_version != NULL) {
        *ret_version = version;
    }
    return TUTTI_OK;
}

static tutti_code
check_change(const tutti_store_change *change, tutti_error *err)
{
    const tutti_code code = check_key(change->key, err);

    return code == TUTTI_OK && !change->remove ? check_value(change->value, err) : code;
}

/*
 * All keys and values are checked before the backend sees the first of them, so a bad change in
 * the middle leaves nothing half done.
 */
tutti_code
tutti_store_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                  uint64_t *ret_version, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    uint64_t version = 0;
    uint64_t before;
    size_t i;

    assert(store != NULL && (changes != NULL || count == 0));
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = check_change(&changes[i], err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    before = store->ops->version(store);
    code = store->ops->apply(store, changes, count, &version, err);
    if (code == TUTTI_OK) {
        assert(version == before || version == before + 1);
        if (ret_version != NULL) {
            *ret_version = version;
        }
    } else {
        assert(store->ops->version(store) == before); /* nothing has changed */
    }
    return code;
}

/*
 * A walk has no state to free: the key that was given out last is all that the next call needs.
 * So the store may be changed between two calls, if the caller has its own copy of that key.
 */
tutti_code
tutti_store_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after,
                 tutti_store_entry *ret_entry, tutti_error *err)
{
    tutti_store_entry entry = {0};

    assert(store != NULL && ret_entry != NULL);
    assert(prefix.size <= TUTTI_STORE_KEY_MAX && after.size <= TUTTI_STORE_KEY_MAX);
    TUTTI_TRY(store->ops->next(store, prefix, after, &entry, err));
    assert(entry.key.size >= prefix.size);
    assert(after.size == 0 || tutti_bytes_compare(entry.key, after) > 0);
    *ret_entry = entry;
    return TUTTI_OK;
}

uint64_t
tutti_store_version(tutti_store *store)
{
    assert(store != NULL);
    return store->ops->version(store);
}

uint64_t
tutti_store_durable(tutti_store *store)
{
    assert(store != NULL);
    return store->ops->durable == NULL ? store->ops->version(store) : store->ops->durable(store);
}

tutti_code
tutti_store_flush(tutti_store *store, tutti_error *err)
{
    assert(store != NULL);
    return store->ops->flush == NULL ? TUTTI_OK : store->ops->flush(store, err);
}

void
tutti_store_on_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg)
{
    assert(store != NULL);
    if (store->ops->on_durable != NULL) {
        store->ops->on_durable(store, on_durable, arg);
    }
}

static void
on_settled(void *arg)
{
    (void)sem_post(arg);
}

tutti_code
tutti_store_settle(tutti_store *store, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    sem_t told;

    (void)sem_init(&told, 0, 0);
    tutti_store_on_durable(store, on_settled, &told);
    while (code == TUTTI_OK && tutti_store_durable(store) < tutti_store_version(store)) {
        code = tutti_store_flush(store, err);
        if (code == TUTTI_OK) {
            (void)sem_wait(&told);
        }
    }
    tutti_store_on_durable(store, NULL, NULL);
    (void)sem_destroy(&told);
    return code;
}

void
tutti_store_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    assert(store != NULL && ret_stats != NULL);
    store->ops->stat(store, ret_stats);
}

tutti_code
tutti_store_snapshot_new(tutti_store *store, tutti_store_snapshot **ret_snapshot, tutti_error *err)
{
    assert(store != NULL && ret_snapshot != NULL);
    return store->ops->snapshot(store, ret_snapshot, err);
}

const tutti_store_moment *
tutti_store_snapshot_moment(const tutti_store_snapshot *snapshot)
{
    return &snapshot->moment;
}

tutti_code
tutti_store_snapshot_next(tutti_store_snapshot *snapshot, tutti_store_entry *ret_entry,
                          tutti_error *err)
{
    tutti_store_entry entry = {0};

    TUTTI_TRY(snapshot->ops->next(snapshot, &entry, err));
    assert(entry.key.size > 0 && entry.key.size <= TUTTI_STORE_KEY_MAX);
    assert(entry.value.size <= TUTTI_STORE_VALUE_MAX);
    assert(entry.version > 0 && entry.version <= snapshot->moment.version);
    *ret_entry = entry;
    return TUTTI_OK;
}

void
tutti_store_snapshot_free(tutti_store_snapshot *snapshot)
{
    if (snapshot != NULL) {
        snapshot->ops->free(snapshot);
    }
}

/* A store that has had keys is refused as well: its version would go back. */
static tutti_code
check_empty(tutti_store *store, tutti_error *err)
{
    tutti_store_stats stats;

    store->ops->stat(store, &stats);
    if (stats.key_count > 0 || store->ops->version(store) > 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_NOT_EMPTY",
                              "the store holds %llu keys and has had %llu changes: name one that "
                              "is new, with 0 of both",
                              (unsigned long long)stats.key_count,
                              (unsigned long long)store->ops->version(store));
    }
    return TUTTI_OK;
}

tutti_code
tutti_store_take(tutti_store *store, tutti_store_snapshot *from, tutti_store_on_taken on_taken,
                 void *arg, tutti_error *err)
{
    tutti_store_entry entry = {0};
    tutti_error why = {0};
    uint64_t bytes = 0;
    tutti_code code;

    TUTTI_TRY(check_empty(store, err));
    while ((code = tutti_store_snapshot_next(from, &entry, &why)) == TUTTI_OK) {
        TUTTI_TRY(store->ops->put_back(store, &entry, err));
        bytes += entry.key.size + entry.value.size;
        if (on_taken != NULL) {
            on_taken(arg, bytes);
        }
    }
    return code == TUTTI_NOT_FOUND ? store->ops->begin_at(store, from->moment.version, err)
                                   : tutti_error_pass(err, &why);
}

void
tutti_store_close(tutti_store *store)
{
    if (store != NULL) {
        store->ops->close(store);
    }
}
