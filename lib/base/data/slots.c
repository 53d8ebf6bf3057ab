/*
 * Numbers for things, which stay wrong after the thing has gone. A number is the index of a slot
 * (24 bits) and, above it, how often the slot was used. So looking one up is one access and one
 * comparison, and an old number does not find what is in its slot now.
 */
#include "base/data/slots.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"

#define INDEX_BITS 24
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define NO_SLOT UINT32_MAX

void
tutti_slots_init(tutti_slots *slots, uint32_t most)
{
    assert(most >= 1 && most <= INDEX_MASK);
    *slots = (tutti_slots){.most = most, .first_free = NO_SLOT};
}

/*
 * Numbers from before may then be given out again. So this is only called when nobody has one any
 * more.
 */
void
tutti_slots_fini(tutti_slots *slots)
{
    free(slots->slots);
    tutti_slots_init(slots, slots->most);
}

static tutti_code
grow_slots(tutti_slots *slots, tutti_error *err)
{
    const uint32_t room = slots->room == 0 ? 64 : slots->room * 2;
    tutti_slot *more = realloc(slots->slots, room * sizeof(*more));

    if (more == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %u handles", room);
    }
    slots->slots = more;
    slots->room = room;
    return TUTTI_OK;
}

/* A free slot, one that was used before if there is one. */
static tutti_code
take_slot(tutti_slots *slots, uint32_t *ret_index, tutti_error *err)
{
    if (slots->first_free != NO_SLOT) {
        *ret_index = slots->first_free;
        slots->first_free = slots->slots[slots->first_free].next_free;
        return TUTTI_OK;
    }
    if (slots->used == slots->room) {
        TUTTI_TRY(grow_slots(slots, err));
    }
    *ret_index = slots->used++;
    slots->slots[*ret_index] = (tutti_slot){.generation = 1};
    return TUTTI_OK;
}

tutti_code
tutti_slots_add(tutti_slots *slots, void *owner, uint64_t *ret_number, tutti_error *err)
{
    uint32_t index = 0;

    assert(owner != NULL);
    if (slots->count == slots->most) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "HANDLE_LIMIT",
                              "%u handles are in use, the limit", slots->most);
    }
    TUTTI_TRY(take_slot(slots, &index, err));
    slots->slots[index].owner = owner;
    slots->count++;
    *ret_number = slots->slots[index].generation << INDEX_BITS | index;
    return TUTTI_OK;
}

static tutti_slot *
slot_of(const tutti_slots *slots, uint64_t number)
{
    const uint32_t index = (uint32_t)(number & INDEX_MASK);
    tutti_slot *slot;

    if (index >= slots->used) {
        return NULL;
    }
    slot = &slots->slots[index];
    return slot->owner != NULL && slot->generation == number >> INDEX_BITS ? slot : NULL;
}

void *
tutti_slots_find(const tutti_slots *slots, uint64_t number)
{
    const tutti_slot *slot = slot_of(slots, number);

    return slot == NULL ? NULL : slot->owner;
}

/*
 * The generation is raised here and not when the slot is used again, so an old number is wrong at
 * once.
 */
void
tutti_slots_remove(tutti_slots *slots, uint64_t number)
{
    tutti_slot *slot = slot_of(slots, number);

    assert(slot != NULL);
    slot->owner = NULL;
    slot->generation++;
    slot->next_free = slots->first_free;
    slots->first_free = (uint32_t)(number & INDEX_MASK);
    slots->count--;
}

/* The cursor is an index, so owners may be removed during the walk. */
void *
tutti_slots_each(const tutti_slots *slots, uint32_t *cursor)
{
    while (*cursor < slots->used) {
        void *owner = slots->slots[(*cursor)++].owner;

        if (owner != NULL) {
            return owner;
        }
    }
    return NULL;
}
