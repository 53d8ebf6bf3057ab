/*
 * The space of a device: memory from a pool of its own, in the order of one stream. Any thread.
 *
 * A tensor's bytes are there when the stream `memory` has come to its taking, so every other stream
 * that touches tensors waits for the event `taken` first (cuda_follow). They are given back in the
 * same stream, by the thread that has seen the last use end; so there is nothing to wait for then,
 * and memory can be taken again at once.
 *
 * The mutex guards the two counts and is never held across a call of CUDA. Calls of CUDA need the
 * current device, which belongs to the thread: each entry sets it.
 *
 * If the device fails, all calls fail, and tensors are freed in our books only; the agent has to be
 * started anew.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "tensor/cuda/cuda_private.h"

#define ALIGNMENT 64
#define SLOTS_DEFAULT 8

static const tutti_space_ops space_cuda_ops;

bool
cuda_space_is(const tutti_space *space)
{
    return space->ops == &space_cuda_ops;
}

space_cuda *
cuda_space_from(tutti_space *space)
{
    assert(cuda_space_is(space));
    return tutti_container_of(space, space_cuda, base);
}

tutti_code
cuda_enter(const space_cuda *self, tutti_error *err)
{
    return cuda_check(cudaSetDevice(self->number), "cudaSetDevice", err);
}

tutti_code
cuda_follow(space_cuda *self, cudaStream_t stream, tutti_error *err)
{
    return cuda_check(cudaStreamWaitEvent(stream, self->taken, 0), "cudaStreamWaitEvent", err);
}

/* ------------------------------------------------------------------------------ take, give */

uint64_t
cuda_rounded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Counted before the memory is taken, so two threads together cannot pass the limit; counted out
 * again if the device has none. What the text says is what was seen under the lock. */
tutti_code
cuda_count_in(space_cuda *self, uint64_t bytes, tutti_error *err)
{
    tutti_space_stats stats = {.limit_bytes = self->limit_bytes};
    bool fits;

    (void)pthread_mutex_lock(&self->lock);
    stats.used_bytes = self->used_bytes;
    stats.hole_bytes_max = self->limit_bytes - self->used_bytes;
    fits = bytes <= stats.hole_bytes_max;
    self->used_bytes += fits ? bytes : 0;
    (void)pthread_mutex_unlock(&self->lock);
    return fits ? TUTTI_OK : tutti_space_fail_limit(&stats, bytes, self->base.device, err);
}

void
cuda_count_out(space_cuda *self, uint64_t bytes)
{
    (void)pthread_mutex_lock(&self->lock);
    assert(self->used_bytes >= bytes);
    self->used_bytes -= bytes;
    (void)pthread_mutex_unlock(&self->lock);
}

/* The limit counts what this process hands out; the device's memory is shared with all others that
 * use it, so it may be used up below the limit. */
tutti_code
cuda_check_memory(cudaError_t answer, const char *call, uint64_t bytes, tutti_error *err)
{
    char buffer[32];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    if (answer != cudaErrorMemoryAllocation) {
        return cuda_check(answer, call, err);
    }
    (void)cudaGetLastError(); /* it is not the device's end: the next call shall not report it */
    tutti_text_add_bytes(&text, bytes);
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "DEVICE_MEMORY",
                          "the device has no %s left, though the limit is not reached: others use "
                          "its memory too; delete tensors or lower --device-memory-limit",
                          buffer);
}

/*
 * Always zero: otherwise one could read what another tensor held. `taken` is recorded again after
 * each taking; an event stands for its last record, and records of one stream are in its order, so
 * a later record covers all tensors before it, whichever thread made them.
 */
static tutti_code
take_bytes(space_cuda *self, size_t bytes, void **ret_data, tutti_error *err)
{
    void *data = NULL;
    tutti_code code = cuda_enter(self, err);

    if (code == TUTTI_OK) {
        code = cuda_check_memory(cudaMallocFromPoolAsync(&data, bytes, self->pool, self->memory),
                                 "cudaMallocFromPoolAsync", bytes, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code = cuda_check(cudaMemsetAsync(data, 0, bytes, self->memory), "cudaMemsetAsync", err);
    if (code == TUTTI_OK) {
        code = cuda_check(cudaEventRecord(self->taken, self->memory), "cudaEventRecord", err);
    }
    if (code != TUTTI_OK) {
        (void)cudaFreeAsync(data, self->memory);
        return code;
    }
    *ret_data = data;
    return TUTTI_OK;
}

static tutti_code
space_cuda_take(tutti_space *space, uint64_t bytes, tutti_fill fill, tutti_tensor *tensor,
                tutti_error *err)
{
    space_cuda *self = cuda_space_from(space);
    tutti_code code = cuda_count_in(self, cuda_rounded(bytes), err);

    (void)fill;
    if (code != TUTTI_OK) {
        return code;
    }
    code = take_bytes(self, (size_t)bytes, &tensor->data, err);
    if (code != TUTTI_OK) {
        cuda_count_out(self, cuda_rounded(bytes));
    }
    return code;
}

static void
space_cuda_give(tutti_space *space, tutti_tensor *tensor)
{
    space_cuda *self = cuda_space_from(space);

    (void)cuda_enter(self, NULL); /* where calls fail, the device is gone, and its memory too */
    if (tensor->block != NULL) {
        cuda_own_give(tensor->block);
    } else {
        (void)cudaFreeAsync(tensor->data, self->memory);
    }
    cuda_count_out(self, cuda_rounded(tensor->bytes));
}

static void
space_cuda_stat(tutti_space *space, tutti_space_stats *ret_stats)
{
    space_cuda *self = cuda_space_from(space);
    uint64_t reserved = 0;

    (void)cudaMemPoolGetAttribute(self->pool, cudaMemPoolAttrReservedMemCurrent, &reserved);
    (void)pthread_mutex_lock(&self->lock);
    ret_stats->used_bytes = self->used_bytes;
    ret_stats->limit_bytes = self->limit_bytes;
    ret_stats->hole_bytes_max = self->limit_bytes - self->used_bytes;
    ret_stats->kept_bytes = reserved > self->used_bytes ? reserved - self->used_bytes : 0;
    (void)pthread_mutex_unlock(&self->lock);
}

/* ------------------------------------------------------------------------------ open, close */

static void
close_buffers(space_cuda *self)
{
    int i;

    for (i = 0; i < CUDA_COPY_BUFFERS; i++) {
        if (self->buffers[i].over != NULL) {
            (void)cudaEventDestroy(self->buffers[i].over);
        }
    }
    if (self->buffers[0].base.data != NULL) {
        (void)cudaFreeHost(self->buffers[0].base.data);
    }
}

/* Lanes first: their threads use all else. They have nothing to do, as all tensors are gone, but
 * giving back of shared ones, which they finish. */
static void
space_cuda_close(tutti_space *space)
{
    space_cuda *self = cuda_space_from(space);

    (void)cuda_enter(self, NULL);
    cuda_lane_close(&self->in);
    cuda_lane_close(&self->out);
    cuda_lane_close(&self->between);
    cuda_own_close(self);
    cuda_ring_close(&self->ring);
    close_buffers(self);
    if (self->taken != NULL) {
        (void)cudaEventDestroy(self->taken);
    }
    if (self->memory != NULL) {
        (void)cudaStreamSynchronize(self->memory); /* what was given is free */
        (void)cudaStreamDestroy(self->memory);
    }
    if (self->pool != NULL) {
        (void)cudaMemPoolDestroy(self->pool);
    }
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

static const tutti_space_ops space_cuda_ops = {
    .size = sizeof(tutti_space_ops),
    .take = space_cuda_take,
    .give = space_cuda_give,
    .stat = space_cuda_stat,
    .close = space_cuda_close,
    .moves = &cuda_moves,
};

static tutti_code
open_pool(space_cuda *self, uint64_t kept_bytes_max, tutti_error *err)
{
    struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = self->number},
    };
    uint64_t threshold = kept_bytes_max == 0 ? self->limit_bytes / 4 : kept_bytes_max;

    TUTTI_TRY(cuda_check(cudaMemPoolCreate(&self->pool, &properties), "cudaMemPoolCreate", err));
    return cuda_check(
        cudaMemPoolSetAttribute(self->pool, cudaMemPoolAttrReleaseThreshold, &threshold),
        "cudaMemPoolSetAttribute", err);
}

/* `taken` is recorded once, so that waiting for it before the first tensor is fine too. */
static tutti_code
open_stream(space_cuda *self, tutti_error *err)
{
    TUTTI_TRY(cuda_check(cudaStreamCreateWithFlags(&self->memory, cudaStreamNonBlocking),
                         "cudaStreamCreateWithFlags", err));

    TUTTI_TRY(cuda_check(cudaEventCreateWithFlags(&self->taken, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags", err));
    return cuda_check(cudaEventRecord(self->taken, self->memory), "cudaEventRecord", err);
}

static tutti_code
open_buffers(space_cuda *self, tutti_error *err)
{
    void *memory = NULL;
    size_t i;

    TUTTI_TRY(cuda_check(
        cudaHostAlloc(&memory, CUDA_COPY_BUFFERS * TUTTI_SLOT_BYTES, cudaHostAllocDefault),
        "cudaHostAlloc", err));

    for (i = 0; i < CUDA_COPY_BUFFERS; i++) {
        TUTTI_TRY(cuda_slot_open(&self->buffers[i], &self->base,
                                 (unsigned char *)memory + i * TUTTI_SLOT_BYTES, err));
    }
    return TUTTI_OK;
}

static tutti_code
open_all_space(space_cuda *self, const tutti_space_cuda_options *options, tutti_error *err)
{
    const uint32_t slots = options->slot_count == 0 ? SLOTS_DEFAULT : options->slot_count;

    TUTTI_TRY(cuda_enter(self, err));
    TUTTI_TRY(open_pool(self, options->kept_bytes_max, err));
    TUTTI_TRY(open_stream(self, err));
    TUTTI_TRY(open_buffers(self, err));
    TUTTI_TRY(cuda_ring_open(&self->ring, &self->base, slots, err));
    TUTTI_TRY(cuda_lane_open(&self->in, self, cuda_work_wait, err));
    TUTTI_TRY(cuda_lane_open(&self->out, self, cuda_work_wait, err));
    return cuda_lane_open(&self->between, self, cuda_work_between, err);
}

tutti_code
cuda_open(const tutti_space_cuda_options *options, tutti_space **ret_space, tutti_error *err)
{
    tutti_cuda_device device;
    space_cuda *self;
    tutti_code code = cuda_look(options->number, &device, err);

    if (code != TUTTI_OK) {
        return code;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a space");
    }
    self->base.ops = &space_cuda_ops;
    (void)snprintf(self->base.device, sizeof(self->base.device), "cuda:%d", options->number);
    self->number = options->number;
    self->limit_bytes =
        options->limit_bytes == 0 ? device.free_bytes / 4 * 3 : options->limit_bytes;
    (void)pthread_mutex_init(&self->lock, NULL); /* cannot fail on Linux */
    tutti_list_init(&self->unfreed);
    code = open_all_space(self, options, err);
    if (code != TUTTI_OK) {
        space_cuda_close(&self->base);
        return code;
    }
    *ret_space = &self->base;
    return TUTTI_OK;
}
