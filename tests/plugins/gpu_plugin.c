/* Functions on tensors of a GPU, by the stand-in for CUDA. They wait for nothing that they launch. */
#include <cuda_runtime_api.h>

#include "tutti/plugin.h"

static uint64_t
count_bytes(const DLTensor *tensor)
{
    uint64_t bytes = tensor->dtype.bits / 8;
    int32_t i;

    for (i = 0; i < tensor->ndim; i++) {
        bytes *= (uint64_t)tensor->shape[i];
    }
    return bytes;
}

static int
fill_bytes(const tutti_env *env, DLTensor *tensor, int64_t byte)
{
    int more;

    if (tensor->device.device_type != 2 || env->stream == NULL) {
        return env->fail(env, "NO_STREAM", "the tensor is on no GPU, or there is no stream");
    }
    for (more = 9; more >= 0; more--) { /* so that the last one comes late */
        if (cudaMemsetAsync(tensor->data, (int)byte + more, count_bytes(tensor), env->stream) !=
            cudaSuccess) {
            return env->fail(env, NULL, "cudaMemsetAsync");
        }
    }
    return 0;
}

/* tensor, byte: every byte of it. */
static int
fill(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)ret;
    if (count != 2 || args[0].kind != TUTTI_ANY_TENSOR || args[1].kind != TUTTI_ANY_INT) {
        return env->fail(env, "BAD_ARGS", "fill takes a tensor and an int");
    }
    return fill_bytes(env, args[0].u.tensor, args[1].u.integer);
}

/* Makes a tensor on a GPU with this byte plus the rank, and sums it over all ranks. */
static int
make_and_reduce(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const DLDataType bytes = {1, 8, 1};
    const int64_t shape[1] = {100000};
    tutti_env_op op = {.size = sizeof(op), .op = "all_reduce"};
    const DLDevice gpu = {2, 0};
    DLTensor *made = env->make(env, bytes, shape, 1, &gpu);

    if (count != 1 || made == NULL ||
        fill_bytes(env, made, args[0].u.integer + (int64_t)env->rank) != 0) {
        return -1;
    }
    op.input = made;
    op.output = made;
    if (env->op(env, &op) != 0) {
        return -1;
    }
    *ret = tutti_any_tensor(made);
    return 0;
}

/* 1: there is a stream, 0: there is none. */
static int
has_stream(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    (void)count;
    *ret = tutti_any_int(env->stream != NULL ? 1 : 0);
    return 0;
}

int
tutti_plugin_1(const tutti_registry *registry)
{
    return registry->add(registry, "gpu.fill", fill, NULL, "tensor, int") |
           registry->add(registry, "gpu.make_and_reduce", make_and_reduce, NULL, "int -> tensor") |
           registry->add(registry, "gpu.has_stream", has_stream, NULL, "-> int");
}
