/*
 * Own: memory of one tensor alone, a memfd beside the arena. The block in the arena stays taken, so
 * that it counts, but its pages go back to the kernel.
 */
#ifndef TUTTI_TENSOR_HOST_OWN_H
#define TUTTI_TENSOR_HOST_OWN_H

#include <bsd/sys/tree.h>

#include "tensor/host/pages.h"

typedef struct tutti_own {
    RB_ENTRY(tutti_own) by_data; /* the space's */
    uint32_t id;                 /* the space's: never 0, never used for another */
    int fd; /* sealed; mode 0400: a process that has it for reading cannot reopen it for writing */
    void *data;
    uint64_t size; /* a multiple of the system's pages */
} tutti_own;

/*
 * Take the first `bytes` of a block over: its bytes are in ret_own, and the arena's pages behind
 * them are given back.
 *
 * TUTTI_RESOURCE_EXHAUSTED, ...  from the system; the block is what it was
 */
tutti_code tutti_own_open(tutti_pages *pages, tutti_range block, uint64_t bytes,
                          tutti_own **ret_own, tutti_error *err);
void tutti_own_close(tutti_own *own); /* NULL is fine */

#endif
