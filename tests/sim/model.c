#include "model.h"

static uint32_t broken_model = UINT32_MAX;

void
model_break(uint32_t number)
{
    broken_model = number;
}

/* Small, so that products differ and do not vanish. */
int64_t
model_value(uint32_t number, uint32_t rank, int64_t index)
{
    return (int64_t)number * 1000003 + (int64_t)rank * 1009 + index;
}

uint64_t
model_meta_size(uint32_t number)
{
    return number % 4 == 0 ? 20000 : 1 + number % 90;
}

unsigned char
model_meta(uint32_t number, uint64_t index)
{
    return (unsigned char)(number * 31 + index);
}

/* ------------------------------------------------------------------------------ what there is */

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

static uint32_t
tensors_of(const plan_op *what)
{
    return what->shape == SHAPE_COALESCED ? TENSORS_MAX : 1;
}

/* Of each part of tensor k. */
static int64_t
length_of(const plan_op *what, uint32_t k)
{
    return what->count + 5 * (int64_t)k;
}

int64_t
model_rows(const model_call *self, uint32_t from, uint32_t to)
{
    return self->what->kind == TUTTI_COLL_ALL_TO_ALL
               ? self->what->count + (int64_t)((from * 3 + to) % 4)
               : self->what->count + (int64_t)(to % 3);
}

static bool
is_by_rank(const plan_op *what)
{
    return what->shape == SHAPE_LIST || what->shape == SHAPE_SPLITS;
}

static void
add_tensor(model_tensors *self, int64_t length)
{
    self->lengths[self->count++] = length;
}

static void
give_by_rank(const model_call *self, model_tensors *ret)
{
    const plan_op *what = self->what;
    const bool is_root = self->group_rank == what->root;
    int64_t rows = 0;
    uint32_t i;

    if (what->kind == TUTTI_COLL_ALL_GATHER || what->kind == TUTTI_COLL_GATHER) {
        add_tensor(ret, what->count + (int64_t)self->group_rank);
        return;
    }
    for (i = 0; i < self->size && (what->kind != TUTTI_COLL_SCATTER || is_root); i++) {
        const int64_t own = what->kind == TUTTI_COLL_SCATTER && what->shape == SHAPE_LIST
                                ? what->count
                                : model_rows(self, self->group_rank, i);

        rows += own;
        if (what->shape == SHAPE_LIST) {
            add_tensor(ret, own);
        }
    }
    if (what->shape == SHAPE_SPLITS && (what->kind != TUTTI_COLL_SCATTER || is_root)) {
        add_tensor(ret, rows);
    }
}

void
model_given(const model_call *self, model_tensors *ret)
{
    const int64_t parts = model_parts_given(self);
    uint32_t k;

    ret->count = 0;
    if (is_by_rank(self->what)) {
        give_by_rank(self, ret);
        return;
    }
    for (k = 0; k < tensors_of(self->what) && parts > 0; k++) {
        add_tensor(ret, parts * length_of(self->what, k));
    }
}

static void
get_by_rank(const model_call *self, model_tensors *ret)
{
    const plan_op *what = self->what;
    int64_t rows = 0;
    uint32_t i;

    switch (what->kind) {
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_GATHER:
        for (i = 0;
             i < self->size && (what->kind != TUTTI_COLL_GATHER || self->group_rank == what->root);
             i++) {
            add_tensor(ret, what->count + (int64_t)i);
        }
        break;
    case TUTTI_COLL_ALL_TO_ALL:
        for (i = 0; i < self->size; i++) {
            rows += model_rows(self, i, self->group_rank);
            if (what->shape == SHAPE_LIST) {
                add_tensor(ret, model_rows(self, i, self->group_rank));
            }
        }
        if (what->shape == SHAPE_SPLITS) {
            add_tensor(ret, rows);
        }
        break;
    default: /* its own of a list or of splits */
        add_tensor(ret, what->kind == TUTTI_COLL_SCATTER && what->shape == SHAPE_LIST
                            ? what->count
                            : model_rows(self, what->root, self->group_rank));
    }
}

void
model_got(const model_call *self, model_tensors *ret)
{
    const int64_t parts = model_parts_got(self);
    uint32_t k;

    ret->count = 0;
    if (is_by_rank(self->what)) {
        get_by_rank(self, ret);
        return;
    }
    for (k = 0; k < tensors_of(self->what) && parts > 0; k++) {
        add_tensor(ret, parts * length_of(self->what, k));
    }
}

int64_t
model_sum(const model_tensors *self)
{
    int64_t sum = 0;
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        sum += self->lengths[i];
    }
    return sum;
}

/* ------------------------------------------------------------------------------ what comes of it */

static int64_t
combine(tutti_reduce reduce, int64_t a, int64_t b)
{
    switch (reduce) {
    case TUTTI_REDUCE_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case TUTTI_REDUCE_MIN:
        return a < b ? a : b;
    case TUTTI_REDUCE_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

static int64_t
reduced(const model_call *self, int64_t index)
{
    int64_t total = model_value(self->number, 0, index);
    uint32_t rank;

    for (rank = 1; rank < self->size; rank++) {
        total = combine(self->what->reduce, total, model_value(self->number, rank, index));
    }
    return total;
}

/* Where what `from` has for `to` begins in all that it gives. */
static int64_t
begin_of(const model_call *self, uint32_t from, uint32_t to)
{
    int64_t at = 0;
    uint32_t i;

    for (i = 0; i < to; i++) {
        at += self->what->kind == TUTTI_COLL_SCATTER && self->what->shape == SHAPE_LIST
                  ? self->what->count
                  : model_rows(self, from, i);
    }
    return at;
}

static int64_t
element_by_rank(const model_call *self, int64_t index)
{
    const plan_op *what = self->what;
    uint32_t from = 0;

    if (what->kind == TUTTI_COLL_SCATTER) {
        return model_value(self->number, what->root,
                           begin_of(self, what->root, self->group_rank) + index);
    }
    if (what->kind == TUTTI_COLL_REDUCE_SCATTER) {
        return reduced(self, begin_of(self, 0, self->group_rank) + index);
    }
    if (what->kind == TUTTI_COLL_ALL_TO_ALL) {
        while (index >= model_rows(self, from, self->group_rank)) {
            index -= model_rows(self, from++, self->group_rank);
        }
        return model_value(self->number, from, begin_of(self, from, self->group_rank) + index);
    }
    while (index >= what->count + (int64_t)from) {
        index -= what->count + (int64_t)from++;
    }
    return model_value(self->number, from, index);
}

/* Element `index` of what comes of the tensor that begins at `base`, whose parts have `length`. */
static int64_t
element_of_tensor(const model_call *self, int64_t base, int64_t length, int64_t index)
{
    const plan_op *what = self->what;
    const uint32_t part = length == 0 ? 0 : (uint32_t)(index / length);
    const int64_t in_part = length == 0 ? 0 : index % length;
    const int64_t mine = base + (int64_t)self->group_rank * length + in_part;

    switch (what->kind) {
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_REDUCE:
        return reduced(self, base + index);
    case TUTTI_COLL_REDUCE_SCATTER:
        return reduced(self, mine);
    case TUTTI_COLL_BROADCAST:
    case TUTTI_COLL_SEND:
        return model_value(self->number, what->root, base + index);
    case TUTTI_COLL_SCATTER:
        return model_value(self->number, what->root, mine);
    case TUTTI_COLL_ALL_TO_ALL:
        return model_value(self->number, part, mine);
    case TUTTI_COLL_PERMUTE:
        return model_value(self->number, (self->group_rank + self->size - 1) % self->size,
                           base + index);
    default: /* all_gather, gather */
        return model_value(self->number, part, base + in_part);
    }
}

/* The parts that a rank gives of a tensor, for the rank that gives some. */
static int64_t
parts_of_giver(const model_call *self)
{
    const bool all = self->what->kind == TUTTI_COLL_REDUCE_SCATTER ||
                     self->what->kind == TUTTI_COLL_ALL_TO_ALL ||
                     self->what->kind == TUTTI_COLL_SCATTER;

    return all ? (int64_t)self->size : 1;
}

static int64_t
modelled(const model_call *self, int64_t index)
{
    int64_t base = 0;
    uint32_t k = 0;

    if (is_by_rank(self->what)) {
        return element_by_rank(self, index);
    }
    while (index >= model_parts_got(self) * length_of(self->what, k)) {
        index -= model_parts_got(self) * length_of(self->what, k);
        base += parts_of_giver(self) * length_of(self->what, k);
        k++;
    }
    return element_of_tensor(self, base, length_of(self->what, k), index);
}

int64_t
model_element(const model_call *self, int64_t index)
{
    return modelled(self, index) + (self->number == broken_model ? 1 : 0);
}
