/* Private to tensor/cuda, the module: what a space is made of, and which file does what. */
#ifndef TUTTI_TENSOR_CUDA_PRIVATE_H
#define TUTTI_TENSOR_CUDA_PRIVATE_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "base/error/fail.h"
#include "tensor/cuda/cuda.h"
#include "tensor/space.h"

typedef struct space_cuda space_cuda;

/* A slot of the ring, and when the copy from or to it was over. */
typedef struct cuda_slot {
    tutti_slot base;
    cudaEvent_t over;
} cuda_slot;

/* slots.c: the ring. Its lock guards what is behind it; nothing is locked inside. */
typedef struct cuda_ring {
    cuda_slot *slots;
    unsigned char *memory; /* pinned */
    uint32_t count;
    pthread_mutex_t lock;
    tutti_list_node idle;
    tutti_list_node wishes;
    uint32_t idle_count;
} cuda_ring;

/*
 * lane.c: a stream, and a thread that ends the moves put on it, in their order. Its
 * lock guards what is behind it, and keeps the order of the stream that of the queue.
 */
typedef struct cuda_lane {
    space_cuda *space;
    void (*work)(struct cuda_lane *lane, tutti_move *move); /* waits for it, or does it */
    cudaStream_t stream;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    tutti_list_node queue;
    bool stopping;
} cuda_lane;

#define CUDA_COPY_BUFFERS 2 /* between host tensors and the device: one is filled, one moves */

struct space_cuda {
    tutti_space base;
    int number;
    cudaMemPool_t pool;
    cudaStream_t memory; /* tensors are taken and given in its order */
    cudaEvent_t taken;   /* all that were taken so far are there */
    cuda_ring ring;
    cuda_lane in;
    cuda_lane out;
    cuda_lane between;
    cuda_slot buffers[CUDA_COPY_BUFFERS]; /* of `between` */
    pthread_mutex_t lock;                 /* guards what follows; nothing is locked inside */
    uint64_t used_bytes;
    uint64_t limit_bytes;
    uint32_t occupied;       /* pairs of occupy and vacate that are open */
    bool freeing;            /* a thread is in cudaFree */
    tutti_list_node unfreed; /* cuda_own.link: until nothing is occupied */
    uint64_t unfreed_bytes;
};

/* own.c: memory of a tensor that other processes may have open. */
typedef struct cuda_own {
    tutti_move move; /* of giving it back: on the lane, for cudaFree may wait for the device */
    cudaIpcMemHandle_t handle;
    void *data;
    uint64_t bytes;       /* of the allocation */
    uint64_t extra_bytes; /* that it counts beside those of the tensor */
    space_cuda *space;
    tutti_list_node link; /* of space_cuda.unfreed */
} cuda_own;

bool cuda_occupy(tutti_space *space);
void cuda_vacate(tutti_space *space);
void cuda_own_close(space_cuda *space); /* gives back all that waits for it */

void cuda_own_give(cuda_own *own);
void cuda_work_between(cuda_lane *lane, tutti_move *move); /* copies, and these */
void cuda_make_own(tutti_move *move, tutti_tensor *tensor,
                   unsigned char ret_handle[TUTTI_CUDA_IPC_SIZE]);

/* space.c: what counts towards the limit; MEMORY_LIMIT. Bytes rounded by the caller. */
tutti_code cuda_count_in(space_cuda *self, uint64_t bytes, tutti_error *err);
void cuda_count_out(space_cuda *self, uint64_t bytes);
uint64_t cuda_rounded(uint64_t bytes);
tutti_code cuda_check_memory(cudaError_t answer, const char *call, uint64_t bytes,
                             tutti_error *err);

space_cuda *cuda_space_from(tutti_space *space);

/* Is it one of ours? */
bool cuda_space_is(const tutti_space *space);

/* This thread's calls go to the device; then `stream` waits for all tensors taken so far. */
tutti_code cuda_enter(const space_cuda *self, tutti_error *err);
tutti_code cuda_follow(space_cuda *self, cudaStream_t stream, tutti_error *err);

/* The runtime's answer to `call` in our words: TUTTI_OK, or DEVICE_FAILED. */
tutti_code cuda_check(cudaError_t answer, const char *call, tutti_error *err);

/* Likewise NO_DEVICE. */
tutti_code cuda_check_device(cudaError_t answer, const char *call, tutti_error *err);

tutti_code cuda_count(int *ret_count, tutti_error *err);
tutti_code cuda_look(int number, tutti_cuda_device *ret_device, tutti_error *err);

/* Opened halves are closed by the same close, which takes what was zeroed. */
tutti_code cuda_ring_open(cuda_ring *ring, tutti_space *space, uint32_t count, tutti_error *err);
void cuda_ring_close(cuda_ring *ring);
tutti_code cuda_slot_open(cuda_slot *slot, tutti_space *space, void *memory, tutti_error *err);

tutti_code cuda_lane_open(cuda_lane *lane, space_cuda *space,
                          void (*work)(cuda_lane *lane, tutti_move *move), tutti_error *err);
void cuda_lane_close(cuda_lane *lane);
void cuda_lane_put(cuda_lane *lane, tutti_move *move);
void cuda_work_wait(cuda_lane *lane, tutti_move *move); /* for its slot's event */
void cuda_work_copy(cuda_lane *lane, tutti_move *move); /* copy.c */

tutti_code cuda_stream_open(tutti_space *space, void **ret_stream, tutti_error *err);
tutti_code cuda_stream_wait(tutti_space *space, void *stream, tutti_error *err);
void cuda_stream_close(tutti_space *space, void *stream);

tutti_code cuda_event_open(tutti_space *space, void **ret_event,
                           unsigned char ret_handle[TUTTI_CUDA_IPC_SIZE], tutti_error *err);
void cuda_event_close(tutti_space *space, void *event);

extern const tutti_space_moves cuda_moves; /* moves.c */

tutti_code cuda_open(const tutti_space_cuda_options *options, tutti_space **ret_space,
                     tutti_error *err);

#endif
