/*
 * What a driver and an NCCL do where their documents leave it open: which calls wait for kernels that run, how many entries a
 * stream takes, what a communicator costs, what memory can be lent. Each question is a line; docs/measured has the answers.
 *
 * usage: gpu_probe [QUESTION ...]      without arguments: all of them, each in a process of its own
 *
 * The stream is held by a kernel that looks at a word of host memory, so nothing here lasts longer than PATIENCE_MS.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 400
#define MIB (1 << 20)

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int said_ = (int)(call);                                                                   \
        if (said_ != 0) {                                                                          \
            printf("  %s: %d (line %d)\n", #call, said_, __LINE__);                                \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static double
now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ------------------------------------------------------------------------------ a stream that is held */

__global__ void
hold_kernel(volatile int *go)
{
    while (*go == 0) {
    }
}

__global__ void
other_kernel(int *out)
{
    *out = 7;
}

static volatile int *go;
static cudaStream_t held, freed;

static void
hold(void)
{
    int *host;

    CHECK(cudaFree(0));
    CHECK(cudaHostAlloc((void **)&host, sizeof(int), cudaHostAllocMapped));
    *host = 0;
    go = host;
    CHECK(cudaStreamCreateWithFlags(&held, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&freed, cudaStreamNonBlocking));
    hold_kernel<<<1, 1, 0, held>>>(host);
    CHECK(cudaGetLastError());
}

/* ------------------------------------------------------------------------------ which calls wait */

typedef struct trial {
    const char *name;
    void (*run)(void);
    volatile int done;
    double us;
} trial;

static void *block_pinned, *block_device, *block_pool;
static cudaMemPool_t pool;

static void run_host_alloc(void) { void *p; CHECK(cudaHostAlloc(&p, 8 * MIB, 0)); }
static void run_host_free(void) { CHECK(cudaFreeHost(block_pinned)); }
static void run_malloc(void) { void *p; CHECK(cudaMalloc(&p, 8 * MIB)); }
static void run_free(void) { CHECK(cudaFree(block_device)); }
static void run_pool_malloc(void) { void *p; CHECK(cudaMallocFromPoolAsync(&p, 8 * MIB, pool, freed)); }
static void run_pool_free(void) { CHECK(cudaFreeAsync(block_pool, freed)); }
static void run_pool_trim(void) { CHECK(cudaMemPoolTrimTo(pool, 0)); }
static void run_event(void) { cudaEvent_t e; CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); CHECK(cudaEventDestroy(e)); }
static void run_ipc_event(void) { cudaEvent_t e; CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventInterprocess)); CHECK(cudaEventDestroy(e)); }
static void run_stream(void) { cudaStream_t s; CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CHECK(cudaStreamDestroy(s)); }
static void run_new_kernel(void) { int *p; CHECK(cudaMallocFromPoolAsync((void **)&p, 4, pool, freed)); other_kernel<<<1, 1, 0, freed>>>(p); CHECK(cudaGetLastError()); CHECK(cudaStreamSynchronize(freed)); }
static void run_known_kernel(void) { run_new_kernel(); }
static void run_memcpy(void) { static char from[64]; void *p; CHECK(cudaMallocFromPoolAsync(&p, 64, pool, freed)); CHECK(cudaMemcpyAsync(p, from, 64, cudaMemcpyDefault, freed)); CHECK(cudaStreamSynchronize(freed)); }
static void run_mem_info(void) { size_t a, b; CHECK(cudaMemGetInfo(&a, &b)); }
static void run_ipc_handle(void) { cudaIpcMemHandle_t h; void *p; CHECK(cudaMalloc(&p, 2 * MIB)); CHECK(cudaIpcGetMemHandle(&h, p)); }
static void run_unique_id(void) { ncclUniqueId id; CHECK(ncclGetUniqueId(&id)); }
static void run_nccl_init(void) { ncclUniqueId id; ncclComm_t c; CHECK(ncclGetUniqueId(&id)); CHECK(ncclCommInitRank(&c, 1, id, 0)); }
static CUmemGenericAllocationHandle vmm_handle;
static CUdeviceptr vmm_at;
static CUmemAllocationProp vmm_props(void);
static CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, size_t size);
static void run_vmm_make(void) { CUmemAllocationProp props = vmm_props(); CHECK(cuMemCreate(&vmm_handle, 8 * MIB, &props, 0)); }
static void run_vmm_map(void) { vmm_at = vmm_map(vmm_handle, 8 * MIB); }
static void run_vmm_unmap(void) { CHECK(cuMemUnmap(vmm_at, 8 * MIB)); CHECK(cuMemRelease(vmm_handle)); }
static void run_nccl_mem(void) { void *p; CHECK(ncclMemAlloc(&p, 8 * MIB)); }
static void run_sync_free_stream(void) { CHECK(cudaStreamSynchronize(freed)); }

static void *
run_trial(void *arg)
{
    trial *self = (trial *)arg;
    double began = now_us();

    CHECK(cudaSetDevice(0));
    self->run();
    self->us = now_us() - began;
    self->done = 1;
    return NULL;
}

/* One at a time: the call runs in a thread while the kernel holds the other stream. If it waits, a second call says whether
 * other threads stand too. */
static void
ask_one(trial *self)
{
    trial beside = {"cudaStreamSynchronize of another stream", run_sync_free_stream, 0, 0};
    trial copy = {"a copy in another stream", run_memcpy, 0, 0};
    pthread_t thread, second, third;
    double until = now_us() + PATIENCE_MS * 1000;

    pthread_create(&thread, NULL, run_trial, self);
    while (!self->done && now_us() < until) {
        usleep(200);
    }
    if (self->done) {
        printf("  %-44s %8.0f us, does not wait\n", self->name, self->us);
        pthread_join(thread, NULL);
        return;
    }
    pthread_create(&second, NULL, run_trial, &beside);
    pthread_create(&third, NULL, run_trial, &copy);
    usleep(100000);
    printf("  %-44s WAITS for a kernel of another stream; meanwhile %s %s, %s %s\n", self->name, beside.name,
           beside.done ? "returns" : "STANDS", copy.name, copy.done ? "returns" : "STANDS");
    *go = 1;
    pthread_join(thread, NULL);
    pthread_join(second, NULL);
    pthread_join(third, NULL);
    CHECK(cudaStreamSynchronize(held));
    *go = 0;
    hold_kernel<<<1, 1, 0, held>>>((int *)go);
    CHECK(cudaGetLastError());
}

static void
ask_waits(void)
{
    static trial trials[] = {{"cudaEventCreate, Destroy", run_event},
                             {"cudaEventCreate interprocess, Destroy", run_ipc_event},
                             {"cudaStreamCreate, Destroy", run_stream},
                             {"cudaMemGetInfo", run_mem_info},
                             {"cudaMallocFromPoolAsync", run_pool_malloc},
                             {"cudaFreeAsync", run_pool_free},
                             {"cudaMemPoolTrimTo", run_pool_trim},
                             {"copy, pageable, and synchronize", run_memcpy},
                             {"a kernel's first launch (lazy loading)", run_new_kernel},
                             {"the same kernel again", run_known_kernel},
                             {"cudaHostAlloc", run_host_alloc},
                             {"cudaMalloc", run_malloc},
                             {"cudaMalloc, cudaIpcGetMemHandle", run_ipc_handle},
                             {"cuMemCreate", run_vmm_make},
                             {"cuMemMap, cuMemSetAccess", run_vmm_map},
                             {"cuMemUnmap, cuMemRelease", run_vmm_unmap},
                             {"ncclMemAlloc", run_nccl_mem},
                             {"cudaFreeHost", run_host_free},
                             {"cudaFree", run_free},
                             {"ncclGetUniqueId, the first", run_unique_id},
                             {"ncclGetUniqueId, the second", run_unique_id},
                             {"ncclCommInitRank of one, the first", run_nccl_init},
                             {"ncclCommInitRank of one, the second", run_nccl_init}};
    struct cudaMemPoolProps props = {};
    size_t i;

    CHECK(cudaFree(0));
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaHostAlloc(&block_pinned, 8 * MIB, 0));
    CHECK(cudaMalloc(&block_device, 8 * MIB));
    hold();
    CHECK(cudaMallocFromPoolAsync(&block_pool, 8 * MIB, pool, freed));
    for (i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        ask_one(&trials[i]);
    }
    *go = 1;
    CHECK(cudaDeviceSynchronize());
}

/* ------------------------------------------------------------------------------ the launch queue */

static volatile long entered;

static void *
fill_queue(void *arg)
{
    cudaEvent_t event;
    void *p = arg;

    CHECK(cudaSetDevice(0));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    while (*go == 0 && entered < 100000) {
        CHECK(cudaMemsetAsync(p, 0, 64, held));
        CHECK(cudaEventRecord(event, held));
        entered++;
    }
    return NULL;
}

static void
ask_queue(void)
{
    pthread_t thread;
    long before = -1;
    void *p;

    CHECK(cudaFree(0));
    CHECK(cudaMalloc(&p, 64));
    hold();
    pthread_create(&thread, NULL, fill_queue, p);
    while (entered != before && entered < 100000) {
        before = entered;
        usleep(300000);
    }
    printf("  a held stream takes %ld pairs of memset and record, then the call %s\n", entered,
           entered < 100000 ? "BLOCKS" : "still does not block");
    *go = 1;
    pthread_join(thread, NULL);
    CHECK(cudaDeviceSynchronize());
}

/* ------------------------------------------------------------------------------ NCCL */

static size_t
used_memory(void)
{
    size_t left, all;

    CHECK(cudaMemGetInfo(&left, &all));
    return all - left;
}

static void
settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;

    while (state == ncclInProgress) {
        CHECK(ncclCommGetAsyncError(comm, &state));
    }
    CHECK(state);
}

static double
time_ops(ncclComm_t comm, cudaStream_t stream, void *in, void *out, size_t count, int blocking)
{
    double best = 1e18;
    int turn, i;

    for (turn = 0; turn < 5; turn++) {
        double began = now_us();

        for (i = 0; i < 100; i++) {
            ncclResult_t said;

            CHECK(ncclGroupStart());
            said = ncclAllReduce(in, out, count, ncclFloat32, ncclSum, comm, stream);
            if (said != ncclSuccess && said != ncclInProgress) {
                CHECK(said);
            }
            said = ncclGroupEnd();
            if (said != ncclSuccess && said != ncclInProgress) {
                CHECK(said);
            }
            if (!blocking) {
                settle(comm);
            }
            CHECK(cudaStreamSynchronize(stream));
        }
        best = (now_us() - began) / 100 < best ? (now_us() - began) / 100 : best;
    }
    return best;
}

/* The first rank makes the id; the others find it in the folder. */
static ncclUniqueId
meet(const char *folder, int turn, int rank)
{
    char path[256], new_path[300];
    ncclUniqueId id;
    FILE *file;

    snprintf(path, sizeof(path), "%s/id.%d", folder, turn);
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&id));
        snprintf(new_path, sizeof(new_path), "%s.new", path);
        file = fopen(new_path, "wb");
        CHECK(fwrite(&id, sizeof(id), 1, file) == 1 ? 0 : errno);
        fclose(file);
        rename(new_path, path);
        return id;
    }
    while ((file = fopen(path, "rb")) == NULL) {
        usleep(1000);
    }
    CHECK(fread(&id, sizeof(id), 1, file) == 1 ? 0 : errno);
    fclose(file);
    return id;
}

static void
ask_nccl(int ranks, int rank, const char *folder)
{
    size_t before;
    int version, blocking, ctas;
    cudaStream_t stream;
    void *in, *out;
    double began;

    CHECK(cudaFree(0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&in, 64 * MIB));
    CHECK(cudaMalloc(&out, 64 * MIB));
    CHECK(ncclGetVersion(&version));
    before = used_memory();
    for (blocking = 1; blocking >= 0; blocking--) {
        for (ctas = 0; ctas <= 8; ctas += 8) {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            ncclComm_t comm;
            ncclUniqueId id = meet(folder, blocking * 100 + ctas, rank);
            ncclResult_t said;

            config.blocking = blocking;
            if (ctas > 0) {
                config.maxCTAs = ctas;
            }
            began = now_us();
            said = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
            if (said != ncclInProgress) {
                CHECK(said);
            }
            settle(comm);
            double made = now_us() - began;
            double first = time_ops(comm, stream, in, out, 2, blocking);
            size_t after = used_memory();
            double small = time_ops(comm, stream, in, out, 2, blocking);
            double middle = ranks == 1 ? time_ops(comm, stream, in, out, 16384, blocking) : 0;
            if (rank == 0) {
                printf("  ranks %d, blocking %d, maxCTAs %d: made in %.0f ms, %.1f MiB of the GPU; all_reduce of 8 B %.1f us (%.1f), 64 KiB %.1f us\n", ranks,
                       blocking, ctas, made / 1e3, (double)(after - before) / MIB, small, first, middle);
            }
            before = after;
            if (ranks == 1 && ctas == 0 && blocking == 1) {
                ncclWindow_t window = NULL;
                void *symmetric = NULL;
                ncclResult_t allocated = ncclMemAlloc(&symmetric, 4 * MIB);
                ncclResult_t registered = allocated == ncclSuccess
                                              ? ncclCommWindowRegister(comm, symmetric, 4 * MIB, &window, NCCL_WIN_COLL_SYMMETRIC)
                                              : ncclInternalError;
                void *handle = NULL;
                ncclResult_t buffer = ncclCommRegister(comm, in, 64 * MIB, &handle);
                cudaGraph_t graph;
                cudaGraphExec_t exec;
                int i;

                printf("  version %d; ncclMemAlloc %d, ncclCommWindowRegister %d (window %p), ncclCommRegister of cudaMalloc %d (handle %p)\n", version,
                       allocated, registered, (void *)window, buffer, handle);
                CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
                CHECK(ncclAllReduce(in, out, 2, ncclFloat32, ncclSum, comm, stream));
                CHECK(cudaStreamEndCapture(stream, &graph));
                CHECK(cudaGraphInstantiate(&exec, graph, 0));
                CHECK(cudaGraphLaunch(exec, stream));
                CHECK(cudaStreamSynchronize(stream));
                began = now_us();
                for (i = 0; i < 200; i++) {
                    CHECK(cudaGraphLaunch(exec, stream));
                    CHECK(cudaStreamSynchronize(stream));
                }
                printf("  the same 8 B all_reduce as a graph: %.1f us\n", (now_us() - began) / 200);
            }
        }
    }
}

static void
ask_nccl_alone(void)
{
    char folder[] = "/tmp/gpu_probe.XXXXXX";

    ask_nccl(1, 0, mkdtemp(folder));
}

/* Two processes of one GPU: NCCL takes them for two hosts. */
static void
ask_in_two(void (*ask)(int rank, const char *folder))
{
    char folder[] = "/tmp/gpu_probe.XXXXXX";
    pid_t child;
    int status;

    CHECK(mkdtemp(folder) != NULL ? 0 : errno);
    child = fork();
    setenv("NCCL_HOSTID", child == 0 ? "probe1" : "probe0", 1);
    ask(child == 0 ? 1 : 0, folder);
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, &status, 0);
}

static void
ask_nccl_of_two(int rank, const char *folder)
{
    ask_nccl(2, rank, folder);
}

static void
ask_nccl_two(void)
{
    ask_in_two(ask_nccl_of_two);
}

/* ------------------------------------------------------------------------------ ops behind a stream that is held */

typedef struct held_op {
    const char *name;
    int kind;
    size_t count;
} held_op;

static ncclResult_t
issue(const held_op *op, ncclComm_t comm, int rank, void *in, void *out)
{
    switch (op->kind) {
    case 0:
        return ncclAllReduce(in, out, op->count, ncclFloat32, ncclSum, comm, held);
    case 1:
        return ncclAllGather(in, out, op->count, ncclFloat32, comm, held);
    default: {
        ncclResult_t first = ncclSend(in, op->count, ncclFloat32, 1 - rank, comm, held);
        ncclResult_t second = ncclRecv(out, op->count, ncclFloat32, 1 - rank, comm, held);

        return first != ncclSuccess ? first : second;
    }
    }
}

/* How long until NCCL has put it into the stream, while rank 0's stream is held? */
static void
ask_behind(int rank, const char *folder)
{
    static const held_op ops[] = {{"all_reduce 8 B, the first op", 0, 2}, {"all_reduce 8 B again", 0, 2},
                                  {"all_reduce 32 MiB, the first", 0, 8 * MIB}, {"all_gather 64 KiB, the first", 1, 16384},
                                  {"send and recv, the first", 2, 1024}, {"send and recv again", 2, 1024}};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    ncclResult_t said;
    void *in, *out;
    double began;
    size_t i;

    hold();
    *go = 1;
    CHECK(cudaStreamSynchronize(held));
    CHECK(cudaMalloc(&in, 64 * MIB));
    CHECK(cudaMalloc(&out, 64 * MIB));
    config.blocking = 0;
    ncclUniqueId id = meet(folder, 0, rank);
    began = now_us();
    said = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
    if (said != ncclInProgress) {
        CHECK(said);
    }
    double returned = now_us() - began;
    settle(comm);
    if (rank == 0) {
        printf("  the first ncclCommInitRankConfig, not blocking: returns after %.1f ms, made after %.1f ms\n", returned / 1e3,
               (now_us() - began) / 1e3);
    }
    for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        ncclResult_t state = ncclInProgress;

        if (rank == 0) {
            *go = 0;
            hold_kernel<<<1, 1, 0, held>>>((int *)go);
            CHECK(cudaGetLastError());
        }
        began = now_us();
        CHECK(ncclGroupStart());
        said = issue(&ops[i], comm, rank, in, out);
        said = ncclGroupEnd();
        double call = now_us() - began;
        while (state == ncclInProgress && now_us() < began + 1.5e6) {
            CHECK(ncclCommGetAsyncError(comm, &state));
        }
        if (rank == 0) {
            printf("  %-32s the call returns after %.1f ms, %s (%.1f ms)\n", ops[i].name, call / 1e3,
                   state == ncclInProgress ? "NOT in the stream while that is held" : "in the stream", (now_us() - began) / 1e3);
            fflush(stdout);
        }
        *go = 1;
        settle(comm);
        CHECK(cudaStreamSynchronize(held));
    }
}

static void
ask_behind_two(void)
{
    ask_in_two(ask_behind);
}

static void
ask_ras(void)
{
    struct sockaddr_in address = {};
    char line[4096];
    ncclUniqueId id;
    ncclComm_t comm;
    ssize_t got;
    int fd;

    setenv("NCCL_RAS_ENABLE", "1", 1);
    setenv("NCCL_RAS_ADDR", "127.0.0.1:28028", 1);
    CHECK(cudaFree(0));
    CHECK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRank(&comm, 1, id, 0));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_port = htons(28028);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        printf("  nobody listens at port 28028: %s\n", strerror(errno));
        return;
    }
    (void)!write(fd, "verbose status\n", 15);
    while ((got = read(fd, line, sizeof(line) - 1)) > 0) {
        line[got] = '\0';
        printf("%s", line);
    }
    printf("\n");
}

/* ------------------------------------------------------------------------------ memory that is lent */

static void
send_fd(int to, int fd)
{
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec io = {&byte, 1};
    struct msghdr message = {};
    struct cmsghdr *head;

    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof(int));
    CHECK(sendmsg(to, &message, 0) == 1 ? 0 : errno);
}

static int
take_fd(int from)
{
    char space[CMSG_SPACE(sizeof(int))], byte;
    struct iovec io = {&byte, 1};
    struct msghdr message = {};
    int fd;

    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    CHECK(recvmsg(from, &message, 0) == 1 ? 0 : errno);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return fd;
}

static CUmemAllocationProp
vmm_props(void)
{
    CUmemAllocationProp props = {};

    props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return props;
}

static CUdeviceptr
vmm_map(CUmemGenericAllocationHandle handle, size_t size)
{
    CUmemAccessDesc access = {};
    CUdeviceptr at;

    CHECK(cuMemAddressReserve(&at, size, 0, 0, 0));
    CHECK(cuMemMap(at, size, 0, handle, 0));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(at, size, &access, 1));
    return at;
}

static void
borrow(int pair)
{
    CUmemGenericAllocationHandle handle;
    cudaIpcMemHandle_t legacy;
    double began, vmm, ipc;
    void *at;
    int value = 0;
    int fd;

    CHECK(cudaFree(0));
    CHECK(read(pair, &legacy, sizeof(legacy)) == (ssize_t)sizeof(legacy) ? 0 : errno);
    fd = take_fd(pair);
    began = now_us();
    CHECK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr mapped = vmm_map(handle, 64 * MIB);
    vmm = now_us() - began;
    CHECK(cudaMemcpy(&value, (void *)mapped, 4, cudaMemcpyDefault));
    printf("  VMM handle by descriptor: imported and mapped 64 MiB in %.0f us, reads %#x\n", vmm, value);
    began = now_us();
    CHECK(cudaIpcOpenMemHandle(&at, legacy, cudaIpcMemLazyEnablePeerAccess));
    ipc = now_us() - began;
    CHECK(cudaMemcpy(&value, at, 4, cudaMemcpyDefault));
    printf("  cudaIpcOpenMemHandle of 64 MiB in %.0f us, reads %#x\n", ipc, value);
    fflush(stdout);
}

static void
ask_lending(void)
{
    CUmemAllocationProp props = vmm_props();
    CUmemGenericAllocationHandle handle;
    cudaIpcMemHandle_t legacy;
    int pair[2], fd, status, value = 0x5ca1ab1e;
    double began;
    void *p;
    pid_t child;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    child = fork();
    if (child == 0) {
        borrow(pair[1]);
        _exit(0);
    }
    CHECK(cudaFree(0));
    began = now_us();
    CHECK(cuMemCreate(&handle, 64 * MIB, &props, 0));
    CUdeviceptr mapped = vmm_map(handle, 64 * MIB);
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    printf("  VMM memory of 64 MiB made, mapped and exported in %.0f us\n", now_us() - began);
    CHECK(cudaMemcpy((void *)mapped, &value, 4, cudaMemcpyDefault));
    began = now_us();
    CHECK(cudaMalloc(&p, 64 * MIB));
    CHECK(cudaIpcGetMemHandle(&legacy, p));
    printf("  cudaMalloc of 64 MiB and cudaIpcGetMemHandle in %.0f us\n", now_us() - began);
    CHECK(cudaMemcpy(p, &value, 4, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    fflush(stdout);
    CHECK(write(pair[0], &legacy, sizeof(legacy)) == (ssize_t)sizeof(legacy) ? 0 : errno);
    send_fd(pair[0], fd);
    waitpid(child, &status, 0);
    if (status != 0) {
        printf("  the other process: status %d\n", status);
    }
}

/* ------------------------------------------------------------------------------ copies */

static double
copy_rate(void *to, const void *from, size_t bytes)
{
    double best = 1e18;
    int i;

    for (i = 0; i < 5; i++) {
        double began = now_us();

        CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
        CHECK(cudaDeviceSynchronize());
        best = now_us() - began < best ? now_us() - began : best;
    }
    return (double)bytes / best / 1e3;
}

static void
ask_copies(void)
{
    void *device, *pinned, *pageable = malloc(256 * MIB), *registered = aligned_alloc(4096, 256 * MIB);

    CHECK(cudaMalloc(&device, 256 * MIB));
    CHECK(cudaHostAlloc(&pinned, 256 * MIB, 0));
    memset(pageable, 1, 256 * MIB);
    memset(registered, 1, 256 * MIB);
    CHECK(cudaHostRegister(registered, 256 * MIB, 0));
    printf("  GB/s to the GPU: pinned %.1f, registered %.1f, pageable %.1f; back: pinned %.1f, registered %.1f, pageable %.1f\n",
           copy_rate(device, pinned, 256 * MIB), copy_rate(device, registered, 256 * MIB), copy_rate(device, pageable, 256 * MIB),
           copy_rate(pinned, device, 256 * MIB), copy_rate(registered, device, 256 * MIB), copy_rate(pageable, device, 256 * MIB));
}

/* ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*ask)(void);
} questions[] = {{"waits", ask_waits},         {"queue", ask_queue}, {"nccl-alone", ask_nccl_alone}, {"nccl-two", ask_nccl_two}, {"behind", ask_behind_two},
                 {"lending", ask_lending}, {"copies", ask_copies}, {"ras", ask_ras}};

static void
ask(size_t at)
{
    double began = now_us();
    pid_t child;
    int status;

    printf("%s\n", questions[at].name);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        alarm(40);
        questions[at].ask();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("  (%.1f s%s)\n", (now_us() - began) / 1e6, status == 0 ? "" : ", DIED");
    fflush(stdout);
}

int
main(int argc, char **argv)
{
    size_t i;
    int a;

    for (i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        bool wanted = argc == 1;

        for (a = 1; a < argc; a++) {
            wanted = wanted || strcmp(argv[a], questions[i].name) == 0;
        }
        if (wanted) {
            ask(i);
        }
    }
    return 0;
}
