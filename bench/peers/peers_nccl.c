/* NCCL's side: one of its processes, called directly on memory of a GPU. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/peers/peers_worker.h"

#define WAIT_S 60

typedef struct nccl_side {
    int ranks;
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    size_t bytes;
    float *input;
    float *output;
} nccl_side;

static bool
say(const char *call, bool well, const char *words)
{
    if (!well) {
        (void)fprintf(stderr, "nccl: %s: %s\n", call, words);
    }
    return well;
}

static bool
cuda(const char *call, cudaError_t said)
{
    return say(call, said == cudaSuccess, cudaGetErrorString(said));
}

/* It may go on by itself: until it has. */
static bool
settle(const nccl_side *self, const char *call, ncclResult_t said)
{
    const time_t until = time(NULL) + WAIT_S;

    while (said == ncclInProgress && time(NULL) < until &&
           ncclCommGetAsyncError(self->comm, &said) == ncclSuccess) {
    }
    return say(call, said == ncclSuccess, ncclGetErrorString(said));
}

/* ------------------------------------------------------------------------------ ops */

static ncclResult_t
issue(const nccl_side *self, const char *op, size_t count)
{
    const size_t share = count / (size_t)self->ranks;
    float *in = self->input;
    float *out = self->output;

    if (strcmp(op, "all_reduce") == 0) {
        return ncclAllReduce(in, in, count, ncclFloat32, ncclSum, self->comm, self->stream);
    }
    if (strcmp(op, "broadcast") == 0) {
        return ncclBroadcast(in, in, count, ncclFloat32, 0, self->comm, self->stream);
    }
    if (strcmp(op, "all_gather") == 0) {
        return ncclAllGather(in, out, share, ncclFloat32, self->comm, self->stream);
    }
    if (strcmp(op, "reduce_scatter") == 0) {
        return ncclReduceScatter(in, out, share, ncclFloat32, ncclSum, self->comm, self->stream);
    }
    return ncclInvalidArgument;
}

static bool
run(const nccl_side *self, const char *op, size_t count)
{
    ncclResult_t said = ncclGroupStart();

    if (said == ncclSuccess) {
        said = issue(self, op, count);
    }
    if (said != ncclSuccess && said != ncclInProgress) {
        (void)ncclGroupEnd();
        return false; /* not an op of its own */
    }
    return settle(self, op, ncclGroupEnd()) &&
           cuda("cudaStreamSynchronize", cudaStreamSynchronize(self->stream));
}

static bool
once(void *side, const peers_burst *burst)
{
    return run(side, burst->op, burst->bytes / sizeof(float));
}

static void
forget(nccl_side *self)
{
    (void)cudaFree(self->input);
    (void)cudaFree(self->output);
    self->input = NULL;
    self->output = NULL;
    self->bytes = 0;
}

static bool
allocate(nccl_side *self, size_t bytes)
{
    void *input = NULL;
    void *output = NULL;

    forget(self);
    if (!cuda("cudaMalloc", cudaMalloc(&input, bytes)) ||
        !cuda("cudaMalloc", cudaMalloc(&output, bytes))) {
        (void)cudaFree(input);
        return false;
    }
    self->input = input;
    self->output = output;
    self->bytes = bytes;
    return cuda("cudaMemsetAsync", cudaMemsetAsync(input, 0, bytes, self->stream));
}

static bool
prepare(void *side, const peers_burst *burst)
{
    nccl_side *self = side;

    return (self->bytes == burst->bytes || allocate(self, burst->bytes)) && once(self, burst) &&
           once(self, burst);
}

static void
barrier(void *side)
{
    (void)run(side, "all_reduce", 1);
}

/* ------------------------------------------------------------------------------ meeting */

/* Whole, or not there. */
static bool
give_id(const char *path, ncclUniqueId *id)
{
    char temporary[520];
    FILE *file;
    bool well;

    if (!say("ncclGetUniqueId", ncclGetUniqueId(id) == ncclSuccess, "failed")) {
        return false;
    }
    (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
    file = fopen(temporary, "wb");
    well = file != NULL && fwrite(id, sizeof(*id), 1, file) == 1;
    return file != NULL && fclose(file) == 0 && well && rename(temporary, path) == 0;
}

/* The first makes the id; the others find it in the folder. */
static bool
meet(const nccl_side *self, const char *folder, ncclUniqueId *id)
{
    const time_t until = time(NULL) + WAIT_S;
    char path[512];
    FILE *file = NULL;
    bool well;

    (void)snprintf(path, sizeof(path), "%s/id", folder);
    if (self->rank == 0) {
        return give_id(path, id);
    }
    while ((file = fopen(path, "rb")) == NULL && time(NULL) < until) {
        (void)usleep(1000);
    }
    well = file != NULL && fread(id, sizeof(*id), 1, file) == 1;
    return file != NULL && fclose(file) == 0 && well;
}

static bool
begin(nccl_side *self, const char *folder, int device)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;

    config.blocking = 0;
    return cuda("cudaSetDevice", cudaSetDevice(device)) &&
           cuda("cudaStreamCreateWithFlags",
                cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking)) &&
           meet(self, folder, &id) &&
           settle(self, "ncclCommInitRankConfig",
                  ncclCommInitRankConfig(&self->comm, self->ranks, id, self->rank, &config));
}

int
main(int argc, char **argv)
{
    static const peers_side side = {prepare, barrier, once};
    nccl_side self = {0};
    int code;

    if (argc == 2) {
        return cuda("cudaSetDevice", cudaSetDevice(atoi(argv[1]))) ? 0 : 1;
    }
    if (argc != 5) {
        (void)fprintf(stderr,
                      "usage: bench_peers_nccl FOLDER RANK RANKS GPU, or GPU: is it there?\n");
        return 2;
    }
    self.rank = atoi(argv[2]);
    self.ranks = atoi(argv[3]);
    if (!begin(&self, argv[1], atoi(argv[4]))) {
        return 1;
    }
    code = peers_serve(argv[1], (unsigned)self.rank, &side, &self);
    forget(&self);
    (void)ncclCommAbort(self.comm);
    (void)cudaStreamDestroy(self.stream);
    return code;
}
