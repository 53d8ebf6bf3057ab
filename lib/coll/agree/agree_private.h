/* Private to agree*.c: what is known so far. */
#ifndef TUTTI_COLL_AGREE_AGREE_PRIVATE_H
#define TUTTI_COLL_AGREE_AGREE_PRIVATE_H

#include "coll/agree/agree.h"
#include "coll/infer/signature.h"

#define UNKNOWN 0xff /* nothing heard of this rank yet */
#define OTHER 0xfe   /* heard of, but the table of kinds is full */

/*
 * What travels: runs of ranks that called alike, and then, when all of these have riders, a run of
 * no ranks whose `first` is the length of a rider, and the riders in the order of the runs.
 */
#define RUN_BYTES 10 /* first, count, bytes of the signature (0 = OTHER) */

typedef struct agree_kind {
    unsigned char bytes[TUTTI_SIGNATURE_BYTES];
    size_t size;
} agree_kind;

struct tutti_coll_agree {
    uint32_t size; /* of the group */
    uint32_t own;  /* our group rank */
    uint32_t kind_count;
    agree_kind kinds[TUTTI_AGREE_KINDS_MAX];
    tutti_buf out;
    size_t piggyback_size; /* 0: we have none */
    unsigned char *riders; /* [owned] by group rank; NULL: we have none */
    bool all_piggyback;    /* of those heard of */
    uint8_t of[];          /* by group rank: an index into kinds, OTHER or UNKNOWN */
};

/* Add the head and the riders of all ranks heard of to `out`, in the order of the runs. Only if
 * all_piggyback. TUTTI_RESOURCE_EXHAUSTED */
tutti_code tutti_agree_write_riders(tutti_coll_agree *self, tutti_error *err);

/* The riders of the ranks in `runs`, which are well formed; they begin at `riders`, `size` bytes
 * with their head. Returns whether all that are heard of ride. */
bool tutti_agree_read_riders(tutti_coll_agree *self, const unsigned char *runs,
                             const unsigned char *riders, size_t size);

#endif
