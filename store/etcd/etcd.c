/*
 * The store in etcd as a backend: memory has a change at once, and store/commit's thread brings
 * batches of them to etcd (write.c). Reading never asks etcd: only the leader reads, and what it has
 * not written is not there.
 */
#include "store/etcd/etcd.h"

#include <assert.h>
#include <stdlib.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "store/etcd/etcd_private.h"
#include "store/memory/memory.h"
#include "store/store_backend.h"

static const tutti_store_ops store_etcd_ops;

static store_etcd *
store_etcd_from(tutti_store *store)
{
    assert(store->ops == &store_etcd_ops);
    return tutti_container_of(store, store_etcd, base);
}

static tutti_code
store_etcd_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry, tutti_error *err)
{
    return tutti_store_get(store_etcd_from(store)->memory, key, ret_entry, err);
}

static tutti_code
store_etcd_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                 uint64_t *ret_version, tutti_error *err)
{
    store_etcd *self = store_etcd_from(store);
    return tutti_store_batch_apply(tutti_store_writer_batch(self->writer), self->memory, changes,
                                   count, ret_version, err);
}

static tutti_code
store_etcd_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
               tutti_error *err)
{
    const tutti_store_change change = {.key = key, .value = value};

    return store_etcd_apply(store, &change, 1, ret_version, err);
}

static tutti_code
store_etcd_remove(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
                  tutti_error *err)
{
    store_etcd *self = store_etcd_from(store);
    const tutti_store_change change = {.key = key, .remove = true};
    tutti_store_entry entry;

    *ret_existed = tutti_store_get(self->memory, key, &entry, NULL) == TUTTI_OK;
    return store_etcd_apply(store, &change, 1, ret_version, err);
}

static tutti_code
store_etcd_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after,
                tutti_store_entry *ret_entry, tutti_error *err)
{
    return tutti_store_next(store_etcd_from(store)->memory, prefix, after, ret_entry, err);
}

static uint64_t
store_etcd_version(tutti_store *store)
{
    return tutti_store_version(store_etcd_from(store)->memory);
}

static void
store_etcd_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    tutti_store_stat(store_etcd_from(store)->memory, ret_stats);
}

static void
store_etcd_close(tutti_store *store)
{
    store_etcd *self = store_etcd_from(store);

    tutti_store_writer_free(self->writer);
    tutti_store_close(self->memory);
    free(self);
}

static uint64_t
store_etcd_durable(tutti_store *store)
{
    return tutti_store_writer_durable(store_etcd_from(store)->writer);
}

static tutti_code
store_etcd_flush(tutti_store *store, tutti_error *err)
{
    return tutti_store_writer_flush(store_etcd_from(store)->writer, err);
}

static void
store_etcd_on_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg)
{
    tutti_store_writer_on_durable(store_etcd_from(store)->writer, on_durable, arg);
}

static tutti_code
store_etcd_snapshot(tutti_store *store, tutti_store_snapshot **ret_snapshot, tutti_error *err)
{
    return tutti_store_snapshot_new(store_etcd_from(store)->memory, ret_snapshot, err);
}

static tutti_code
store_etcd_put_back(tutti_store *store, const tutti_store_entry *entry, tutti_error *err)
{
    store_etcd *self = store_etcd_from(store);

    TUTTI_TRY(tutti_store_batch_put_back(tutti_store_writer_batch(self->writer), entry, err));
    return tutti_store_memory_restore(self->memory, entry, err);
}

static tutti_code
store_etcd_begin_at(tutti_store *store, uint64_t version, tutti_error *err)
{
    store_etcd *self = store_etcd_from(store);

    (void)err;
    tutti_store_writer_batch(self->writer)->version = version;
    tutti_store_memory_turn(self->memory, version);
    return TUTTI_OK;
}

static const tutti_store_ops store_etcd_ops = {
    .get = store_etcd_get,
    .set = store_etcd_set,
    .remove = store_etcd_remove,
    .apply = store_etcd_apply,
    .next = store_etcd_next,
    .version = store_etcd_version,
    .stat = store_etcd_stat,
    .close = store_etcd_close,
    .durable = store_etcd_durable,
    .flush = store_etcd_flush,
    .on_durable = store_etcd_on_durable,
    .snapshot = store_etcd_snapshot,
    .put_back = store_etcd_put_back,
    .begin_at = store_etcd_begin_at,
};

tutti_code
tutti_store_etcd_open(const tutti_store_etcd_options *options, tutti_store **ret_store,
                      tutti_error *err)
{
    const tutti_store_memory_options limits = {.bytes_max = options->bytes_max,
                                               .keys_max = options->keys_max};
    store_etcd *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a store");
    }
    self->base.ops = &store_etcd_ops;
    self->etcd = options->etcd;
    self->number = tutti_id_draw();
    code = tutti_store_memory_open(&limits, &self->memory, err);
    if (code == TUTTI_OK) {
        code = store_etcd_load(self, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_store_writer_new(&store_etcd_writer_ops, self,
                                      tutti_store_version(self->memory), &self->writer, err);
    }
    if (code != TUTTI_OK) {
        store_etcd_close(&self->base);
        return code;
    }
    *ret_store = &self->base;
    return TUTTI_OK;
}
