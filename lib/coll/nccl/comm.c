/*
 * Communicators: made by all members together without blocking, checked for errors, ended by
 * threads of their own.
 *
 * Engine's thread, except end_comm: ncclCommAbort and ncclCommDestroy may block for seconds, so a
 * thread per communicator calls them. That thread reads what was set before it was started, and
 * reports by `ended`, an atomic; after that the engine joins it. Nothing else is shared.
 *
 * If a member dies, its communicator reports ncclRemoteError, or hangs until an abort from the wire
 * arrives; either way it is aborted, all ops on it fail, and the next op makes a new one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/nccl/fail.h"
#include "coll/nccl/nccl_private.h"

#define ASK_NS (TUTTI_NS_PER_MS)         /* how often communicators are asked for errors */
#define FINALIZE_NS (2 * TUTTI_NS_PER_S) /* for the other members to come */

/* An ENDING one is passed over: the group may make a new one while the old is still being ended. */
nccl_comm *
tutti_nccl_comm_of(nccl_backend *backend, uint64_t group)
{
    nccl_comm *self;
    tutti_list_node *link;

    for (link = backend->comms.next; link != &backend->comms; link = link->next) {
        self = tutti_container_of(link, nccl_comm, link);
        if (self->group == group && self->state != NCCL_COMM_ENDING) {
            return self;
        }
    }
    self = calloc(1, sizeof(*self));
    if (self != NULL) {
        self->backend = backend;
        self->group = group;
        atomic_init(&self->ended, false);
        tutti_list_init(&self->ops);
        tutti_list_add(&backend->comms, &self->link);
    }
    return self;
}

uint64_t
tutti_nccl_comm_tag(const nccl_comm *comm)
{
    return comm->state == NCCL_COMM_READY ? comm->tag : 0;
}

/* ------------------------------------------------------------------------------ making */

uint32_t
tutti_nccl_makers(uint32_t size)
{
    const uint32_t makers = (size + NCCL_RANKS_PER_ID - 1) / NCCL_RANKS_PER_ID;

    return makers < NCCL_IDS_MAX ? makers : NCCL_IDS_MAX;
}

tutti_code
tutti_nccl_invite(nccl_op *self, nccl_invitation *ret_own, tutti_error *err)
{
    const ncclResult_t said = ncclGetUniqueId(&ret_own->id);

    if (said != ncclSuccess) {
        return tutti_nccl_fail(err, self->op, NULL, "ncclGetUniqueId", said);
    }
    ret_own->tag = tutti_id_draw();
    return TUTTI_OK;
}

/* Not blocking: the engine's thread must not wait for other ranks. poll asks when it is ready. The
 * tag of the first invitation names the communicator on all members. */
tutti_code
tutti_nccl_comm_begin(nccl_op *self, tutti_error *err)
{
    nccl_comm *comm = self->comm;
    const uint32_t makers = tutti_nccl_makers(tutti_coll_group_size(self->op->group));
    const int size = (int)tutti_coll_group_size(self->op->group);
    const int rank = (int)tutti_coll_group_rank(self->op->group);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId ids[NCCL_IDS_MAX];
    const char *call = makers > 1 ? "ncclCommInitRankScalable" : "ncclCommInitRankConfig";
    ncclResult_t said;
    uint32_t i;

    for (i = 0; i < makers; i++) {
        ids[i] = self->invitations[i].id;
    }
    config.blocking = 0;
    (void)snprintf(comm->name, sizeof(comm->name), "%s", tutti_coll_group_name(self->op->group));
    config.commName = comm->name;
    said = makers > 1 ? ncclCommInitRankScalable(&comm->comm, size, rank, (int)makers, ids, &config)
                      : ncclCommInitRankConfig(&comm->comm, size, ids[0], rank, &config);
    if (said != ncclSuccess && said != ncclInProgress) {
        return tutti_nccl_fail(err, self->op, NULL, call, said);
    }
    comm->tag = self->invitations[0].tag;
    comm->state = NCCL_COMM_BEGUN;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ ending */

/* All members have to take part in it; one that does not come is waited for a moment only, and then
 * it is aborted. */
static bool
finalize_comm(nccl_comm *self)
{
    const uint64_t until_ns = tutti_clock_ns() + FINALIZE_NS;
    ncclResult_t said = ncclCommFinalize(self->comm);

    while (said == ncclInProgress && tutti_clock_ns() < until_ns) {
        (void)usleep(1000);
        if (ncclCommGetAsyncError(self->comm, &said) != ncclSuccess) {
            return false;
        }
    }
    return said == ncclSuccess;
}

static void *
end_comm(void *arg)
{
    nccl_comm *self = arg;
    const char *call = "ncclCommDestroy";
    ncclResult_t said;

    (void)cudaSetDevice(self->backend->device);
    if (!self->aborts && finalize_comm(self)) {
        said = ncclCommDestroy(self->comm);
    } else {
        call = "ncclCommAbort";
        said = ncclCommAbort(self->comm);
    }
    if (said != ncclSuccess && said != ncclInProgress) {
        TUTTI_LOG("coll/nccl", WARN, "%s: %s", call, ncclGetErrorString(said));
    }
    atomic_store(&self->ended, true);
    return NULL;
}

/* Once. `why` is kept for the ops that are still on it. Without a thread the engine does it, and
 * may stand still meanwhile: better than leaving the device with kernels that wait for ever. */
void
tutti_nccl_comm_end(nccl_comm *comm, bool aborts, const tutti_error *why)
{
    if (comm->state == NCCL_COMM_ENDING) {
        return;
    }
    comm->state = NCCL_COMM_ENDING;
    comm->why = *why;
    comm->aborts = aborts;
    comm->ending_ns = tutti_clock_ns();
    if (comm->comm == NULL) {
        atomic_store(&comm->ended, true);
        return;
    }
    comm->threaded = pthread_create(&comm->thread, NULL, end_comm, comm) == 0;
    if (!comm->threaded) {
        TUTTI_LOG("coll/nccl", WARN, "no thread to end a communicator: the engine does it");
        (void)end_comm(comm);
    }
}

/* ------------------------------------------------------------------------------ looking after */

/*
 * NCCL reports errors of other threads and processes here. After a remote error its ops are told a
 * little later (NCCL_REMOTE_NS): the rank whose failure it was has an abort on its way, with better
 * words.
 */
void
tutti_nccl_comm_ask(nccl_comm *self)
{
    ncclResult_t state = ncclSuccess;
    const ncclResult_t said = ncclCommGetAsyncError(self->comm, &state);
    const ncclResult_t result = said != ncclSuccess ? said : state;
    const bool making = self->state == NCCL_COMM_BEGUN;
    nccl_op *first;
    tutti_error err;

    if (result == ncclInProgress) {
        return;
    }
    if (result == ncclSuccess) {
        self->state = NCCL_COMM_READY;
        return;
    }
    if (tutti_list_empty(&self->ops)) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INTERNAL, "NCCL_FAILED", "%s", ncclGetErrorString(result));
    } else {
        first = tutti_container_of(self->ops.next, nccl_op, in_comm);
        (void)tutti_nccl_fail(&err, first->op, self->comm,
                              making ? "ncclCommInitRankConfig" : "ncclCommGetAsyncError", result);
    }
    tutti_nccl_comm_end(self, true, &err);
    self->tell_ns = self->ending_ns + (result == ncclRemoteError ? NCCL_REMOTE_NS : 0);
}

/* The first op that has not heard yet; others may come and go while it hears. */
static nccl_op *
count_unheard(const nccl_comm *self)
{
    tutti_list_node *link;

    for (link = self->ops.next; link != &self->ops; link = link->next) {
        nccl_op *op = tutti_container_of(link, nccl_op, in_comm);

        if (!op->dead) {
            return op;
        }
    }
    return NULL;
}

/* Its ops are given up, if that is due; then the thread must have ended; then the device must have
 * run over all ops. Only then nothing refers to it. Returns whether it is gone. */
static bool
look_after_end(nccl_comm *self, uint64_t now_ns)
{
    nccl_op *op;

    while ((op = count_unheard(self)) != NULL && tutti_nccl_op_give_up(op, now_ns)) {
    }
    if (!atomic_load(&self->ended)) {
        if (!self->late && now_ns > self->ending_ns + NCCL_ABORT_NS) {
            self->late = true;
            TUTTI_LOG("coll/nccl", ERROR,
                      "ending a communicator of NCCL has not returned for %d s: memory of its ops "
                      "stays taken, and the device may be stuck; restart this agent",
                      (int)(NCCL_ABORT_NS / TUTTI_NS_PER_S));
        }
        return false;
    }
    if (self->threaded) {
        (void)pthread_join(self->thread, NULL);
        self->threaded = false;
    }
    self->comm = NULL;
    if (!tutti_list_empty(&self->ops)) {
        return false; /* the device has still to run over them */
    }
    tutti_list_remove(&self->link);
    free(self);
    return true;
}

/* BEGUN ones in each turn, so an op begins at once; READY ones with ops each ASK_NS, since asking
 * costs. */
unsigned
tutti_nccl_comms_poll(nccl_backend *backend, uint64_t now_ns)
{
    const bool asks = now_ns >= backend->asked_ns + ASK_NS;
    tutti_list_node *link = backend->comms.next;
    unsigned did = 0;

    while (link != &backend->comms) {
        nccl_comm *self = tutti_container_of(link, nccl_comm, link);
        const nccl_comm_state before = self->state;

        link = link->next;
        if (before == NCCL_COMM_BEGUN ||
            (before == NCCL_COMM_READY && asks && !tutti_list_empty(&self->ops))) {
            tutti_nccl_comm_ask(self);
            did += self->state != before ? 1 : 0;
        } else if (before == NCCL_COMM_ENDING) {
            did += look_after_end(self, now_ns) ? 1 : 0;
        }
    }
    backend->asked_ns = asks ? now_ns : backend->asked_ns;
    return did;
}

/* The process ends: what hangs is left to the system. */
void
tutti_nccl_comms_close(nccl_backend *backend)
{
    const uint64_t begun_ns = tutti_clock_ns();
    tutti_list_node *link;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "the agent stops");
    for (link = backend->comms.next; link != &backend->comms; link = link->next) {
        tutti_nccl_comm_end(tutti_container_of(link, nccl_comm, link), true, &err);
    }
    while (!tutti_list_empty(&backend->comms) && tutti_clock_ns() < begun_ns + NCCL_ABORT_NS) {
        (void)tutti_nccl_comms_poll(backend, tutti_clock_ns());
        (void)usleep(1000);
    }
}
