#include "coll/host/coll_host_pick.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

tutti_code
tutti_coll_host_state(tutti_coll_op *op, size_t bytes, size_t stage_bytes, void **ret_state,
                      tutti_error *err)
{
    void *state = malloc(bytes + stage_bytes);

    if (state == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED,
                          "no memory for the %zu bytes that an op works in", bytes + stage_bytes);
    }
    memset(state, 0, bytes);
    op->backend_state = state;
    *ret_state = state;
    return TUTTI_OK;
}

tutti_code
tutti_coll_host_stage(tutti_coll_op *op, size_t bytes, unsigned char **ret_stage, tutti_error *err)
{
    host_state *state = op->backend_state;
    size_t i = 0;

    while (state->stages[i] != NULL) {
        i++;
        assert(i < HOST_STAGES_MAX);
    }
    state->stages[i] = malloc(bytes > 0 ? bytes : 1);
    if (state->stages[i] == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED,
                          "no memory for the %zu bytes that an op works in", bytes);
    }
    *ret_stage = state->stages[i];
    return TUTTI_OK;
}

uint64_t
tutti_coll_host_factor(const tutti_coll_op *op)
{
    uint64_t bits;

    memcpy(&bits, &op->args.factor, sizeof(bits));
    return bits;
}

/* Nothing to move: a group of one, or no bytes. */
static tutti_code
advance_nothing(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    (void)op;
    (void)err;
    *ret_done = true;
    return TUTTI_OK;
}

static tutti_code
start_nothing(tutti_coll_op *op, tutti_error *err)
{
    static const host_algorithm nothing = {.advance = advance_nothing};
    void *state = NULL;
    const tutti_code code = tutti_coll_host_state(op, sizeof(host_state), 0, &state, err);

    if (code == TUTTI_OK) {
        ((host_state *)state)->algorithm = &nothing;
    }
    return code;
}

void
tutti_coll_host_finish(tutti_coll_op *op)
{
    host_state *state = op->backend_state;
    size_t i;

    for (i = 0; i < HOST_STAGES_MAX && state != NULL; i++) {
        free(state->stages[i]);
    }
    free(state);
    op->backend_state = NULL;
}

/* The same on all ranks: who has nothing may still be needed, to learn hosts say. */
static bool
moves_nothing(const tutti_coll_op *op)
{
    const tutti_coll_args *args = &op->args;

    if (args->kind == TUTTI_COLL_BARRIER || !args->has_spec) {
        return true;
    }
    if (args->form == TUTTI_FORM_LIST || args->has_splits) { /* others may have something */
        return false;
    }
    return tutti_spec_bytes(&args->spec) == 0;
}

tutti_code
tutti_coll_host_by_messages(tutti_coll_op *op, bool learnt, tutti_error *err)
{
    return moves_nothing(op) ? start_nothing(op, err) : tutti_coll_host_pick(op, learnt, err);
}

static tutti_code
start(tutti_coll_op *op, tutti_error *err)
{
    tutti_code code;

    op->backend_state = NULL;
    if (tutti_coll_host_has_ridden(op)) {
        code = tutti_coll_host_ridden(op, err);
    } else if (tutti_coll_host_is_direct(op)) {
        code = tutti_coll_host_direct(op, err);
    } else {
        code = tutti_coll_host_by_messages(op, false, err);
    }
    if (code != TUTTI_OK) {
        tutti_coll_host_finish(op);
    }
    return code;
}

static tutti_code
advance(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    const host_state *state = op->backend_state;

    return state->algorithm->advance(op, ret_done, err);
}

const tutti_coll_backend tutti_coll_host = {
    .size = sizeof(tutti_coll_backend),
    .name = "host",
    .start = start,
    .advance = advance,
    .finish = tutti_coll_host_finish,
    .vote = tutti_coll_host_vote,
    .ride = tutti_coll_host_ride,
};
