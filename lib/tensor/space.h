/*
 * The backend door of tensor: what a kind of memory does. The door (tensor.c) checks specs, counts
 * references and tensors, and words the limit; a backend finds bytes and gives them back.
 */
#ifndef TUTTI_TENSOR_SPACE_H
#define TUTTI_TENSOR_SPACE_H

#include <stdbool.h>

#include "tensor/tensor.h"

typedef struct tutti_space_ops {
    size_t size;
    /*
     * Find `bytes` (1 to 2^63 - 1). Fills tensor->data, offset and block; nothing on failure.
     * Any thread.
     *
     * TUTTI_RESOURCE_EXHAUSTED  MEMORY_LIMIT, worded by tutti_space_fail_limit; or no memory for
     *                           the bookkeeping
     */
    tutti_code (*take)(tutti_space *space, uint64_t bytes, bool zeroed, tutti_tensor *tensor,
                       tutti_error *err);
    /* Give back what take found. Any thread; cannot fail. */
    void (*give)(tutti_space *space, tutti_tensor *tensor);
    /* All but tensor_count, which the door counts. Any thread. */
    void (*stat)(tutti_space *space, tutti_space_stats *ret_stats);
    /* Nothing is taken any more. */
    void (*close)(tutti_space *space);
} tutti_space_ops;

/* Embedded by the backend's own struct, zeroed before `ops` is set. */
struct tutti_space {
    const tutti_space_ops *ops;
    _Atomic uint64_t tensor_count; /* the door's */
};

/*
 * MEMORY_LIMIT in words: `bytes` were asked for when the space stood at `stats`, which the backend
 * took under the same lock under which it looked for them.
 */
tutti_code tutti_space_fail_limit(const tutti_space_stats *stats, uint64_t bytes, tutti_error *err);

#endif
