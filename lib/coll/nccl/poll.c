/*
 * What goes on without messages: whose turn it is to be launched, what the device is through with,
 * and how failed ops end. Engine's thread; tutti_nccl_poll is called with each of its turns.
 *
 * A failed op's memory may be read and written by the device until two things have happened: the
 * abort of its communicator has returned (NCCL puts nothing more into the stream), and the stream
 * has run past an event that was recorded after that. Only then it is complete.
 */
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/nccl/fail.h"
#include "coll/nccl/nccl_private.h"

#define SPIN_NS (1 * TUTTI_NS_PER_MS)     /* look without sleeping, after something moved */
#define LOOK_PART 64                      /* then after this part of the time since */
#define LOOK_MAX_NS (1 * TUTTI_NS_PER_MS) /* at most */

void
tutti_nccl_op_detach(nccl_op *self)
{
    tutti_list_remove(&self->in_comm);
    self->comm = NULL;
}

/* The words are copied first: failing the op detaches it and may end others. */
bool
tutti_nccl_op_give_up(nccl_op *self, uint64_t now_ns)
{
    tutti_error why = self->comm->why;

    if (now_ns < self->comm->tell_ns) {
        return false;
    }
    tutti_error_set_op(&why, tutti_coll_group_name(self->op->group), self->op->sequence, why.rank);
    tutti_coll_device_fail(self->op, &why);
    return true;
}

void
tutti_nccl_op_complete(nccl_op *self)
{
    if (self->off) {
        self->off = false;
        tutti_coll_device_complete(self->op); /* may free it */
    }
}

/* ------------------------------------------------------------------------------ failing */

/*
 * The op has failed. From ORDER on some member may have launched it, so its communicator cannot be
 * used again: kernels of the others would wait in it. Stages before LAUNCH have nothing on the
 * device and are complete at once; LAUNCH waits in `behind` for NCCL to let go; PENDING has an
 * event already.
 */
void
tutti_nccl_abandon(tutti_coll_op *op)
{
    nccl_op *self = op->backend_state;
    const nccl_stage stage = self->stage;
    tutti_error why;

    (void)cudaSetDevice(self->backend->device);
    self->dead = true;
    tutti_nccl_line_leave(&self->place);
    if (self->comm != NULL && stage != NCCL_STAGE_DONE) {
        (void)TUTTI_FAIL_FOR(&why, TUTTI_UNAVAILABLE, "NCCL_FAILED",
                             "group %s: its communicator was aborted with another op (%llu); call "
                             "again",
                             tutti_coll_group_name(op->group), (unsigned long long)op->sequence);
        tutti_nccl_comm_end(self->comm, true, &why);
    }
    if (stage == NCCL_STAGE_LAUNCH) {
        /* NCCL may still be putting things into the stream: see poll_dead. */
        tutti_list_add(&self->backend->behind, &self->link);
    } else if (stage != NCCL_STAGE_PENDING) {
        tutti_list_remove(&self->link);
        tutti_nccl_op_complete(self);
    }
}

/* ------------------------------------------------------------------------------ clients that go */

bool
tutti_nccl_is_deserted(const nccl_op *self)
{
    const tutti_coll_events *events = self->op->events;

    return events != NULL && events->after != NULL && events->left != NULL &&
           atomic_load(events->left) && cudaEventQuery(events->after) == cudaErrorNotReady;
}

tutti_code
tutti_nccl_fail_deserted(const nccl_op *self, tutti_error *err)
{
    const tutti_coll_op *op = self->op;

    (void)TUTTI_FAIL_FOR(
        err, TUTTI_CANCELLED, "CALLER_GONE",
        "group %s op %llu: the client of rank %u went away before its GPU came to "
        "the event that the op waits for",
        tutti_coll_group_name(op->group), (unsigned long long)op->sequence,
        (unsigned)tutti_coll_group_ranks(op->group)[tutti_coll_group_rank(op->group)]);
    tutti_error_set_op(
        err, tutti_coll_group_name(op->group), op->sequence,
        (int32_t)tutti_coll_group_ranks(op->group)[tutti_coll_group_rank(op->group)]);
    return TUTTI_CANCELLED;
}

/*
 * The device is at an op whose client is gone. The op fails on all ranks at once. What CUDA does
 * with a wait for a record that never comes is not documented: if the driver lets it go, all is
 * well; if not, nothing here can, and all ops behind it would run into their deadlines. So they are
 * refused, with what to do.
 */
static bool
look_for_deserted(nccl_op *self, uint64_t now_ns)
{
    nccl_backend *backend = self->backend;
    tutti_error err;

    if (backend->stuck || !tutti_nccl_is_deserted(self)) {
        return false;
    }
    self->deserted_ns = self->deserted_ns == 0 ? now_ns : self->deserted_ns;
    if (!self->dead) {
        (void)tutti_nccl_fail_deserted(self, &err);
        tutti_coll_device_fail(self->op, &err);
        return true;
    }
    if (now_ns > self->deserted_ns + backend->options.deserted_ns) {
        backend->stuck = true;
        TUTTI_LOG("coll/nccl", ERROR,
                  "cuda:%d waits for an event of a client that is gone: no op can run there any "
                  "more; restart this agent",
                  backend->device);
    }
    return false;
}

/* ------------------------------------------------------------------------------ polling */

/* An op that failed while it was launched: once NCCL has let go, an event behind all that is in the
 * stream tells when the device has run over it. */
static bool
poll_dead(nccl_op *self)
{
    if (self->comm != NULL && !atomic_load(&self->comm->ended)) {
        return false;
    }
    if (self->event != NULL) {
        (void)cudaEventDestroy(self->event);
        self->event = NULL;
    }
    if (cudaEventCreateWithFlags(&self->event, cudaEventDisableTiming) == cudaSuccess) {
        (void)cudaEventRecord(self->event, self->backend->stream);
    }
    self->stage = NCCL_STAGE_PENDING;
    tutti_list_remove(&self->link);
    tutti_list_add(&self->backend->pending, &self->link);
    return true;
}

/* One of those that wait for others of their group. One in a turn: completing it may change the
 * list. */
static bool
poll_behind(nccl_backend *backend)
{
    tutti_list_node *link;

    for (link = backend->behind.next; link != &backend->behind; link = link->next) {
        nccl_op *self = tutti_container_of(link, nccl_op, link);

        if (self->dead) {
            if (poll_dead(self)) {
                return true;
            }
        } else if (tutti_coll_is_next(self->op)) {
            tutti_list_remove(&self->link);
            tutti_nccl_op_complete(self);
            return true;
        }
    }
    return false;
}

/* The head of the line, if its communicator is ready. An op behind it is never launched first, even
 * if its communicator is ready: that is the order. */
/*
 * NCCL puts what has to connect first into the stream only when that has done all before it; a
 * client that dies before its event would then hold the device for ever. So the event is waited for
 * here, and the call is answered later than usual.
 */
static bool
has_to_connect(const nccl_op *self)
{
    const tutti_coll_events *events = self->op->events;

    return events != NULL && events->after != NULL &&
           (tutti_nccl_launch_links(self) & ~self->comm->connected) != 0 &&
           cudaEventQuery(events->after) == cudaErrorNotReady && !tutti_nccl_is_deserted(self);
}

static bool
may_launch(nccl_op *self)
{
    nccl_backend *backend = self->backend;
    size_t count;

    if (self->stage < NCCL_STAGE_TURN || self->comm->state != NCCL_COMM_READY) {
        return false;
    }
    if (self->stage == NCCL_STAGE_LAUNCH) {
        return true;
    }
    if (has_to_connect(self)) {
        return false;
    }
    count = tutti_nccl_launch_entries(self);
    if (backend->entry_count > 0 && backend->entry_count + count > NCCL_ENTRIES_MAX) {
        return false; /* the engine would stand in a call of CUDA */
    }
    if (backend->options.occupy != NULL && !backend->options.occupy(backend->options.space)) {
        return false;
    }
    self->stage = NCCL_STAGE_LAUNCH;
    self->entry_count = count;
    backend->entry_count += count;
    return true;
}

/* Further than it was? Or its client is gone before its launch is over: then nothing else would
 * notice. */
static tutti_code
go_on_launching(nccl_op *self, bool *ret_done, tutti_error *err)
{
    if ((self->issuing || self->pausing) && tutti_nccl_is_deserted(self)) {
        return tutti_nccl_fail_deserted(self, err);
    }
    return tutti_nccl_launch(self, ret_done, err);
}

static bool
poll_line(nccl_backend *backend)
{
    nccl_place *head = tutti_nccl_line_head(&backend->line);
    nccl_op *self = head == NULL ? NULL : tutti_container_of(head, nccl_op, place);
    const uint32_t step = self == NULL ? 0 : self->step;
    bool done = false;
    tutti_error err;

    if (self == NULL || !may_launch(self)) {
        return false;
    }
    if (go_on_launching(self, &done, &err) != TUTTI_OK) {
        tutti_coll_device_fail(self->op, &err);
        return true;
    }
    if (done) {
        tutti_nccl_line_leave(&self->place);
        self->comm->connected |= tutti_nccl_launch_links(self);
        self->stage = NCCL_STAGE_PENDING;
        tutti_list_add(&backend->pending, &self->link);
        tutti_coll_mark_launched(self->op);
        return true;
    }
    return self->step != step;
}

/* The device has run over it: because it is done, or because its communicator was aborted? Kernels
 * return in both cases, so NCCL is asked before the result counts. */
static bool
is_sound(nccl_op *self)
{
    if (self->dead) {
        return true; /* its result does not matter */
    }
    if (self->comm->state == NCCL_COMM_READY) {
        tutti_nccl_comm_ask(self->comm);
    }
    return self->comm->state == NCCL_COMM_READY;
}

/* The stream has run over the op. */
static void
leave_stream(nccl_op *self)
{
    nccl_backend *backend = self->backend;

    backend->entry_count -= self->entry_count;
    if (backend->options.vacate != NULL) {
        backend->options.vacate(backend->options.space);
    }
}

/* The oldest that the device has: is it through with it? One stream, so later ones cannot be done
 * before. Detached before it completes: completing may release it. */
static bool
poll_pending(nccl_backend *backend, uint64_t now_ns)
{
    nccl_op *self;
    cudaError_t said;
    tutti_error err;

    if (tutti_list_empty(&backend->pending)) {
        return false;
    }
    self = tutti_container_of(backend->pending.next, nccl_op, link);
    said = self->event == NULL ? cudaSuccess : cudaEventQuery(self->event);
    if (said == cudaErrorNotReady) {
        return look_for_deserted(self, now_ns);
    }
    backend->stuck = false;
    if (said != cudaSuccess && !self->dead) {
        (void)tutti_nccl_fail_cuda(&err, "cudaEventQuery", said);
        tutti_coll_device_fail(self->op, &err); /* dead now, and looked at once more */
        return true;
    }
    if (!is_sound(self)) {
        return tutti_nccl_op_give_up(self, now_ns);
    }
    tutti_list_remove(&self->link);
    leave_stream(self);
    self->stage = NCCL_STAGE_DONE;
    tutti_nccl_op_detach(self);
    tutti_nccl_op_complete(self);
    return true;
}

/*
 * Right after something moved the engine looks without sleeping, since the next event of the device
 * is microseconds away. Then an op is heard of late by at most a LOOK_PART of its time: a fixed
 * millisecond made ops of 7 ms 12 % longer.
 */
static uint64_t
next_look(const nccl_backend *self, uint64_t now_ns)
{
    const uint64_t since_ns = now_ns - self->busy_ns;
    const uint64_t pause_ns =
        since_ns / LOOK_PART < LOOK_MAX_NS ? since_ns / LOOK_PART : LOOK_MAX_NS;

    return since_ns < SPIN_NS ? now_ns : now_ns + pause_ns;
}

unsigned
tutti_nccl_poll(tutti_coll_backend *door, uint64_t now_ns, uint64_t *ret_next_ns)
{
    nccl_backend *self = tutti_container_of(door, nccl_backend, door);
    unsigned did = 0;

    *ret_next_ns = UINT64_MAX;
    if (tutti_list_empty(&self->comms) && tutti_list_empty(&self->behind) &&
        tutti_list_empty(&self->moving)) {
        return 0; /* ops in later stages have a communicator, so there are none */
    }
    (void)cudaSetDevice(self->device);
    did += tutti_nccl_comms_poll(self, now_ns);
    did += tutti_nccl_stages_poll(self);
    did += poll_behind(self) ? 1 : 0;
    did += poll_line(self) ? 1 : 0;
    did += poll_pending(self, now_ns) ? 1 : 0;
    self->busy_ns = did > 0 ? now_ns : self->busy_ns;
    *ret_next_ns = next_look(self, now_ns);
    return did;
}
