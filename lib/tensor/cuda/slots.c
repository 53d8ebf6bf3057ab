/*
 * The ring: pinned memory in pieces, lent one after the other. Pinned memory is what a device
 * copies from and to without the processor; it is slow to get, so it is taken once. Opening and
 * closing are single-threaded.
 */
#include <assert.h>
#include <stdlib.h>

#include "tensor/cuda/cuda_private.h"

tutti_code
cuda_slot_open(cuda_slot *slot, tutti_space *space, void *memory, tutti_error *err)
{
    slot->base = (tutti_slot){.data = memory, .size = TUTTI_SLOT_BYTES, .space = space};
    tutti_list_init(&slot->base.link);
    return cuda_check(
        cudaEventCreateWithFlags(&slot->over, cudaEventDisableTiming | cudaEventBlockingSync),
        "cudaEventCreateWithFlags", err);
}

tutti_code
cuda_ring_open(cuda_ring *ring, tutti_space *space, uint32_t count, tutti_error *err)
{
    void *memory = NULL;
    tutti_code code;
    uint32_t i;

    (void)pthread_mutex_init(&ring->lock, NULL); /* cannot fail on Linux */
    tutti_list_init(&ring->idle);
    tutti_list_init(&ring->wishes);
    ring->slots = calloc(count, sizeof(*ring->slots));
    if (ring->slots == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %u slots", (unsigned)count);
    }
    code = cuda_check(cudaHostAlloc(&memory, count * TUTTI_SLOT_BYTES, cudaHostAllocDefault),
                      "cudaHostAlloc", err);
    ring->memory = memory;
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        ring->count++;
        code = cuda_slot_open(&ring->slots[i], space, ring->memory + i * TUTTI_SLOT_BYTES, err);
        tutti_list_add(&ring->idle, &ring->slots[i].base.link);
    }
    ring->idle_count = ring->count;
    return code;
}

void
cuda_ring_close(cuda_ring *ring)
{
    uint32_t i;

    assert(ring->idle_count == ring->count); /* all slots are given back before the close */
    for (i = 0; i < ring->count; i++) {
        if (ring->slots[i].over != NULL) {
            (void)cudaEventDestroy(ring->slots[i].over);
        }
    }
    if (ring->memory != NULL) {
        (void)cudaFreeHost(ring->memory);
    }
    if (ring->slots != NULL) {
        (void)pthread_mutex_destroy(&ring->lock);
    }
    free(ring->slots);
}
