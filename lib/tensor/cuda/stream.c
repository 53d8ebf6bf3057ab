/* Streams and events for others: streams that functions put work on, one made for each call, which
 * takes some microseconds; events that other processes open. */
#include <string.h>

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

/* ------------------------------------------------------------------------------ events
 *
 * They are made here, and not by the other process: CUDA leaves undefined what happens to an opened
 * event when its maker destroys it, or dies. docs/decisions/0043.
 */

_Static_assert(sizeof(cudaIpcEventHandle_t) == TUTTI_CUDA_IPC_SIZE, "as CUDA has it");

/* Not every device has them (cudaDevAttrIpcEventSupport): that is no failure of it. */
static tutti_code
check_event(cudaError_t answer, const char *call, tutti_error *err)
{
    if (answer != cudaErrorNotSupported) {
        return cuda_check_memory(answer, call, 1, err);
    }
    (void)cudaGetLastError(); /* else the next call would report it */
    return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "NO_DEVICE",
                          "%s: this GPU has no events for other processes", call);
}

tutti_code
cuda_event_open(tutti_space *space, void **ret_event, unsigned char ret_handle[TUTTI_CUDA_IPC_SIZE],
                tutti_error *err)
{
    cudaEvent_t event = NULL;
    cudaIpcEventHandle_t handle;
    tutti_code code = cuda_enter(cuda_space_from(space), err);

    if (code == TUTTI_OK) {
        code = check_event(
            cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming),
            "cudaEventCreateWithFlags", err);
    }
    if (code == TUTTI_OK) {
        code = check_event(cudaIpcGetEventHandle(&handle, event), "cudaIpcGetEventHandle", err);
    }
    if (code == TUTTI_OK) {
        memcpy(ret_handle, &handle, sizeof(handle));
        *ret_event = event;
    } else if (event != NULL) {
        (void)cudaEventDestroy(event);
    }
    return code;
}

void
cuda_event_close(tutti_space *space, void *event)
{
    if (cuda_enter(cuda_space_from(space), NULL) == TUTTI_OK) {
        (void)cudaEventDestroy(event);
    }
}
