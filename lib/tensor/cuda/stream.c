/* Streams that functions put work on. One is made for each call: that takes some microseconds. */
#include "tensor/cuda/cuda_private.h"

tutti_code
cuda_stream_open(tutti_space *space, void **ret_stream, tutti_error *err)
{
    space_cuda *self = cuda_space_from(space);
    cudaStream_t stream = NULL;
    tutti_code code = cuda_enter(self, err);

    if (code == TUTTI_OK) {
        code = cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags", err);
    }
    if (code == TUTTI_OK) {
        code = cuda_follow(self, stream, err);
    }
    if (code == TUTTI_OK) {
        *ret_stream = stream;
    } else if (stream != NULL) {
        (void)cudaStreamDestroy(stream);
    }
    return code;
}

/* A kernel of somebody else's may fail, which the device tells here. */
tutti_code
cuda_stream_wait(tutti_space *space, void *stream, tutti_error *err)
{
    const tutti_code code = cuda_enter(cuda_space_from(space), err);

    return code != TUTTI_OK
               ? code
               : cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", err);
}

void
cuda_stream_close(tutti_space *space, void *stream)
{
    if (cuda_enter(cuda_space_from(space), NULL) == TUTTI_OK) {
        (void)cudaStreamDestroy(stream);
    }
}
