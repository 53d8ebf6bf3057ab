/*
 * Memory of its own, for a tensor that other processes open. A handle of CUDA opens a whole
 * allocation of cudaMalloc, in steps of 2 MiB, so a shared tensor has one alone; what a pool gives
 * cannot be opened that way. docs/decisions/0019.
 */
/*
 * Making and giving back run on the lane `between`: cudaMalloc and cudaFree may wait for the
 * device, and its thread has the buffers' events for itself. The tensor's holder lets nobody else
 * touch it meanwhile (tutti_tensor_own), so `data` and `block` need no lock.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "tensor/cuda/cuda_private.h"

#define STEP ((uint64_t)2 << 20)
#define UNFREED_BYTES_MAX ((uint64_t)256 << 20)

/* ------------------------------------------------------------------------------ making */

static uint64_t
steps_of(uint64_t bytes)
{
    return (bytes + STEP - 1) / STEP * STEP;
}

/* It counts in full steps towards the limit, as that is what the device loses. */
static tutti_code
allocate_allocation(space_cuda *space, const tutti_tensor *tensor, cuda_own *own, tutti_error *err)
{
    const uint64_t bytes = steps_of(tensor->bytes);
    cudaError_t said;
    tutti_code code;

    own->space = space;
    own->bytes = bytes;
    own->extra_bytes = bytes - cuda_rounded(tensor->bytes);
    TUTTI_TRY(cuda_count_in(space, own->extra_bytes, err));
    said = cudaMalloc(&own->data, (size_t)bytes);
    if (said == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemPoolTrimTo(space->pool, 0); /* it keeps what was given back for itself */
        said = cudaMalloc(&own->data, (size_t)bytes);
    }
    code = cuda_check_memory(said, "cudaMalloc", bytes, err);
    if (code != TUTTI_OK) {
        cuda_count_out(space, own->extra_bytes);
    }
    return code;
}

/* Nothing of what was there before may be seen behind the tensor's end. */
static tutti_code
fill_allocation(cuda_lane *lane, const tutti_tensor *tensor, const cuda_own *own, tutti_error *err)
{
    cudaEvent_t over = lane->space->buffers[0].over;

    TUTTI_TRY(
        cuda_check(cudaMemsetAsync(own->data, 0, (size_t)steps_of(tensor->bytes), lane->stream),
                   "cudaMemsetAsync", err));

    TUTTI_TRY(cuda_follow(lane->space, lane->stream, err));
    TUTTI_TRY(cuda_check(cudaMemcpyAsync(own->data, tensor->data, (size_t)tensor->bytes,
                                         cudaMemcpyDefault, lane->stream),
                         "cudaMemcpyAsync", err));
    TUTTI_TRY(cuda_check(cudaEventRecord(over, lane->stream), "cudaEventRecord", err));
    return cuda_check(cudaEventSynchronize(over), "copying", err);
}

/* The order: allocate, take the handle, copy, and only then let the old memory go: a failure in
 * between leaves the tensor as it was. */
static tutti_code
make_own(cuda_lane *lane, tutti_tensor *tensor, tutti_error *err)
{
    cuda_own *own = calloc(1, sizeof(*own));
    tutti_code code;

    if (own == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a shared tensor's record");
    }
    code = allocate_allocation(lane->space, tensor, own, err);
    if (code != TUTTI_OK) {
        free(own);
        return code;
    }
    code = cuda_check(cudaIpcGetMemHandle(&own->handle, own->data), "cudaIpcGetMemHandle", err);
    if (code == TUTTI_OK) {
        code = fill_allocation(lane, tensor, own, err);
    }
    if (code != TUTTI_OK) {
        (void)cudaFree(own->data);
        cuda_count_out(lane->space, own->extra_bytes);
        free(own);
        return code;
    }
    (void)cudaFreeAsync(tensor->data, lane->space->memory);
    tensor->data = own->data;
    tensor->block = own;
    return TUTTI_OK;
}

/* A second request for the same tensor finds it done and only gets the handle. */
static void
work_on_own(cuda_lane *lane, tutti_move *move)
{
    const cuda_own *own;

    if (move->to->block == NULL) {
        move->code = make_own(lane, move->to, &move->err);
    }
    own = move->to->block;
    if (move->code == TUTTI_OK) {
        memcpy(move->more, &own->handle, TUTTI_CUDA_IPC_SIZE);
    }
}

void
cuda_work_between(cuda_lane *lane, tutti_move *move)
{
    if (move->more != NULL) { /* where the handle goes */
        work_on_own(lane, move);
    } else {
        cuda_work_copy(lane, move);
    }
}

static void
put_allocation(cuda_lane *lane, tutti_move *move)
{
    (void)pthread_mutex_lock(&lane->lock);
    cuda_lane_put(lane, move);
    (void)pthread_mutex_unlock(&lane->lock);
}

void
cuda_make_own(tutti_move *move, tutti_tensor *tensor, unsigned char ret_handle[TUTTI_CUDA_IPC_SIZE])
{
    _Static_assert(sizeof(cudaIpcMemHandle_t) == TUTTI_CUDA_IPC_SIZE, "it is copied whole");
    move->to = tensor;
    move->more = ret_handle;
    move->code = TUTTI_OK;
    put_allocation(&cuda_space_from(tensor->space)->between, move);
}

/* ------------------------------------------------------------------------------ giving back */

static void
free_own(cuda_own *own)
{
    (void)cudaFree(own->data);
    cuda_count_out(own->space, own->extra_bytes);
    free(own);
}

/* With the lock, which is given up meanwhile. Nobody occupies the device while `freeing`, so what
 * cudaFree waits for ends by itself. */
static void
free_unfreed(space_cuda *space)
{
    while (space->occupied == 0 && !space->freeing && !tutti_list_empty(&space->unfreed)) {
        cuda_own *own = tutti_container_of(tutti_list_pop(&space->unfreed), cuda_own, link);

        space->unfreed_bytes -= own->bytes;
        space->freeing = true;
        (void)pthread_mutex_unlock(&space->lock);
        free_own(own);
        (void)pthread_mutex_lock(&space->lock);
        space->freeing = false;
    }
}

static void
add_unfreed(cuda_own *own)
{
    tutti_list_add(&own->space->unfreed, &own->link);
    own->space->unfreed_bytes += own->bytes;
}

/* The lane has nothing to copy: this is all there is to do, on its thread. */
static void
on_turn(tutti_move *move, const tutti_error *err)
{
    cuda_own *own = tutti_container_of(move, cuda_own, move);
    space_cuda *space = own->space;

    (void)err;
    (void)pthread_mutex_lock(&space->lock);
    add_unfreed(own);
    free_unfreed(space);
    (void)pthread_mutex_unlock(&space->lock);
}

bool
cuda_occupy(tutti_space *door)
{
    space_cuda *space = cuda_space_from(door);
    bool may;

    (void)pthread_mutex_lock(&space->lock);
    may = !space->freeing && space->unfreed_bytes <= UNFREED_BYTES_MAX;
    space->occupied += may ? 1 : 0;
    (void)pthread_mutex_unlock(&space->lock);
    return may;
}

/* The last one lets the lane give back what has waited: one of them takes a turn, for all. */
void
cuda_vacate(tutti_space *door)
{
    space_cuda *space = cuda_space_from(door);
    cuda_own *own = NULL;

    (void)pthread_mutex_lock(&space->lock);
    if (--space->occupied == 0 && !tutti_list_empty(&space->unfreed)) {
        own = tutti_container_of(tutti_list_pop(&space->unfreed), cuda_own, link);
        space->unfreed_bytes -= own->bytes;
    }
    (void)pthread_mutex_unlock(&space->lock);
    if (own != NULL) {
        cuda_own_give(own);
    }
}

void
cuda_own_close(space_cuda *space)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&space->unfreed)) != NULL) {
        free_own(tutti_container_of(link, cuda_own, link));
    }
}

/* The move is part of the record, so giving back needs no memory. Its code is set, so the lane
 * calls on_turn without any work. */
void
cuda_own_give(cuda_own *own)
{
    tutti_list_init(&own->link);
    own->move = (tutti_move){.on_done = on_turn, .code = TUTTI_CANCELLED};
    put_allocation(&own->space->between, &own->move);
}
