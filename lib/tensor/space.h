/*
 * The backend door of tensor: what a kind of memory does. The door (tensor.c) checks specs, counts
 * references and tensors, and words the limit; a backend finds bytes and gives them back.
 */
#ifndef TUTTI_TENSOR_SPACE_H
#define TUTTI_TENSOR_SPACE_H

#include <stdbool.h>

#include "tensor/move.h"
#include "tensor/tensor.h"

/* Of memory that a processor cannot touch: as tensor/move.h says. */
typedef struct tutti_space_moves {
    tutti_slot *(*take_slot)(tutti_space *space);
    void (*wait_slot)(tutti_space *space, tutti_slot_wish *wish);
    void (*give_slot)(tutti_space *space, tutti_slot *slot);
    bool (*is_scarce)(tutti_space *space);
    void (*in)(tutti_space *space, tutti_move *move, uint64_t offset, size_t size); /* to, slot */
    void (*out)(tutti_space *space, tutti_move *move, uint64_t offset,
                size_t size);                           /* from, slot */
    void (*copy)(tutti_space *space, tutti_move *move); /* from, to: one or both are of the space */
} tutti_space_moves;

/* What a tensor's bytes are when it is new. */
typedef enum tutti_fill {
    TUTTI_FILL_RAW,   /* whatever: they are overwritten before anybody reads them */
    TUTTI_FILL_CLEAN, /* undefined, but never another tensor's */
    TUTTI_FILL_ZERO,
} tutti_fill;

typedef struct tutti_space_ops {
    size_t size;
    /*
     * Find `bytes` (1 to 2^63 - 1). Fills tensor->data, offset and block; nothing on failure.
     * Any thread.
     *
     * TUTTI_RESOURCE_EXHAUSTED  MEMORY_LIMIT, worded by tutti_space_fail_limit; or no memory for
     *                           the bookkeeping
     */
    tutti_code (*take)(tutti_space *space, uint64_t bytes, tutti_fill fill, tutti_tensor *tensor,
                       tutti_error *err);
    /* Give back what take found. Any thread; cannot fail. */
    void (*give)(tutti_space *space, tutti_tensor *tensor);
    /* All but tensor_count, which the door counts. Any thread. */
    void (*stat)(tutti_space *space, tutti_space_stats *ret_stats);
    /* Nothing is taken any more. */
    void (*close)(tutti_space *space);
    /* As tutti_tensor_own, for at least one byte. Sets tensor->data and `own`. NULL: cannot. */
    tutti_code (*own)(tutti_space *space, tutti_tensor *tensor, tutti_error *err);
    /* The descriptor of an owned one. */
    int (*descriptor)(const tutti_tensor *tensor);
    const tutti_space_moves *moves; /* NULL = host memory */
} tutti_space_ops;

/* Embedded by the backend's own struct, zeroed before `ops` is set. */
struct tutti_space {
    const tutti_space_ops *ops;
    _Atomic uint64_t tensor_count; /* the door's, as is ... */
    _Atomic uint64_t held_bytes[TUTTI_HOLDERS];
    char device[TUTTI_DEVICE_MAX + 1]; /* "" = "cpu" */
};

/*
 * MEMORY_LIMIT in words: `bytes` were asked for when the space stood at `stats`, which the backend
 * took under the same lock under which it looked for them.
 *
 * [in] device  "cuda:0"; NULL = host memory
 */
tutti_code tutti_space_fail_limit(const tutti_space_stats *stats, uint64_t bytes,
                                  const char *device, tutti_error *err);

#endif
