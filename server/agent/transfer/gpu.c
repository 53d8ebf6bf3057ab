/*
 * GPU chunks: one message's worth of a GPU tensor's bytes, in a slot of pinned memory (or, while no
 * slot can be had, on the heap), and the calls that use one: Put, Get, downloads. Uploads are in
 * gpu_upload.c.
 *
 * Threads: the bulk loop has all states. on_slot comes on any thread, the end of a copy on a thread
 * of the space: both post to the bulk loop. The blob's release runs on a thread of gRPC's; a chunk
 * that was handed to gRPC belongs to it alone, so agent_gpu_chunk_free needs no lock.
 *
 * A chunk holds a reference to its access, so the tensor stays locked until every copy has ended. A
 * copy cannot be recalled: when the call ends meanwhile, the chunk comes back by itself, finds the
 * call closed, and is freed.
 */
#include "server/agent/transfer/gpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/device_copy.h"
#include "server/agent/transfer/access.h"
#include "tensor/space.h"

agent_gpu_chunk *
agent_gpu_chunk_new(agent_access *access, uint64_t offset, size_t size)
{
    agent_gpu_chunk *self = calloc(1, sizeof(*self));

    if (self != NULL) {
        self->access = access;
        self->offset = offset;
        self->size = size;
        tutti_list_init(&self->link);
        atomic_fetch_add(&access->refs, 1);
    }
    return self;
}

void
agent_gpu_chunk_free(agent_gpu_chunk *piece)
{
    agent_access *access = piece->access;

    if (piece->slot != NULL) {
        tutti_slot_give(piece->slot);
    }
    free(piece->heap);
    free(piece);
    agent_access_drop(access);
}

/* ------------------------------------------------------------------------------ slots, moves */

static void
run_slot(tutti_rpc_task *task)
{
    agent_gpu_chunk *self = tutti_container_of(task, agent_gpu_chunk, task);

    self->on_slot(self, NULL);
}

/*
 * Any thread, perhaps inside of tutti_slot_wait. Posted, so that callers of
 * agent_gpu_chunk_wait_slot can finish what they do.
 */
static void
on_slot(tutti_slot_wish *wish, tutti_slot *slot)
{
    agent_gpu_chunk *self = tutti_container_of(wish, agent_gpu_chunk, wish);

    self->slot = slot;
    self->task.on_run = run_slot;
    tutti_rpc_loop_post(self->access->agent->bulk, &self->task);
}

void
agent_gpu_chunk_get_slot(agent_gpu_chunk *piece, tutti_space *space, agent_gpu_chunk_fn on_slot_fn)
{
    piece->slot = tutti_slot_take(space);
    piece->on_slot = on_slot_fn;
    if (piece->slot != NULL) {
        on_slot_fn(piece, NULL);
        return;
    }
    agent_gpu_chunk_wait_slot(piece, space, on_slot_fn);
}

void
agent_gpu_chunk_wait_slot(agent_gpu_chunk *piece, tutti_space *space, agent_gpu_chunk_fn on_slot_fn)
{
    piece->on_slot = on_slot_fn;
    piece->wish.on_slot = on_slot;
    tutti_slot_wait(space, &piece->wish);
}

static void
on_done(agent_posted_move *posted, const tutti_error *err)
{
    agent_gpu_chunk *self = tutti_container_of(posted, agent_gpu_chunk, posted);

    assert(self->state == AGENT_GPU_CHUNK_COPYING);
    self->state = AGENT_GPU_CHUNK_COPIED;
    self->on_done(self, err);
}

static tutti_move *
move_of(agent_gpu_chunk *self, agent_gpu_chunk_fn on_done_fn)
{
    assert(self->state == AGENT_GPU_CHUNK_NEW);
    self->state = AGENT_GPU_CHUNK_COPYING;
    self->on_done = on_done_fn;
    return agent_posted_move_of(&self->posted, self->access->agent->bulk, on_done);
}

void
agent_gpu_chunk_in(agent_gpu_chunk *piece, tutti_tensor *tensor, agent_gpu_chunk_fn on_done_fn)
{
    tutti_move_in(move_of(piece, on_done_fn), tensor, piece->offset, piece->slot, piece->size);
}

void
agent_gpu_chunk_out(agent_gpu_chunk *piece, tutti_tensor *tensor, agent_gpu_chunk_fn on_done_fn)
{
    tutti_move_out(move_of(piece, on_done_fn), tensor, piece->offset, piece->slot, piece->size);
}

void
agent_gpu_chunk_copy(agent_gpu_chunk *piece, tutti_tensor *from, tutti_tensor *to,
                     const tutti_move_range *range, agent_gpu_chunk_fn on_done_fn)
{
    tutti_move_copy_range(move_of(piece, on_done_fn), from, to, range);
}

void
agent_gpu_chunk_own(agent_gpu_chunk *piece, tutti_tensor *tensor, agent_gpu_chunk_fn on_done_fn)
{
    piece->access->agent->devices.cuda->own(move_of(piece, on_done_fn), tensor, piece->heap);
}

/* ------------------------------------------------------------------------------ out again */

static void
release_chunk(void *arg)
{
    agent_gpu_chunk_free(arg);
}

/*
 * Slots are few. The client decides when the bytes leave, and a slow one would hold the slot of
 * others: when slots are scarce, the bytes move to the heap. Without memory the chunk keeps its
 * slot, which is slow for others but right.
 */
static void
leave_slot(agent_gpu_chunk *piece)
{
    if (!tutti_slot_is_scarce(piece->slot)) {
        return;
    }
    piece->heap = malloc(piece->size);
    if (piece->heap != NULL) {
        memcpy(piece->heap, piece->slot->data, piece->size);
        tutti_slot_give(piece->slot);
        piece->slot = NULL;
    }
}

tutti_rpc_blob
agent_gpu_chunk_blob(agent_gpu_chunk *piece)
{
    const void *data = piece->slot != NULL ? piece->slot->data : piece->heap;

    return (tutti_rpc_blob){
        .data = data, .size = piece->size, .on_release = release_chunk, .arg = piece};
}

/* ------------------------------------------------------------------------------ put, get */

static void
put_on_slot(agent_gpu_chunk *piece, const tutti_error *err)
{
    (void)err;
    tutti_rpc_message_read(tutti_rpc_call_message(piece->access->call), piece->slot->data,
                           piece->size);
    agent_gpu_chunk_in(piece, agent_access_last(piece->access), piece->answer);
}

/* After the copy the bytes wait for the client, so this is the moment to free the slot. */
static void
get_on_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    if (err == NULL) {
        leave_slot(piece);
    }
    piece->answer(piece, err);
}

static void
get_on_slot(agent_gpu_chunk *piece, const tutti_error *err)
{
    (void)err;
    agent_gpu_chunk_out(piece, agent_access_last(piece->access), get_on_copied);
}

static void
begin_chunk(agent_access *access, tutti_tensor *tensor, agent_gpu_chunk_fn on_slot_fn,
            agent_gpu_chunk_fn answer)
{
    agent_gpu_chunk *piece = agent_gpu_chunk_new(access, 0, (size_t)tensor->bytes);
    tutti_error err;

    if (piece == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a piece of a tensor");
        agent_access_fail(access, &err);
        return;
    }
    piece->answer = answer;
    agent_gpu_chunk_get_slot(piece, tensor->space, on_slot_fn);
}

void
agent_staged_put(agent_access *access, tutti_tensor *tensor, agent_gpu_chunk_fn answer)
{
    begin_chunk(access, tensor, put_on_slot, answer);
}

void
agent_staged_get(agent_access *access, tutti_tensor *tensor, agent_gpu_chunk_fn answer)
{
    begin_chunk(access, tensor, get_on_slot, answer);
}

/* ------------------------------------------------------------------------------ downloads */

/*
 * Messages leave in the order of their offsets, one at a time, though copies may end in any order:
 * so only the first chunk of the list may go. Called when a copy has ended and when a message has
 * left.
 */
static void
send_gpu_chunk(agent_access *access, tutti_tensor *tensor)
{
    agent_gpu_chunk *piece = tutti_container_of(access->pieces.next, agent_gpu_chunk, link);
    tutti_rpc_blob blob;

    if (!agent_access_is_open(access) || access->sending || tutti_list_empty(&access->pieces) ||
        piece->state != AGENT_GPU_CHUNK_COPIED) {
        return;
    }
    tutti_list_remove(&piece->link);
    access->piece_count--;
    access->sending = true;
    access->offset = piece->offset;
    blob = agent_gpu_chunk_blob(piece);
    tutti_count(&access->agent->numbers.bytes_out, piece->size);
    access->agent->hooks->write_download(access, tensor, &blob);
    access->first = false;
    access->offset += blob.size;
}

/*
 * Chunks that are copied are freed here. Those whose slot or copy is under way must not be: they
 * come to download_on_copied, which finds the call closed and calls this again.
 */
void
agent_staged_end(agent_access *access)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    if (access->pieces.next == NULL) {
        return; /* no download of a device's memory */
    }
    tutti_list_each(link, spare, &access->pieces)
    {
        agent_gpu_chunk *piece = tutti_container_of(link, agent_gpu_chunk, link);

        if (piece->state == AGENT_GPU_CHUNK_COPIED) { /* the others come back by themselves */
            tutti_list_remove(link);
            access->piece_count--;
            agent_gpu_chunk_free(piece);
        }
    }
}

static void
download_on_copied(agent_gpu_chunk *piece, const tutti_error *err)
{
    agent_access *access = piece->access;

    if (err != NULL && agent_access_is_open(access)) {
        agent_stream_finish(access, err);
    }
    if (!agent_access_is_open(access)) {
        agent_staged_end(access); /* with this one */
        return;
    }
    leave_slot(piece);
    send_gpu_chunk(access, agent_access_last(access));
}

static void
download_on_slot(agent_gpu_chunk *piece, const tutti_error *err)
{
    (void)err;
    agent_gpu_chunk_out(piece, agent_access_last(piece->access), download_on_copied);
}

/*
 * Up to AGENT_PIECES_AHEAD chunks are copied before they are sent, so the copy of one overlaps with
 * the sending of another. Chunks go to the list before they have a slot: the list is their order.
 */
static tutti_code
copy_ahead(agent_access *access, tutti_tensor *tensor, tutti_error *err)
{
    while (access->ahead < access->end_offset && access->piece_count < AGENT_PIECES_AHEAD) {
        const uint64_t left = access->end_offset - access->ahead;
        const size_t size = (size_t)(left < access->chunk_bytes ? left : access->chunk_bytes);
        agent_gpu_chunk *piece = agent_gpu_chunk_new(access, access->ahead, size);

        if (piece == NULL) {
            return TUTTI_FAIL_MEMORY(err, "no memory for a piece of a tensor");
        }
        access->ahead += size;
        access->piece_count++;
        tutti_list_add(&access->pieces, &piece->link);
        agent_gpu_chunk_get_slot(piece, tensor->space, download_on_slot);
    }
    return TUTTI_OK;
}

/* The first message may leave, or a message has left. */
void
agent_staged_next(agent_access *access, tutti_tensor *tensor)
{
    tutti_error err;

    access->sending = false;
    if (!agent_access_is_open(access)) {
        agent_staged_end(access);
        return;
    }
    /* The list of an access without GPU chunks is zero, which agent_staged_end relies on. */
    if (access->first && access->pieces.next == NULL) {
        tutti_list_init(&access->pieces);
        access->ahead = access->offset;
    }
    if (copy_ahead(access, tensor, &err) != TUTTI_OK) {
        agent_stream_finish(access, &err);
        agent_staged_end(access);
        return;
    }
    send_gpu_chunk(access, tensor);
}
