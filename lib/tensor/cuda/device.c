/* Devices, what the runtime answers, and the table of the module. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "tensor/cuda/cuda_private.h"

tutti_code
cuda_count(int *ret_count, tutti_error *err)
{
    int count = 0;

    TUTTI_TRY(cuda_check_device(cudaGetDeviceCount(&count), "cudaGetDeviceCount", err));

    *ret_count = count;
    return TUTTI_OK;
}

/* As nvidia-smi spells it: GPU-8-4-4-4-12. */
static void
write_uuid(const struct cudaDeviceProp *device, char ret_uuid[TUTTI_CUDA_UUID_SIZE])
{
    const unsigned char *bytes = (const unsigned char *)device->uuid.bytes;
    int at = snprintf(ret_uuid, TUTTI_CUDA_UUID_SIZE, "GPU-");
    int i;

    for (i = 0; i < 16; i++) {
        at += snprintf(ret_uuid + at, TUTTI_CUDA_UUID_SIZE - (size_t)at, "%02x", bytes[i]);
        if (i == 3 || i == 5 || i == 7 || i == 9) {
            at += snprintf(ret_uuid + at, TUTTI_CUDA_UUID_SIZE - (size_t)at, "-");
        }
    }
}

static tutti_code
look_closely(int number, tutti_cuda_device *ret_device, tutti_error *err)
{
    struct cudaDeviceProp device;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    tutti_code code =
        cuda_check_device(cudaGetDeviceProperties(&device, number), "cudaGetDeviceProperties", err);

    if (code == TUTTI_OK && !device.memoryPoolsSupported) {
        code = TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_DEVICE",
                              "%s has no memory pools (cudaMallocAsync), which are needed",
                              device.name);
    }
    if (code == TUTTI_OK) {
        code = cuda_check_device(cudaSetDevice(number), "cudaSetDevice", err);
    }
    if (code == TUTTI_OK) {
        code = cuda_check_device(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_device =
        (tutti_cuda_device){.number = number, .free_bytes = free_bytes, .total_bytes = total_bytes};
    (void)snprintf(ret_device->name, sizeof(ret_device->name), "%.100s", device.name);
    write_uuid(&device, ret_device->uuid);
    return TUTTI_OK;
}

tutti_code
cuda_look(int number, tutti_cuda_device *ret_device, tutti_error *err)
{
    int count = 0;

    TUTTI_TRY(cuda_count(&count, err));
    if (number < 0 || number >= count) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_DEVICE",
                              "no such device: this process sees %d, numbered from 0 "
                              "(CUDA_VISIBLE_DEVICES may hide others)",
                              count);
    }
    return look_closely(number, ret_device, err);
}

static tutti_code
follow_device(tutti_space *space, void *stream, tutti_error *err)
{
    space_cuda *self = cuda_space_from(space);

    TUTTI_TRY(cuda_enter(self, err));

    return cuda_follow(self, stream, err);
}

static int
get_device_number(tutti_space *space)
{
    return cuda_space_from(space)->number;
}

extern const tutti_cuda_module tutti_cuda_module_v1;

__attribute__((visibility("default"))) const tutti_cuda_module tutti_cuda_module_v1 = {
    .size = sizeof(tutti_cuda_module),
    .count = cuda_count,
    .look = cuda_look,
    .open = cuda_open,
    .follow = follow_device,
    .occupy = cuda_occupy,
    .vacate = cuda_vacate,
    .number = get_device_number,
    .own = cuda_make_own,
    .stream_open = cuda_stream_open,
    .stream_wait = cuda_stream_wait,
    .stream_close = cuda_stream_close,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
};
