/*
 * Kernels of ours, for what NCCL cannot reduce. They are compiled to one fat binary, which lies in
 * this module as bytes: so the rest of it is C, and is built where there is no nvcc too.
 */
#include "coll/nccl/kernel.h"

#include <pthread.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "coll/nccl/fail.h"
#include "coll/nccl/fatbin.h"
#include "coll/nccl/nccl_private.h"

#define BLOCK 256
#define BLOCKS_MAX 2048

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaLibrary_t library; /* under the lock; stays until the process ends */

/* Loaded once for all backends of the process, at the first use: several engines may run, hence the
 * lock. */
static cudaError_t
load_kernel(cudaLibrary_t *ret_library)
{
    cudaError_t said = cudaSuccess;

    (void)pthread_mutex_lock(&lock);
    if (library == NULL) {
        said = cudaLibraryLoadData(&library, tutti_nccl_fatbin, NULL, NULL, 0, NULL, NULL, 0);
    }
    *ret_library = library;
    (void)pthread_mutex_unlock(&lock);
    return said;
}

static tutti_code
find_kernel(tutti_dtype dtype, cudaKernel_t *ret_kernel, tutti_error *err)
{
    cudaLibrary_t from = NULL;
    cudaError_t said = load_kernel(&from);
    char name[64];

    if (said != cudaSuccess && TUTTI_NCCL_FATBIN_EMPTY) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "DTYPE_UNSUPPORTED",
                              "this agent cannot do that reduction of %s on a GPU: NCCL does not "
                              "have it, and tutti-nccl.so was built without nvcc; rebuild it with "
                              "nvcc, or copy the tensors to \"cpu\"",
                              tutti_dtype_name(dtype));
    }
    if (said != cudaSuccess) {
        return tutti_nccl_fail_cuda(err, "cudaLibraryLoadData", said);
    }
    (void)snprintf(name, sizeof(name), NCCL_KERNEL_PREFIX "%s", tutti_dtype_name(dtype));
    said = cudaLibraryGetKernel(ret_kernel, from, name);
    return said == cudaSuccess ? TUTTI_OK : tutti_nccl_fail_cuda(err, "cudaLibraryGetKernel", said);
}

tutti_code
tutti_nccl_kernel_run(const nccl_kernel *kernel, cudaStream_t stream, tutti_error *err)
{
    nccl_kernel_args values = {.inputs = kernel->inputs,
                               .stride = kernel->stride,
                               .count = kernel->count,
                               .output = kernel->output,
                               .input_count = kernel->input_count,
                               .reduce = (uint32_t)kernel->reduce};
    const uint64_t blocks = kernel->count == 0 ? 1 : (kernel->count + BLOCK - 1) / BLOCK;
    const dim3 grid = {.x = (unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), .y = 1, .z = 1};
    const dim3 block = {.x = BLOCK, .y = 1, .z = 1};
    void *args[] = {&values};
    cudaKernel_t found = NULL;
    cudaError_t said;

    TUTTI_TRY(find_kernel(kernel->dtype, &found, err));
    said = cudaLaunchKernel((const void *)found, grid, block, args, 0, stream);
    return said == cudaSuccess ? TUTTI_OK : tutti_nccl_fail_cuda(err, "cudaLaunchKernel", said);
}

/* The first launch of a kernel loads it, and that waits for all that the device runs: for kernels
 * of NCCL too, which wait for other ranks. So each runs once over nothing while nothing else does.
 */
tutti_code
tutti_nccl_kernels_load(nccl_backend *backend, tutti_error *err)
{
    static const tutti_dtype dtypes[] = {TUTTI_DTYPE_BOOL,   TUTTI_DTYPE_UINT8,  TUTTI_DTYPE_UINT16,
                                         TUTTI_DTYPE_UINT32, TUTTI_DTYPE_UINT64, TUTTI_DTYPE_INT8,
                                         TUTTI_DTYPE_INT16,  TUTTI_DTYPE_INT32,  TUTTI_DTYPE_INT64};
    nccl_kernel kernel = {.input_count = 1, .reduce = TUTTI_REDUCE_BAND};
    tutti_code code = TUTTI_OK;
    cudaError_t said;
    size_t i;

    for (i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]) && code == TUTTI_OK; i++) {
        kernel.dtype = dtypes[i];
        code = tutti_nccl_kernel_run(&kernel, backend->stream, err);
    }
    if (code != TUTTI_OK) {
        return TUTTI_NCCL_FATBIN_EMPTY ? TUTTI_OK : code; /* an op that needs one says so */
    }
    said = cudaStreamSynchronize(backend->stream);
    return said == cudaSuccess ? TUTTI_OK
                               : tutti_nccl_fail_cuda(err, "cudaStreamSynchronize", said);
}
