/*
 * Tensor: a spec and the bytes it has, counted by references.
 *
 * A space is where bytes live: host memory (tensor/host), or a device's (tensor/cuda). Any thread:
 * counts are atomic, spaces lock. Who may read or write the bytes when is the owner's business (the
 * agent's table of uses), not this room's.
 */
#ifndef TUTTI_TENSOR_TENSOR_H
#define TUTTI_TENSOR_TENSOR_H

#include <stdint.h>

#include "tensor/spec.h"
#include "tutti/error.h"

typedef struct tutti_space tutti_space;

/* For whom memory is there; of several the first counts. */
typedef enum tutti_holder {
    TUTTI_HOLDER_REGISTER, /* a register of a session */
    TUTTI_HOLDER_TENSOR,   /* a handle */
    TUTTI_HOLDER_MAPPING,  /* a client that has it mapped */
    /* None of these, but: */
    TUTTI_HOLDER_NONE,   /* an op or a call uses it, or a tape has made it */
    TUTTI_HOLDER_STAGED, /* it is what came with a call */
    TUTTI_HOLDER_RESULT, /* it is what goes with an answer */
    TUTTI_HOLDER_LENT, /* one of the above has let it go, and ops, other ranks or tapes have it still */
    TUTTI_HOLDERS,
} tutti_holder;

typedef struct tutti_tensor {
    tutti_spec spec;
    uint64_t bytes;
    void *
        data; /* 64-byte aligned; never NULL, also for 0 bytes. Of host memory: read and write it */
    /* private */
    tutti_space *space;
    uint64_t offset;
    void *block;
    void *own;                  /* memory of its own: the space's record of it; NULL = none */
    struct tutti_tensor *whole; /* [ref] of a view: the tensor whose bytes it shows; NULL = none */
    uint32_t holders[TUTTI_HOLDER_NONE]; /* how many of each kind; behind a lock of the room */
    tutti_holder unheld;                 /* where it counts without one; behind that lock */
    _Atomic uint32_t refs;
} tutti_tensor;

#define TUTTI_DEVICE_MAX 31 /* characters of a device's name */

/* "cpu", "cuda:0": where tensors of the space live. Borrowed for the life of the space. */
const char *tutti_space_device(const tutti_space *space);

/* May a processor touch the bytes? If not, tensor/move.h reaches them. */
bool tutti_tensor_is_host(const tutti_tensor *tensor);

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

/*
 * The same, but where space says so its bytes may be those of a tensor that is gone: for who
 * overwrites all of them before anybody else may read one, or frees it.
 */
tutti_code tutti_tensor_new_raw(tutti_space *space, const tutti_spec *spec,
                                tutti_tensor **ret_tensor, tutti_error *err);

/*
 * A view: a tensor that shows a run of another tensor's bytes, perhaps as another dtype. It takes no
 * memory of the space and keeps the other tensor. `data` is aligned to an element only. Not to be
 * given to tutti_tensor_own, and to be made when nobody gives `whole` memory of its own meanwhile.
 *
 * [in]         whole     not a view itself
 * [in]         offset    bytes from the beginning of `whole`
 * [in]         spec      of the view; checked (tutti_spec_check)
 * [out, owned] ret_view  one reference
 *
 * TUTTI_INVALID_ARGUMENT    RANGE_OUTSIDE: it ends behind the end of `whole`;
 *                           RANGE_ALIGN: the offset is no multiple of the dtype's bytes
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_tensor_view(tutti_tensor *whole, uint64_t offset, const tutti_spec *spec,
                             tutti_tensor **ret_view, tutti_error *err);

void tutti_tensor_ref(tutti_tensor *tensor);
void tutti_tensor_unref(tutti_tensor *tensor); /* the last one frees it; NULL is fine */

/*
 * Give it memory that it shares with no other tensor, so that a descriptor of it may be handed to
 * whoever may see this one alone. Its bytes move there, and `data` changes: nobody else may touch
 * the tensor meanwhile. Once is enough; it counts towards the limit as before.
 *
 * TUTTI_FAILED_PRECONDITION  CANNOT_SHARE: it has no bytes, or lives where no other process reads
 * TUTTI_RESOURCE_EXHAUSTED   no memory, or no descriptor
 */
tutti_code tutti_tensor_own(tutti_tensor *tensor, tutti_error *err);

/* Could it? CANNOT_SHARE as above. */
tutti_code tutti_tensor_can_own(const tutti_tensor *tensor, tutti_error *err);

/* Of an owned tensor; borrowed for its life. Its bytes begin at the file's, which cannot shrink. */
int tutti_tensor_descriptor(const tutti_tensor *tensor);
bool tutti_tensor_is_own(const tutti_tensor *tensor);

/* Has anybody but the caller a reference? */
bool tutti_tensor_is_shared(const tutti_tensor *tensor);

/*
 * Somebody holds the tensor from now on, or no more: for tutti_space_stats alone, its life is that of its
 * references. Each hold is let go before the last reference goes. Of a view: the tensor whose bytes it shows.
 */
void tutti_tensor_hold(tutti_tensor *tensor, tutti_holder holder);
void tutti_tensor_let_go(tutti_tensor *tensor, tutti_holder holder);

/* What a new tensor is while nobody holds it: STAGED or RESULT. By its maker, before others know of it. */
void tutti_tensor_mark(tutti_tensor *tensor, tutti_holder unheld);

typedef struct tutti_space_stats {
    uint64_t held_bytes[TUTTI_HOLDERS]; /* for whom; together used_bytes, when nothing moves */
    uint64_t used_bytes;                /* with what alignment costs */
    uint64_t limit_bytes;
    uint64_t hole_bytes_max; /* the longest run of free bytes: the largest tensor that has room */
    uint64_t kept_bytes;     /* free, but still backed by memory, ready for the next tensor */
    uint64_t tensor_count;   /* those of 0 bytes too */
} tutti_space_stats;

void tutti_space_stat(tutti_space *space, tutti_space_stats *ret_stats);

/* All of its tensors must be gone. NULL is fine. */
void tutti_space_close(tutti_space *space);

#endif
