/*
 * Only the last state of a key is kept. The reason is not only the work that this saves: a
 * transaction of etcd may name a key once.
 */
#include "store/commit/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

static tutti_store_record *
record_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, tutti_store_record, node);
}

void
tutti_store_batch_init(tutti_store_batch *batch)
{
    tutti_map_init(&batch->records);
    tutti_list_init(&batch->staged);
    batch->bytes = 0;
    batch->version = 0;
}

static void
take_out(tutti_store_batch *batch, tutti_store_record *one)
{
    tutti_map_remove(&batch->records, &one->node);
    batch->bytes -= one->entry.key.size + one->entry.value.size;
    free(one);
}

void
tutti_store_batch_fini(tutti_store_batch *batch)
{
    tutti_map_node *node;

    tutti_store_batch_drop(batch);
    while ((node = tutti_map_first(&batch->records)) != NULL) {
        take_out(batch, record_from(node));
    }
    batch->version = 0;
}

static tutti_store_record *
copy_change(const tutti_store_change *change)
{
    const size_t key_size = change->key.size;
    const size_t value_size = change->remove ? 0 : change->value.size;
    tutti_store_record *one = malloc(sizeof(*one) + key_size + value_size);

    if (one == NULL) {
        return NULL;
    }
    memset(one, 0, sizeof(*one));
    memcpy(one->bytes, change->key.data, key_size);
    if (value_size > 0) {
        memcpy(one->bytes + key_size, change->value.data, value_size);
    }
    one->remove = change->remove;
    one->entry.key = (tutti_bytes){one->bytes, key_size};
    one->entry.value = (tutti_bytes){one->bytes + key_size, value_size};
    one->node.key = one->entry.key;
    return one;
}

tutti_code
tutti_store_batch_stage(tutti_store_batch *batch, const tutti_store_change *changes, size_t count,
                        tutti_error *err)
{
    size_t i;

    for (i = 0; i < count; i++) {
        tutti_store_record *one = copy_change(&changes[i]);

        if (one == NULL) {
            tutti_store_batch_drop(batch);
            return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                                  "no memory for a change");
        }
        tutti_list_add(&batch->staged, &one->link);
    }
    return TUTTI_OK;
}

void
tutti_store_batch_keep(tutti_store_batch *batch, uint64_t version)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&batch->staged)) != NULL) {
        tutti_store_record *one = tutti_container_of(link, tutti_store_record, link);
        tutti_map_node *old = tutti_map_find(&batch->records, one->entry.key);

        if (old != NULL) {
            take_out(batch, record_from(old));
        }
        one->entry.version = version;
        (void)tutti_map_add(&batch->records, &one->node);
        batch->bytes += one->entry.key.size + one->entry.value.size;
    }
    batch->version = version;
}

void
tutti_store_batch_drop(tutti_store_batch *batch)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&batch->staged)) != NULL) {
        free(tutti_container_of(link, tutti_store_record, link));
    }
}

tutti_code
tutti_store_batch_put_back(tutti_store_batch *batch, const tutti_store_entry *entry,
                           tutti_error *err)
{
    const tutti_store_change change = {.key = entry->key, .value = entry->value};
    const uint64_t version = batch->version;

    TUTTI_TRY(tutti_store_batch_stage(batch, &change, 1, err));
    tutti_store_batch_keep(batch, entry->version);
    batch->version = version;
    return TUTTI_OK;
}

const tutti_store_record *
tutti_store_batch_next(const tutti_store_batch *batch, const tutti_store_record *after)
{
    tutti_store_record *from = (tutti_store_record *)(uintptr_t)after; /* only looked at */

    return record_from(from == NULL ? tutti_map_first(&batch->records)
                                    : tutti_map_next(&from->node));
}

tutti_code
tutti_store_batch_apply(tutti_store_batch *batch, tutti_store *memory,
                        const tutti_store_change *changes, size_t count, uint64_t *ret_version,
                        tutti_error *err)
{
    const uint64_t before = tutti_store_version(memory);
    tutti_code code;

    TUTTI_TRY(tutti_store_batch_stage(batch, changes, count, err));
    code = tutti_store_apply(memory, changes, count, ret_version, err);
    if (code == TUTTI_OK && *ret_version != before) {
        tutti_store_batch_keep(batch, *ret_version);
    } else {
        tutti_store_batch_drop(batch);
    }
    return code;
}
