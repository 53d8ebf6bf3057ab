/* What every backend of the store has to keep: one list of sentences, run over a table of backends. */
#ifndef TUTTI_TESTS_STORE_CONTRACT_H
#define TUTTI_TESTS_STORE_CONTRACT_H

#include "store/store.h"

#define STORE_CONTRACT_BYTES_MAX 4096
#define STORE_CONTRACT_KEYS_MAX 40

typedef struct store_contract_backend {
    const char *name;
    tutti_code (*open)(tutti_store **ret_store, tutti_error *err); /* empty, with the two limits */
    bool sweeps; /* let its allocations fail as well */
} store_contract_backend;

/* How many sentences failed. */
int store_contract_run(const store_contract_backend *backends, size_t count);

#endif
