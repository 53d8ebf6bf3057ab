/*
 * Memory of the caller's and the arena. Small arrays that are not in the arena are faster in the call. An input that lies in its
 * own result, as a rank's part of what is gathered, or has its result in it, as what is scattered, is copied, because the agent
 * refuses such ranges. Two that overlap otherwise are left to the agent, which refuses them by name.
 */
#include "client/op/place.h"

#include <string.h>

#include "client/tensor/arena.h"

/* The result's own shape does not matter: the agent compares dtype and number of elements. */
static tutti_spec
describe_result(const client_inline *memory)
{
    const tutti_dtype dtype = memory->spec->dtype;

    return (tutti_spec){.dtype = dtype,
                        .dim_count = 1,
                        .dims = {(int64_t)(memory->result_bytes / tutti_dtype_bytes(dtype))}};
}

/* Has `inner` fewer bytes, all of them in `outer`? */
static bool
lies_within(const char *inner, uint64_t inner_bytes, const char *outer, uint64_t outer_bytes)
{
    return inner_bytes < outer_bytes && inner >= outer &&
           inner + inner_bytes <= outer + outer_bytes;
}

static bool
shares_bytes(const client_inline *memory)
{
    return memory->gives && memory->takes &&
           (lies_within(memory->data, memory->bytes, memory->result, memory->result_bytes) ||
            lies_within(memory->result, memory->result_bytes, memory->data, memory->bytes));
}

/* Else nobody could say how much of it the op writes. */
static bool
has_whole_elements(const client_inline *memory)
{
    const size_t unit = tutti_dtype_bytes(memory->spec->dtype);

    return !memory->takes ||
           (unit != 0 && memory->result_bytes <= INT64_MAX && memory->result_bytes % unit == 0);
}

/* Which of the two arrays need a block. */
typedef struct place_need {
    bool give;
    bool take;
    bool in_place; /* of both, one */
} place_need;

static bool
take_blocks(tutti_client *client, const client_inline *memory, const place_need *need,
            client_place *place)
{
    tutti_spec result;

    if (need->give && !client_arena_stage(client, memory->bytes, memory->spec, &place->blocks.give,
                                          place->give)) {
        return false;
    }
    if (need->give && need->take && need->in_place) {
        place->blocks.take = place->blocks.give;
        memcpy(place->take, place->give, sizeof(place->take));
        return true;
    }
    if (!need->take) {
        return true;
    }
    result = describe_result(memory);
    return client_arena_stage(client, memory->result_bytes, &result, &place->blocks.take,
                              place->take);
}

/* False: the agent has no room for it, and the caller goes another way. */
static bool
stage_place(tutti_client *client, const client_inline *memory, const place_need *need,
            client_place *place)
{
    if (!take_blocks(client, memory, need, place)) {
        client_blocks_free(client, &place->blocks, false);
        return false;
    }
    if (need->give) {
        memcpy(place->blocks.give, memory->data, (size_t)memory->bytes);
        client_arena_count_copy(client, memory->bytes);
    }
    return true;
}

static bool
may_stage(const client_inline *memory, uint64_t least)
{
    const uint64_t given = memory->gives ? memory->bytes : 0;
    const uint64_t taken = memory->takes ? memory->result_bytes : 0;

    return (given > taken ? given : taken) > least && (!memory->gives || given > 0) &&
           (!memory->takes || taken > 0);
}

bool
client_place_find(tutti_client *client, const client_inline *memory, uint64_t least, bool in_place,
                  client_place *ret_place)
{
    place_need need = {.in_place = in_place};
    tutti_spec result = {0};

    if ((!memory->gives && !memory->takes) || !has_whole_elements(memory)) {
        return false;
    }
    ret_place->blocks = (client_blocks){0};
    if (memory->takes) {
        result = describe_result(memory);
    }
    need.give =
        memory->gives && (shares_bytes(memory) ||
                          !client_arena_find(client, memory->data, memory->spec, ret_place->give));
    need.take =
        memory->takes && !client_arena_find(client, memory->result, &result, ret_place->take);
    if (!need.give && !need.take) {
        return true;
    }
    return may_stage(memory, least) && stage_place(client, memory, &need, ret_place);
}

void
client_blocks_take(tutti_client *client, const client_blocks *self, void *result, uint64_t bytes)
{
    if (self->take != NULL) {
        memcpy(result, self->take, (size_t)bytes);
        client_arena_count_copy(client, bytes);
    }
}

void
client_blocks_free(tutti_client *client, client_blocks *self, bool doubt)
{
    void (*const free_block)(tutti_client *, void *) =
        doubt ? client_arena_doubt : tutti_free_memory;

    if (self->take != self->give) {
        free_block(client, self->take);
    }
    free_block(client, self->give);
    *self = (client_blocks){0};
}
