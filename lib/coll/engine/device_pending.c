/*
 * Ops of which a device has something: backend.h says what it looks like to the backend. Engine's
 * thread.
 *
 * Work on a device is counted in op->pending beside messages, so the one rule "the op goes on when
 * nothing is pending" covers both, and an op's memory is not released under a running copy or
 * kernel.
 */
#include "coll/engine/device_pending.h"

#include <assert.h>

#include "base/error/fail.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/infer/infer.h"
#include "coll/net/io.h"
#include "coll/net/peer.h"
#include "coll/state/events.h"

const tutti_coll_backend *
tutti_coll_backend_of(const tutti_coll_op *op)
{
    const tutti_coll_engine_options *options = &op->group->engine->options;

    if (op->args.on_device) {
        return tutti_coll_device_of(op);
    }
    return op->group->size == 1 ? options->self_backend : options->backend;
}

tutti_coll_backend *
tutti_coll_device_of(const tutti_coll_op *op)
{
    assert(op->device < TUTTI_COLL_DEVICES_MAX);
    return op->group->engine->options.devices[op->device];
}

void
tutti_coll_device_submit(tutti_coll_op *op)
{
    op->pending++;
}

void
tutti_coll_device_complete(tutti_coll_op *op)
{
    tutti_coll_lose_one(op);
}

void
tutti_coll_device_fail(tutti_coll_op *op, const tutti_error *err)
{
    tutti_coll_op_fail(op, err, true);
}

/* The map is ordered by sequence. An op that has ended is in it no more, so a failed op does not
 * hold up those behind it. */
bool
tutti_coll_is_next(const tutti_coll_op *op)
{
    tutti_map_node *node = tutti_map_first(&op->group->ops);

    for (; node != NULL && node != &op->by_sequence; node = tutti_map_next(node)) {
        const tutti_coll_op *other = tutti_container_of(node, tutti_coll_op, by_sequence);

        if (other->args.on_device && !other->launched) {
            return false;
        }
    }
    return true;
}

void
tutti_coll_mark_launched(tutti_coll_op *op)
{
    op->launched = true;
    if (op->on_launched != NULL) {
        op->on_launched(op);
    }
}

uint32_t
tutti_coll_part_count(const tutti_coll_op *op)
{
    return tutti_coll_parts(&op->args);
}

/* Devices have no descriptor that epoll could watch: they say when to ask again, and the engine
 * sleeps no longer than that. */
unsigned
tutti_coll_poll_devices(tutti_coll_engine *engine)
{
    unsigned did = 0;
    uint64_t next_ns;
    size_t i;

    engine->device_ns = TUTTI_TIMERS_NEVER;
    for (i = 0; i < TUTTI_COLL_DEVICES_MAX; i++) {
        tutti_coll_backend *device = engine->options.devices[i];

        if (device != NULL) {
            did += device->poll(device, engine->now_ns, &next_ns);
            engine->device_ns = next_ns < engine->device_ns ? next_ns : engine->device_ns;
        }
    }
    return did;
}

void
tutti_coll_close_devices(const tutti_coll_engine_options *options)
{
    size_t i;

    for (i = 0; i < TUTTI_COLL_DEVICES_MAX; i++) {
        if (options->devices[i] != NULL) {
            options->devices[i]->close(options->devices[i]);
        }
    }
}

void
tutti_coll_forget_group(tutti_coll_group *group)
{
    size_t i;

    for (i = 0; i < TUTTI_COLL_DEVICES_MAX; i++) {
        tutti_coll_backend *device = group->engine->options.devices[i];

        if (device != NULL) {
            device->forget(device, group->id);
        }
    }
}

/* Sizes and offsets, not names: a change of these structs moves at least one of them. It cannot see
 * two members of one size that change places. */
uint64_t
tutti_coll_layout(void)
{
    const size_t numbers[] = {sizeof(tutti_coll_op),      offsetof(tutti_coll_op, pending),
                              sizeof(tutti_coll_args),    offsetof(tutti_coll_op, same_host),
                              sizeof(tutti_coll_group),   offsetof(tutti_coll_group, ops),
                              sizeof(tutti_coll_engine),  offsetof(tutti_coll_engine, timers),
                              sizeof(tutti_coll_backend), sizeof(coll_io),
                              sizeof(coll_peer),          sizeof(tutti_transport_ops)};
    uint64_t sum = 14695981039346656037ULL; /* FNV-1a, as in signature.c */
    size_t i;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sum = (sum ^ numbers[i]) * 1099511628211ULL;
    }
    return sum;
}

/* ------------------------------------------------------------------------------ send and receive
 */

void *
tutti_coll_stage_or(const tutti_coll_op *op, const void *data)
{
    return op->device_stage != NULL ? op->device_stage : (void *)(uintptr_t)data;
}

/* op->round of a Send: 0 nothing begun, 1 fetched or nothing to fetch, 2 posted (p2p.c). So the
 * second call, after poll has found the copy complete, finds nothing to do. */
tutti_code
tutti_coll_fetch(tutti_coll_op *op, bool *ret_begun, tutti_error *err)
{
    const size_t bytes = (size_t)tutti_spec_bytes(&op->args.spec);

    *ret_begun = op->args.on_device && bytes > 0 && op->round == 0;
    op->round = 1;
    if (!*ret_begun) {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_coll_device_of(op)->stage(op, bytes, err));
    return tutti_coll_device_of(op)->fetch(op, bytes, err);
}

/* The stage is freed by unstage when the op is released, also if the op fails before its bytes
 * came. */
tutti_code
tutti_coll_place(tutti_coll_op *op, size_t size, void **ret_data, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (op->args.on_device && size > 0) {
        code = tutti_coll_device_of(op)->stage(op, size, err);
        op->stage_size = size;
    }
    *ret_data = tutti_coll_stage_or(op, op->output);
    return code;
}

tutti_code
tutti_coll_store(tutti_coll_op *op, bool *ret_begun, tutti_error *err)
{
    *ret_begun = op->device_stage != NULL && op->round == 0;
    op->round = 1;
    return *ret_begun ? tutti_coll_device_of(op)->store(op, op->stage_size, err) : TUTTI_OK;
}
