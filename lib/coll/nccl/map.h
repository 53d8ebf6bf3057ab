/* Private to coll/nccl: our numbers as NCCL's. */
#ifndef TUTTI_COLL_NCCL_MAP_H
#define TUTTI_COLL_NCCL_MAP_H

#include <nccl.h>

#include "tutti/types.h"

/* NCCL's elements of a dtype, and how many of them make one of ours: 2 for complex ones. */
ncclDataType_t tutti_nccl_type(tutti_dtype dtype, uint32_t *ret_each);

/* All but PREMUL_SUM, which is made for each factor. */
ncclRedOp_t tutti_nccl_op(tutti_reduce reduce);

/* A factor as NCCL reads it for `type`: FP16 and BF16 rounded to nearest. 8 bytes. */
void tutti_nccl_scalar(ncclDataType_t type, double factor, void *ret_scalar);

#endif
