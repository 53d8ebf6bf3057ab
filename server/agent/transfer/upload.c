/*
 * Uploads into host memory. Chunks come in order, each is copied once, from gRPC's slices to its
 * place in the tensor. Bulk loop.
 *
 * Before its turn an upload may keep one message (`early`): the first, which comes with the start.
 * No further message is read until the turn, so a client that waits in line is slowed by HTTP/2's
 * flow control instead of filling memory. The sum of early bytes of all uploads is limited
 * (early_bytes_max).
 *
 * The end: the client half-closes, then the byte count decides. If anything fails before
 * agent_upload_commit, the call ends with the error, a new entry is dropped with the access, and an
 * overwritten tensor keeps a mixture of old and new bytes under its old handle.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"

/*
 * Early bytes may be a sixteenth of --memory-limit, but 16 MiB at least, so that a small limit lets
 * a few uploads wait.
 */
#define EARLY_PART 16
#define EARLY_MIN (16ULL << 20)

/*
 * All bytes of the tensor are here. The mark comes before the answer: a caller that has the answer
 * may use the tensor at once.
 */
void
agent_upload_commit(agent_access *access)
{
    agent_access_written(access, access->lock_set.count - 1);
    agent_access_answered(access);
    access->agent->hooks->answer_upload(access, agent_access_last(access));
}

/*
 * The client has sent all it wants. A part ends its own call, and the whole tensor is committed
 * with the part that comes last (agent_parts_arrived).
 */
static void
finish_upload(agent_access *self)
{
    tutti_error err;

    if (self->offset != self->end_offset) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                             "the upload ended after %" PRIu64 " bytes, %s has %" PRIu64,
                             self->offset - self->begin_offset,
                             self->parted ? "its part" : "the tensor",
                             self->end_offset - self->begin_offset);
        agent_stream_finish(self, &err);
    } else if (!self->parted || agent_parts_arrived(self)) {
        agent_upload_commit(self);
    }
}

/* The early message goes to its place in the tensor: host memory alone. */
static void
write_early(agent_access *self)
{
    tutti_tensor *tensor = agent_access_last(self);

    if (self->early != NULL) {
        memcpy((char *)tensor->data + self->offset, self->early, self->early_size);
        self->offset += self->early_size;
        agent_upload_drop_early(self, false);
    }
}

/*
 * The turn of an upload: does its tensor still fit? The existing tensor of `into` may have been
 * replaced by a call that was in line before. A part follows its leader, which was checked.
 */
bool
agent_upload_open(agent_access *access)
{
    const tutti_tensor *tensor = agent_access_last(access);
    tutti_error err;

    if (access->leader == NULL && (tensor == NULL || tensor->bytes != access->total_bytes)) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH",
                             "an upload of %" PRIu64 " bytes into a tensor of %" PRIu64
                             ", need as many",
                             access->total_bytes, tensor == NULL ? 0 : tensor->bytes);
        agent_stream_finish(access, &err);
        return false;
    }
    agent_parts_turn(access);
    return true;
}

/*
 * The turn has come: the early message goes to its place, and reading goes on. For a GPU, the early
 * bytes have to wait for a slot first, and the slot's callback reads on.
 */
void
agent_upload_turn(agent_access *access)
{
    tutti_tensor *tensor;

    if (!agent_upload_open(access)) {
        return;
    }
    tensor = agent_access_last(access);
    if (access->early != NULL && !tutti_tensor_is_host(tensor)) {
        agent_staged_early(access, tensor); /* and reads on */
        return;
    }
    write_early(access);
    if (access->half_closed) {
        finish_upload(access);
    } else {
        tutti_rpc_call_read(access->call);
    }
}

/*
 * A chunk states its offset although chunks come in order: a client that lost count is refused
 * instead of writing a shifted tensor. The sizes are compared without a sum, which could overflow.
 */
static tutti_code
check_chunk(const agent_access *self, uint64_t offset, size_t size, tutti_error *err)
{
    if (size > TUTTI_CHUNK_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "CHUNK_LIMIT",
                              "a chunk of %zu bytes, at most %u", size, TUTTI_CHUNK_BYTES_MAX);
    }
    if (size > 0 && offset != self->offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OFFSET",
                              "a chunk for offset %" PRIu64 ", %" PRIu64
                              " comes next: chunks come in order, without gaps",
                              offset, self->offset);
    }
    if (size > self->end_offset - self->offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "%" PRIu64 " bytes are too many: %s has %" PRIu64,
                              self->offset - self->begin_offset + size,
                              self->parted ? "its part" : "the tensor",
                              self->end_offset - self->begin_offset);
    }
    return TUTTI_OK;
}

void
agent_upload_drop_early(agent_access *access, bool take)
{
    if (access->early == NULL) {
        return;
    }
    atomic_fetch_sub(&access->agent->early_bytes, access->early_size);
    if (!take) {
        free(access->early);
    }
    access->early = NULL;
}

/*
 * For all uploads together, not for each: parts whose first part never comes must not be a way
 * around --memory-limit.
 */
static uint64_t
early_bytes_max(tutti_agent *agent)
{
    tutti_space_stats space;

    tutti_space_stat(agent->space, &space);
    return space.limit_bytes / EARLY_PART > EARLY_MIN ? space.limit_bytes / EARLY_PART : EARLY_MIN;
}

/*
 * The bytes are counted before they are allocated and taken back on failure, so the sum never
 * exceeds the limit.
 */
static tutti_code
keep_chunk(agent_access *self, tutti_rpc_message *message, size_t size, tutti_error *err)
{
    tutti_agent *agent = self->agent;
    const uint64_t most = early_bytes_max(agent);
    const uint64_t before = atomic_fetch_add(&agent->early_bytes, size);

    self->early = before + size > most ? NULL : malloc(size);
    if (self->early == NULL) {
        atomic_fetch_sub(&agent->early_bytes, size);
        return TUTTI_FAIL_FOR(
            err, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
            "%" PRIu64 " bytes of uploads wait for the first part of their tensor, at most %" PRIu64
            " (a sixteenth of --memory-limit): send the first part first, or fewer parts at once",
            before, most);
    }
    tutti_rpc_message_read(message, self->early, size);
    self->early_size = size;
    return TUTTI_OK;
}

void
agent_upload_chunk(agent_access *access, uint64_t offset, tutti_rpc_message *message)
{
    const size_t size = tutti_rpc_message_payload_bytes(message);
    tutti_error err;
    tutti_code code = check_chunk(access, offset, size, &err);

    if (code == TUTTI_OK && size > 0 && agent_access_is_granted(access)) {
        tutti_tensor *tensor = agent_access_last(access);

        if (tutti_tensor_is_host(tensor)) {
            tutti_rpc_message_read(message, (char *)tensor->data + access->offset, size);
            access->offset += size;
        } else {
            code = agent_staged_chunk(access, tensor, message, size, &err);
        }
    } else if (code == TUTTI_OK && size > 0) {
        code = keep_chunk(access, message, size, &err);
    }
    tutti_count(&access->agent->numbers.bytes_in, code == TUTTI_OK ? size : 0);
    if (code != TUTTI_OK) {
        agent_stream_finish(access, &err);
    }
}

/*
 * Chunks may still be on their way to a GPU; the last of them (on_copied in gpu_upload.c) calls
 * this again.
 */
void
agent_upload_end(agent_access *access)
{
    access->half_closed = true;
    if (agent_access_is_granted(access) && !agent_staged_is_busy(access)) {
        finish_upload(access);
    }
}
