/*
 * A ring of bytes with one producer and one consumer in two processes.
 * docs/decisions/0012-shared-memory.md ("Orders", 1 to 3) proves the memory orders;
 * docs/models/shm_ring.pml checks them. Each order here is needed: weakened alone, the model fails.
 *
 * A record does not wrap: at the end of the memory a filler record takes the rest, so a record can
 * be read in place. tail and head count bytes and never fall, so full and empty are told apart.
 *
 * If the other process dies in the middle of a put, tail was not written, and the half record is
 * never seen.
 */
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

/*
 * How far has the taker come? seq_cst: an acquire for the bytes that are written over, and the
 * second look of protocol 3. A head outside of what was put is a fault or an attack; following it
 * would overwrite records that are not taken.
 */
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

/*
 * Is there room for `bytes` more? Looks at the taker only if what is known does not do: the line of
 * `head` is the taker's, and each look costs a cache miss.
 *
 * `blocked` is set before the second look. So either that look finds the room, or the taker, which
 * writes head first and then reads blocked, finds the flag and rings.
 */
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
    /*
     * Publishes all writes above (release), and stands before the producer's look at `asleep` in
     * the one order of all seq_cst accesses (tutti_shm_ring_doorbell): the taker cannot fall asleep
     * between the two.
     */
    atomic_store_explicit(&end->ring->tail, end->at, memory_order_seq_cst);
    return true;
}

/* Does the record stay inside what was put, and does what it holds stay inside it? `record` is our
 * copy: what the peer changes in the ring after this check changes nothing. */
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
            /* acquire: the records up to this tail are read after it. */
            end->seen = atomic_load_explicit(&end->ring->tail, memory_order_acquire);
            end->broken = end->seen - end->at > SHM_RING_BYTES || end->seen % SHM_LINE != 0;
        }
        if (end->broken || end->seen == end->at) {
            return false;
        }
        from = end->ring->bytes + end->at % SHM_RING_BYTES;
        /* Copied before it is checked: the peer can still write there. */
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
    /* After the record was read: from now on the producer may write over it. seq_cst, for the look
     * at `blocked` that follows. */
    atomic_store_explicit(&end->ring->head, end->at, memory_order_seq_cst);
}

/* The exchange clears the flag, so of several looks one rings. The load before it keeps the line
 * shared while nobody waits. */
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
