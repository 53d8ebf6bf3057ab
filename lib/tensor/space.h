/*
 * The backend door of tensor: what a kind of memory does. The door (tensor.c) checks specs, counts
 * references and words the limit; a backend finds bytes and gives them back.
 */
#ifndef TUTTI_TENSOR_SPACE_H
#define TUTTI_TENSOR_SPACE_H

#include "tensor/tensor.h"

typedef struct tutti_space_ops {
    size_t size;
    /*
     * Find `bytes` (>= 1). Fills tensor->data, offset and block. Any thread.
     * TUTTI_RESOURCE_EXHAUSTED  MEMORY_LIMIT
     */
    tutti_code (*take)(tutti_space *space, uint64_t bytes, bool zeroed, tutti_tensor *tensor,
                       tutti_error *err);
    /* Give back what take found. */
    void (*give)(tutti_space *space, tutti_tensor *tensor);
    void (*stat)(tutti_space *space, tutti_space_stats *ret_stats);
    void (*close)(tutti_space *space);
} tutti_space_ops;

struct tutti_space {
    const tutti_space_ops *ops;
};

#endif
