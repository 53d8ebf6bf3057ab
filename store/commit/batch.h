/*
 * Batch: changes of a store that go to their durable place together. Of a key that changes several
 * times a batch has only the last state. One thread at a time.
 */
#ifndef TUTTI_STORE_COMMIT_BATCH_H
#define TUTTI_STORE_COMMIT_BATCH_H

#include "base/data/list.h"
#include "base/data/map.h"
#include "store/store.h"

/* What a key has after the batch. */
typedef struct tutti_store_record {
    tutti_map_node node;
    tutti_list_node link;
    tutti_store_entry entry; /* key, value and version; of a removed key: no value */
    bool remove;
    unsigned char bytes[]; /* key, then value */
} tutti_store_record;

typedef struct tutti_store_batch {
    tutti_map records;
    tutti_list_node staged; /* of the change that is being made */
    size_t bytes;           /* of keys and values */
    uint64_t version;       /* of the last change in it; 0 = it is empty */
} tutti_store_batch;

void tutti_store_batch_init(tutti_store_batch *batch);
void tutti_store_batch_fini(tutti_store_batch *batch);

/*
 * A change in two steps, so that what can fail comes before the change is made elsewhere: stage
 * copies it, and then either keep puts it into the batch, or drop forgets it.
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY: nothing is staged
 */
tutti_code tutti_store_batch_stage(tutti_store_batch *batch, const tutti_store_change *changes,
                                   size_t count, tutti_error *err);
void tutti_store_batch_keep(tutti_store_batch *batch, uint64_t version);
void tutti_store_batch_drop(tutti_store_batch *batch);

/*
 * The same around a store in memory: the changes are made there, and if they have changed something
 * they are in the batch. Codes as tutti_store_apply, and NO_MEMORY.
 */
tutti_code tutti_store_batch_apply(tutti_store_batch *batch, tutti_store *memory,
                                   const tutti_store_change *changes, size_t count,
                                   uint64_t *ret_version, tutti_error *err);

/*
 * An entry as it was, with its version: of a store that is filled anew. It counts once the batch has a
 * version (`version`, set by the caller).
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code tutti_store_batch_put_back(tutti_store_batch *batch, const tutti_store_entry *entry,
                                      tutti_error *err);

/* The records in the order of their keys; NULL = no more. [in] after  NULL = the first */
const tutti_store_record *tutti_store_batch_next(const tutti_store_batch *batch,
                                                 const tutti_store_record *after);

#endif
