/*
 * Snapshots: the records as they were at one moment, while the store goes on. Nothing is copied when
 * a snapshot begins. A record that is about to change or to go is copied into each snapshot that has
 * not come to it yet. So a walk finds each record of its moment either among the records, with a
 * version of that moment or before it, or in its own copies.
 *
 * A change that was copied for and is then taken back (apply.c) leaves a record that is in both: they
 * are equal, and one is passed over.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/memory/memory_private.h"

typedef struct memory_snapshot {
    tutti_store_snapshot base;
    tutti_list_node link; /* of the store's */
    store_memory *store;
    tutti_map kept;                          /* [owned] copies that have not been given out */
    record *lent;                            /* [owned] the copy that was given out last */
    unsigned char last[TUTTI_STORE_KEY_MAX]; /* the key that was given out last */
    size_t last_size;                        /* 0 = none was */
    bool is_broken;                          /* there was no memory for a copy */
} memory_snapshot;

static bool
wants_record(const memory_snapshot *self, const record *one)
{
    return !self->is_broken && one->version <= self->base.moment.version &&
           tutti_bytes_compare(one->node.key, (tutti_bytes){self->last, self->last_size}) > 0 &&
           tutti_map_find(&self->kept, one->node.key) == NULL;
}

/* Whoever changes the store must not fail because of who reads it: the snapshot is broken then. */
void
store_memory_keep(store_memory *self, const record *one)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &self->snapshots)
    {
        memory_snapshot *snapshot = tutti_container_of(link, memory_snapshot, link);
        const tutti_bytes value = {one->value, one->value_size};
        record *copy = NULL;

        if (!wants_record(snapshot, one)) {
            continue;
        }
        if (store_memory_record_new(one->node.key, value, &copy, NULL) != TUTTI_OK) {
            snapshot->is_broken = true;
            continue;
        }
        copy->version = one->version;
        (void)tutti_map_add(&snapshot->kept, &copy->node);
    }
}

/* The next record of the store that is as it was. */
static record *
find_unchanged(const memory_snapshot *self)
{
    const tutti_bytes last = {self->last, self->last_size};
    record *one = store_memory_record_from(tutti_map_from(&self->store->records, last));

    while (one != NULL &&
           (one->version > self->base.moment.version || tutti_bytes_equal(one->node.key, last))) {
        one = store_memory_record_from(tutti_map_next(&one->node));
    }
    return one;
}

static record *
find_first(memory_snapshot *self)
{
    record *kept = store_memory_record_from(tutti_map_first(&self->kept));
    record *unchanged = find_unchanged(self);

    if (kept == NULL ||
        (unchanged != NULL && tutti_bytes_compare(unchanged->node.key, kept->node.key) < 0)) {
        return unchanged;
    }
    tutti_map_remove(&self->kept, &kept->node);
    self->lent = kept;
    return kept;
}

static tutti_code
next_of_snapshot(tutti_store_snapshot *snapshot, tutti_store_entry *ret_entry, tutti_error *err)
{
    memory_snapshot *self = tutti_container_of(snapshot, memory_snapshot, base);
    const record *one;

    if (self->is_broken) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for what changes while the store is being copied");
    }
    store_memory_record_free(self->lent);
    self->lent = NULL;
    one = find_first(self);
    if (one == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_KEY", "there is no further key");
    }
    memcpy(self->last, one->key, one->node.key.size);
    self->last_size = one->node.key.size;
    *ret_entry = (tutti_store_entry){
        .key = one->node.key, .value = {one->value, one->value_size}, .version = one->version};
    return TUTTI_OK;
}

static void
free_snapshot(tutti_store_snapshot *snapshot)
{
    memory_snapshot *self = tutti_container_of(snapshot, memory_snapshot, base);
    tutti_map_node *node;

    tutti_list_remove(&self->link);
    store_memory_record_free(self->lent);
    while ((node = tutti_map_first(&self->kept)) != NULL) {
        tutti_map_remove(&self->kept, node);
        store_memory_record_free(store_memory_record_from(node));
    }
    free(self);
}

static const tutti_store_snapshot_ops snapshot_ops = {.next = next_of_snapshot,
                                                      .free = free_snapshot};

tutti_code
store_memory_snapshot(tutti_store *store, tutti_store_snapshot **ret_snapshot, tutti_error *err)
{
    memory_snapshot *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return store_memory_fail_memory(err, sizeof(*self));
    }
    self->base.ops = &snapshot_ops;
    self->store = store_memory_from(store);
    self->base.moment.version = tutti_store_version(store);
    tutti_store_stat(store, &self->base.moment.stats);
    tutti_map_init(&self->kept);
    tutti_list_add(&self->store->snapshots, &self->link);
    *ret_snapshot = &self->base;
    return TUTTI_OK;
}
