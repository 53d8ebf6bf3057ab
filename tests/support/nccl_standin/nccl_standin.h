/*
 * A stand-in for NCCL: the calls that Tutti makes, between real processes (or within one) over Unix
 * sockets, on the streams of the stand-in for CUDA. It is built as a shared library that
 * tutti-nccl.so of build/standin is linked with.
 *
 * As the real one, communicators that do not block: making one goes on in the background, now and
 * then a group is put into the stream only later (ncclInProgress), the first collective of a
 * communicator and its first send or receive only when the stream has done all before it (seen on
 * an H200 with 2.28.9), a rank that never comes makes
 * the others wait until they abort, and one that dies is an asynchronous error, after which what is
 * in the stream stays there until the abort. Reductions are those of lib/coll/reduce, in the order
 * of ranks.
 *
 * TUTTI_STANDIN_NCCL, a list by commas; counts are of the process and begin at 1:
 *   fail:CALL:N   the Nth call of CALL returns ncclSystemError
 *   hang:N        the Nth group never ends, until it is aborted
 *   async:N       the Nth group becomes an asynchronous ncclRemoteError
 *   init:N        so does making the Nth communicator
 *   abort:MS      ncclCommAbort takes so long
 */
#ifndef TUTTI_NCCL_STANDIN_H
#define TUTTI_NCCL_STANDIN_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef STANDIN_API
#define STANDIN_API __attribute__((visibility("default")))
#endif
#define STANDIN_CALLS_MAX 4096 /* in one group */

/* NCCL's header has them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* For tests in the process: settings as above, counted from now; "" ends all. */
STANDIN_API void tutti_standin_nccl_set(const char *settings);
/* Groups that were launched, communicators that live, and communicators that were aborted. */
STANDIN_API uint64_t tutti_standin_nccl_groups(void);
STANDIN_API int64_t tutti_standin_nccl_left(void);
STANDIN_API uint64_t tutti_standin_nccl_aborts(void);

/* Private. */
typedef enum standin_call_kind {
    STANDIN_ALL_REDUCE,
    STANDIN_REDUCE,
    STANDIN_BROADCAST,
    STANDIN_ALL_GATHER,
    STANDIN_REDUCE_SCATTER,
    STANDIN_SEND,
    STANDIN_RECV,
} standin_call_kind;

typedef struct standin_call {
    standin_call_kind kind;
    const void *input; /* bytes that can be touched */
    void *output;
    size_t count;
    ncclDataType_t type;
    int reduce;    /* tutti_reduce */
    double factor; /* of PREMUL_SUM */
    int peer;
} standin_call;

#define STANDIN_FACTORS_MAX 256

struct ncclComm {
    int rank;
    int size;
    char name[64]; /* of its sockets */
    int *sockets;  /* [size] */
    pthread_t maker;
    bool made;        /* the maker has been joined */
    atomic_int state; /* ncclResult_t */
    atomic_bool aborted;
    atomic_int refs; /* its owner, and groups under way */
    atomic_int jobs;
    atomic_int launches;      /* threads that will put a group into its stream */
    atomic_bool connected[2]; /* for collectives, for pairs */
    bool used[STANDIN_FACTORS_MAX];
    double factors[STANDIN_FACTORS_MAX];
};

typedef enum standin_fate {
    STANDIN_FATE_NONE,
    STANDIN_FATE_HANG,
    STANDIN_FATE_ASYNC,
} standin_fate;

/* Is this call to fail? And what happens to the next group, or communicator? */
bool standin_fails(const char *call);
standin_fate standin_next_group(void);
bool standin_init_fails(void);
unsigned standin_abort_ms(void);
void standin_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void standin_count_comm(int by, bool aborted);

void standin_unref(ncclComm_t comm);

/* nccl_standin_run.c: in the stream's thread */
typedef struct standin_message {
    int peer;
    bool incoming;
    void *data;
    size_t size;
    double factor; /* travels with it */
} standin_message;

/* All at once; those between two ranks in their order. False: aborted. */
bool standin_exchange(ncclComm_t comm, standin_message *messages, size_t count);
bool standin_run(ncclComm_t comm, const standin_call *calls, size_t count);
size_t standin_type_bytes(ncclDataType_t type);

#endif
