/*
 * CUDA's errors become ours. Most errors of CUDA are for ever (the context is lost), so
 * DEVICE_FAILED has the scope of the agent. An error that is not for ever is taken out of the
 * runtime (cudaGetLastError), or the next call would report it again.
 */
#include "base/error/fail.h"
#include "tensor/cuda/cuda_private.h"

tutti_code
cuda_check(cudaError_t answer, const char *call, tutti_error *err)
{
    if (answer == cudaSuccess) {
        return TUTTI_OK;
    }
    (void)TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "DEVICE_FAILED", "%s: %s (%s, %d)", call,
                         cudaGetErrorString(answer), cudaGetErrorName(answer), (int)answer);
    if (err != NULL) {
        tutti_error_set_cause(err, "cuda", (int)answer);
        err->scope = TUTTI_SCOPE_AGENT;
    }
    return TUTTI_INTERNAL;
}

/* What a person can do about it. */
static const char *
remedy_of(cudaError_t answer)
{
    switch (answer) {
    case cudaErrorInsufficientDriver:
        return "no CUDA driver here, or one older than the runtime: ";
    case cudaErrorNoDevice:
        return "no CUDA device here (is CUDA_VISIBLE_DEVICES empty?): ";
    case cudaErrorInvalidDevice:
        return "no such device: ";
    default:
        return "";
    }
}

tutti_code
cuda_check_device(cudaError_t answer, const char *call, tutti_error *err)
{
    if (answer == cudaSuccess) {
        return TUTTI_OK;
    }
    (void)cudaGetLastError(); /* else the next call would report it */
    (void)TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_DEVICE", "%s%s: %s (%s, %d)",
                         remedy_of(answer), call, cudaGetErrorString(answer),
                         cudaGetErrorName(answer), (int)answer);
    tutti_error_set_cause(err, "cuda", (int)answer);
    return TUTTI_FAILED_PRECONDITION;
}
