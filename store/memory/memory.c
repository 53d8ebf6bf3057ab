/*
 * The store in memory: a sorted map of records, each with the version of the change that set it.
 * Nothing is locked: a store belongs to one thread. What get() and next() give out points into
 * the records and is valid until the next change.
 */
#include "store/memory/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/memory/memory_private.h"

#define DEFAULT_BYTES_MAX (256ULL << 20)
#define DEFAULT_KEYS_MAX 1000000ULL

static const tutti_store_ops store_memory_ops;

store_memory *
store_memory_from(tutti_store *store)
{
    assert(store->ops == &store_memory_ops);
    return tutti_container_of(store, store_memory, base);
}

record *
store_memory_record_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, record, node);
}

static void
get_memory_value(const record *one, tutti_store_entry *ret_entry)
{
    *ret_entry = (tutti_store_entry){
        .key = one->node.key, .value = {one->value, one->value_size}, .version = one->version};
}

static tutti_code
store_memory_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry,
                 tutti_error *err)
{
    store_memory *self = store_memory_from(store);
    const record *one = store_memory_record_from(tutti_map_find(&self->records, key));

    if (one == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_KEY", "there is no such key");
    }
    get_memory_value(one, ret_entry);
    return TUTTI_OK;
}

/*
 * [in] more  bytes that the entry has afterwards; without those of its key if it is there already
 */
static tutti_code
check_memory_limits(const store_memory *self, const record *old, uint64_t more, tutti_error *err)
{
    const uint64_t freed = old == NULL ? 0 : old->value_size;

    if (old == NULL && self->records.count >= self->keys_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_LIMIT",
                              "the store holds %zu keys, the limit (--store-keys-limit)",
                              self->records.count);
    }
    /* Exempt changes may have passed the limit already. */
    if (more > freed &&
        (self->used_bytes > self->bytes_max || more - freed > self->bytes_max - self->used_bytes)) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_LIMIT",
                              "the store holds %" PRIu64 " bytes, %" PRIu64
                              " more pass the limit of %" PRIu64 " (--store-bytes-limit)",
                              self->used_bytes, more - freed, self->bytes_max);
    }
    return TUTTI_OK;
}

tutti_code
store_memory_fail_memory(tutti_error *err, size_t size)
{
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for %zu bytes",
                          size);
}

tutti_code
store_memory_record_new(tutti_bytes key, tutti_bytes value, record **ret_record, tutti_error *err)
{
    record *one = calloc(1, sizeof(*one) + key.size);

    if (one != NULL && value.size > 0) {
        one->value = malloc(value.size);
    }
    if (one == NULL || (value.size > 0 && one->value == NULL)) {
        free(one);
        return store_memory_fail_memory(err, sizeof(*one) + key.size + value.size);
    }
    memcpy(one->key, key.data, key.size);
    if (value.size > 0) {
        memcpy(one->value, value.data, value.size);
    }
    one->value_size = value.size;
    one->node.key = (tutti_bytes){one->key, key.size};
    *ret_record = one;
    return TUTTI_OK;
}

void
store_memory_record_free(record *one)
{
    if (one != NULL) {
        free(one->value);
        free(one);
    }
}

/*
 * Every way into the map goes through here, and every way out through detach: what is counted and
 * what is stored cannot come apart.
 */
void
store_memory_attach(store_memory *self, record *one)
{
    tutti_map_node *there = tutti_map_add(&self->records, &one->node);

    assert(there == NULL); /* the caller has looked */
    self->used_bytes += one->node.key.size + one->value_size;
}

void
store_memory_detach(store_memory *self, record *one)
{
    store_memory_keep(self, one);
    tutti_map_remove(&self->records, &one->node);
    self->used_bytes -= one->node.key.size + one->value_size;
    if (self->last == one) {
        self->last = NULL;
    }
}

static tutti_code
add_record(store_memory *self, tutti_bytes key, tutti_bytes value, tutti_error *err)
{
    record *one = NULL;

    TUTTI_TRY(store_memory_record_new(key, value, &one, err));

    one->version = ++self->version;
    store_memory_attach(self, one);
    return TUTTI_OK;
}

/*
 * `value` may be bytes of this very store, such as a part of the old value. So the bytes are
 * moved, or copied before the old ones are freed.
 */
static tutti_code
replace_value(store_memory *self, record *one, tutti_bytes value, tutti_error *err)
{
    void *fresh = NULL;

    store_memory_keep(self, one);
    if (value.size == one->value_size) {
        if (value.size > 0) {
            memmove(one->value, value.data, value.size);
        }
        one->version = ++self->version;
        return TUTTI_OK;
    }
    if (value.size > 0) {
        fresh = malloc(value.size);
        if (fresh == NULL) {
            return store_memory_fail_memory(err, value.size);
        }
        memcpy(fresh, value.data, value.size);
    }
    self->used_bytes = self->used_bytes - one->value_size + value.size;
    free(one->value);
    one->value = fresh;
    one->value_size = value.size;
    one->version = ++self->version;
    return TUTTI_OK;
}

static tutti_code
store_memory_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
                 tutti_error *err)
{
    store_memory *self = store_memory_from(store);
    record *one = store_memory_record_from(tutti_map_find(&self->records, key));
    const uint64_t more = one == NULL ? key.size + value.size : value.size;

    TUTTI_TRY(check_memory_limits(self, one, more, err));
    TUTTI_TRY(one == NULL ? add_record(self, key, value, err)
                          : replace_value(self, one, value, err));
    *ret_version = self->version;
    return TUTTI_OK;
}

static void
drop_memory(store_memory *self, record *one)
{
    store_memory_detach(self, one);
    store_memory_record_free(one);
}

static tutti_code
store_memory_remove(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
                    tutti_error *err)
{
    store_memory *self = store_memory_from(store);
    record *one = store_memory_record_from(tutti_map_find(&self->records, key));

    (void)err; /* memory never fails to forget */
    *ret_existed = one != NULL;
    if (one != NULL) {
        self->version++;
        drop_memory(self, one);
    }
    *ret_version = self->version;
    return TUTTI_OK;
}

/*
 * The usual walk passes the key that was lent last, which is known by its address: the next
 * record is then one step in the map instead of a search. After a change that removed this record
 * `last` is NULL, and the search is taken.
 */
static record *
first_after(store_memory *self, tutti_bytes prefix, tutti_bytes after)
{
    record *one;

    if (self->last != NULL && after.data == self->last->key &&
        after.size == self->last->node.key.size && tutti_bytes_compare(after, prefix) >= 0) {
        return store_memory_record_from(tutti_map_next(&self->last->node));
    }
    if (tutti_bytes_compare(after, prefix) < 0) {
        return store_memory_record_from(tutti_map_from(&self->records, prefix));
    }
    one = store_memory_record_from(tutti_map_from(&self->records, after));
    if (one != NULL && after.size > 0 && tutti_bytes_equal(one->node.key, after)) {
        one = store_memory_record_from(tutti_map_next(&one->node));
    }
    return one;
}

static tutti_code
store_memory_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after,
                  tutti_store_entry *ret_entry, tutti_error *err)
{
    store_memory *self = store_memory_from(store);
    record *one = first_after(self, prefix, after);

    if (one == NULL || one->node.key.size < prefix.size ||
        (prefix.size > 0 && memcmp(one->key, prefix.data, prefix.size) != 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_KEY", "there is no further key");
    }
    self->last = one;
    get_memory_value(one, ret_entry);
    return TUTTI_OK;
}

static uint64_t
store_memory_version(tutti_store *store)
{
    return store_memory_from(store)->version;
}

static void
store_memory_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    const store_memory *self = store_memory_from(store);

    ret_stats->key_count = self->records.count;
    ret_stats->used_bytes = self->used_bytes;
}

static void
store_memory_close(tutti_store *store)
{
    store_memory *self = store_memory_from(store);
    tutti_map_node *node;

    assert(tutti_list_empty(&self->snapshots));
    while ((node = tutti_map_first(&self->records)) != NULL) {
        drop_memory(self, store_memory_record_from(node));
    }
    free(self);
}

/* The copy is made first, so a failure leaves the old entry in place. */
tutti_code
tutti_store_memory_restore(tutti_store *store, const tutti_store_entry *entry, tutti_error *err)
{
    store_memory *self = store_memory_from(store);
    record *old = store_memory_record_from(tutti_map_find(&self->records, entry->key));
    record *one = NULL;

    TUTTI_TRY(store_memory_record_new(entry->key, entry->value, &one, err));

    if (old != NULL) {
        drop_memory(self, old);
    }
    one->version = entry->version;
    store_memory_attach(self, one);
    return TUTTI_OK;
}

void
tutti_store_memory_forget(tutti_store *store, tutti_bytes key)
{
    store_memory *self = store_memory_from(store);
    record *one = store_memory_record_from(tutti_map_find(&self->records, key));

    if (one != NULL) {
        drop_memory(self, one);
    }
}

void
tutti_store_memory_turn(tutti_store *store, uint64_t version)
{
    store_memory_from(store)->version = version;
}

static tutti_code
store_memory_begin_at(tutti_store *store, uint64_t version, tutti_error *err)
{
    (void)err; /* memory never fails to count */
    tutti_store_memory_turn(store, version);
    return TUTTI_OK;
}

static const tutti_store_ops store_memory_ops = {
    .get = store_memory_get,
    .set = store_memory_set,
    .remove = store_memory_remove,
    .apply = store_memory_apply,
    .next = store_memory_next,
    .version = store_memory_version,
    .stat = store_memory_stat,
    .close = store_memory_close,
    .snapshot = store_memory_snapshot,
    .put_back = tutti_store_memory_restore,
    .begin_at = store_memory_begin_at,
};

tutti_code
tutti_store_memory_open(const tutti_store_memory_options *options, tutti_store **ret_store,
                        tutti_error *err)
{
    const tutti_store_memory_options none = {0};
    store_memory *self = calloc(1, sizeof(*self));

    assert(ret_store != NULL);
    if (self == NULL) {
        return store_memory_fail_memory(err, sizeof(*self));
    }
    if (options == NULL) {
        options = &none;
    }
    self->base.ops = &store_memory_ops;
    self->bytes_max = options->bytes_max == 0 ? DEFAULT_BYTES_MAX : options->bytes_max;
    self->keys_max = options->keys_max == 0 ? DEFAULT_KEYS_MAX : options->keys_max;
    tutti_map_init(&self->records);
    tutti_list_init(&self->snapshots);
    *ret_store = &self->base;
    return TUTTI_OK;
}
