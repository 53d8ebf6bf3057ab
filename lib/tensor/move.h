/*
 * Move: bytes of tensors whose memory a processor cannot touch, to and from memory it can.
 *
 * Host tensors need none of this: read and write tensor->data. Others are reached by slots, pieces
 * of memory that a device copies to and from while the network and others go on. A space has a few
 * and lends them: a slot is kept only while a copy runs, or until the network has sent its bytes.
 *
 * Functions here may be called from any thread and wait for nothing. Callbacks run once, later, on
 * a thread of the space that waits for copies: they post to a loop of theirs and return.
 */
#ifndef TUTTI_TENSOR_MOVE_H
#define TUTTI_TENSOR_MOVE_H

#include "base/data/list.h"
#include "tensor/tensor.h"

/* Memory for up to `size` bytes. Its holder may read and write it when no move has it. */
typedef struct tutti_slot {
    void *data;
    size_t size;
    /* private */
    tutti_list_node link;
    tutti_space *space;
} tutti_slot;

/* A wish for a slot. */
typedef struct tutti_slot_wish tutti_slot_wish;
struct tutti_slot_wish {
    void (*on_slot)(tutti_slot_wish *wish, tutti_slot *slot);
    /* private */
    tutti_list_node link;
};

/* Some bytes of two tensors, from one offset to another. */
typedef struct tutti_move_range {
    uint64_t from_offset;
    uint64_t to_offset;
    uint64_t bytes; /* not 0 */
} tutti_move_range;

/* A copy under way. The caller embeds it and leaves it alone until on_done. */
typedef struct tutti_move tutti_move;
struct tutti_move {
    void (*on_done)(tutti_move *move, const tutti_error *err); /* NULL = well */
    /* private */
    tutti_list_node link;
    tutti_slot *slot;
    tutti_tensor *from;
    tutti_tensor *to;
    tutti_move_range range; /* of a copy */
    void *more;             /* the space's */
    tutti_code code;
    tutti_error err;
};

/* The most bytes of one slot. */
#define TUTTI_SLOT_BYTES ((size_t)4 << 20)

/*
 * A slot, now; NULL when all are lent: then ask again with the wish, which is answered in the order
 * of the wishes. The wish may be answered before this returns.
 */
tutti_slot *tutti_slot_take(tutti_space *space);
void tutti_slot_wait(tutti_space *space, tutti_slot_wish *wish);
void tutti_slot_give(tutti_slot *slot);

/* Are so many lent that this one should not wait for a slow reader? Copy it out and give it. */
bool tutti_slot_is_scarce(tutti_slot *slot);

/*
 * Between slots and tensors; both stay until on_done. An error is
 * TUTTI_INTERNAL DEVICE_FAILED: the device could not, and the text says which call said what.
 */
void tutti_move_in(tutti_move *move, tutti_tensor *to, uint64_t offset, tutti_slot *from,
                   size_t size);
void tutti_move_out(tutti_move *move, tutti_tensor *from, uint64_t offset, tutti_slot *to,
                    size_t size);

/* Between tensors of as many bytes, of which at least one is not in host memory. */
void tutti_move_copy(tutti_move *move, tutti_tensor *from, tutti_tensor *to);

/* The same for some bytes of them, inside of both, and not overlapping. */
void tutti_move_copy_range(tutti_move *move, tutti_tensor *from, tutti_tensor *to,
                           const tutti_move_range *range);

#endif
