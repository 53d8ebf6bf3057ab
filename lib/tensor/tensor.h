/*
 * Tensor: a spec and the bytes it has, counted by references.
 *
 * A space is where bytes live; host memory is the first kind (tensor/host). Any thread: counts are
 * atomic, spaces lock. Who may read or write the bytes when is the owner's business (the agent's
 * table of uses), not this room's.
 */
#ifndef TUTTI_TENSOR_TENSOR_H
#define TUTTI_TENSOR_TENSOR_H

#include <stdint.h>

#include "tensor/spec.h"
#include "tutti/error.h"

typedef struct tutti_space tutti_space;

typedef struct tutti_tensor {
    tutti_spec spec;
    uint64_t bytes;
    void *data; /* 64-byte aligned; never NULL, also for 0 bytes. Host memory: read and write it */
    /* private */
    tutti_space *space;
    uint64_t offset;
    void *block;
    _Atomic uint32_t refs;
} tutti_tensor;

/*
 * Memory for a tensor; its bytes are zero when `zeroed`, else undefined but never another tensor's.
 *
 * [out, owned]  ret_tensor  one reference
 *
 * TUTTI_INVALID_ARGUMENT    as tutti_spec_check
 * TUTTI_RESOURCE_EXHAUSTED  MEMORY_LIMIT: the text says what is asked, used and allowed, and
 *                           whether there are enough free bytes, but not in one run; or no memory
 *                           for the bookkeeping
 */
tutti_code tutti_tensor_new(tutti_space *space, const tutti_spec *spec, bool zeroed,
                            tutti_tensor **ret_tensor, tutti_error *err);

void tutti_tensor_ref(tutti_tensor *tensor);
void tutti_tensor_unref(tutti_tensor *tensor); /* the last one frees it; NULL is fine */

typedef struct tutti_space_stats {
    uint64_t used_bytes; /* with what alignment costs */
    uint64_t limit_bytes;
    uint64_t hole_bytes_max; /* the longest run of free bytes: the largest tensor that has room */
    uint64_t kept_bytes;     /* free, but still backed by memory, ready for the next tensor */
    uint64_t tensor_count;   /* those of 0 bytes too */
} tutti_space_stats;

void tutti_space_stat(tutti_space *space, tutti_space_stats *ret_stats);

/* All of its tensors must be gone. NULL is fine. */
void tutti_space_close(tutti_space *space);

#endif
