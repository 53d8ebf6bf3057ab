/*
 * The nccl backend: its opening and closing, and an op's way to its turn: tickets and communicator.
 * poll.c has the way from there. Engine's thread; a poster's thread may run it, so each entry point
 * calls cudaSetDevice.
 *
 * nccl_private.h lists the stages. An op that waits for something that is no message (its turn, ops
 * before it, the device) is taken off: it counts as submitted to the device, and poll brings it
 * back. If it fails meanwhile, tutti_nccl_abandon decides what must still be waited for.
 *
 * docs/decisions/0020-nccl.md has the argument why nobody waits for ever.
 */
#include "coll/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "coll/agree/agree.h"
#include "coll/nccl/fail.h"
#include "coll/nccl/nccl_private.h"

#define STEP_MEET 60 /* behind the rounds of ORDER */
#define TICKET_MAX (UINT64_MAX / 2)

static void
take_off(nccl_op *self)
{
    self->off = true;
    tutti_coll_device_submit(self->op);
}

/* ------------------------------------------------------------------------------ start, finish */

/* All device memory that the op needs is taken here, before any message: if there is none, the op
 * fails on all ranks with no data moved. */
static tutti_code
start_nccl_op(tutti_coll_op *op, tutti_error *err)
{
    nccl_backend *backend = tutti_container_of(tutti_coll_device_of(op), nccl_backend, door);
    nccl_op *self = calloc(1, sizeof(*self));
    tutti_code code;

    op->backend_state = NULL;
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for an op");
    }
    if (backend->stuck) {
        free(self);
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "DEVICE_FAILED",
                              "cuda:%d waits for an event of a client that is gone: no op can run "
                              "there; restart this agent",
                              backend->device);
    }
    (void)cudaSetDevice(backend->device);
    self->op = op;
    self->backend = backend;
    tutti_list_init(&self->link);
    tutti_list_init(&self->in_comm);
    tutti_list_init(&self->place.link);
    tutti_nccl_plan_init(&self->plan, backend->stream, backend->pool);
    code = tutti_nccl_plan_op(&self->plan, op, err);
    if (code != TUTTI_OK) {
        tutti_nccl_plan_fini(&self->plan);
        free(self);
        return code;
    }
    op->backend_state = self;
    return TUTTI_OK;
}

static void
finish_nccl_op(tutti_coll_op *op)
{
    nccl_op *self = op->backend_state;

    (void)cudaSetDevice(self->backend->device);
    tutti_list_remove(&self->link);
    tutti_list_remove(&self->in_comm);
    tutti_nccl_line_leave(&self->place);
    if (self->event != NULL) {
        (void)cudaEventDestroy(self->event);
    }
    tutti_nccl_plan_fini(&self->plan);
    free(self->invitations);
    free(self);
    op->backend_state = NULL;
}

/* ------------------------------------------------------------------------------ order */

/* The op joins the line in the moment in which it proposes: from now on no op with a larger ticket
 * is launched here before it is settled or leaves. */
static tutti_code
enter_order(nccl_op *self, tutti_error *err)
{
    self->comm = tutti_nccl_comm_of(self->backend, tutti_coll_group_id(self->op->group));
    if (self->comm == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a communicator");
    }
    tutti_list_add(&self->comm->ops, &self->in_comm);
    self->stage = NCCL_STAGE_ORDER;
    self->place.group = tutti_coll_group_id(self->op->group);
    self->place.sequence = self->op->sequence;
    tutti_nccl_line_propose(&self->backend->line, &self->place);
    self->told.ticket = self->place.ticket;
    self->told.tag_min = tutti_nccl_comm_tag(self->comm);
    self->told.tag_max = self->told.tag_min;
    self->heard = self->told;
    return TUTTI_OK;
}

/*
 * What another member told is combined by maximum and minimum, so after the last round all have the
 * same. The first call combines what is our own (heard = told), which changes nothing. A ticket
 * that no clock could have reached would leave none for those behind it.
 */
static tutti_code
recv_line(nccl_op *self, tutti_error *err)
{
    nccl_words *told = &self->told;
    const nccl_words *heard = &self->heard;

    if (heard->ticket > TICKET_MAX) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INTERNAL, "BAD_PACKET",
            "group %s op %llu: another rank sent an invalid ticket (its place in the "
            "order of NCCL's ops)",
            tutti_coll_group_name(self->op->group), (unsigned long long)self->op->sequence);
    }
    told->ticket = heard->ticket > told->ticket ? heard->ticket : told->ticket;
    told->tag_min = heard->tag_min < told->tag_min ? heard->tag_min : told->tag_min;
    told->tag_max = heard->tag_max > told->tag_max ? heard->tag_max : told->tag_max;
    return TUTTI_OK;
}

static void
send_line(nccl_op *self)
{
    tutti_coll_op *op = self->op;
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint32_t round = self->round++;

    tutti_coll_send(op, round, tutti_agree_to(size, me, round), &self->told, sizeof(self->told), 0);
    tutti_coll_recv(op, round, tutti_agree_from(size, me, round), &self->heard, sizeof(self->heard),
                    NULL);
}

/* ------------------------------------------------------------------------------ meeting */

/* All throw away what they have, and the makers of ids tell all the others. The id of a large group
 * comes in several parts, so that it does not all go through one rank. */
static tutti_code
meet_members(nccl_op *self, tutti_error *err)
{
    tutti_coll_op *op = self->op;
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint32_t makers = tutti_nccl_makers(size);
    tutti_code code = TUTTI_OK;
    uint32_t maker;
    uint32_t i;

    self->stage = NCCL_STAGE_MEET;
    self->invitations = calloc(makers, sizeof(*self->invitations));
    if (self->invitations == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a communicator");
    }
    for (i = 0; i < makers && code == TUTTI_OK; i++) {
        maker = (uint32_t)((uint64_t)size * i / makers);
        if (maker == me) {
            code = tutti_nccl_invite(self, &self->invitations[i], err);
        } else {
            tutti_coll_recv(op, STEP_MEET, maker, &self->invitations[i],
                            sizeof(self->invitations[i]), NULL);
        }
        for (uint32_t to = 0; maker == me && to < size && code == TUTTI_OK; to++) {
            if (to != me) {
                tutti_coll_send(op, STEP_MEET, to, &self->invitations[i],
                                sizeof(self->invitations[i]), 0);
            }
        }
    }
    return code;
}

/* What this agent still has of the group is of no use: others have another, or none. It is aborted,
 * not destroyed: a member that has none will not take part in the end. */
static tutti_code
replace_comm(nccl_op *self, tutti_error *err)
{
    nccl_comm *comm = self->comm;
    tutti_error why;

    if (comm->state == NCCL_COMM_EMPTY) {
        return TUTTI_OK;
    }
    tutti_nccl_op_detach(self);
    (void)TUTTI_FAIL_FOR(
        &why, TUTTI_UNAVAILABLE, "NCCL_FAILED",
        "group %s: another rank has ended the communicator of NCCL; call again on all ranks",
        tutti_coll_group_name(self->op->group));
    tutti_nccl_comm_end(comm, true, &why);
    self->comm = tutti_nccl_comm_of(self->backend, tutti_coll_group_id(self->op->group));
    if (self->comm == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a communicator");
    }
    tutti_list_add(&self->comm->ops, &self->in_comm);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ advancing */

static void
wait_turn(nccl_op *self)
{
    self->stage = NCCL_STAGE_TURN;
    take_off(self);
}

/* Behind what its group called before? */
static tutti_code
begin_or_wait(nccl_op *self, tutti_error *err)
{
    if (tutti_coll_is_next(self->op)) {
        return enter_order(self, err);
    }
    self->stage = NCCL_STAGE_BEHIND;
    tutti_list_add(&self->backend->behind, &self->link);
    take_off(self);
    return TUTTI_OK;
}

/* Settled before the tags are compared: whatever follows, the ticket counts for those behind. All
 * members have the same tag_min and tag_max, so all decide alike whether to meet. */
static tutti_code
run_order(nccl_op *self, tutti_error *err)
{
    TUTTI_TRY(recv_line(self, err));
    if (self->round < tutti_agree_rounds(tutti_coll_group_size(self->op->group))) {
        send_line(self);
        return TUTTI_OK;
    }
    tutti_nccl_line_settle(&self->backend->line, &self->place, self->told.ticket);
    if (self->told.tag_min == self->told.tag_max && self->told.tag_min != 0) {
        wait_turn(self);
        return TUTTI_OK;
    }
    TUTTI_TRY(replace_comm(self, err));
    return meet_members(self, err);
}

static tutti_code
resume_nccl_op(nccl_op *self, tutti_error *err)
{
    if (self->stage == NCCL_STAGE_NEW || self->stage == NCCL_STAGE_BEHIND) {
        TUTTI_TRY(begin_or_wait(self, err));
    }
    if (self->stage == NCCL_STAGE_ORDER) {
        return run_order(self, err);
    }
    if (self->stage == NCCL_STAGE_MEET) {
        TUTTI_TRY(tutti_nccl_comm_begin(self, err));
        wait_turn(self);
    }
    return TUTTI_OK;
}

static tutti_code
advance_nccl_op(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    nccl_op *self = op->backend_state;

    (void)cudaSetDevice(self->backend->device);
    self->backend->busy_ns = tutti_clock_ns();
    *ret_done = self->stage == NCCL_STAGE_DONE;
    return *ret_done ? TUTTI_OK : resume_nccl_op(self, err);
}

/* ------------------------------------------------------------------------------ opening */

/* A communicator without ops is ended in peace; with ops on it (they have failed) it is aborted.
 * The list is not changed here: ended ones are freed by poll. */
static void
forget_group(tutti_coll_backend *door, uint64_t group_id)
{
    nccl_backend *self = tutti_container_of(door, nccl_backend, door);
    tutti_list_node *link;
    tutti_error why;

    (void)TUTTI_FAIL_FOR(&why, TUTTI_UNAVAILABLE, "STOPPING", "the group is gone");
    for (link = self->comms.next; link != &self->comms; link = link->next) {
        nccl_comm *comm = tutti_container_of(link, nccl_comm, link);

        if (comm->group == group_id) {
            tutti_nccl_comm_end(comm, !tutti_list_empty(&comm->ops), &why);
        }
    }
}

static void
free_device(nccl_backend *self)
{
    if (self->stream != NULL) {
        (void)cudaStreamDestroy(self->stream);
    }
    if (self->copies != NULL) {
        (void)cudaStreamDestroy(self->copies);
    }
    if (self->pool != NULL) {
        (void)cudaMemPoolDestroy(self->pool);
    }
}

static tutti_code
open_device(nccl_backend *self, tutti_error *err)
{
    const struct cudaMemPoolProps wanted = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = self->device}};
    uint64_t kept = NCCL_POOL_KEPT;
    const char *call = "cudaSetDevice";
    cudaError_t said = cudaSetDevice(self->device);

    if (said == cudaSuccess) {
        call = "cudaStreamCreateWithFlags";
        said = cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking);
    }
    if (said == cudaSuccess) {
        said = cudaStreamCreateWithFlags(&self->copies, cudaStreamNonBlocking);
    }
    if (said == cudaSuccess) {
        call = "cudaMemPoolCreate";
        said = cudaMemPoolCreate(&self->pool, &wanted);
    }
    if (said == cudaSuccess) {
        call = "cudaMemPoolSetAttribute";
        said = cudaMemPoolSetAttribute(self->pool, cudaMemPoolAttrReleaseThreshold, &kept);
    }
    return said == cudaSuccess ? tutti_nccl_kernels_load(self, err)
                               : tutti_nccl_fail_cuda(err, call, said);
}

/* All ops are released by now. This is the one function that may wait: for threads that end
 * communicators. */
static void
close_all(tutti_coll_backend *door)
{
    nccl_backend *self = tutti_container_of(door, nccl_backend, door);

    (void)cudaSetDevice(self->device);
    tutti_nccl_comms_close(self);
    tutti_nccl_stages_close(self);
    free_device(self);
    free(self);
}

static const tutti_coll_backend nccl_door = {
    .size = sizeof(tutti_coll_backend),
    .name = "nccl",
    .start = start_nccl_op,
    .advance = advance_nccl_op,
    .finish = finish_nccl_op,
    .abandon = tutti_nccl_abandon,
    .poll = tutti_nccl_poll,
    .stage = tutti_nccl_stage,
    .fetch = tutti_nccl_fetch,
    .store = tutti_nccl_store,
    .unstage = tutti_nccl_unstage,
    .forget = forget_group,
    .close = close_all,
};

tutti_code
tutti_coll_nccl_open(const tutti_coll_nccl_options *options, tutti_coll_backend **ret_backend,
                     tutti_error *err)
{
    nccl_backend *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the nccl backend");
    }
    self->door = nccl_door;
    self->options = *options;
    self->device = options->device;
    if (options->deserted_ns == 0) {
        self->options.deserted_ns = NCCL_ABORT_NS;
    }
    tutti_nccl_line_init(&self->line);
    tutti_list_init(&self->behind);
    tutti_list_init(&self->pending);
    tutti_list_init(&self->moving);
    tutti_list_init(&self->spare);
    tutti_list_init(&self->comms);
    code = open_device(self, err);
    if (code != TUTTI_OK) {
        free_device(self);
        free(self);
        return code;
    }
    *ret_backend = &self->door;
    return TUTTI_OK;
}

static int
get_nccl_version(void)
{
    int number = 0;

    return ncclGetVersion(&number) == ncclSuccess ? number : 0;
}

extern const tutti_nccl_module tutti_nccl_module_v1;

__attribute__((visibility("default"))) const tutti_nccl_module tutti_nccl_module_v1 = {
    .size = sizeof(tutti_nccl_module),
    .open = tutti_coll_nccl_open,
    .layout = tutti_coll_layout,
    .version = get_nccl_version,
};
