/* Where an op happens: on the device of its tensors, or of its group. */
#include "server/agent/op/place.h"

#include "base/error/fail.h"
#include "server/agent/state/device.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "tensor/space.h"

/* One more tensor of the op: it has to be where the others are. NULL is fine. */
static tutti_code
add_tensor(agent_op *op, const tutti_tensor *tensor, tutti_error *err)
{
    if (tensor == NULL || op->space == tensor->space) {
        return TUTTI_OK;
    }
    if (op->space != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "tensors of one op are on %s and on %s: Copy with `device` brings "
                              "them together",
                              tutti_space_device(op->space), tutti_space_device(tensor->space));
    }
    op->space = tensor->space;
    return TUTTI_OK;
}

static tutti_code
add_lock(agent_op *op, const tutti_lock *lock, tutti_error *err)
{
    return lock == NULL ? TUTTI_OK
                        : add_tensor(op, tutti_table_tensor(op->agent->table, lock), err);
}

static tutti_code
add_list(agent_op *op, tutti_error *err)
{
    const agent_list *list = op->list;
    uint32_t i;

    TUTTI_TRY(add_tensor(op, list->in_memory, err));

    for (i = 0; i < list->in_count; i++) {
        TUTTI_TRY(add_lock(op, list->in_locks[i], err));
    }
    for (i = 0; i < list->given_count; i++) {
        TUTTI_TRY(add_lock(op, list->out_locks[i], err));
    }
    return TUTTI_OK;
}

/* The GPU of the group's collectives in this epoch; NULL: none has used one. */
static tutti_space *
find_place(const agent_group *group)
{
    return group->placed == group->epoch ? group->place : NULL;
}

/* Communicators are the group's, so its ops do not change from one GPU to another. */
static tutti_code
keep_place(const agent_op *op, tutti_error *err)
{
    agent_group *group = op->group;
    tutti_space *place = find_place(group);

    if (place != NULL && place != op->space) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "group %s runs its ops on %s at this rank, and these tensors are on "
                              "%s: make a group of the same ranks for them, or Copy them there",
                              group->name, tutti_space_device(place),
                              tutti_space_device(op->space));
    }
    group->place = op->space;
    group->placed = group->epoch;
    return TUTTI_OK;
}

static tutti_code
take_backend(agent_op *op, tutti_error *err)
{
    const agent_devices *devices = &op->agent->devices;
    uint32_t i = 0;

    if (!op->op.args.on_device) {
        return TUTTI_OK;
    }
    while (i < devices->count && devices->list[i].space != op->space) {
        i++;
    }
    if (i == devices->count || !devices->list[i].has_backend) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_BACKEND",
                              "%s on %s: this agent runs no ops there, for want of tutti-nccl.so "
                              "(its log says more): Copy the tensors to \"cpu\"",
                              tutti_coll_kind_name(op->op.args.kind),
                              tutti_space_device(op->space));
    }
    op->op.device = i;
    return agent_op_is_p2p(op) ? TUTTI_OK : keep_place(op, err);
}

/* Where an op happens that names no tensor: where the group's others do, if that is a GPU. */
static tutti_space *
default_place(const agent_op *op)
{
    tutti_space *home = op->agent->devices.home;
    tutti_space *place = find_place(op->group);

    if (op->out_inline || op->op.args.kind == TUTTI_COLL_BARRIER) {
        return op->agent->space;
    }
    return home == op->agent->space || place == NULL || agent_op_is_p2p(op) ? home : place;
}

/* What a receiver of a broadcast gives is ignored, so it may be anywhere. */
tutti_code
agent_op_find_place(agent_op *op, tutti_error *err)
{
    const bool gives = op->op.input != NULL;

    TUTTI_TRY(gives ? add_tensor(op, op->inline_in, err) : TUTTI_OK);

    if (gives) {
        TUTTI_TRY(add_lock(op, op->in, err));
    }
    if (!op->out_is_new) {
        TUTTI_TRY(add_lock(op, op->out, err));
    }
    if (op->list != NULL) {
        TUTTI_TRY(add_list(op, err));
    }
    if (op->out_inline && op->on_end == NULL && op->space != NULL &&
        op->space != op->agent->space) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "an inline result of tensors on %s: ask for a handle, and Get it",
                              tutti_space_device(op->space));
    }
    if (op->space == NULL) {
        op->space = default_place(op);
    }
    op->op.args.on_device = op->space != op->agent->space;
    return take_backend(op, err);
}
