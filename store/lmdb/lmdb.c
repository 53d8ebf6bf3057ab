/*
 * The store in a folder as a backend. Reading goes to the copy in memory and never to LMDB: no
 * read can fail because of the disk, or wait for it. Changes are in apply.c, opening and closing
 * in file.c.
 */
#include "store/lmdb/lmdb.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"
#include "store/memory/memory.h"

static const tutti_store_ops store_lmdb_ops;

store_lmdb *
store_lmdb_from(tutti_store *store)
{
    assert(store->ops == &store_lmdb_ops);
    return tutti_container_of(store, store_lmdb, base);
}

static tutti_code
store_lmdb_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry, tutti_error *err)
{
    return tutti_store_get(store_lmdb_from(store)->memory, key, ret_entry, err);
}

static tutti_code
store_lmdb_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
               tutti_error *err)
{
    const tutti_store_change change = {.key = key, .value = value};

    return store_lmdb_apply(store, &change, 1, ret_version, err);
}

/* Whether the key existed is asked before, as apply() has no such answer. */
static tutti_code
store_lmdb_remove(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
                  tutti_error *err)
{
    store_lmdb *self = store_lmdb_from(store);
    const tutti_store_change change = {.key = key, .remove = true};
    tutti_store_entry entry;

    *ret_existed = tutti_store_get(self->memory, key, &entry, NULL) == TUTTI_OK;
    return store_lmdb_apply(store, &change, 1, ret_version, err);
}

static tutti_code
store_lmdb_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after,
                tutti_store_entry *ret_entry, tutti_error *err)
{
    return tutti_store_next(store_lmdb_from(store)->memory, prefix, after, ret_entry, err);
}

static uint64_t
store_lmdb_version(tutti_store *store)
{
    return tutti_store_version(store_lmdb_from(store)->memory);
}

static void
store_lmdb_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    tutti_store_stat(store_lmdb_from(store)->memory, ret_stats);
}

/* Used for a store that was never fully opened as well: every part may be missing. */
static void
store_lmdb_close(tutti_store *store)
{
    store_lmdb *self = store_lmdb_from(store);
    tutti_map_node *node;

    tutti_store_writer_free(self->writer);
    tutti_store_batch_fini(&self->filling);
    store_lmdb_close_file(self);
    while ((node = tutti_map_first(&self->names)) != NULL) {
        store_lmdb_name_free(self, tutti_container_of(node, lmdb_name, node));
    }
    tutti_store_close(self->memory);
    free(self->path);
    free(self);
}

bool
tutti_store_lmdb_was_cut(tutti_store *store)
{
    return store_lmdb_from(store)->was_cut;
}

bool
tutti_store_lmdb_went_back(tutti_store *store)
{
    return store_lmdb_from(store)->went_back;
}

static uint64_t
store_lmdb_durable(tutti_store *store)
{
    store_lmdb *self = store_lmdb_from(store);

    return self->writer == NULL ? tutti_store_version(self->memory)
                                : tutti_store_writer_durable(self->writer);
}

static tutti_code
store_lmdb_flush(tutti_store *store, tutti_error *err)
{
    store_lmdb *self = store_lmdb_from(store);

    return self->writer == NULL ? TUTTI_OK : tutti_store_writer_flush(self->writer, err);
}

static void
store_lmdb_on_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg)
{
    store_lmdb *self = store_lmdb_from(store);

    if (self->writer != NULL) {
        tutti_store_writer_on_durable(self->writer, on_durable, arg);
    }
}

static tutti_code
store_lmdb_snapshot(tutti_store *store, tutti_store_snapshot **ret_snapshot, tutti_error *err)
{
    return tutti_store_snapshot_new(store_lmdb_from(store)->memory, ret_snapshot, err);
}

static const tutti_store_ops store_lmdb_ops = {
    .get = store_lmdb_get,
    .set = store_lmdb_set,
    .remove = store_lmdb_remove,
    .apply = store_lmdb_apply,
    .next = store_lmdb_next,
    .version = store_lmdb_version,
    .stat = store_lmdb_stat,
    .close = store_lmdb_close,
    .durable = store_lmdb_durable,
    .flush = store_lmdb_flush,
    .on_durable = store_lmdb_on_durable,
    .snapshot = store_lmdb_snapshot,
    .put_back = store_lmdb_put_back,
    .begin_at = store_lmdb_begin_at,
};

tutti_code
tutti_store_lmdb_open(const tutti_store_lmdb_options *options, tutti_store **ret_store,
                      tutti_error *err)
{
    const tutti_store_memory_options limits = {.bytes_max = options->bytes_max,
                                               .keys_max = options->keys_max};
    store_lmdb *self = calloc(1, sizeof(*self));
    tutti_code code;

    assert(ret_store != NULL && options->path != NULL);
    if (self != NULL) {
        self->path = strdup(options->path);
    }
    if (self == NULL || self->path == NULL) {
        free(self);
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a store");
    }
    self->base.ops = &store_lmdb_ops;
    self->lock = -1;
    self->on_write = options->on_write;
    self->context = options->context;
    tutti_map_init(&self->names);
    tutti_store_batch_init(&self->filling);
    code = tutti_store_memory_open(&limits, &self->memory, err);
    if (code == TUTTI_OK) {
        code = store_lmdb_open_file(self, options, err);
    }
    if (code == TUTTI_OK && options->deferred) {
        code = tutti_store_writer_new(&store_lmdb_writer_ops, self,
                                      tutti_store_version(self->memory), &self->writer, err);
    }
    if (code != TUTTI_OK) {
        store_lmdb_close(&self->base);
        return code;
    }
    *ret_store = &self->base;
    return TUTTI_OK;
}
