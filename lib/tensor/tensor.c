/*
 * The door of tensors: specs are checked, references and tensors counted, and what a space does is
 * called. Any thread; no locks here. The bytes are given back by the thread that drops the last
 * reference, outside of any lock of this room.
 */
#include "tensor/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "tensor/space.h"

#define BLOCK_BYTES 64 /* all kinds of memory are given out in such units */

/* Where tensors of 0 bytes point to: nobody reads or writes there. */
static alignas(64) unsigned char nothing[64];

static tutti_code
find_bytes(tutti_space *space, tutti_fill fill, tutti_tensor *tensor, tutti_error *err)
{
    tutti_code code;

    if (tensor->bytes == 0) {
        tensor->data = nothing;
        return TUTTI_OK;
    }
    code = space->ops->take(space, tensor->bytes, fill, tensor, err);
    assert(code != TUTTI_OK || (tensor->data != NULL && (uintptr_t)tensor->data % 64 == 0));
    return code;
}

const char *
tutti_space_device(const tutti_space *space)
{
    return space->device[0] == '\0' ? "cpu" : space->device;
}

bool
tutti_tensor_is_host(const tutti_tensor *tensor)
{
    return tensor->space->ops->moves == NULL;
}

/* What a tensor takes of used_bytes. */
static uint64_t
taken_bytes(const tutti_tensor *tensor)
{
    return (tensor->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* Relaxed, as tensor_count. `bytes` may be negative. */
static void
count_held(tutti_space *space, tutti_holder holder, uint64_t bytes)
{
    atomic_fetch_add_explicit(&space->held_bytes[holder], bytes, memory_order_relaxed);
}

/* tensor_count is relaxed: it is a number for people, and for the assertion at the close, when all
 * threads have come to rest. */
static tutti_code
make_tensor(tutti_space *space, const tutti_spec *spec, tutti_fill fill, tutti_tensor **ret_tensor,
            tutti_error *err)
{
    tutti_tensor *self;
    uint64_t bytes = 0;
    tutti_code code;

    assert(space != NULL && ret_tensor != NULL);
    TUTTI_TRY(tutti_spec_check(spec, NULL, &bytes, err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a tensor's record");
    }
    self->spec = *spec;
    self->bytes = bytes;
    self->space = space;
    self->unheld = TUTTI_HOLDER_NONE;
    atomic_init(&self->refs, 1);
    code = find_bytes(space, fill, self, err);
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    atomic_fetch_add_explicit(&space->tensor_count, 1, memory_order_relaxed);
    count_held(space, TUTTI_HOLDER_NONE, taken_bytes(self));
    *ret_tensor = self;
    return TUTTI_OK;
}

tutti_code
tutti_tensor_new(tutti_space *space, const tutti_spec *spec, bool zeroed, tutti_tensor **ret_tensor,
                 tutti_error *err)
{
    return make_tensor(space, spec, zeroed ? TUTTI_FILL_ZERO : TUTTI_FILL_CLEAN, ret_tensor, err);
}

tutti_code
tutti_tensor_new_raw(tutti_space *space, const tutti_spec *spec, tutti_tensor **ret_tensor,
                     tutti_error *err)
{
    return make_tensor(space, spec, TUTTI_FILL_RAW, ret_tensor, err);
}

static tutti_code
check_view(const tutti_tensor *whole, uint64_t offset, const tutti_spec *spec, tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(spec);
    const uint64_t unit = tutti_dtype_bytes(spec->dtype);

    if (offset > whole->bytes || bytes > whole->bytes - offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANGE_OUTSIDE",
                              "%" PRIu64 " bytes from byte %" PRIu64
                              " on are not in the tensor, which has %" PRIu64 " bytes",
                              bytes, offset, whole->bytes);
    }
    if (offset % unit != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANGE_ALIGN",
                              "the range begins at byte %" PRIu64
                              ", need a multiple of the %" PRIu64 " bytes of an element of %s",
                              offset, unit, tutti_dtype_name(spec->dtype));
    }
    return TUTTI_OK;
}

tutti_code
tutti_tensor_view(tutti_tensor *whole, uint64_t offset, const tutti_spec *spec,
                  tutti_tensor **ret_view, tutti_error *err)
{
    tutti_tensor *self;

    assert(whole->whole == NULL);
    TUTTI_TRY(check_view(whole, offset, spec, err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a tensor's record");
    }
    self->spec = *spec;
    self->bytes = tutti_spec_bytes(spec);
    self->data = self->bytes == 0 ? nothing : (unsigned char *)whole->data + offset;
    self->space = whole->space;
    self->offset = whole->offset + offset;
    self->whole = whole;
    atomic_init(&self->refs, 1);
    tutti_tensor_ref(whole);
    *ret_view = self;
    return TUTTI_OK;
}

/* Relaxed is enough to add a reference: the caller has one already, so the tensor cannot go
 * meanwhile. */
void
tutti_tensor_ref(tutti_tensor *tensor)
{
    const uint32_t before = atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);

    assert(before >= 1 && before < UINT32_MAX);
}

void
tutti_tensor_unref(tutti_tensor *tensor)
{
    uint32_t before;

    if (tensor == NULL) {
        return;
    }
    /* Release: what this thread wrote through its reference comes before the count falls. Acquire:
     * the thread that frees sees what all others wrote, before the bytes are given away. */
    before = atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel);
    assert(before >= 1);
    if (before > 1) {
        return;
    }
    if (tensor->whole != NULL) {
        tutti_tensor_unref(tensor->whole);
        free(tensor);
        return;
    }
    assert(tensor->holders[TUTTI_HOLDER_REGISTER] + tensor->holders[TUTTI_HOLDER_TENSOR] +
               tensor->holders[TUTTI_HOLDER_MAPPING] ==
           0);
    count_held(tensor->space, tensor->unheld, 0 - taken_bytes(tensor));
    if (tensor->bytes > 0) {
        tensor->space->ops->give(tensor->space, tensor);
    }
    atomic_fetch_sub_explicit(&tensor->space->tensor_count, 1, memory_order_relaxed);
    free(tensor);
}

/* ------------------------------------------------------------------------------ who holds it */

/* One for all tensors: it is held for a few instructions. */
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;

static tutti_holder
tensor_holder(const tutti_tensor *tensor)
{
    tutti_holder holder = TUTTI_HOLDER_REGISTER;

    while (holder < TUTTI_HOLDER_NONE && tensor->holders[holder] == 0) {
        holder++;
    }
    return holder < TUTTI_HOLDER_NONE ? holder : tensor->unheld;
}

static void
change_holders(tutti_tensor *tensor, tutti_holder holder, uint32_t change)
{
    tutti_tensor *whole = tensor->whole == NULL ? tensor : tensor->whole;
    const uint64_t bytes = taken_bytes(whole);
    tutti_holder before;

    (void)pthread_mutex_lock(&holding);
    before = tensor_holder(whole);
    whole->holders[holder] += change;
    whole->unheld = TUTTI_HOLDER_LENT; /* when all of them have let go */
    count_held(whole->space, before, 0 - bytes);
    count_held(whole->space, tensor_holder(whole), bytes);
    (void)pthread_mutex_unlock(&holding);
}

void
tutti_tensor_hold(tutti_tensor *tensor, tutti_holder holder)
{
    change_holders(tensor, holder, 1);
}

void
tutti_tensor_let_go(tutti_tensor *tensor, tutti_holder holder)
{
    change_holders(tensor, holder, UINT32_MAX); /* one less */
}

void
tutti_tensor_mark(tutti_tensor *tensor, tutti_holder unheld)
{
    assert(tensor->whole == NULL && unheld >= TUTTI_HOLDER_NONE);
    count_held(tensor->space, tensor->unheld, 0 - taken_bytes(tensor));
    tensor->unheld = unheld;
    count_held(tensor->space, unheld, taken_bytes(tensor));
}

/* ------------------------------------------------------------------------------ own memory */

tutti_code
tutti_tensor_can_own(const tutti_tensor *tensor, tutti_error *err)
{
    if (tensor->bytes == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "CANNOT_SHARE",
                              "the tensor has 0 bytes: there is nothing to share");
    }
    if (tensor->space->ops->own == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "CANNOT_SHARE",
                              "the tensor is in memory that no other process can map");
    }
    return TUTTI_OK;
}

tutti_code
tutti_tensor_own(tutti_tensor *tensor, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (tensor->own == NULL) {
        code = tutti_tensor_can_own(tensor, err);
    }
    if (tensor->own == NULL && code == TUTTI_OK) {
        code = tensor->space->ops->own(tensor->space, tensor, err);
    }
    return code;
}

int
tutti_tensor_descriptor(const tutti_tensor *tensor)
{
    assert(tensor->own != NULL);
    return tensor->space->ops->descriptor(tensor);
}

bool
tutti_tensor_is_own(const tutti_tensor *tensor)
{
    return tensor->own != NULL;
}

/* Acquire: if the answer is no, what the last other holder wrote is visible to the caller, who may
 * now use the bytes alone. */
bool
tutti_tensor_is_shared(const tutti_tensor *tensor)
{
    return atomic_load_explicit(&tensor->refs, memory_order_acquire) > 1;
}

void
tutti_space_stat(tutti_space *space, tutti_space_stats *ret_stats)
{
    tutti_space_stats stats = {0};
    size_t i;

    space->ops->stat(space, &stats);
    assert(stats.used_bytes <= stats.limit_bytes);
    for (i = 0; i < TUTTI_HOLDERS; i++) {
        stats.held_bytes[i] = atomic_load_explicit(&space->held_bytes[i], memory_order_relaxed);
    }
    stats.tensor_count = atomic_load_explicit(&space->tensor_count, memory_order_relaxed);
    *ret_stats = stats;
}

void
tutti_space_close(tutti_space *space)
{
    if (space == NULL) {
        return;
    }
    assert(atomic_load(&space->tensor_count) == 0);
    space->ops->close(space);
}

tutti_code
tutti_space_fail_limit(const tutti_space_stats *stats, uint64_t bytes, const char *device,
                       tutti_error *err)
{
    char buffer[256];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    tutti_text_add(&text, "no room for a tensor of ");
    tutti_text_add_bytes(&text, bytes);
    if (device != NULL) {
        tutti_text_add(&text, " on ");
        tutti_text_add(&text, "%s", device);
    }
    tutti_text_add(&text, ": ");
    tutti_text_add_bytes(&text, stats->used_bytes);
    tutti_text_add(&text, " of ");
    tutti_text_add_bytes(&text, stats->limit_bytes);
    tutti_text_add(&text, " are used");
    if (stats->used_bytes + bytes <= stats->limit_bytes) {
        tutti_text_add(&text, ", and what is free is fragmented: the longest run has ");
        tutti_text_add_bytes(&text, stats->hole_bytes_max);
    }
    tutti_text_add(&text, "; delete tensors or raise ");
    tutti_text_add(&text, device == NULL ? "--memory-limit" : "--device-memory-limit");
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT", "%s", buffer);
}
