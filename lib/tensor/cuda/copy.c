/*
 * Copies between tensors, on a thread of their own: between devices one copy, between the host and
 * a device through two pinned buffers, of which one is filled or emptied while the other moves.
 */
#include <string.h>

#include "base/error/fail.h"
#include "tensor/cuda/cuda_private.h"

static tutti_code
wait_for_cuda_copy(const cuda_slot *buffer, tutti_error *err)
{
    return cuda_check(cudaEventSynchronize(buffer->over), "copying", err);
}

/* Begin a piece; the buffer's event says when it is over. */
static tutti_code
begin_cuda_copy(cuda_lane *lane, cuda_slot *buffer, void *to, const void *from, size_t size,
                tutti_error *err)
{
    TUTTI_TRY(cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, lane->stream),
                         "cudaMemcpyAsync", err));

    return cuda_check(cudaEventRecord(buffer->over, lane->stream), "cudaEventRecord", err);
}

static size_t
piece_at(uint64_t at, uint64_t bytes)
{
    const uint64_t left = bytes - at;

    return left < TUTTI_SLOT_BYTES ? (size_t)left : TUTTI_SLOT_BYTES;
}

/* From where to where a copy goes. */
typedef struct cuda_bytes {
    const unsigned char *source;
    unsigned char *target;
    uint64_t size;
} cuda_bytes;

/*
 * Buffer i % 2 is filled while the other one moves. At the end both events are waited for, also
 * after a failure: the buffers must not be in use when the next copy begins, and the source may be
 * freed by on_done.
 */
static tutti_code
copy_up(cuda_lane *lane, const cuda_bytes *bytes, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    tutti_code last;
    uint64_t at = 0;
    uint32_t i;

    for (i = 0; at < bytes->size && code == TUTTI_OK; i++) {
        cuda_slot *buffer = &lane->space->buffers[i % CUDA_COPY_BUFFERS];
        const size_t size = piece_at(at, bytes->size);

        code = wait_for_cuda_copy(buffer, err); /* of a fresh event: at once */
        if (code == TUTTI_OK) {
            memcpy(buffer->base.data, bytes->source + at, size);
            code = begin_cuda_copy(lane, buffer, bytes->target + at, buffer->base.data, size, err);
        }
        at += size;
    }
    for (i = 0; i < CUDA_COPY_BUFFERS; i++) {
        last = wait_for_cuda_copy(&lane->space->buffers[i], code == TUTTI_OK ? err : NULL);
        code = code == TUTTI_OK ? last : code;
    }
    return code;
}

static tutti_code
begin_down(cuda_lane *lane, const cuda_bytes *bytes, uint64_t at, tutti_error *err)
{
    cuda_slot *buffer = &lane->space->buffers[at / TUTTI_SLOT_BYTES % CUDA_COPY_BUFFERS];

    return begin_cuda_copy(lane, buffer, buffer->base.data, bytes->source + at,
                           piece_at(at, bytes->size), err);
}

/* One piece ahead: the next one moves while this one is copied out of its buffer. */
static tutti_code
copy_down(cuda_lane *lane, const cuda_bytes *bytes, tutti_error *err)
{
    uint64_t at;

    TUTTI_TRY(begin_down(lane, bytes, 0, err));

    for (at = 0; at < bytes->size; at += TUTTI_SLOT_BYTES) {
        cuda_slot *buffer = &lane->space->buffers[at / TUTTI_SLOT_BYTES % CUDA_COPY_BUFFERS];

        if (at + TUTTI_SLOT_BYTES < bytes->size) {
            TUTTI_TRY(begin_down(lane, bytes, at + TUTTI_SLOT_BYTES, err));
        }
        TUTTI_TRY(wait_for_cuda_copy(buffer, err));
        memcpy(bytes->target + at, buffer->base.data, piece_at(at, bytes->size));
    }
    return TUTTI_OK;
}

/* Between two devices the stream waits for the other space's memory, too. */
static tutti_code
copy_across(cuda_lane *lane, const tutti_move *move, const cuda_bytes *bytes, tutti_error *err)
{
    const tutti_tensor *from = move->from;
    tutti_code code = TUTTI_OK;

    if (from->space != move->to->space && cuda_space_is(from->space)) { /* of another device */
        code = cuda_follow(cuda_space_from(from->space), lane->stream, err);
    }
    if (code == TUTTI_OK) {
        code = begin_cuda_copy(lane, &lane->space->buffers[0], bytes->target, bytes->source,
                               (size_t)bytes->size, err);
    }
    return code == TUTTI_OK ? wait_for_cuda_copy(&lane->space->buffers[0], err) : code;
}

void
cuda_work_copy(cuda_lane *lane, tutti_move *move)
{
    const tutti_move_range *range = &move->range;
    const cuda_bytes bytes = {
        .source = (const unsigned char *)move->from->data + range->from_offset,
        .target = (unsigned char *)move->to->data + range->to_offset,
        .size = range->bytes,
    };

    move->code = cuda_follow(lane->space, lane->stream, &move->err);
    if (move->code != TUTTI_OK) {
        return;
    }
    if (tutti_tensor_is_host(move->from)) {
        move->code = copy_up(lane, &bytes, &move->err);
    } else if (tutti_tensor_is_host(move->to)) {
        move->code = copy_down(lane, &bytes, &move->err);
    } else {
        move->code = copy_across(lane, move, &bytes, &move->err);
    }
}
