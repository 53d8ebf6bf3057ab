/*
 * Private to coll/nccl: what an op asks of the device, as a list that is made before anything is
 * launched: copies that pack, calls of NCCL in one group, kernels, calls in a second group, copies
 * that unpack. A coalesced op is one plan: its tensors share the groups.
 */
#ifndef TUTTI_COLL_NCCL_PLAN_H
#define TUTTI_COLL_NCCL_PLAN_H

#include <cuda_runtime_api.h>

#include "coll/backend.h"
#include "coll/packet/strided.h"

typedef struct nccl_copy {
    tutti_strided to;
    tutti_strided from;
} nccl_copy;

typedef enum nccl_call_kind {
    NCCL_CALL_ALL_REDUCE,
    NCCL_CALL_REDUCE,
    NCCL_CALL_BROADCAST,
    NCCL_CALL_ALL_GATHER,
    NCCL_CALL_REDUCE_SCATTER,
    NCCL_CALL_SEND,
    NCCL_CALL_RECV,
} nccl_call_kind;

typedef struct nccl_call {
    nccl_call_kind kind;
    const void *input;
    void *output;
    uint64_t count;      /* elements; of what is only moved: bytes */
    tutti_dtype dtype;   /* UINT8 for bytes */
    tutti_reduce reduce; /* NONE where it does not */
    double factor;
    uint32_t peer; /* group rank: root, sender or receiver */
} nccl_call;

/* Reduce arrays that lie one behind the other. */
typedef struct nccl_kernel {
    const void *inputs;
    uint64_t stride; /* bytes from one to the next */
    uint32_t input_count;
    tutti_reduce reduce;
    tutti_dtype dtype;
    uint64_t count;
    void *output;
} nccl_kernel;

typedef struct nccl_plan {
    cudaStream_t stream;
    cudaMemPool_t pool;
    tutti_buf packs; /* nccl_copy */
    tutti_buf first; /* nccl_call */
    tutti_buf kernels;
    tutti_buf second; /* nccl_call */
    tutti_buf unpacks;
    tutti_buf stages; /* void *: memory of the device, in the stream's order */
} nccl_plan;

void tutti_nccl_plan_init(nccl_plan *plan, cudaStream_t stream, cudaMemPool_t pool);
void tutti_nccl_plan_fini(nccl_plan *plan); /* gives the stages back, behind what was launched */

/*
 * All of an op's tensors.
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory of ours, or DEVICE_MEMORY: none on the device
 */
tutti_code tutti_nccl_plan_op(nccl_plan *plan, tutti_coll_op *op, tutti_error *err);

/* Can NCCL reduce this by itself? */
bool tutti_nccl_is_native(tutti_reduce reduce, tutti_dtype dtype);

/* ------------------------------------------------------------------------------ for its files */

tutti_code tutti_nccl_plan_stage(nccl_plan *plan, uint64_t bytes, unsigned char **ret_stage,
                                 tutti_error *err);
tutti_code tutti_nccl_plan_copy(tutti_buf *where, const tutti_strided *to,
                                const tutti_strided *from, tutti_error *err);
tutti_code tutti_nccl_plan_call(tutti_buf *where, const nccl_call *call, tutti_error *err);
/* A send or receive of a whole piece. */
tutti_code tutti_nccl_plan_move(tutti_buf *where, nccl_call_kind kind, const tutti_strided *piece,
                                uint32_t peer, tutti_error *err);
tutti_code tutti_nccl_plan_kernel(nccl_plan *plan, const nccl_kernel *kernel, tutti_error *err);

/* exchange.c: each rank has something of its own for each other. out and in: [size] */
tutti_code tutti_nccl_plan_exchange(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err);

/* parts.c: which piece goes where */
typedef struct nccl_pieces {
    tutti_strided *out; /* [size] of the input, for each rank */
    tutti_strided *in;  /* [size] of the output, from each rank */
} nccl_pieces;

/* As the op's args see the tensor: flat and scalar ones have one dimension. */
tutti_spec tutti_nccl_view_of(const tutti_coll_op *op, uint32_t *ret_axis);

/* [in] input  of the op, or its copy */
tutti_code tutti_nccl_pieces_of(const tutti_coll_op *op, const void *input, nccl_pieces *pieces,
                                tutti_error *err);

#endif
