/* The list of tests that every kind of memory passes. */
#ifndef TUTTI_TESTS_SPACE_CONTRACT_H
#define TUTTI_TESTS_SPACE_CONTRACT_H

#include "tensor/tensor.h"

typedef struct space_kind {
    const char *name;
    /* A space of `limit_bytes`, a multiple of 64 KiB. Fails the test when it cannot. */
    tutti_space *(*open)(uint64_t limit_bytes);
    /* Bytes of a tensor from and to memory of the test. */
    void (*write)(tutti_tensor *tensor, uint64_t offset, const void *bytes, size_t size);
    void (*read)(tutti_tensor *tensor, uint64_t offset, void *ret_bytes, size_t size);
    bool pieced;  /* memory need not lie in one run: nothing is ever refused for that */
    size_t steps; /* of the random test; 0 = 30000 */
} space_kind;

/* Returns the number of tests that failed. */
int space_contract_run(const space_kind *kind);

#endif
