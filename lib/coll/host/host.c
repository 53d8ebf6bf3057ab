/*
 * The host backend's way in: which of its three ways an op goes (riders, each other's memory,
 * messages), and ops that move nothing. Engine's thread, as all of this folder; backend.h is the
 * contract.
 *
 * If an op fails in the middle (a deadline, a dead rank), the engine ends its messages and calls
 * tutti_coll_host_finish when none is in flight: all memory of an op hangs on its host_state, so
 * nothing else is needed, and there is no abandon.
 */
#include "coll/host/pick.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

/* Nothing to move: a barrier, or no bytes. */
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

    TUTTI_TRY(tutti_coll_host_state(op, sizeof(host_state), 0, &state, err));

    ((host_state *)state)->algorithm = &nothing;
    return TUTTI_OK;
}

/* Alike on all ranks: a rank that has nothing may still be needed by an algorithm. With lists and
 * splits, others may have something, so these are never left out. */
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

static tutti_code
start_by_messages(tutti_coll_op *op, bool learnt, tutti_error *err)
{
    return moves_nothing(op) ? start_nothing(op, err) : tutti_coll_host_pick(op, learnt, err);
}

/*
 * The order matters: riders are looked for first, since with them there is nothing left to move.
 * All three questions have the same answer on all ranks. On failure start frees what it made
 * (backend.h).
 */
static tutti_code
start_host_op(tutti_coll_op *op, tutti_error *err)
{
    tutti_code code;

    assert(tutti_coll_group_size(op->group) > 1); /* coll/self has groups of one rank */
    op->backend_state = NULL;
    if (tutti_coll_host_has_ridden(op)) {
        code = tutti_coll_host_ridden(op, err);
    } else if (tutti_coll_host_is_direct(op)) {
        code = tutti_coll_host_direct(op, start_by_messages, err);
    } else {
        code = start_by_messages(op, false, err);
    }
    if (code != TUTTI_OK) {
        tutti_coll_host_finish(op);
    }
    return code;
}

static tutti_code
advance_host_op(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    const host_state *state = op->backend_state;

    return state->algorithm->advance(op, ret_done, err);
}

const tutti_coll_backend tutti_coll_host = {
    .size = sizeof(tutti_coll_backend),
    .name = "host",
    .start = start_host_op,
    .advance = advance_host_op,
    .finish = tutti_coll_host_finish,
    .vote = tutti_coll_host_vote,
    .piggyback = tutti_coll_host_piggyback,
};
