/* Communicators: a socket between each two ranks. */
#include "nccl_standin.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOOK_MS 5

/* ------------------------------------------------------------------------------ meeting */

static socklen_t
address_of(ncclComm_t comm, int rank, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "%.60s-%d", comm->name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(ret->sun_path + 1));
}

static int
listen_for_others(ncclComm_t comm)
{
    struct sockaddr_un address;
    const socklen_t size = address_of(comm, comm->rank, &address);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (listener >= 0 && (bind(listener, (const struct sockaddr *)&address, size) != 0 ||
                          listen(listener, comm->size) != 0)) {
        (void)close(listener);
        return -1;
    }
    return listener;
}

/* Returns -1 until that rank is there. */
static int
reach(ncclComm_t comm, int rank)
{
    struct sockaddr_un address;
    const socklen_t size = address_of(comm, rank, &address);
    const int32_t me = comm->rank;
    const int got = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (got >= 0 && (connect(got, (const struct sockaddr *)&address, size) != 0 ||
                     send(got, &me, sizeof(me), MSG_NOSIGNAL) != sizeof(me))) {
        (void)close(got);
        return -1;
    }
    return got;
}

static void
take_one(ncclComm_t comm, int listener)
{
    const int got = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int32_t rank = -1;

    if (got < 0) {
        return;
    }
    if (read(got, &rank, sizeof(rank)) != sizeof(rank) || rank <= comm->rank ||
        rank >= comm->size || comm->sockets[rank] >= 0) {
        (void)close(got);
        return;
    }
    comm->sockets[rank] = got;
}

static bool
have_all(ncclComm_t comm)
{
    int i;

    for (i = 0; i < comm->size; i++) {
        if (i != comm->rank && comm->sockets[i] < 0) {
            return false;
        }
    }
    return true;
}

static void *
make(void *arg)
{
    ncclComm_t comm = arg;
    const int listener = listen_for_others(comm);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    int i;

    if (listener < 0 || standin_init_fails()) {
        atomic_store(&comm->state, listener < 0 ? ncclSystemError : ncclRemoteError);
        return NULL;
    }
    while (!atomic_load(&comm->aborted) && !have_all(comm)) {
        for (i = 0; i < comm->rank; i++) {
            comm->sockets[i] = comm->sockets[i] < 0 ? reach(comm, i) : comm->sockets[i];
        }
        if (poll(&poller, 1, LOOK_MS) > 0) {
            take_one(comm, listener);
        }
    }
    (void)close(listener);
    if (!atomic_load(&comm->aborted)) {
        atomic_store(&comm->state, ncclSuccess);
    }
    return NULL;
}

static ncclResult_t
begin(ncclComm_t *ret_comm, int size, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
    ncclComm_t comm = calloc(1, sizeof(*comm));
    int i;

    if (config->blocking != 0 || rank < 0 || rank >= size) {
        free(comm);
        return ncclInvalidArgument; /* Tutti never blocks */
    }
    comm->rank = rank;
    comm->size = size;
    comm->sockets = malloc((size_t)size * sizeof(int));
    for (i = 0; i < size; i++) {
        comm->sockets[i] = -1;
    }
    (void)snprintf(comm->name, sizeof(comm->name), "%.60s", id->internal);
    atomic_init(&comm->state, ncclInProgress);
    atomic_init(&comm->refs, 1);
    standin_count_comm(1, false);
    if (pthread_create(&comm->maker, NULL, make, comm) != 0) {
        abort();
    }
    *ret_comm = comm;
    return ncclInProgress;
}

STANDIN_API ncclResult_t
ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                       ncclConfig_t *config)
{
    return standin_fails(__func__) ? ncclSystemError : begin(comm, nranks, &commId, rank, config);
}

/* The first id names it; what more of them speed up is nothing here. */
STANDIN_API ncclResult_t
ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                         ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (standin_fails(__func__) || nId < 1) {
        return ncclSystemError;
    }
    return begin(newcomm, nranks, &commIds[0], myrank, config);
}

/* ------------------------------------------------------------------------------ asking, ending */

STANDIN_API ncclResult_t
ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    if (standin_fails(__func__)) {
        return ncclSystemError;
    }
    *asyncError = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

void
standin_unref(ncclComm_t comm)
{
    int i;

    if (atomic_fetch_sub(&comm->refs, 1) > 1) {
        return;
    }
    for (i = 0; i < comm->size; i++) {
        if (comm->sockets[i] >= 0) {
            (void)close(comm->sockets[i]);
        }
    }
    free(comm->sockets);
    free(comm);
    standin_count_comm(-1, false);
}

/* No member leaves before what is in its streams is done; nobody waits here for others. */
STANDIN_API ncclResult_t
ncclCommFinalize(ncclComm_t comm)
{
    if (standin_fails(__func__)) {
        return ncclSystemError;
    }
    while (atomic_load(&comm->jobs) > 0 && !atomic_load(&comm->aborted)) {
        (void)usleep(1000);
    }
    return ncclSuccess;
}

/* As with the real one, nothing reaches a stream afterwards. */
static void
end(ncclComm_t comm, bool aborts)
{
    atomic_store(&comm->aborted, true);
    (void)pthread_join(comm->maker, NULL);
    while (atomic_load(&comm->launches) > 0) {
        (void)usleep(100);
    }
    if (aborts) {
        (void)usleep(standin_abort_ms() * 1000);
        standin_count_comm(0, true);
    }
    standin_unref(comm);
}

STANDIN_API ncclResult_t
ncclCommAbort(ncclComm_t comm)
{
    if (standin_fails(__func__)) {
        return ncclSystemError;
    }
    end(comm, true);
    return ncclSuccess;
}

STANDIN_API ncclResult_t
ncclCommDestroy(ncclComm_t comm)
{
    if (standin_fails(__func__)) {
        return ncclSystemError;
    }
    end(comm, false);
    return ncclSuccess;
}
