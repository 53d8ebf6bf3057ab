/*
 * Uploads into a device's memory: while one message is copied from its slot, the next one travels.
 * Bulk loop.
 *
 * `piece_count` counts chunks that are not copied yet; the upload is committed at 0. When all slots
 * are lent, the message in hand is kept on the heap and no further one is read (`waits_for_slot`),
 * so an upload keeps one message beyond its slots at most, and flow control slows the client.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"

bool
agent_staged_is_busy(const agent_access *access)
{
    return access->piece_count > 0;
}

/* Several chunks may fail, one after the other; the first one answers the call. */
static void
fail_upload(agent_access *access, const tutti_error *err)
{
    if (agent_access_is_open(access)) {
        agent_stream_finish(access, err);
    }
}

/* The chunk is freed last: it holds the access, and may hold the last reference. */
static void
on_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    access->piece_count--;
    if (err != NULL) {
        fail_upload(access, err);
    }
    /* The client has half-closed before this copy had ended: now the upload can be judged. */
    if (agent_access_is_open(access) && access->half_closed && access->piece_count == 0) {
        agent_upload_end(access);
    }
    agent_gpu_chunk_free(piece);
}

/*
 * A slot for bytes that were kept on the heap. Reading stopped when they were kept, and goes on
 * here.
 */
static void
on_late_slot(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    (void)err;
    access->waits_for_slot = false;
    if (!agent_access_is_open(access)) {
        access->piece_count--;
        agent_gpu_chunk_free(piece);
        return;
    }
    memcpy(piece->slot->data, piece->heap, piece->size);
    free(piece->heap);
    piece->heap = NULL;
    agent_gpu_chunk_in(piece, agent_access_last(access), on_copied);
    if (!access->half_closed) {
        tutti_rpc_call_read(access->call);
    }
}

static agent_gpu_chunk *
new_piece(agent_access *access, size_t size, tutti_error *err)
{
    agent_gpu_chunk *piece = agent_gpu_chunk_new(access, access->offset, size);

    if (piece == NULL) {
        (void)TUTTI_FAIL_MEMORY(err, "no memory for a piece of a tensor");
        return NULL;
    }
    access->offset += size;
    access->piece_count++;
    return piece;
}

/*
 * Keep the message, as gRPC's memory is gone when on_message returns. agent_gpu_chunk_wait_slot
 * never calls back at once, so `waits_for_slot` holds until this function's callers have looked at
 * it.
 */
static tutti_code
wait_for_slot(agent_gpu_chunk *piece, tutti_tensor *tensor, tutti_rpc_message *message,
              tutti_error *err)
{
    agent_access *access = piece->access;

    piece->heap = malloc(piece->size);
    if (piece->heap == NULL) {
        access->piece_count--;
        agent_gpu_chunk_free(piece);
        return TUTTI_FAIL_MEMORY(err, "no memory to keep a message");
    }
    tutti_rpc_message_read(message, piece->heap, piece->size);
    access->waits_for_slot = true;
    agent_gpu_chunk_wait_slot(piece, tensor->space, on_late_slot);
    return TUTTI_OK;
}

tutti_code
agent_staged_chunk(agent_access *access, tutti_tensor *tensor, tutti_rpc_message *message,
                   size_t size, tutti_error *err)
{
    agent_gpu_chunk *piece = new_piece(access, size, err);

    if (piece == NULL) {
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    piece->slot = tutti_slot_take(tensor->space);
    if (piece->slot == NULL) {
        return wait_for_slot(piece, tensor, message, err);
    }
    tutti_rpc_message_read(message, piece->slot->data, size);
    agent_gpu_chunk_in(piece, tensor, on_copied);
    return TUTTI_OK;
}

/*
 * The bytes that came before the turn move to a chunk (no copy), which always waits for its slot by
 * callback: agent_upload_turn does not read on then, and on_late_slot does.
 */
void
agent_staged_early(agent_access *access, tutti_tensor *tensor)
{
    tutti_error err;
    agent_gpu_chunk *piece = new_piece(access, access->early_size, &err);

    if (piece == NULL) {
        fail_upload(access, &err);
        return;
    }
    piece->heap = access->early;
    agent_upload_drop_early(access, true);
    access->waits_for_slot = true;
    agent_gpu_chunk_wait_slot(piece, tensor->space, on_late_slot);
}
