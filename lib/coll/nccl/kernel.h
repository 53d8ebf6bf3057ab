/* Private to coll/nccl: what a kernel is given. C and CUDA C alike. */
#ifndef TUTTI_COLL_NCCL_KERNEL_H
#define TUTTI_COLL_NCCL_KERNEL_H

#include <stdint.h>

/* Kernels are called tutti_reduce_UINT8 and so on, for BOOL and all integers. */
#define NCCL_KERNEL_PREFIX "tutti_reduce_"

typedef struct nccl_kernel_args {
    const void *inputs; /* input_count arrays, `stride` bytes apart */
    uint64_t stride;
    uint64_t count; /* elements */
    void *output;   /* may be the first of them */
    uint32_t input_count;
    uint32_t reduce; /* tutti_reduce */
} nccl_kernel_args;

#endif
