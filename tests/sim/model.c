#include "model.h"

static uint32_t broken_model = UINT32_MAX;

void
model_break(uint32_t number)
{
    broken_model = number;
}

int64_t
model_value(uint32_t number, uint32_t rank, int64_t index)
{
    return (int64_t)number * 1000003 + (int64_t)rank * 1009 + index;
}

int64_t
model_parts_given(const model_call *self)
{
    switch (self->what->kind) {
    case TUTTI_COLL_BARRIER:
        return 0;
    case TUTTI_COLL_REDUCE_SCATTER:
    case TUTTI_COLL_ALL_TO_ALL:
        return self->size;
    case TUTTI_COLL_SCATTER:
        return self->group_rank == self->what->root ? (int64_t)self->size : 0;
    case TUTTI_COLL_BROADCAST:
    case TUTTI_COLL_SEND:
        return self->group_rank == self->what->root ? 1 : 0;
    default:
        return 1;
    }
}

int64_t
model_parts_got(const model_call *self)
{
    const bool is_root = self->group_rank == self->what->root;

    switch (self->what->kind) {
    case TUTTI_COLL_BARRIER:
        return 0;
    case TUTTI_COLL_SEND:
        return is_root ? 0 : 1;
    case TUTTI_COLL_REDUCE:
        return is_root ? 1 : 0;
    case TUTTI_COLL_GATHER:
        return is_root ? (int64_t)self->size : 0;
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_ALL_TO_ALL:
        return self->size;
    default:
        return 1;
    }
}

static int64_t
sum(const model_call *self, int64_t index)
{
    int64_t total = 0;
    uint32_t rank;

    for (rank = 0; rank < self->size; rank++) {
        total += model_value(self->number, rank, index);
    }
    return total;
}

static int64_t
modelled(const model_call *self, int64_t index)
{
    const plan_op *what = self->what;
    const uint32_t part = what->count == 0 ? 0 : (uint32_t)(index / what->count);
    const int64_t in_part = what->count == 0 ? 0 : index % what->count;
    const int64_t mine = (int64_t)self->group_rank * what->count + in_part;

    switch (what->kind) {
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_REDUCE:
        return sum(self, index);
    case TUTTI_COLL_REDUCE_SCATTER:
        return sum(self, mine);
    case TUTTI_COLL_BROADCAST:
    case TUTTI_COLL_SEND:
        return model_value(self->number, what->root, index);
    case TUTTI_COLL_SCATTER:
        return model_value(self->number, what->root, mine);
    case TUTTI_COLL_ALL_TO_ALL:
        return model_value(self->number, part, mine);
    case TUTTI_COLL_PERMUTE:
        return model_value(self->number, (self->group_rank + self->size - 1) % self->size, index);
    default: /* all_gather, gather */
        return model_value(self->number, part, in_part);
    }
}

int64_t
model_element(const model_call *self, int64_t index)
{
    return modelled(self, index) + (self->number == broken_model ? 1 : 0);
}
