/*
 * CUDA memory: a space per device, in a module, so that a program that links this room needs no
 * CUDA library and starts where there is none. docs/decisions/0019.
 *
 * Memory comes stream-ordered from a pool of our own. Two threads per device wait for copies in and
 * out, a third copies between tensors; nobody waits for a whole device.
 */
#ifndef TUTTI_TENSOR_CUDA_H
#define TUTTI_TENSOR_CUDA_H

#include "tensor/move.h"
#include "tensor/tensor.h"

#define TUTTI_CUDA_UUID_SIZE 41 /* "GPU-" and 36 characters */
#define TUTTI_CUDA_IPC_SIZE 64  /* of a cudaIpcMemHandle_t, and of a cudaIpcEventHandle_t */
#define TUTTI_CUDA_SYMBOL "tutti_cuda_module_v1"

typedef struct tutti_cuda_device {
    int number; /* among those this process may see */
    char name[128];
    char uuid[TUTTI_CUDA_UUID_SIZE];
    uint64_t total_bytes;
    uint64_t free_bytes;
} tutti_cuda_device;

typedef struct tutti_space_cuda_options {
    int number;
    uint64_t limit_bytes;    /* 0 = three quarters of what is free now */
    uint64_t kept_bytes_max; /* free memory the pool keeps; 0 = a quarter of the limit */
    uint32_t slot_count;     /* of TUTTI_SLOT_BYTES pinned; 0 = 8 */
} tutti_space_cuda_options;

/* What the module gives. Any thread. */
typedef struct tutti_cuda_module {
    size_t size;
    /*
     * Is there a driver, and how many devices?
     *
     * TUTTI_FAILED_PRECONDITION  NO_DEVICE: no driver, too old a one, or no device; the text is
     *                            the runtime's
     */
    tutti_code (*count)(int *ret_count, tutti_error *err);
    /* TUTTI_FAILED_PRECONDITION  NO_DEVICE: not below the count, or it cannot be used */
    tutti_code (*look)(int number, tutti_cuda_device *ret_device, tutti_error *err);
    /*
     * TUTTI_FAILED_PRECONDITION  NO_DEVICE, or a device without memory pools
     * TUTTI_RESOURCE_EXHAUSTED   pinned memory, streams, threads
     */
    tutti_code (*open)(const tutti_space_cuda_options *options, tutti_space **ret_space,
                       tutti_error *err);
    /*
     * For a backend's own stream (cudaStream_t): what it does from now on comes after the taking
     * of all tensors that were taken before. Tensors it uses may be given back when its work was
     * seen to be over.
     */
    tutti_code (*follow)(tutti_space *space, void *stream, tutti_error *err);
    /*
     * Around work that may last until other processes do something: kernels of a collective. Giving
     * back the memory of `own` waits for all that the device runs, and no thread of the process can
     * give the device work meanwhile; so it is given back only outside of all these pairs.
     *
     * Returns false if that is going on, or there is too much to give back: not now, ask again in a
     * moment. Only what returned true is followed by `vacate`.
     */
    bool (*occupy)(tutti_space *space);
    void (*vacate)(tutti_space *space);
    int (*number)(tutti_space *space); /* of the device */
    /*
     * Give a tensor memory of its own, that no other tensor lies in, which other processes can open
     * by `ret_handle`: written before on_done. Its bytes move there, once, and `data` changes:
     * nobody else may touch the tensor meanwhile. It counts towards the limit in steps of 2 MiB.
     * Other processes may use it as long as somebody here has a reference.
     *
     * Errors as tutti_move_in, and TUTTI_RESOURCE_EXHAUSTED MEMORY_LIMIT, DEVICE_MEMORY
     */
    void (*own)(tutti_move *move, tutti_tensor *tensor,
                unsigned char ret_handle[TUTTI_CUDA_IPC_SIZE]);
    /*
     * A stream for somebody else's work on tensors of the space; this thread's calls of CUDA go to
     * the device from now on. What the stream does comes after the taking of all tensors that were
     * taken before, as with `follow`.
     *
     * TUTTI_INTERNAL  DEVICE_FAILED
     */
    tutti_code (*stream_open)(tutti_space *space, void **ret_stream, tutti_error *err);
    /* Wait until all that was put on it is done. Blocks. TUTTI_INTERNAL  DEVICE_FAILED */
    tutti_code (*stream_wait)(tutti_space *space, void *stream, tutti_error *err);
    void (*stream_close)(tutti_space *space, void *stream); /* when nothing is on it */
    /*
     * An event (cudaEvent_t) of the device that other processes can open by `ret_handle`, a
     * cudaIpcEventHandle_t, to record it and to wait for it. Before it is recorded it counts as
     * complete.
     *
     * [out, owned] ret_event  event_close it
     *
     * TUTTI_UNIMPLEMENTED       the device has no such events
     * TUTTI_RESOURCE_EXHAUSTED  DEVICE_MEMORY
     * TUTTI_INTERNAL            DEVICE_FAILED
     */
    tutti_code (*event_open)(tutti_space *space, void **ret_event,
                             unsigned char ret_handle[TUTTI_CUDA_IPC_SIZE], tutti_error *err);
    /* Work that waits for it, or records it, goes on. Using what other processes have opened is
     * undefined from now on. */
    void (*event_close)(tutti_space *space, void *event);
} tutti_cuda_module;

/*
 * The module.
 *
 * TUTTI_FAILED_PRECONDITION  NO_MODULE, as tutti_module_load
 */
tutti_code tutti_cuda_load(const tutti_cuda_module **ret_module, tutti_error *err);

/* "cuda:N": is it one, and which? -1 = not. */
int tutti_cuda_parse(const char *device);

/*
 * Look at device `number` before a space is opened there; errors begin with its name.
 *
 * TUTTI_FAILED_PRECONDITION  NO_MODULE, NO_DEVICE
 */
tutti_code tutti_cuda_find(int number, const tutti_cuda_module **ret_module,
                           tutti_cuda_device *ret_device, tutti_error *err);

#endif
