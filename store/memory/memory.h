/* The store in memory: gone with the process. The reference for the others. */
#ifndef TUTTI_STORE_MEMORY_H
#define TUTTI_STORE_MEMORY_H

#include "store/store.h"

typedef struct tutti_store_memory_options {
    uint64_t bytes_max; /* of keys and values together; 0 = 256 MiB */
    uint64_t keys_max;  /* 0 = 1 000 000 */
} tutti_store_memory_options;

/* [in] options  NULL = defaults */
tutti_code tutti_store_memory_open(const tutti_store_memory_options *options,
                                   tutti_store **ret_store, tutti_error *err);

/*
 * For who keeps a copy elsewhere: an entry as it was, with its version; what is there under its key
 * is replaced. Limits are not looked at. The store's version stays: see tutti_store_memory_turn.
 *
 * [in] entry  nothing of it is lent by this store
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY: nothing changed
 */
tutti_code tutti_store_memory_restore(tutti_store *store, const tutti_store_entry *entry,
                                      tutti_error *err);

/* Take an entry away without a change of version; none there is fine. */
void tutti_store_memory_forget(tutti_store *store, tutti_bytes key);

/* Set the version of the last change. */
void tutti_store_memory_turn(tutti_store *store, uint64_t version);

#endif
