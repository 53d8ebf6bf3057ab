/* What the files of this backend share. Private to this folder. */
#ifndef TUTTI_STORE_MEMORY_PRIVATE_H
#define TUTTI_STORE_MEMORY_PRIVATE_H

#include "base/data/list.h"
#include "base/data/map.h"
#include "store/store_backend.h"

/* A key and its value. The key lies behind the struct, the value in memory of its own. */
typedef struct record {
    tutti_map_node node;
    void *value; /* NULL = empty */
    size_t value_size;
    uint64_t version;
    unsigned char key[];
} record;

typedef struct store_memory {
    tutti_store base;
    tutti_map records;
    uint64_t version;
    uint64_t used_bytes;
    uint64_t bytes_max;
    uint64_t keys_max;
    record *last;              /* what next() lent last: the walk goes on there without a search */
    tutti_list_node snapshots; /* that are being read */
} store_memory;

store_memory *store_memory_from(tutti_store *store);

/* NULL stays NULL. */
record *store_memory_record_from(tutti_map_node *node);

/* [out, owned] ret_record  a copy of both, in no map yet; NO_MEMORY */
tutti_code store_memory_record_new(tutti_bytes key, tutti_bytes value, record **ret_record,
                                   tutti_error *err);
void store_memory_record_free(record *one); /* NULL is fine */

/* In and out of the map, and of what is counted. */
void store_memory_attach(store_memory *self, record *one);
void store_memory_detach(store_memory *self, record *one);

tutti_code store_memory_fail_memory(tutti_error *err, size_t size);

/* snapshot.c: `one` is about to change or to go; snapshots that want it as it is keep a copy. */
void store_memory_keep(store_memory *self, const record *one);
tutti_code store_memory_snapshot(tutti_store *store, tutti_store_snapshot **ret_snapshot,
                                 tutti_error *err);

/* apply.c */
tutti_code store_memory_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                              uint64_t *ret_version, tutti_error *err);

#endif
