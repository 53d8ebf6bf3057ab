/* The memory of an op: its state and its stages. All of it hangs on op->backend_state and is freed
 * by tutti_coll_host_finish, also when start fails half way. */
#include "coll/host/host_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

/* One malloc for state and stage: small ops are made and freed often. Only the state is zeroed. */
tutti_code
tutti_coll_host_state(tutti_coll_op *op, size_t bytes, size_t stage_bytes, void **ret_state,
                      tutti_error *err)
{
    void *state = malloc(bytes + stage_bytes);

    if (state == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the %zu bytes that an op works in",
                                 bytes + stage_bytes);
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
        return TUTTI_FAIL_MEMORY(err, "no memory for the %zu bytes that an op works in", bytes);
    }
    *ret_stage = state->stages[i];
    return TUTTI_OK;
}

/* As bits: a factor travels in the `extra` of packets, and a NaN must arrive as it was. */
uint64_t
tutti_coll_host_factor(const tutti_coll_op *op)
{
    uint64_t bits;

    memcpy(&bits, &op->args.factor, sizeof(bits));
    return bits;
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

/*
 * For an op that goes on by another algorithm: nothing of the first is in flight (advance is called
 * so), so its state can be freed. Steps of the first must not come again in the second: hosts.c and
 * direct.c have numbers of their own.
 */
tutti_code
tutti_coll_host_restart(tutti_coll_op *op, host_start_fn start, bool learnt, bool *ret_done,
                        tutti_error *err)
{
    tutti_coll_host_finish(op);
    op->round = 0;
    TUTTI_TRY(start(op, learnt, err));
    return ((const host_state *)op->backend_state)->algorithm->advance(op, ret_done, err);
}
