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

#endif
