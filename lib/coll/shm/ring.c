#include "coll/shm/ring.h"

#include <assert.h>
#include <string.h>

#include "coll/shm/shm.h"

#define KIND_PAD 0 /* nothing, up to the end of the memory */

static uint32_t
round_up(uint64_t bytes)
{
    return (uint32_t)((bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE);
}

/* How far has the taker come? */
static void
peek_ring(shm_end *end)
{
    const uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_seq_cst);

    if (head < end->seen || head > end->at) {
        end->broken = true; /* it says that it took what was never put */
    } else {
        end->seen = head;
    }
}

/* Is there room for `bytes` more? Looks at the taker only when what is known does not do. */
static bool
has_room(shm_end *end, uint64_t bytes)
{
    if (end->at + bytes - end->seen > SHM_RING_BYTES) {
        peek_ring(end);
    }
    if (end->at + bytes - end->seen > SHM_RING_BYTES) {
        tutti_shm_fault();
        atomic_store_explicit(&end->ring->blocked, 1, memory_order_seq_cst);
        tutti_shm_fault();
        peek_ring(end);
    }
    end->waits = end->at + bytes - end->seen > SHM_RING_BYTES;
    return !end->broken && !end->waits;
}

bool
tutti_shm_put(shm_end *end, shm_record *record, const void *header, const void *data)
{
    const uint64_t offset = end->at % SHM_RING_BYTES;
    unsigned char *to = end->ring->bytes + offset;
    uint64_t pad = 0;

    record->bytes = round_up(sizeof(*record) + record->header_size + record->data_size);
    assert(record->kind != KIND_PAD && record->bytes <= SHM_RECORD_MAX);
    if (offset + record->bytes > SHM_RING_BYTES) {
        pad = SHM_RING_BYTES - offset;
    }
    if (end->broken || !has_room(end, pad + record->bytes)) {
        return false;
    }
    if (pad > 0) {
        const shm_record filler = {.bytes = (uint32_t)pad, .kind = KIND_PAD};

        memcpy(to, &filler, sizeof(filler));
        to = end->ring->bytes;
    }
    memcpy(to, record, sizeof(*record));
    if (record->header_size > 0) {
        memcpy(to + sizeof(*record), header, record->header_size);
    }
    if (record->data_size > 0) {
        memcpy(to + sizeof(*record) + record->header_size, data, (size_t)record->data_size);
    }
    end->at += pad + record->bytes;
    tutti_shm_fault();
    atomic_store_explicit(&end->ring->tail, end->at, memory_order_seq_cst);
    return true;
}

/* Does the record stay inside what was put, and does what it holds stay inside it? */
static bool
is_sane(const shm_end *end, const shm_record *record)
{
    const uint64_t there = end->seen - end->at;
    const uint64_t to_end = SHM_RING_BYTES - end->at % SHM_RING_BYTES;

    if (record->bytes < sizeof(*record) || record->bytes % SHM_LINE != 0 || record->bytes > there ||
        record->bytes > to_end) {
        return false;
    }
    return record->kind == KIND_PAD ||
           (record->bytes <= SHM_RECORD_MAX && record->data_size <= SHM_RECORD_MAX &&
            sizeof(*record) + record->header_size + record->data_size <= record->bytes);
}

bool
tutti_shm_peek(shm_end *end, shm_record *ret_record, const unsigned char **ret_bytes)
{
    const unsigned char *from;

    do {
        if (!end->broken && end->seen == end->at) {
            end->seen = atomic_load_explicit(&end->ring->tail, memory_order_acquire);
            end->broken = end->seen - end->at > SHM_RING_BYTES || end->seen % SHM_LINE != 0;
        }
        if (end->broken || end->seen == end->at) {
            return false;
        }
        from = end->ring->bytes + end->at % SHM_RING_BYTES;
        memcpy(ret_record, from, sizeof(*ret_record));
        if (!is_sane(end, ret_record)) {
            end->broken = true;
            return false;
        }
        if (ret_record->kind == KIND_PAD) {
            tutti_shm_took(end, ret_record);
        }
    } while (ret_record->kind == KIND_PAD);
    *ret_bytes = from + sizeof(*ret_record);
    return true;
}

void
tutti_shm_took(shm_end *end, const shm_record *record)
{
    end->at += record->bytes;
    tutti_shm_fault();
    atomic_store_explicit(&end->ring->head, end->at, memory_order_seq_cst);
}

bool
tutti_shm_unblocks(shm_end *end)
{
    return atomic_load_explicit(&end->ring->blocked, memory_order_seq_cst) != 0 &&
           atomic_exchange_explicit(&end->ring->blocked, 0, memory_order_seq_cst) != 0;
}

bool
tutti_shm_was_unblocked(const shm_end *end)
{
    return end->waits && atomic_load_explicit(&end->ring->blocked, memory_order_seq_cst) == 0;
}

bool
tutti_shm_is_empty(const shm_end *end)
{
    return end->broken || (end->seen == end->at &&
                           atomic_load_explicit(&end->ring->tail, memory_order_seq_cst) == end->at);
}
