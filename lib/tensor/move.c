/*
 * The door of moves: checks what a caller says of a part, and passes it to the space. Any thread.
 * Mistakes here are assertions, since parts come from our own code, which has checked what users
 * say.
 */
#include "tensor/move.h"

#include <assert.h>

#include "tensor/space.h"

static const tutti_space_moves *
moves_of(const tutti_space *space)
{
    assert(space->ops->moves != NULL);
    return space->ops->moves;
}

tutti_slot *
tutti_slot_take(tutti_space *space)
{
    return moves_of(space)->take_slot(space);
}

void
tutti_slot_wait(tutti_space *space, tutti_slot_wish *wish)
{
    assert(wish->on_slot != NULL);
    moves_of(space)->wait_slot(space, wish);
}

void
tutti_slot_give(tutti_slot *slot)
{
    moves_of(slot->space)->give_slot(slot->space, slot);
}

bool
tutti_slot_is_scarce(tutti_slot *slot)
{
    return moves_of(slot->space)->is_scarce(slot->space);
}

static void
check_part(const tutti_tensor *tensor, uint64_t offset, const tutti_slot *slot, size_t size)
{
    assert(size > 0 && size <= slot->size);
    assert(offset <= tensor->bytes && size <= tensor->bytes - offset);
    assert(slot->space == tensor->space);
}

void
tutti_move_in(tutti_move *move, tutti_tensor *to, uint64_t offset, tutti_slot *from, size_t size)
{
    check_part(to, offset, from, size);
    move->to = to;
    move->slot = from;
    moves_of(to->space)->in(to->space, move, offset, size);
}

void
tutti_move_out(tutti_move *move, tutti_tensor *from, uint64_t offset, tutti_slot *to, size_t size)
{
    check_part(from, offset, to, size);
    move->from = from;
    move->slot = to;
    moves_of(from->space)->out(from->space, move, offset, size);
}

/* At least one of the two is of a space with moves; that space does the copy. */
void
tutti_move_copy(tutti_move *move, tutti_tensor *from, tutti_tensor *to)
{
    const tutti_move_range all = {.bytes = from->bytes};

    assert(from->bytes == to->bytes);
    tutti_move_copy_range(move, from, to, &all);
}

void
tutti_move_copy_range(tutti_move *move, tutti_tensor *from, tutti_tensor *to,
                      const tutti_move_range *range)
{
    tutti_space *space = to->space->ops->moves != NULL ? to->space : from->space;

    assert(range->bytes > 0 && range->from_offset + range->bytes <= from->bytes &&
           range->to_offset + range->bytes <= to->bytes);
    move->from = from;
    move->to = to;
    move->range = *range;
    move->more = NULL;
    moves_of(space)->copy(space, move);
}
