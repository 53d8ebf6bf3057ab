/*
 * Private to coll/shm: a ring of records in shared memory, from one process to one other.
 *
 * One end only puts, the other only takes; each is used by one thread. The other process is not
 * trusted with our life: what it writes is copied before it is looked at, and a ring that makes no
 * sense is broken, never followed. docs/decisions/0012 says why the orders suffice.
 */
#ifndef TUTTI_COLL_SHM_RING_H
#define TUTTI_COLL_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_LINE 64U
#define SHM_RING_BYTES (128U << 10)
#define SHM_RECORD_MAX (16U << 10) /* head, header and data of one */

/* What travels in front of header and data. A cache line. */
typedef struct shm_record {
    uint32_t bytes; /* all of it, up to the next record; a multiple of SHM_LINE */
    uint16_t kind;
    uint16_t header_size;
    uint64_t id;
    uint64_t data_size;
    uint64_t input; /* where in the sender's memory */
    uint64_t input_size;
    uint64_t output;
    uint64_t output_size;
    uint32_t input_region; /* 0 = in the memory that was mapped at the meeting */
    uint32_t output_region;
} shm_record;

/* Shared. Zeroed memory is an empty one. */
typedef struct shm_ring {
    _Alignas(64) _Atomic uint64_t tail; /* bytes ever put; written by the producer */
    _Alignas(64) _Atomic uint64_t head; /* bytes ever taken; written by the consumer */
    _Atomic uint32_t blocked;           /* the producer waits for room: ring its doorbell */
    _Alignas(64) unsigned char bytes[SHM_RING_BYTES];
} shm_ring;

/*
 * One end of it, in our own memory: the other process cannot change it. Of the end that puts, `at`
 * is what tail was set to, and seen <= at <= seen + SHM_RING_BYTES; of the end that takes, `at` is
 * what head was set to, and at <= seen <= at + SHM_RING_BYTES. `broken` is for ever.
 */
typedef struct shm_end {
    shm_ring *ring;
    uint64_t at;   /* how far we are */
    uint64_t seen; /* how far the other was when we looked */
    bool waits;    /* for room, and has said so */
    bool broken;
} shm_end;

/*
 * Put a record, its header and its data; fills record->bytes. A later look of the taker at an empty
 * ring, or of ours at its being asleep, sees the other's: both are sequentially consistent.
 *
 * Returns false: no room now; the consumer will find that we wait (tutti_shm_unblocks).
 */
bool tutti_shm_put(shm_end *end, shm_record *record, const void *header, const void *data);

/*
 * The next record, copied, and where its header and data stand until tutti_shm_took.
 *
 * Returns false: there is none, or the ring is broken (end->broken).
 */
bool tutti_shm_peek(shm_end *end, shm_record *ret_record, const unsigned char **ret_bytes);

/* Done with it. */
void tutti_shm_took(shm_end *end, const shm_record *record);

/* Of the consumer: does the producer wait for room, and has not been told yet that there is some?
 * True once for each wait: ring its doorbell. */
bool tutti_shm_unblocks(shm_end *end);

/* Of the producer, which waited for room: has the consumer seen that, and made some? As strong as
 * tutti_shm_put is. */
bool tutti_shm_was_unblocked(const shm_end *end);

/* Is there nothing to take? As strong as tutti_shm_put is. */
bool tutti_shm_is_empty(const shm_end *end);

#endif
