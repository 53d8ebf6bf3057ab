/*
 * Tapes by name, their limits and their end. Control loop, without a lock.
 *
 * References to a tape: one of its name (tutti_tape_delete gives it back), one for each pending
 * record, one for each Backward, and those of ops that name it before they are launched. Records of
 * ops that have ended need none: they go with the tape.
 */
#include "server/agent/autograd/tape.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/agent/autograd/tape_private.h"

tutti_code
tutti_tapes_new(uint32_t tapes_max, uint32_t items_max, tutti_tapes **ret_tapes, tutti_error *err)
{
    tutti_tapes *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for tracers");
    }
    self->tapes_max = tapes_max;
    self->items_max = items_max;
    tutti_map_init(&self->by_name);
    tutti_map_init(&self->by_tensor);
    *ret_tapes = self;
    return TUTTI_OK;
}

void
tutti_tapes_free(tutti_tapes *tapes)
{
    if (tapes == NULL) {
        return;
    }
    while (!tutti_tapes_empty(tapes)) {
        tutti_tape_delete(tutti_tapes_next(tapes, NULL));
    }
    assert(tapes->item_count == 0);
    free(tapes);
}

bool
tutti_tapes_empty(const tutti_tapes *tapes)
{
    return tapes->by_name.count == 0;
}

tutti_tape *
tutti_tapes_next(const tutti_tapes *tapes, tutti_tape *tape)
{
    tutti_map_node *node =
        tape == NULL ? tutti_map_first(&tapes->by_name) : tutti_map_next(&tape->by_name);

    return node == NULL ? NULL : tutti_container_of(node, tutti_tape, by_name);
}

static tutti_code
check_tape_new(const tutti_tapes *tapes, const char *name, tutti_error *err)
{
    TUTTI_TRY(tutti_check_name(name, "tracer", err));

    if (tutti_map_find(&tapes->by_name, tutti_bytes_of(name)) != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "NAME_TAKEN",
                              "a tracer is named \"%s\" already", name);
    }
    if (tapes->by_name.count >= tapes->tapes_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "TRACER_LIMIT",
                              "%" PRIu32 " tracers are here, the limit (--tracers-max)",
                              tapes->tapes_max);
    }
    return TUTTI_OK;
}

tutti_code
tutti_tape_new(tutti_tapes *tapes, const char *name, tutti_tape **ret_tape, tutti_error *err)
{
    tutti_tape *tape;

    TUTTI_TRY(check_tape_new(tapes, name, err));
    tape = calloc(1, sizeof(*tape));
    if (tape == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for tracer %s", name);
    }
    (void)snprintf(tape->name, sizeof(tape->name), "%s", name);
    tape->by_name.key = tutti_bytes_of(tape->name);
    tape->tapes = tapes;
    tape->id = ++tapes->last_id;
    tape->refs = 1;
    tutti_list_init(&tape->records);
    tutti_list_init(&tape->leaves);
    (void)tutti_map_add(&tapes->by_name, &tape->by_name);
    *ret_tape = tape;
    return TUTTI_OK;
}

tutti_code
tutti_tape_find(const tutti_tapes *tapes, const char *name, tutti_tape **ret_tape, tutti_error *err)
{
    tutti_map_node *node = tutti_map_find(&tapes->by_name, tutti_bytes_of(name));

    if (node == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TRACER", "no tracer is named \"%.127s\"",
                              name);
    }
    *ret_tape = tutti_container_of(node, tutti_tape, by_name);
    return TUTTI_OK;
}

/* One limit for all tapes of the agent: a program may have many small ones. */
tutti_code
agent_tape_room(const tutti_tape *tape, tutti_error *err)
{
    const tutti_tapes *tapes = tape->tapes;

    if (tapes->item_count >= tapes->items_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "TAPE_LIMIT",
                              "%" PRIu32
                              " ops and attached tensors are on the tapes of this agent, "
                              "the limit (--tape-max): run Backward, or clear tracer %s",
                              tapes->item_count, tape->name);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the end */

/*
 * A leaf that an op had overwritten is again what its tensor holds, as far as the tape knows: the
 * op's record is gone.
 */
void
agent_tape_remap_leaves(tutti_tape *tape)
{
    tutti_list_node *link;

    for (link = tape->leaves.next; link != &tape->leaves; link = link->next) {
        tutti_tape_var *var = tutti_container_of(link, tutti_tape_var, leaf);

        if (tutti_tape_var_of(tape, var->tensor) == NULL) {
            agent_tape_map(var);
        }
    }
}

/* A caller that was told of its op's end may clear before the control loop hears of it. */
static void
clear_pending(tutti_tape *tape, tutti_tape_record *record)
{
    if (!record->cleared && record->told != NULL && atomic_load(record->told)) {
        record->cleared = true;
        tape->cleared_count++;
    }
}

/*
 * Pending records stay: their ops still point to them. With `walked`, records stay too that came
 * after the Backward and had no node.
 */
void
tutti_tape_clear(tutti_tape *tape, bool walked)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &tape->records)
    {
        tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);

        if (record->pending && !walked) {
            clear_pending(tape, record);
        } else if (!record->pending && (!walked || record->node != NULL)) {
            agent_tape_free_record(record);
        }
    }
    if (!walked) {
        tape->cleared_ns = tutti_clock_ns();
    }
    if (!tape->deleted) {
        agent_tape_remap_leaves(tape);
    }
    tape->lossy = false;
}

void
tutti_tape_ref(tutti_tape *tape)
{
    tape->refs++;
}

void
tutti_tape_unref(tutti_tape *tape)
{
    assert(tape->refs > 0);
    tape->refs--;
    if (tape->refs > 0) {
        return;
    }
    tutti_tape_drop_gradients(tape);
    tutti_tape_clear(tape, false);
    while (!tutti_list_empty(&tape->leaves)) {
        agent_tape_unleaf(tutti_container_of(tape->leaves.next, tutti_tape_var, leaf));
    }
    assert(tutti_list_empty(&tape->records));
    free(tape);
}

/*
 * Its name is free at once. Its variables leave the map of tensors, so no op is recorded on it any
 * more. While a Backward still looks for tensors on it they stay in the map, and skip_deleted hides
 * them from ops.
 */
void
tutti_tape_delete(tutti_tape *tape)
{
    tutti_list_node *link;

    assert(!tape->deleted);
    tape->deleted = true;
    tutti_map_remove(&tape->tapes->by_name, &tape->by_name);
    if (tape->backward_count > 0) {
        tutti_tape_unref(tape);
        return;
    }
    for (link = tape->leaves.next; link != &tape->leaves; link = link->next) {
        agent_tape_unmap(tutti_container_of(link, tutti_tape_var, leaf));
    }
    for (link = tape->records.next; link != &tape->records; link = link->next) {
        tutti_tape_var *out = tutti_container_of(link, tutti_tape_record, link)->out;

        if (out != NULL) {
            agent_tape_unmap(out);
        }
    }
    tutti_tape_unref(tape);
}
