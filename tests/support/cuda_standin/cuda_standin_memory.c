/* Memory of devices, and pinned memory. */
#include "cuda_standin.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 512
#define RANGES_MAX 256

static standin_range ranges[RANGES_MAX];

struct CUmemPoolHandle_st {
    int device;
    uint64_t kept_bytes; /* of its device's */
    uint64_t kept_bytes_max;
};

/* ------------------------------------------------------------------------------ finding */

static void *
find_in_devices(const unsigned char *at, size_t size)
{
    int i;

    for (i = 0; i < STANDIN_DEVICES_MAX; i++) {
        const standin_device *device = &standin.devices[i];

        if (device->base != NULL && at >= device->base && at < device->base + device->size &&
            size <= (size_t)(device->base + device->size - at)) {
            return device->bytes + (at - device->base);
        }
    }
    return NULL;
}

standin_range *
standin_find_range(const unsigned char *at, size_t size)
{
    size_t i;

    for (i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].base != NULL && at >= ranges[i].base &&
            at < ranges[i].base + ranges[i].size &&
            size <= (size_t)(ranges[i].base + ranges[i].size - at)) {
            return &ranges[i];
        }
    }
    return NULL;
}

static void *
find_bytes(const void *address, size_t size)
{
    const unsigned char *at = address;
    void *found = find_in_devices(at, size);
    const standin_range *range = found == NULL ? standin_find_range(at, size) : NULL;

    return range == NULL ? found : range->bytes + (at - range->base);
}

void *
tutti_standin_cuda_bytes(const void *address, size_t size)
{
    void *found;

    standin_start();
    standin_lock();
    found = find_bytes(address, size);
    standin_unlock();
    return found == NULL && standin.unified ? (void *)(uintptr_t)address : found;
}

bool
standin_add_range(void *base, void *bytes, size_t size)
{
    size_t i;

    for (i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].base == NULL) {
            ranges[i] = (standin_range){base, bytes, size};
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------ blocks */

static uint64_t
count_used(const standin_device *device)
{
    const standin_block *block;
    uint64_t used = ALIGNMENT;

    for (block = device->blocks; block != NULL; block = block->next) {
        used += block->size;
    }
    return used;
}

/* What the pool has kept is used first; what other pools have kept is not there. */
static bool
has_room(standin_device *device, uint64_t size, cudaMemPool_t pool)
{
    const uint64_t own = pool == NULL ? 0 : pool->kept_bytes;
    const uint64_t reused = own < size ? own : size;

    if (count_used(device) + size + device->kept_bytes - reused > device->size) {
        return false;
    }
    device->kept_bytes -= reused;
    if (pool != NULL) {
        pool->kept_bytes -= reused;
    }
    return true;
}

/* With the lock. */
static void
keep(standin_device *device, cudaMemPool_t pool, uint64_t size)
{
    const uint64_t room = pool->kept_bytes_max - pool->kept_bytes;
    const uint64_t kept = size < room ? size : room;

    pool->kept_bytes += kept;
    device->kept_bytes += kept;
}

static standin_block *
find_room(standin_device *device, uint64_t size, cudaMemPool_t pool)
{
    standin_block **at = &device->blocks;
    uint64_t offset = ALIGNMENT;
    standin_block *block;

    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    while (*at != NULL && (*at)->offset - offset < size) {
        offset = (*at)->offset + (*at)->size;
        at = &(*at)->next;
    }
    if (*at == NULL && (offset > device->size || size > device->size - offset)) {
        return NULL;
    }
    if (!has_room(device, size, pool)) {
        return NULL;
    }
    block = calloc(1, sizeof(*block));
    *block = (standin_block){.next = *at, .offset = offset, .size = size, .pool = pool};
    *at = block;
    standin.allocations++;
    return block;
}

bool
standin_take_out(const void *address, standin_block **ret_block, standin_device **ret_device)
{
    standin_block **at;
    int i;

    for (i = 0; i < STANDIN_DEVICES_MAX; i++) {
        for (at = &standin.devices[i].blocks; *at != NULL; at = &(*at)->next) {
            if (standin.devices[i].base + (*at)->offset == address) {
                *ret_block = *at;
                *ret_device = &standin.devices[i];
                if ((*at)->pool != NULL) {
                    keep(&standin.devices[i], (*at)->pool, (*at)->size);
                }
                *at = (*at)->next;
                standin.allocations--;
                return true;
            }
        }
    }
    return false;
}

STANDIN_API cudaError_t
cudaMemGetInfo(size_t *free, size_t *total)
{
    const standin_block *block;

    STANDIN_BEGIN();
    standin_lock();
    *total = standin.memory_bytes;
    *free = *total - standin.devices[standin_current()].kept_bytes;
    for (block = standin.devices[standin_current()].blocks; block != NULL; block = block->next) {
        *free -= block->size;
    }
    standin_unlock();
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    STANDIN_BEGIN();
    if (properties->location.id < 0 || properties->location.id >= standin.visible_count) {
        return cudaErrorInvalidDevice;
    }
    *pool = calloc(1, sizeof(**pool)); /* keeps nothing: the real one's threshold is 0 too */
    (*pool)->device = standin.visible[properties->location.id];
    standin_lock();
    standin.pools++;
    standin_unlock();
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaMemPoolDestroy(cudaMemPool_t pool)
{
    standin_lock();
    standin.pools--;
    standin.devices[pool->device].kept_bytes -= pool->kept_bytes;
    standin_unlock();
    free(pool);
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    STANDIN_BEGIN();
    standin_lock();
    if (pool->kept_bytes > bytes) {
        standin.devices[pool->device].kept_bytes -= pool->kept_bytes - bytes;
        pool->kept_bytes = bytes;
    }
    standin_unlock();
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
    STANDIN_BEGIN();
    if (attr != cudaMemPoolAttrReleaseThreshold) {
        return cudaErrorInvalidValue;
    }
    memcpy(&pool->kept_bytes_max, value, sizeof(pool->kept_bytes_max));
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
    const standin_block *block;
    uint64_t reserved;

    STANDIN_BEGIN();
    standin_lock();
    reserved = pool->kept_bytes;
    for (block = standin.devices[pool->device].blocks; block != NULL; block = block->next) {
        reserved += block->pool == pool ? block->size : 0;
    }
    standin_unlock();
    memcpy(value, &reserved, sizeof(reserved));
    return attr == cudaMemPoolAttrReservedMemCurrent ? cudaSuccess : cudaErrorInvalidValue;
}

/* What was given back in this stream may be taken again in it: so wait for the stream, once. */
STANDIN_API cudaError_t
cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream)
{
    standin_device *device = &standin.devices[pool->device];
    standin_work work = {.kind = STANDIN_MALLOC, .size = size};
    standin_block *block;
    cudaError_t error;

    STANDIN_BEGIN();
    standin_lock();
    block = find_room(device, size, pool);
    if (block == NULL) {
        standin_unlock();
        (void)cudaStreamSynchronize(stream);
        standin_lock();
        block = find_room(device, size, pool);
    }
    if (block == NULL) {
        standin_unlock();
        return standin_failed(cudaErrorMemoryAllocation);
    }
    work.to = device->bytes + block->offset;
    *ptr = device->base + block->offset;
    error = standin_put(stream, &work);
    standin_unlock();
    return error;
}

STANDIN_API cudaError_t
cudaFreeAsync(void *ptr, cudaStream_t stream)
{
    const standin_work work = {.kind = STANDIN_FREE, .address = ptr};
    const cudaError_t failed = standin_begin(__func__);
    cudaError_t error;

    standin_lock();
    error = standin_put(stream, &work); /* of a broken device too: for the books */
    standin_unlock();
    return failed != cudaSuccess ? failed : error;
}

STANDIN_API cudaError_t
cudaMalloc(void **ptr, size_t size)
{
    standin_device *device;
    standin_block *block;

    STANDIN_BEGIN();
    standin_lock();
    device = &standin.devices[standin_current()];
    block = find_room(device, size, NULL);
    if (block != NULL) {
        memset(device->bytes + block->offset, 0xcd, size);
        *ptr = device->base + block->offset;
    }
    standin_unlock();
    return block == NULL ? standin_failed(cudaErrorMemoryAllocation) : cudaSuccess;
}

STANDIN_API cudaError_t
cudaFree(void *ptr)
{
    const cudaError_t failed = standin_begin(__func__);
    standin_device *device = NULL;
    standin_block *block = NULL;
    bool found;

    standin_wait_for_device();
    standin_lock(); /* of a broken device too: for the books */
    found = standin_take_out(ptr, &block, &device);
    if (found) {
        memset(device->bytes + block->offset, 0xdb, block->size);
    }
    standin_unlock();
    free(block);
    return failed != cudaSuccess ? failed : found ? cudaSuccess : cudaErrorInvalidValue;
}

/* ------------------------------------------------------------------------------ pinned */

STANDIN_API cudaError_t
cudaHostAlloc(void **ptr, size_t size, unsigned int flags)
{
    void *memory = NULL;

    STANDIN_BEGIN();
    (void)flags;
    if (posix_memalign(&memory, 4096, size) != 0) {
        return cudaErrorMemoryAllocation;
    }
    standin_lock();
    if (!standin_add_range(memory, memory, size)) {
        abort();
    }
    standin.pinned++;
    standin_unlock();
    *ptr = memory;
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaFreeHost(void *ptr)
{
    standin_range *range;

    standin_wait_for_device();
    standin_lock();
    range = standin_find_range(ptr, 1);
    if (range != NULL) {
        *range = (standin_range){0};
        standin.pinned--;
    }
    standin_unlock();
    free(ptr);
    return range == NULL ? cudaErrorInvalidValue : cudaSuccess;
}
