/* Private to coll/nccl: what CUDA and NCCL said, in our words. */
#ifndef TUTTI_COLL_NCCL_FAIL_H
#define TUTTI_COLL_NCCL_FAIL_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "coll/coll.h"

/* Out of memory is RESOURCE_EXHAUSTED DEVICE_MEMORY, all else INTERNAL DEVICE_FAILED. */
tutti_code tutti_nccl_fail_cuda(tutti_error *err, const char *call, cudaError_t said);

/*
 * [in] op    whose group, number, words and members go into the text
 * [in] comm  asked for its last error; NULL: none was made
 *
 * TUTTI_UNAVAILABLE NCCL_FAILED: a process or network that others depend on is gone;
 * TUTTI_INTERNAL NCCL_FAILED: all else. The text says the call, NCCL's words, and what to try.
 */
tutti_code tutti_nccl_fail(tutti_error *err, const tutti_coll_op *op, ncclComm_t comm,
                           const char *call, ncclResult_t said);

#endif
