/* Args: what a collective is called with, and what it makes. Pure functions; any thread. */
#ifndef TUTTI_COLL_ARGS_H
#define TUTTI_COLL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "base/error/text.h"
#include "tensor/spec.h"
#include "tutti/error.h"

/* Kinds of ops: X(NAME, number, "word"). Numbers travel: a new kind gets the next one. */
#define TUTTI_COLL_KIND_MAP(X)                                                                     \
    X(ALL_REDUCE, 1, "all_reduce")                                                                 \
    X(BROADCAST, 2, "broadcast")                                                                   \
    X(ALL_GATHER, 3, "all_gather")                                                                 \
    X(BARRIER, 4, "barrier")                                                                       \
    X(SEND, 5, "send")                                                                             \
    X(RECV, 6, "recv")                                                                             \
    X(REDUCE, 7, "reduce")                                                                         \
    X(GATHER, 8, "gather")                                                                         \
    X(SCATTER, 9, "scatter")                                                                       \
    X(REDUCE_SCATTER, 10, "reduce_scatter")                                                        \
    X(ALL_TO_ALL, 11, "all_to_all")                                                                \
    X(PERMUTE, 12, "permute")

typedef enum tutti_coll_kind {
#define TUTTI_COLL_KIND_ENUM(name, number, word) TUTTI_COLL_##name = number,
    TUTTI_COLL_KIND_MAP(TUTTI_COLL_KIND_ENUM)
#undef TUTTI_COLL_KIND_ENUM
    TUTTI_COLL_KIND_COUNT, /* one more than the last */
} tutti_coll_kind;

#define TUTTI_COLL_ANY_SOURCE UINT32_MAX
#define TUTTI_COLL_LIST_MAX 1024  /* tensors that one rank gives in one op */
#define TUTTI_COLL_META_MAX 24576 /* bytes beside a tensor: a caller's, and an agent's */

/* One tensor of a list. */
typedef struct tutti_coll_tensor {
    tutti_spec spec;
    uint32_t axis; /* of a coalesced op: as tutti_coll_args.axis, for this one */
    void *data;    /* that of inputs is not written */
} tutti_coll_tensor;

/* Where a device leaves copies beside an op, in its own memory; NULL = none. */
typedef struct tutti_coll_kept {
    void *input;  /* as it was before */
    void *output; /* as it is behind */
} tutti_coll_kept;

/* What is asked. Plain data. */
typedef struct tutti_coll_args {
    tutti_coll_kind kind;
    bool on_device;  /* input and output are a device's memory: on all ranks, or on none */
    bool has_spec;   /* `spec` is what this rank gives (or, for a receiver, insists on) */
    bool count_only; /* a receiver's destination: dtype and element count matter, not the shape */
    tutti_spec spec; /* checked with tutti_spec_check */
    tutti_reduce reduce; /* all_reduce, reduce, reduce_scatter */
    double factor;       /* ... with PREMUL_SUM */
    uint32_t root;       /* broadcast, reduce, gather, scatter: a group rank */
    uint32_t peer;       /* send: group rank; recv: group rank or TUTTI_COLL_ANY_SOURCE */
    uint32_t tag;        /* send, recv */
    uint64_t step;       /* the caller's own count: alike on all ranks; not of send and recv */
    bool monitored;      /* barrier: at its deadline it fails with MISSING_RANKS, not TIMEOUT */
    /*
     * all_gather, gather, scatter, reduce_scatter, and where all_to_all cuts. An index, but for a
     * scatter: there as given, negative from the end, since receivers do not know the dimensions.
     */
    uint32_t axis;
    uint32_t concat_axis; /* all_to_all: where it joins */
    tutti_form form;
    /*
     * all_to_all along dimension 0 in parts of any length: rows for, and from, each group rank.
     * Both have split_count of them, and what one rank sends another has to expect.
     */
    bool has_splits;
    uint32_t split_count;
    const int64_t *send_splits;
    const int64_t *recv_splits;
    /*
     * What this rank gives when that is a list, in the order of group ranks: one tensor for each
     * rank (TUTTI_FORM_LIST of scatter, reduce_scatter, all_to_all). Or, coalesced, any tensors:
     * as many ops in one. `spec` is that of the first.
     */
    bool coalesced;
    uint32_t list_count;
    const tutti_coll_tensor *list;
    /* scatter: rows of dimension 0 for each group rank; the root says it. split_count of them. */
    const int64_t *root_splits;
    tutti_bytes meta;   /* broadcast, scatter: of the root; send: for the receiver */
    uint32_t dtype_sum; /* private: checksums of the list, as they travel */
    uint32_t shape_sum;
    const tutti_spec *flat; /* the shape that a flat result takes here; NULL = one dimension */
    bool keep_shape; /* scatter, flat: as the root's, its first dimension divided, or gone if that
                        is the group's size */
    const uint32_t *to; /* permute: [to_count] group ranks, by sender; all ranks say the same */
    uint32_t to_count;
} tutti_coll_args;

/* Do all ranks but the root give nothing, and learn the shape from it? */
bool tutti_coll_is_from_root(tutti_coll_kind kind);

/* Does the root alone get the result? */
bool tutti_coll_is_to_root(tutti_coll_kind kind);

/* Does it combine elements with a reduce op? */
bool tutti_coll_is_reduction(tutti_coll_kind kind);

/* Is the result a list: coalesced, or what was joined, tensor by tensor? */
bool tutti_coll_makes_list(const tutti_coll_args *args);

/* "all_reduce"; "op_<?>" for a number that is none. Static. */
const char *tutti_coll_kind_name(tutti_coll_kind kind);

/* "all_reduce(sum, FP32[1024])" */
void tutti_coll_describe(const tutti_coll_args *args, tutti_text *text);

/*
 * Are these arguments ones that some group of `size` could run? What it makes: the shape of the
 * result on this rank (ret_result->dtype TUTTI_DTYPE_NONE where there is none, or where only the
 * root or the sender knows it).
 *
 * TUTTI_INVALID_ARGUMENT  BAD_SHAPE, BAD_DTYPE, BAD_REDUCE_OP, DTYPE_UNSUPPORTED, BAD_ROOT,
 *                         BAD_AXIS, RANK_NOT_IN_GROUP, SELF_PEER, INDIVISIBLE, SCALAR_INPUT,
 *                         OUT_SHAPE, BAD_PERMUTATION, SPLITS_MISMATCH
 */
tutti_code tutti_coll_infer(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                            tutti_spec *ret_result, tutti_error *err);

/*
 * The same of an op that makes a list, if all ranks called it alike: [tensor][rank] where both are
 * lists.
 *
 * [out] ret_results  *ret_count of them; free()
 *
 * Also EMPTY_LIST, LIST_SIZE, SHAPE_MISMATCH, DTYPE_MISMATCH: within the list
 */
tutti_code tutti_coll_infer_list(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                                 tutti_spec **ret_results, uint32_t *ret_count, tutti_error *err);

#endif
