/* Ops: collectives on tensors in agents. */
#ifndef TUTTI_OP_H
#define TUTTI_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/tensor.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_ANY_SOURCE INT32_MIN

/* What an op is asked to do; each op looks at what concerns it. Begin with tutti_op_init. */
typedef struct tutti_op {
    size_t size;         /* of this struct: set by init */
    const char *group;   /* NULL = "world" */
    const char *input;   /* handle or name; what this rank gives */
    const char *output;  /* NULL = a new tensor; the same as input = in place */
    tutti_reduce reduce; /* all_reduce, reduce_to_root, reduce_scatter; init: SUM */
    double factor;       /* of PREMUL_SUM; init: 1 */
    int32_t root;        /* broadcast, reduce_to_root, gather, scatter; init: 0 */
    int32_t peer;        /* send: to whom; recv: from whom, or TUTTI_ANY_SOURCE (init) */
    bool global;         /* root and peer are ranks of the job, not of the group */
    uint32_t tag;        /* send, recv */
    int32_t axis;        /* all_gather, gather, reduce_scatter, scatter; negative: from the end */
    tutti_form form;     /* of these four; init: CONCAT */
    const tutti_spec *expect; /* recv: what it must be; NULL = whatever comes */
    bool async;               /* return at once; tutti_wait for the work */
    uint32_t timeout_ms; /* 0 = the agent's --op-timeout; else no call outlives it by over 2 s */
    uint64_t sequence;   /* the number it must get in its group; 0 = the next */
    const int64_t *out_shape; /* of FLAT: what the result, or a part, becomes */
    size_t out_shape_count;   /* 0 = one dimension */
    int32_t split_axis;       /* all_to_all: where it is cut into equal parts */
    int32_t concat_axis;      /* all_to_all: where the parts are joined */
    const int32_t *src_dst;   /* permute: by sender, the group rank that gets its tensor */
    size_t src_dst_count;     /* the group's size */
    /* all_to_all: parts of any length along split_axis, one for each rank; NULL = equal ones */
    const int64_t *input_splits;
    size_t input_split_count;
    const int64_t *output_splits; /* what they send to this rank; must fit what they say */
    size_t output_split_count;
    bool monitored; /* barrier: when time is up it fails with MISSING_RANKS instead of TIMEOUT */
    /*
     * Lists (tutti/list.h): handles or names instead of `input`, where results go (none: new
     * tensors), and an axis for each input (none: `axis`).
     */
    const char *const *inputs;
    size_t input_count;
    const char *const *outputs;
    size_t output_count;
    const int32_t *axes;
    size_t axis_count;
    bool coalesced; /* broadcast, scatter: a receiver says that a list comes */
    /* scatter, on the root: rows of dimension 0 for each group rank; NULL = equal parts */
    const int64_t *splits;
    size_t split_count;
    const void *user_meta; /* broadcast and scatter on the root, send: travels with the tensor */
    size_t user_meta_size; /* at most 16384 */
    struct tutti_op_more *more; /* what else it gives; NULL = not wanted, and in pipelines */
    /* Gradients (tutti/tracer.h): record it on these tracers too, on none, without communication */
    const char *const *tracers;
    size_t tracer_count;
    bool no_grad;
    bool local_grad;
    /*
     * The caller's own count, such as a training step; 0 = none. Collectives meet only with the
     * same step, else all ranks get OP_MISMATCH: what succeeded elsewhere, and is called again
     * here, is not summed with the others' next step. Not of send and recv.
     */
    uint64_t step;
    /*
     * send, recv: with group_count, the group is cut into so many blocks of consecutive ranks, and
     * the peer is the rank in our place, group_offset blocks further; `peer` is not looked at
     */
    int32_t group_offset;
    uint32_t group_count;
    /*
     * For calling again when an answer was lost: a random number, drawn anew for each op; 0 = none.
     * For --retry-window of the agent (30 s) a call with the same token gets the answer of the
     * first one. While that runs: TUTTI_ABORTED TOKEN_IN_FLIGHT.
     */
    uint64_t token;
} tutti_op;

TUTTI_API void tutti_op_init(tutti_op *op);

/* Which op, where a function takes any. */
typedef enum tutti_op_kind {
    TUTTI_OP_ALL_REDUCE = 1,
    TUTTI_OP_REDUCE_TO_ROOT,
    TUTTI_OP_REDUCE_SCATTER,
    TUTTI_OP_BROADCAST,
    TUTTI_OP_ALL_GATHER,
    TUTTI_OP_GATHER,
    TUTTI_OP_SCATTER,
    TUTTI_OP_ALL_TO_ALL,
    TUTTI_OP_PERMUTE,
    TUTTI_OP_BARRIER,
    TUTTI_OP_SEND,
    TUTTI_OP_RECV,
} tutti_op_kind;

#define TUTTI_OP_KINDS 12

/* "all_reduce"; NULL for a number that is no kind. */
TUTTI_API const char *tutti_op_kind_name(tutti_op_kind kind);

/* The kind of that name, with - or _ between words. False: there is none. */
TUTTI_API bool tutti_op_kind_parse(const char *name, tutti_op_kind *ret_kind);

typedef struct tutti_op_result {
    tutti_handle output;             /* text "" where this rank gets none */
    uint64_t sequence;               /* its number in the group, from 1; 0 for send and recv */
    char work[TUTTI_HANDLE_MAX + 1]; /* of an async op */
    uint64_t elapsed_us;             /* inside the agent */
    uint32_t source;                 /* recv: group rank of the sender */
    uint32_t source_global;          /* recv: its rank in the job */
} tutti_op_result;

/*
 * all_reduce      everyone gets the reduction of all inputs
 * reduce_to_root  the root alone does; the others' output stays as it is
 * reduce_scatter  group rank i gets part i of it
 * broadcast       everyone gets the root's input; the others give none
 * all_gather      everyone gets all inputs, joined in the order of group ranks
 * gather          the root alone does
 * scatter         group rank i gets part i of the root's input; what others give is ignored
 * all_to_all      group rank i gets part i of every input, joined in the order of group ranks
 * permute         group rank src_dst[i] gets the input of group rank i; every rank says the same
 *
 * [out] ret_result  NULL = not wanted
 *
 * TUTTI_FAILED_PRECONDITION  OP_MISMATCH: ranks called different ops; NOT_IN_GROUP; ...
 * TUTTI_INVALID_ARGUMENT     SHAPE_MISMATCH, DTYPE_MISMATCH, BAD_REDUCE_OP, BAD_ROOT, BAD_AXIS,
 *                            INDIVISIBLE, OUT_SHAPE, BAD_PERMUTATION, ...
 * TUTTI_DEADLINE_EXCEEDED    TIMEOUT: the text names who had not come
 * TUTTI_UNAVAILABLE          RANK_LOST: a rank is gone; the agent is not there any more
 * TUTTI_NOT_FOUND            NO_GROUP, NO_TENSOR
 * docs/errors.md lists all reasons.
 */
TUTTI_API tutti_code tutti_all_reduce(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_broadcast(tutti_client *client, const tutti_op *op,
                                     tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_all_gather(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_to_root(tutti_client *client, const tutti_op *op,
                                          tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_scatter(tutti_client *client, const tutti_op *op,
                                          tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_gather(tutti_client *client, const tutti_op *op,
                                  tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_scatter(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_all_to_all(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_permute(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_barrier(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_send(tutti_client *client, const tutti_op *op,
                                tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_recv(tutti_client *client, const tutti_op *op,
                                tutti_op_result *ret_result, tutti_error *err);

/* One rank's view of a group, for tutti_infer. */
typedef struct tutti_infer_place {
    uint32_t group_size; /* 0 = as many as the job has */
    uint32_t group_rank;
} tutti_infer_place;

/*
 * What an op would make on that rank if all ranks of the group called it so, and what is wrong with
 * its arguments, without running it. Not for barrier, send and recv. Groups, outputs and times are
 * not looked at; roots are group ranks.
 *
 * [in]  input        what each rank gives (of broadcast and scatter: the root); NULL = op->input
 * [in]  place        NULL = group rank 0 of as many as the job has
 * [out] ret_result   dtype TUTTI_DTYPE_NONE: this rank gets no result
 *
 * TUTTI_FAILED_PRECONDITION  PENDING: op->input has no shape yet
 * and what the op itself would say
 */
TUTTI_API tutti_code tutti_infer(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                                 const tutti_spec *input, const tutti_infer_place *place,
                                 tutti_spec *ret_result, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
