/* Uploads into a device's memory: a message is copied while the next one travels. */
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

static void
fail_upload(agent_access *access, const tutti_error *err)
{
    if (agent_access_is_open(access)) {
        agent_stream_finish(access, err);
    }
}

static void
on_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    access->piece_count--;
    if (err != NULL) {
        fail_upload(access, err);
    }
    if (agent_access_is_open(access) && access->half_closed && access->piece_count == 0) {
        agent_upload_end(access);
    }
    agent_gpu_chunk_free(piece);
}

/* What was kept meanwhile goes on its way, and the next message may come. */
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
        (void)TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a piece of a tensor");
        return NULL;
    }
    access->offset += size;
    access->piece_count++;
    return piece;
}

/* All slots are lent: keep the bytes, and read on when one comes back. */
static tutti_code
wait_for_slot(agent_gpu_chunk *piece, tutti_tensor *tensor, tutti_rpc_message *message,
              tutti_error *err)
{
    agent_access *access = piece->access;

    piece->heap = malloc(piece->size);
    if (piece->heap == NULL) {
        access->piece_count--;
        agent_gpu_chunk_free(piece);
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to keep a message");
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
