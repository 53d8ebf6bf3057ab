/*
 * GPU chunks: bytes of tensors in a device's memory, on their way to and from messages. A chunk is
 * one message's worth of them: it waits for a slot of pinned memory, is copied, and comes back to
 * the bulk loop.
 *
 * While one chunk is copied the next one travels: an upload reads on as long as there are slots, a
 * download copies ahead of what is sent. A chunk keeps its slot for as long as its copy takes, and
 * longer only while there are many: a client that does not read what it asked for, or does not send
 * what it promised, holds up nobody else.
 */
#ifndef TUTTI_SERVER_AGENT_TRANSFER_GPU_H
#define TUTTI_SERVER_AGENT_TRANSFER_GPU_H

#include "rpc/message.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/device_copy.h"

typedef struct agent_gpu_chunk agent_gpu_chunk;

/* A step of the chunk is done: on the bulk loop. NULL = well; a slot never fails. */
typedef void (*agent_gpu_chunk_fn)(agent_gpu_chunk *piece, const tutti_error *err);

/*
 * Where a chunk is. Bulk loop; only forward.
 *
 *   NEW      it has no slot yet, or has one and is filled from a message
 *   COPYING  between its slot and the device: nothing of it may be freed until on_done
 *   COPIED   on_done has come. One of a download waits here until it is its turn to be sent
 */
typedef enum agent_gpu_chunk_state {
    AGENT_GPU_CHUNK_NEW,
    AGENT_GPU_CHUNK_COPYING,
    AGENT_GPU_CHUNK_COPIED,
} agent_gpu_chunk_state;

struct agent_gpu_chunk {
    agent_access *access; /* [ref] */
    tutti_slot *slot;
    unsigned char *heap; /* bytes that have no slot */
    uint64_t offset;
    size_t size;
    agent_gpu_chunk_state state;
    agent_gpu_chunk_fn on_slot;
    agent_gpu_chunk_fn on_done;
    agent_gpu_chunk_fn answer; /* of agent_staged_put and agent_staged_get */
    tutti_slot_wish wish;
    tutti_rpc_task task; /* of a slot that came */
    agent_posted_move posted;
    tutti_list_node link; /* of a download's, in order */
};

/* A chunk in state NEW, with a reference to the access. NULL: no memory. */
agent_gpu_chunk *agent_gpu_chunk_new(agent_access *access, uint64_t offset, size_t size);

/* Gives its slot, bytes and reference to the access back. Any thread; not while it is COPYING or
 * waits for a slot. */
void agent_gpu_chunk_free(agent_gpu_chunk *piece);

/* on_slot follows: at once, or when a slot came back. */
void agent_gpu_chunk_get_slot(agent_gpu_chunk *piece, tutti_space *space,
                              agent_gpu_chunk_fn on_slot);

/* The same, but on_slot never runs before this returns: when all slots were lent a moment ago. */
void agent_gpu_chunk_wait_slot(agent_gpu_chunk *piece, tutti_space *space,
                               agent_gpu_chunk_fn on_slot);

/* From its slot to the tensor; from the tensor to its slot; between tensors. on_done follows on the
 * bulk loop. The tensors stay locked until then, by the chunk's reference. */
void agent_gpu_chunk_in(agent_gpu_chunk *piece, tutti_tensor *tensor, agent_gpu_chunk_fn on_done);
void agent_gpu_chunk_out(agent_gpu_chunk *piece, tutti_tensor *tensor, agent_gpu_chunk_fn on_done);
void agent_gpu_chunk_copy(agent_gpu_chunk *piece, tutti_tensor *from, tutti_tensor *to,
                          const tutti_move_range *range, agent_gpu_chunk_fn on_done);

/* The tensor moves to memory of its own; the handle is in `heap` then. */
void agent_gpu_chunk_own(agent_gpu_chunk *piece, tutti_tensor *tensor, agent_gpu_chunk_fn on_done);

/* Its bytes as a blob, which takes it: it is freed when gRPC has let go of them. Any thread. */
tutti_rpc_blob agent_gpu_chunk_blob(agent_gpu_chunk *piece);

/* ------------------------------------------------------------------------------ calls */

/* A tensor's bytes from the message of a call, or into its answer: `answer` says how it went. */
void agent_staged_put(agent_access *access, tutti_tensor *tensor, agent_gpu_chunk_fn answer);
void agent_staged_get(agent_access *access, tutti_tensor *tensor, agent_gpu_chunk_fn answer);

/*
 * Uploads, for agent_upload_chunk: one message's payload into a GPU tensor. May set waits_for_slot.
 */
tutti_code agent_staged_chunk(agent_access *access, tutti_tensor *tensor,
                              tutti_rpc_message *message, size_t size, tutti_error *err);
/* The early bytes of an upload whose turn has come; reads on when they have a slot. */
void agent_staged_early(agent_access *access, tutti_tensor *tensor);
/* Are chunks of the upload under way? Then agent_upload_end is called again when they are not. */
bool agent_staged_is_busy(const agent_access *access);

/* Downloads: a message has left, or the first one may. */
void agent_staged_next(agent_access *access, tutti_tensor *tensor);

/* The call has ended: nothing more is sent. */
void agent_staged_end(agent_access *access);

#endif
