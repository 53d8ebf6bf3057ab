/*
 * A stand-in for the CUDA runtime: the calls that Tutti makes, on host memory, for tests where no
 * GPU is. It is built as a shared library that tutti-cuda.so of build/standin is linked with.
 *
 * What shows mistakes:
 *   - a device address is no address of the process: who touches it without a copy is killed;
 *   - each stream has a thread, so work that nobody ordered happens in any order;
 *   - memory is junk when its taking is reached in the stream, and again when its giving is;
 *   - copies from and to memory that is neither pinned nor a device's are refused: the real
 *     runtime does them, but makes the caller wait;
 *   - an event that another process records is reached when that process has come to the record,
 *     and never if it dies before: CUDA does not say what becomes of those who wait for it;
 *   - who uses an event of another process, which that process has destroyed, is ended (abort):
 *     CUDA says that this is undefined;
 *   - cudaFree, cudaFreeHost and a kernel's first launch wait until the device has done what its
 *     streams hold, and no thread can put work on a stream meanwhile (seen on an H200);
 *   - a stream that holds QUEUE_MAX pieces of work makes the next call wait (seen there: 1021
 *     pairs of a set and a record);
 *   - what a pool was given back stays taken until the pool is trimmed or takes it again;
 *   - a failed allocation is reported again by the next launch of a kernel, unless it was taken out
 *     (cudaGetLastError);
 *   - what was not given back is counted at exit.
 *
 * TUTTI_STANDIN_CUDA, a list by commas:
 *   devices:N        how many, at most 8; default 2; 0 = no driver
 *   memory:MIB       of each; default 1024
 *   delay:US         before each piece of work of a stream
 *   fail:CALL:N      the Nth call of CALL fails (cudaErrorMemoryAllocation when it allocates)
 *   break:N          the device breaks at the Nth piece of work: every call fails from then on
 *   unified          devices reach all memory of the process, as where the kernel sees to that
 *   no-events        devices have no events for other processes (cudaDevAttrIpcEventSupport)
 *   leaks            say at exit what was not given back, and exit with 70
 * CUDA_VISIBLE_DEVICES, a list of numbers, hides and orders them as the real one does.
 */
#ifndef TUTTI_CUDA_STANDIN_H
#define TUTTI_CUDA_STANDIN_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STANDIN_API __attribute__((visibility("default")))
#define STANDIN_DEVICES_MAX 8
#define STANDIN_QUEUE_MAX 1024

/* For other stand-ins: where the bytes behind a device address, or of pinned memory, can be
 * touched. NULL: neither. Work on a stream is cudaLaunchHostFunc. */
STANDIN_API void *tutti_standin_cuda_bytes(const void *address, size_t size);

/*
 * For tests in the process: as fail:CALL:AT and break:AT say, counted from now; NULL and 0 end it.
 * How much is not given back.
 */
STANDIN_API void tutti_standin_cuda_fail(const char *call, uint64_t at);
STANDIN_API void tutti_standin_cuda_break(uint64_t at);
STANDIN_API int64_t tutti_standin_cuda_left(void);

/* Private. One lock guards everything; `moved` tells that some work was done. */
typedef struct standin_block {
    struct standin_block *next; /* by offset */
    uint64_t offset;
    uint64_t size;
    cudaMemPool_t pool; /* NULL: of cudaMalloc */
} standin_block;

typedef struct standin_device {
    unsigned char *base;  /* what callers see: cannot be touched */
    unsigned char *bytes; /* the same, for us */
    uint64_t size;
    uint64_t kept_bytes; /* given back to pools, and not yet by them */
    int fd;
    standin_block *blocks;
} standin_device;

typedef enum standin_kind {
    STANDIN_MALLOC,
    STANDIN_FREE,
    STANDIN_COPY,
    STANDIN_SET,
    STANDIN_RECORD,
    STANDIN_WAIT,
    STANDIN_CALL,
} standin_kind;

/*
 * What an event has come to. That of an interprocess event is in memory that other processes map;
 * so its numbers are atomic, and waiting for it looks again and again.
 */
typedef struct standin_marks {
    _Atomic uint32_t recorded;
    _Atomic uint32_t reached; /* a futex of interprocess events */
    _Atomic uint32_t serial;  /* of the event that has this place; 0 = none */
} standin_marks;

struct CUevent_st {
    standin_marks own;
    standin_marks *marks; /* `own`; else a place of `mapped` */
    standin_marks *mapped;
    uint32_t serial;
    uint32_t refs; /* its owner, and work that names it */
    int device;
    bool shared; /* interprocess: of this process or another one */
    bool imported;
};

typedef struct standin_work {
    struct standin_work *next;
    standin_kind kind;
    unsigned char *to;
    const unsigned char *from;
    size_t size;
    int value;
    cudaEvent_t event;
    uint32_t number; /* of the event's record */
    cudaHostFn_t call;
    void *arg;
    void *address; /* FREE: the caller's */
} standin_work;

typedef struct standin_state {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    standin_device devices[STANDIN_DEVICES_MAX];
    int visible[STANDIN_DEVICES_MAX];
    int visible_count;
    uint64_t memory_bytes;
    unsigned delay_us;
    uint64_t break_at;
    uint64_t work_count;
    char fail_call[64];
    uint64_t fail_at;
    uint64_t fail_count;
    cudaStream_t all; /* streams */
    uint32_t waiting; /* threads that wait for the device: nobody else can put work on a stream */
    bool broken;
    bool leaks;
    bool unified;
    bool no_events;
    int64_t allocations;
    int64_t pinned;
    int64_t streams;
    int64_t events;
    int64_t pools;
    int64_t imports;
} standin_state;

extern standin_state standin;

void standin_start(void); /* reads the environment, once */
void standin_lock(void);
void standin_unlock(void);

/* Is this call to fail now? Also: is the device broken? Without the lock. */
STANDIN_API cudaError_t standin_begin(const char *call);

/* The next cudaGetLastError of this thread says it, and the next launch of a kernel. */
STANDIN_API cudaError_t standin_failed(cudaError_t error);

/* Of this thread: the physical device that cudaSetDevice chose. */
int standin_current(void);

/* With the lock: the block that begins at `address`, taken out of the books. */
bool standin_take_out(const void *address, standin_block **ret_block, standin_device **ret_device);

/* Pinned memory (base is bytes), and what was imported. */
typedef struct standin_range {
    unsigned char *base;
    unsigned char *bytes;
    size_t size;
} standin_range;

/* With the lock. NULL: in none. False: no room for one more. */
standin_range *standin_find_range(const unsigned char *at, size_t size);
bool standin_add_range(void *base, void *bytes, size_t size);

/* event.c, with the lock: one user less. */
void standin_event_drop(cudaEvent_t event);
/* Has it come to its record `number`? */
bool standin_event_is_at(cudaEvent_t event, uint32_t number);
void standin_event_reach(cudaEvent_t event, uint32_t number);
/* Until some event may have got further, with the lock given up meanwhile. */
void standin_event_sleep(cudaEvent_t event);

/* The device that the stream was made on. */
int standin_stream_device(cudaStream_t stream);

/* With the lock, which is given up while the stream is full, or another thread waits for the
 * device. */
cudaError_t standin_put(cudaStream_t stream, const standin_work *work);

/* Until this device has done what its streams hold now, or is broken. Without the lock. */
STANDIN_API void standin_wait_for_device(void);

#define STANDIN_BEGIN()                                                                            \
    do {                                                                                           \
        const cudaError_t failed_ = standin_begin(__func__);                                       \
        if (failed_ != cudaSuccess) {                                                              \
            return failed_;                                                                        \
        }                                                                                          \
    } while (0)

#endif
