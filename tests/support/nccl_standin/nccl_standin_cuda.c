/*
 * Calls of the CUDA runtime that the nccl backend makes and no other room: copies of rows, and
 * kernels, which are known by name: a reduction does what lib/coll/reduce does.
 */
#include "cuda_standin.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coll/nccl/kernel.h"
#include "coll/reduce/reduce.h"

/* ------------------------------------------------------------------------------ rows */

typedef struct rows {
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch;
    size_t from_pitch;
    size_t width;
    size_t height;
} rows;

static void
copy_rows(void *arg)
{
    rows *self = arg;
    size_t i;

    for (i = 0; i < self->height; i++) {
        memmove(self->to + i * self->to_pitch, self->from + i * self->from_pitch, self->width);
    }
    free(self);
}

STANDIN_API cudaError_t
cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                  size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    rows *self;

    STANDIN_BEGIN();
    if (kind != cudaMemcpyDefault || width > dpitch || width > spitch || height == 0) {
        return cudaErrorInvalidValue;
    }
    self = calloc(1, sizeof(*self));
    *self = (rows){.to = tutti_standin_cuda_bytes(dst, dpitch * (height - 1) + width),
                   .from = tutti_standin_cuda_bytes(src, spitch * (height - 1) + width),
                   .to_pitch = dpitch,
                   .from_pitch = spitch,
                   .width = width,
                   .height = height};
    if (self->to == NULL || self->from == NULL) {
        free(self);
        return cudaErrorInvalidValue;
    }
    return cudaLaunchHostFunc(stream, copy_rows, self);
}

/* ------------------------------------------------------------------------------ kernels */

struct CUkern_st {
    tutti_dtype dtype;
    atomic_bool loaded; /* at its first launch, as CUDA_MODULE_LOADING says by default */
};

static struct CUkern_st kernels[32];

/* Nothing is in it that can run here. */
STANDIN_API cudaError_t
cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jitOptions,
                    void **jitOptionsValues, unsigned int numJitOptions,
                    enum cudaLibraryOption *libraryOptions, void **libraryOptionValues,
                    unsigned int numLibraryOptions)
{
    STANDIN_BEGIN();
    (void)jitOptions;
    (void)jitOptionsValues;
    (void)libraryOptions;
    (void)libraryOptionValues;
    if (code == NULL || numJitOptions + numLibraryOptions > 0) {
        return cudaErrorInvalidValue;
    }
    *library = (cudaLibrary_t)(void *)kernels;
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    const size_t prefix = strlen(NCCL_KERNEL_PREFIX);
    tutti_dtype dtype = TUTTI_DTYPE_NONE;

    STANDIN_BEGIN();
    (void)library;
    if (strncmp(name, NCCL_KERNEL_PREFIX, prefix) == 0) {
        dtype = tutti_dtype_parse(name + prefix);
    }
    if (dtype == TUTTI_DTYPE_NONE) {
        return cudaErrorInvalidValue;
    }
    kernels[dtype].dtype = dtype;
    *kernel = (cudaKernel_t)&kernels[dtype];
    return cudaSuccess;
}

typedef struct launch {
    nccl_kernel_args args;
    tutti_dtype dtype;
    const unsigned char *inputs;
    void *output;
} launch;

static void
run_kernel(void *arg)
{
    launch *self = arg;
    const void *inputs[TUTTI_REDUCE_INPUTS_MAX];
    uint32_t i;

    for (i = 0; i < self->args.input_count; i++) {
        /* Without elements there may be no inputs, and NULL has no places behind it. */
        inputs[i] = self->inputs == NULL ? NULL : self->inputs + i * self->args.stride;
    }
    tutti_reduce_run((tutti_reduce)self->args.reduce, self->dtype, inputs, self->args.input_count,
                     NULL, self->args.count, self->output);
    free(self);
}

STANDIN_API cudaError_t
cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                 cudaStream_t stream)
{
    struct CUkern_st *kernel = (struct CUkern_st *)(uintptr_t)func;
    const cudaError_t before = cudaGetLastError();
    launch *self;

    STANDIN_BEGIN();
    if (before != cudaSuccess) {
        return before;
    }
    if (!atomic_exchange(&kernel->loaded, true)) {
        standin_wait_for_device();
    }
    if (gridDim.x == 0 || blockDim.x == 0 || blockDim.x > 1024 || sharedMem > 0) {
        return cudaErrorInvalidValue;
    }
    self = calloc(1, sizeof(*self));
    memcpy(&self->args, args[0], sizeof(self->args));
    self->dtype = kernel->dtype;
    self->inputs = tutti_standin_cuda_bytes(self->args.inputs,
                                            (size_t)(self->args.stride * self->args.input_count));
    self->output = tutti_standin_cuda_bytes(
        self->args.output, (size_t)self->args.count * tutti_dtype_bytes(kernel->dtype));
    if (self->args.count > 0 && (self->inputs == NULL || self->output == NULL)) {
        free(self);
        return cudaErrorInvalidValue;
    }
    return cudaLaunchHostFunc(stream, run_kernel, self);
}
