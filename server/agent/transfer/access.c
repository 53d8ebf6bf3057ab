/*
 * One call that reads or writes the bytes of tensors: its locks, its references and its end; and
 * downloads from host memory.
 *
 * The bulk loop runs everything here, with one exception: agent_access_drop runs on whatever thread
 * gRPC frees a slice on. So `refs` is atomic, and the last drop posts run_access_end to the bulk
 * loop.
 *
 * An access is referenced by its call, by each slice of tensor memory that gRPC still sends, by
 * each GPU chunk, and by each part of an upload that follows it. Its lock is released with the last
 * of them, not when the call ends: gRPC may still read the tensor's memory for a call that is over,
 * and an op that got the lock would write into bytes on their way to a client.
 *
 * Two state machines (access.h) cross: the turn (on_ready, a task that cannot be recalled) and the
 * call (its end). When the call ends while the lock set is QUEUED, the access must outlive it until
 * on_ready has come; agent_access_end_call and on_ready each look at the other's state, on one
 * thread, so exactly one of them drops the call's reference.
 *
 * agent->calls counts accesses in flight; the control loop reads it and ends the agent only at 0.
 */
#include "server/agent/transfer/access.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/agent/state/device.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"
#include "server/agent/transfer/gpu.h"
#include "tensor/space.h"

/*
 * The lock set is granted. A call that has ended meanwhile left its reference to this function. A
 * call that was answered but not ended yet (it was given up) is dropped by its end.
 */
static void
on_ready(tutti_lock_set *lock_set)
{
    agent_access *self = tutti_container_of(lock_set, agent_access, lock_set);

    agent_access_grant(self);
    agent_access_moved(self);
    if (self->call_state == AGENT_CALL_ENDED) {
        agent_access_drop(self);
    } else if (agent_access_is_open(self)) {
        self->on_turn(self);
    }
}

void
agent_access_grant(agent_access *access)
{
    assert(access->turn < AGENT_TURN_GRANTED);
    access->turn = AGENT_TURN_GRANTED;
}

void
agent_access_answered(agent_access *access)
{
    assert(access->call_state < AGENT_CALL_ENDED);
    access->call_state = AGENT_CALL_ANSWERED;
}

void
agent_access_end_call(agent_access *access)
{
    assert(access->call_state < AGENT_CALL_ENDED);
    access->call_state = AGENT_CALL_ENDED;
    if (access->turn != AGENT_TURN_QUEUED) {
        agent_access_drop(access);
    }
}

/*
 * One word for both cases in which a call ends before its turn. The lock set stays in line: the
 * table cannot take it back while its on_ready may be on the way.
 */
void
agent_access_stop_waiting(agent_access *access, tutti_error *err)
{
    agent_access_answered(access);
    if (tutti_rpc_call_cancelled(access->call)) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_CANCELLED, "CALLER_GONE", "the call was given up");
    } else {
        (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                             access->agent->rank);
    }
}

/*
 * A unary call that waits is answered at once; its lock set stays in line without it. Behind its
 * turn a unary call is about to be answered anyway.
 */
static void
on_cancel(tutti_rpc_call *call, void *self)
{
    agent_access *access = tutti_rpc_call_user(call);
    tutti_error err;

    (void)self;
    if (!agent_access_is_granted(access)) {
        agent_access_stop_waiting(access, &err);
        tutti_rpc_call_fail(call, &err);
        agent_access_end_call(access);
    }
}

agent_access *
agent_access_new(tutti_agent *agent, tutti_rpc_call *call, agent_access_fn on_turn)
{
    agent_access *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a call");
        tutti_rpc_call_fail(call, &err);
        return NULL;
    }
    self->agent = agent;
    self->call = call;
    self->on_turn = on_turn;
    self->lock_set.loop = agent->bulk;
    self->lock_set.on_ready = on_ready;
    atomic_init(&self->refs, 1);
    atomic_fetch_add(&agent->calls, 1);
    return self;
}

/*
 * A unary call that has to wait gets this file's on_cancel. Streams have set the call's user
 * pointer when they opened, and have an on_cancel of their own.
 */
bool
agent_access_acquire(agent_access *access)
{
    const bool unary = tutti_rpc_call_user(access->call) == NULL; /* streams have set it */

    assert(access->turn == AGENT_TURN_NONE);
    access->turn = AGENT_TURN_QUEUED;
    if (tutti_table_acquire(access->agent->table, &access->lock_set)) {
        agent_access_grant(access);
        return true;
    }
    if (unary) {
        tutti_rpc_call_set_user(access->call, access);
        tutti_rpc_call_on_cancel(access->call, on_cancel);
    }
    return false;
}

void
agent_access_go(agent_access *access)
{
    if (agent_access_acquire(access)) {
        access->on_turn(access);
    }
}

/*
 * Bulk loop, as a task: no reference is left. A new entry that was not written is dropped before
 * the release, so a call in line for it finds "never written" and not half of a tensor.
 */
static void
run_access_end(tutti_rpc_task *task)
{
    agent_access *self = tutti_container_of(task, agent_access, end);
    tutti_table *table = self->agent->table;

    if (self->entry == AGENT_ENTRY_NEW) {
        tutti_table_drop_new(table, &self->lock_set.locks[self->lock_set.count - 1]);
    }
    tutti_table_release(table, &self->lock_set);
    atomic_fetch_sub(&self->agent->calls, 1);
    if (self->leader != NULL) {
        agent_access_drop(self->leader);
    }
    agent_upload_drop_early(self, false);
    free(self->taken);
    free(self);
}

/*
 * Any thread. A sequentially consistent decrement: what other holders did with the tensor is done
 * before the last one posts the end.
 */
void
agent_access_drop(agent_access *access)
{
    if (atomic_fetch_sub(&access->refs, 1) == 1) {
        access->end.on_run = run_access_end;
        tutti_rpc_loop_post(access->agent->bulk, &access->end);
    }
}

void
agent_access_fail(agent_access *access, const tutti_error *err)
{
    if (access->entry == AGENT_ENTRY_NEW) {
        tutti_table_fail_new(access->agent->table,
                             &access->lock_set.locks[access->lock_set.count - 1], err);
        access->entry = AGENT_ENTRY_WRITTEN;
    }
    tutti_rpc_call_fail(access->call, err);
    agent_access_drop(access);
}

void
agent_access_refuse(agent_access *access, const char *name, const tutti_error *err)
{
    if (access->entry != AGENT_ENTRY_NEW &&
        agent_lock_own(&access->lock_set, access->call, NULL) == TUTTI_OK) {
        tutti_table_fail_register(access->agent->table, name, access->lock_set.owner,
                                  access->lock_set.lease, err);
    }
    agent_access_fail(access, err);
}

tutti_code
agent_access_tensor(agent_access *access, uint32_t lock, tutti_tensor **ret_tensor,
                    tutti_error *err)
{
    const tutti_lock *one = &access->lock_set.locks[lock];

    TUTTI_TRY(tutti_table_check(access->agent->table, one, err));

    *ret_tensor = tutti_table_tensor(access->agent->table, one);
    return TUTTI_OK;
}

/* A part of an upload has no lock set of its own: its bytes go to its leader's tensor. */
tutti_tensor *
agent_access_last(const agent_access *access)
{
    const agent_access *owner = access->leader != NULL ? access->leader : access;

    return tutti_table_tensor(owner->agent->table,
                              &owner->lock_set.locks[owner->lock_set.count - 1]);
}

/*
 * An overwritten tensor keeps its dimensions, so only dtype and element count must fit. An old
 * error on it does not matter: all of it is about to be written.
 */
tutti_code
agent_access_check(agent_access *access, uint32_t lock, const tutti_spec *spec,
                   tutti_tensor **ret_tensor, tutti_error *err)
{
    tutti_tensor *tensor = tutti_table_tensor(access->agent->table, &access->lock_set.locks[lock]);

    if (tensor == NULL) {
        return tutti_table_check(access->agent->table, &access->lock_set.locks[lock], err);
    }
    if (tensor->spec.dtype != spec->dtype) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                              "the data are %s, the tensor is %s, need the same dtype",
                              tutti_dtype_name(spec->dtype), tutti_dtype_name(tensor->spec.dtype));
    }
    if (tutti_spec_count(&tensor->spec) != tutti_spec_count(spec)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH",
                              "the data have %" PRIu64 " elements, the tensor has %" PRIu64
                              ", need the same number",
                              tutti_spec_count(spec), tutti_spec_count(&tensor->spec));
    }
    *ret_tensor = tensor;
    return TUTTI_OK;
}

/* Metadata `tutti-lease`: decimal digits. */
static tutti_code
read_lease(const tutti_rpc_call *call, uint64_t *ret_lease, tutti_error *err)
{
    const tutti_bytes given = tutti_rpc_call_metadata(call, "tutti-lease");
    char text[24];
    uint64_t number;

    if (given.size == 0) {
        *ret_lease = 0;
        return TUTTI_OK;
    }
    (void)snprintf(text, sizeof(text), "%.*s", (int)(given.size > 23 ? 23 : given.size),
                   (const char *)given.data);
    if (tutti_parse_uint(text, UINT64_MAX, &number, NULL) != TUTTI_OK || number == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_LEASE",
                              "metadata tutti-lease: \"%s\" is no number of a lease", text);
    }
    *ret_lease = number;
    return TUTTI_OK;
}

/*
 * The owner is the caller's identity, or its connection's address where calls have none; it is
 * shown to people and grants nothing.
 */
tutti_code
agent_lock_own(tutti_lock_set *lock_set, const tutti_rpc_call *call, tutti_error *err)
{
    const char *who = tutti_rpc_call_identity(call);

    (void)snprintf(lock_set->owner, sizeof(lock_set->owner), "%s",
                   who[0] != '\0' ? who : tutti_rpc_call_peer(call));
    return read_lease(call, &lock_set->lease, err);
}

tutti_code
agent_access_make(agent_access *access, const char *name, tutti_error *err)
{
    const tutti_code code = agent_lock_own(&access->lock_set, access->call, err);

    return code == TUTTI_OK
               ? tutti_table_create_locked(access->agent->table, &access->lock_set, name, err)
               : code;
}

/*
 * Memory is made now, not at the turn: a new entry is nobody else's, so its turn comes at once, and
 * a client hears MEMORY_LIMIT before it sends gigabytes. `entry` is NEW before the allocation, so
 * that a failure drops the entry.
 */
tutti_code
agent_access_destination(agent_access *access, const tutti_spec *spec, const char *into,
                         const char *name, const char *device, bool zeroed, tutti_error *err)
{
    tutti_agent *agent = access->agent;
    tutti_tensor *tensor = NULL;
    tutti_space *space = NULL;
    tutti_code code;

    if (into[0] != '\0' && (name[0] != '\0' || device[0] != '\0')) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME", AGENT_SAY_INTO);
    }
    if (into[0] != '\0') {
        return tutti_table_lock_by_name(agent->table, &access->lock_set, into, true, err);
    }
    code = agent_devices_find(agent, device, &space, err);
    code = code == TUTTI_OK ? agent_access_make(access, name, err) : code;
    if (code != TUTTI_OK) {
        return code;
    }
    access->entry = AGENT_ENTRY_NEW;
    code = tutti_tensor_new(space, spec, zeroed, &tensor, err);
    if (code == TUTTI_OK) {
        tutti_table_fill(agent->table, &access->lock_set.locks[access->lock_set.count - 1], tensor);
    }
    return code;
}

void
agent_access_written(agent_access *access, uint32_t lock)
{
    tutti_table_mark(access->agent->table, &access->lock_set.locks[lock], NULL);
    access->entry = AGENT_ENTRY_WRITTEN;
}

static void
release_access(void *arg)
{
    agent_access_drop(arg);
}

/*
 * gRPC sends from the tensor's own memory. release_access runs on a thread of gRPC's when it has
 * let go of the slice.
 */
tutti_rpc_blob
agent_access_blob(agent_access *access, const tutti_tensor *tensor, uint64_t offset, size_t size)
{
    atomic_fetch_add(&access->refs, 1);
    return (tutti_rpc_blob){.data = (const char *)tensor->data + offset,
                            .size = size,
                            .on_release = release_access,
                            .arg = access};
}

void
agent_stream_finish(agent_access *access, const tutti_error *err)
{
    agent_access_answered(access);
    tutti_rpc_call_finish(access->call, err);
}

/* ------------------------------------------------------------------------------ download */

/* Compared without a sum, so that no offset and length can overflow. */
static tutti_code
check_range(agent_access *self, const tutti_tensor *tensor, tutti_error *err)
{
    if (self->offset > tensor->bytes || self->length > tensor->bytes - self->offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OFFSET",
                              "bytes %" PRIu64 " to %" PRIu64 " of a tensor of %" PRIu64
                              " bytes, need a range inside it",
                              self->offset, self->offset + self->length, tensor->bytes);
    }
    self->end_offset = self->length == 0 ? tensor->bytes : self->offset + self->length;
    return TUTTI_OK;
}

void
agent_download_turn(agent_access *access)
{
    tutti_tensor *tensor = NULL;
    tutti_error err;
    tutti_code code = agent_access_tensor(access, 0, &tensor, &err);

    if (code == TUTTI_OK) {
        code = check_range(access, tensor, &err);
    }
    if (code != TUTTI_OK) {
        agent_stream_finish(access, &err);
        return;
    }
    access->first = true;
    agent_download_next(access);
}

/*
 * The next message. Called at the turn and then for each message that has left (on_written), so one
 * message of a stream is in gRPC's hands at a time. An empty range is one message without bytes:
 * the client learns the spec from it.
 */
void
agent_download_next(agent_access *access)
{
    const uint64_t left = access->end_offset - access->offset;
    const size_t size = (size_t)(left < access->chunk_bytes ? left : access->chunk_bytes);
    tutti_tensor *tensor = NULL;
    tutti_rpc_blob blob;
    tutti_error err;

    if (!agent_access_is_open(access)) {
        return;
    }
    if (left == 0 && !access->first) {
        agent_stream_finish(access, NULL);
        return;
    }
    if (agent_access_tensor(access, 0, &tensor, &err) != TUTTI_OK) {
        /* Not reached: the lock has kept the tensor since agent_download_turn. */
        agent_stream_finish(access, &err);
        return;
    }
    if (size > 0 && !tutti_tensor_is_host(tensor)) {
        agent_staged_next(access, tensor);
        return;
    }
    if (size > 0) {
        blob = agent_access_blob(access, tensor, access->offset, size);
    }
    access->agent->hooks->write_download(access, tensor, size > 0 ? &blob : NULL);
    tutti_count(&access->agent->numbers.bytes_out, size);
    access->first = false;
    access->offset += size;
}
