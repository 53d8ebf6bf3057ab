/*
 * Slots: numbers that stand for pointers and never come back.
 *
 * A number is an index and a generation: a number that was freed is refused for ever, though its
 * slot is used again (for the first 2^40 uses of one slot). The owner's lock or thread guards it.
 */
#ifndef TUTTI_BASE_DATA_SLOTS_H
#define TUTTI_BASE_DATA_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"

typedef struct tutti_slot {
    void *owner; /* NULL = free */
    uint64_t generation;
    uint32_t next_free;
} tutti_slot;

typedef struct tutti_slots {
    tutti_slot *slots;
    uint32_t room;
    uint32_t used;
    uint32_t count;
    uint32_t first_free;
    uint32_t most;
} tutti_slots;

/* `most`: how many may live at once, 1 to 2^24 - 1. */
void tutti_slots_init(tutti_slots *slots, uint32_t most);
void tutti_slots_fini(tutti_slots *slots);

/*
 * Give `owner` (not NULL) a number, never 0.
 *
 * TUTTI_RESOURCE_EXHAUSTED  `most` live at once, or no memory
 */
tutti_code tutti_slots_add(tutti_slots *slots, void *owner, uint64_t *ret_number, tutti_error *err);

/* The owner of a number; NULL when it was freed or never given. */
void *tutti_slots_find(const tutti_slots *slots, uint64_t number);

/* Free a number that is in use. */
void tutti_slots_remove(tutti_slots *slots, uint64_t number);

/*
 * Walk: the owner of the first number in use at or behind *cursor, which moves behind it; NULL at
 * the end. Begin with 0.
 */
void *tutti_slots_each(const tutti_slots *slots, uint32_t *cursor);

#endif
