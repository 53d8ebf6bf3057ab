#include "sim/store/disk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "sim/kernel.h"
#include "store/commit/writer.h"
#include "store/memory/memory.h"
#include "store/store_backend.h"

#define WRITE_NS (200 * TUTTI_NS_PER_US)
#define SYNC_NS (4 * TUTTI_NS_PER_MS)

/* One batch on the disk, the last of them last. */
typedef struct written {
    tutti_list_node link;
    uint64_t version;
    size_t count;
    tutti_store_record **records; /* copies */
} written;

struct sim_disk {
    disk_mode mode;
    disk_on_change on_change;
    tutti_list_node batches;
    size_t count;
    size_t synced;  /* of them, the first */
    uint64_t epoch; /* of the process that may write */
    bool fails;
    bool is_full;
    uint64_t slow_ns;
};

typedef struct store_disk {
    tutti_store base;
    sim_disk *disk;
    tutti_store *memory;
    tutti_store_writer *writer; /* NULL = a change is written at once */
    uint64_t epoch;
} store_disk;

static const tutti_store_ops store_disk_ops;

static store_disk *
from(tutti_store *store)
{
    assert(store->ops == &store_disk_ops);
    return tutti_container_of(store, store_disk, base);
}

/* ------------------------------------------------------------------------------ batches */

static written *
last_of(const sim_disk *self)
{
    return tutti_list_empty(&self->batches)
               ? NULL
               : tutti_container_of(self->batches.before, written, link);
}

static void
drop_last(sim_disk *self)
{
    written *one = last_of(self);

    while (one->count > 0) {
        free(one->records[--one->count]);
    }
    free(one->records);
    tutti_list_remove(&one->link);
    free(one);
    self->count--;
}

static tutti_store_record *
copy_record(tutti_bytes key, tutti_bytes value, uint64_t version, bool remove)
{
    tutti_store_record *one = calloc(1, sizeof(*one) + key.size + value.size);

    assert(one != NULL);
    memcpy(one->bytes, key.data, key.size);
    if (value.size > 0) {
        memcpy(one->bytes + key.size, value.data, value.size);
    }
    one->remove = remove;
    one->entry = (tutti_store_entry){.key = {one->bytes, key.size},
                                     .value = {one->bytes + key.size, value.size},
                                     .version = version};
    return one;
}

static written *
add_batch(sim_disk *self, uint64_t version, size_t count)
{
    written *one = calloc(1, sizeof(*one));

    assert(one != NULL);
    one->version = version;
    one->records = calloc(count + 1, sizeof(one->records[0]));
    assert(one->records != NULL);
    tutti_list_add(&self->batches, &one->link);
    self->count++;
    return one;
}

static void
add_copy(sim_disk *self, const tutti_store_batch *batch)
{
    written *one = add_batch(self, batch->version, batch->records.count);
    const tutti_store_record *record = NULL;

    while ((record = tutti_store_batch_next(batch, record)) != NULL) {
        one->records[one->count++] = copy_record(record->entry.key, record->entry.value,
                                                 record->entry.version, record->remove);
    }
}

/* ------------------------------------------------------------------------------ the writer */

static tutti_code
fail_write(const sim_disk *self, tutti_error *err)
{
    return self->is_full ? TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "STORE_FULL",
                                          "the simulated disk is full")
                         : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_STOPPED",
                                          "the simulated disk has failed");
}

static void
take_time(const sim_disk *self, uint64_t usual_ns)
{
    sim_sleep(sim_draw(2 * usual_ns) + (self->slow_ns > 0 ? sim_draw(self->slow_ns) : 0));
}

/* With ORDER a batch counts once its pages are synced. With FULL both are one wait (docs/decisions/0044), and a batch whose
 * wait has failed may be there all the same. */
static tutti_code
write_batch(void *context, const tutti_store_batch *batch, tutti_error *err)
{
    const store_disk *store = context;
    sim_disk *self = store->disk;
    size_t mine;

    take_time(self, WRITE_NS);
    if (store->epoch != self->epoch || (self->fails && sim_chance(2))) {
        return fail_write(self, err);
    }
    if (self->mode == DISK_FULL) {
        add_copy(self, batch);
    }
    mine = self->count;
    take_time(self, SYNC_NS);
    if (store->epoch != self->epoch || self->fails) {
        return fail_write(self, err);
    }
    if (self->mode == DISK_ORDER) {
        add_copy(self, batch);
        mine = self->count;
    }
    self->synced = mine;
    return TUTTI_OK;
}

static const tutti_store_writer_ops writer_ops = {.write = write_batch};

/* ------------------------------------------------------------------------------ the backend */

static tutti_code
disk_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry, tutti_error *err)
{
    return tutti_store_get(from(store)->memory, key, ret_entry, err);
}

static tutti_code
apply(store_disk *self, const tutti_store_change *changes, size_t count, uint64_t *ret_version,
      tutti_error *err)
{
    if (self->writer != NULL) {
        return tutti_store_batch_apply(tutti_store_writer_batch(self->writer), self->memory,
                                       changes, count, ret_version, err);
    }
    if (self->epoch == self->disk->epoch && self->disk->fails) {
        return fail_write(self->disk, err);
    }
    return tutti_store_apply(self->memory, changes, count, ret_version, err);
}

/* A change with bytes of its own: what the caller lends may be the store's, and gone behind the change. */
typedef struct own_change {
    tutti_store_change change;
    tutti_store_record *record; /* [owned] NULL: it changes nothing */
} own_change;

static own_change *
copy_changes(store_disk *self, const tutti_store_change *changes, size_t count)
{
    own_change *own = calloc(count + 1, sizeof(own[0]));
    tutti_store_entry entry;
    size_t i;

    assert(own != NULL);
    for (i = 0; i < count; i++) {
        const tutti_bytes value = changes[i].remove ? (tutti_bytes){0} : changes[i].value;

        if (!changes[i].remove ||
            tutti_store_get(self->memory, changes[i].key, &entry, NULL) == TUTTI_OK) {
            own[i].record = copy_record(changes[i].key, value, 0, changes[i].remove);
            own[i].change = (tutti_store_change){.key = own[i].record->entry.key,
                                                 .value = own[i].record->entry.value,
                                                 .remove = changes[i].remove};
        }
    }
    return own;
}

/* Without a writer: one change is a batch. */
static void
add_changes(sim_disk *self, const own_change *own, size_t count, uint64_t version)
{
    written *one = add_batch(self, version, count);
    size_t i;

    for (i = 0; i < count; i++) {
        if (own[i].record != NULL) {
            one->records[one->count++] =
                copy_record(own[i].change.key, own[i].change.value, version, own[i].change.remove);
        }
    }
}

static tutti_code
disk_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
           uint64_t *ret_version, tutti_error *err)
{
    store_disk *self = from(store);
    const uint64_t before = tutti_store_version(self->memory);
    own_change *own = copy_changes(self, changes, count);
    const tutti_code code = apply(self, changes, count, ret_version, err);
    const bool tells = code == TUTTI_OK && self->epoch == self->disk->epoch;
    size_t i;

    if (tells && self->disk->mode == DISK_NONE && *ret_version != before) {
        add_changes(self->disk, own, count, *ret_version);
    }
    for (i = 0; i < count; i++) {
        if (tells && own[i].record != NULL) {
            self->disk->on_change(&own[i].change, 1, *ret_version);
        }
        free(own[i].record);
    }
    free(own);
    return code;
}

static tutti_code
disk_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
         tutti_error *err)
{
    const tutti_store_change change = {.key = key, .value = value};

    return disk_apply(store, &change, 1, ret_version, err);
}

static tutti_code
disk_remove(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
            tutti_error *err)
{
    const tutti_store_change change = {.key = key, .remove = true};
    tutti_store_entry entry;

    *ret_existed = tutti_store_get(from(store)->memory, key, &entry, NULL) == TUTTI_OK;
    return disk_apply(store, &change, 1, ret_version, err);
}

static tutti_code
disk_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after, tutti_store_entry *ret_entry,
          tutti_error *err)
{
    return tutti_store_next(from(store)->memory, prefix, after, ret_entry, err);
}

static uint64_t
disk_version(tutti_store *store)
{
    return tutti_store_version(from(store)->memory);
}

static void
disk_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    tutti_store_stat(from(store)->memory, ret_stats);
}

static uint64_t
disk_durable(tutti_store *store)
{
    const store_disk *self = from(store);

    return self->writer == NULL ? tutti_store_version(self->memory)
                                : tutti_store_writer_durable(self->writer);
}

static tutti_code
disk_flush(tutti_store *store, tutti_error *err)
{
    const store_disk *self = from(store);

    return self->writer == NULL ? TUTTI_OK : tutti_store_writer_flush(self->writer, err);
}

static void
disk_tell_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg)
{
    const store_disk *self = from(store);

    if (self->writer != NULL) {
        tutti_store_writer_on_durable(self->writer, on_durable, arg);
    }
}

static void
disk_close(tutti_store *store)
{
    store_disk *self = from(store);

    tutti_store_writer_free(self->writer);
    tutti_store_close(self->memory);
    free(self);
}

static const tutti_store_ops store_disk_ops = {
    .get = disk_get,
    .set = disk_set,
    .remove = disk_remove,
    .apply = disk_apply,
    .next = disk_next,
    .version = disk_version,
    .stat = disk_stat,
    .close = disk_close,
    .durable = disk_durable,
    .flush = disk_flush,
    .on_durable = disk_tell_durable,
};

/* ------------------------------------------------------------------------------ door */

static void
load(const sim_disk *self, tutti_store *memory)
{
    tutti_list_node *at;
    size_t i;

    for (at = self->batches.next; at != &self->batches; at = at->next) {
        const written *one = tutti_container_of(at, written, link);

        for (i = 0; i < one->count; i++) {
            const tutti_store_entry *entry = &one->records[i]->entry;

            if (one->records[i]->remove) {
                tutti_store_memory_forget(memory, entry->key);
            } else if (tutti_store_memory_restore(memory, entry, NULL) != TUTTI_OK) {
                sim_fail("no memory for a store");
            }
        }
        tutti_store_memory_turn(memory, one->version);
    }
}

tutti_store *
disk_look(const sim_disk *self)
{
    tutti_store *memory = NULL;

    if (tutti_store_memory_open(NULL, &memory, NULL) != TUTTI_OK) {
        sim_fail("no memory for a store");
    }
    load(self, memory);
    return memory;
}

tutti_code
disk_open(sim_disk *self, tutti_store **ret_store, tutti_error *err)
{
    store_disk *store;

    if (self->mode == DISK_FULL) {
        if (self->fails) {
            return fail_write(self, err);
        }
        self->synced = self->count;
    }
    store = calloc(1, sizeof(*store));
    assert(store != NULL);
    store->base.ops = &store_disk_ops;
    store->disk = self;
    store->epoch = ++self->epoch;
    store->memory = disk_look(self);
    if (self->mode == DISK_ORDER || self->mode == DISK_FULL) {
        TUTTI_TRY(tutti_store_writer_new(&writer_ops, store, tutti_store_version(store->memory),
                                         &store->writer, err));
    }
    *ret_store = &store->base;
    return TUTTI_OK;
}

void
disk_kill(sim_disk *self)
{
    self->epoch++;
}

/* How many batches the disk has for certain. */
static size_t
count_kept(const sim_disk *self)
{
    switch (self->mode) {
    case DISK_FULL:
        return self->synced;
    case DISK_ORDER:
        return self->synced > 0 ? self->synced - 1 : 0;
    default:
        return 0;
    }
}

void
disk_cut_power(sim_disk *self)
{
    const size_t kept = count_kept(self);
    const size_t stays = kept + (size_t)sim_draw(self->count - kept + 1);

    self->epoch++;
    while (self->count > stays) {
        drop_last(self);
    }
    self->synced = self->count;
}

uint64_t
disk_synced(const sim_disk *self)
{
    tutti_list_node *at = self->batches.next;
    size_t i;

    for (i = 1; i < self->synced; i++) {
        at = at->next;
    }
    return self->synced == 0 ? 0 : tutti_container_of(at, written, link)->version;
}

void
disk_fail(sim_disk *self, bool is_full)
{
    self->fails = true;
    self->is_full = is_full;
}

void
disk_slow(sim_disk *self, uint64_t ns)
{
    self->slow_ns = ns;
}

void
disk_repair(sim_disk *self)
{
    self->fails = false;
    self->slow_ns = 0;
}

sim_disk *
disk_new(disk_mode mode, disk_on_change on_change)
{
    sim_disk *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->mode = mode;
    self->on_change = on_change;
    tutti_list_init(&self->batches);
    return self;
}

void
disk_free(sim_disk *self)
{
    while (last_of(self) != NULL) {
        drop_last(self);
    }
    free(self);
}
