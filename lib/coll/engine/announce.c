/*
 * What signatures do not hold: how many rows, or which shapes, each rank will send, and what the
 * root has to say besides its shape. It travels in one round between the agreement and the data; a
 * second agreement makes sure that everybody could use it.
 */
#include "coll/engine/announce.h"

#include <stdlib.h>

#include "base/fail.h"
#include "coll/infer/infer.h"

enum {
    TELLS_NOTHING,
    TELLS_SPLITS,
    TELLS_SHAPES,
    TELLS_HEAD
};

void
tutti_coll_tell_what(tutti_coll_op *op, const tutti_coll_args *reference)
{
    op->tells = TELLS_NOTHING;
    if (op->args.has_splits) {
        op->tells = TELLS_SPLITS;
    } else if (tutti_signature_is_open(reference)) {
        op->tells = TELLS_SHAPES;
    } else if (tutti_signature_has_head(reference)) {
        op->tells = TELLS_HEAD;
    }
}

tutti_code
tutti_coll_announce(tutti_coll_op *op, tutti_error *err)
{
    switch (op->tells) {
    case TELLS_SPLITS:
        return tutti_coll_send_splits(op, err);
    case TELLS_SHAPES:
        return tutti_coll_send_shapes(op, err);
    default:
        return tutti_coll_send_head(op, err);
    }
}

tutti_code
tutti_coll_hear(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size, tutti_error *err)
{
    if (tutti_coll_op_is_p2p(op)) {
        return tutti_coll_p2p_hear_meta(op, bytes, size, err);
    }
    return op->tells == TELLS_SHAPES ? tutti_coll_hear_shapes(op, from, bytes, size, err)
                                     : tutti_coll_hear_head(op, bytes, size, err);
}

/* A list from the root: what each tensor of it becomes here. */
static tutti_code
use_list(tutti_coll_op *op, tutti_error *err)
{
    tutti_spec *specs = NULL;
    uint32_t count = 0;
    tutti_code code;

    if (!op->args.coalesced || op->on_list == NULL) {
        return TUTTI_OK;
    }
    code = tutti_coll_infer_list(&op->args, op->group->size, op->group->rank, &specs, &count, err);
    if (code == TUTTI_OK) {
        code = op->on_list(op, specs, count, err);
    }
    free(specs);
    return code;
}

tutti_code
tutti_coll_use_told(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;

    if (op->tells == TELLS_SPLITS) {
        return tutti_coll_compare_splits(op, err);
    }
    if (op->tells == TELLS_HEAD) {
        return use_list(op, err);
    }
    if (tutti_coll_is_to_root(op->args.kind) && group->rank != op->args.root) {
        return TUTTI_OK;
    }
    return op->on_list(op, op->shapes, group->size * tutti_coll_parts(&op->args), err);
}

void
tutti_coll_forget_told(tutti_coll_op *op)
{
    free(op->counts);
    free(op->shapes);
    if (op->told != NULL) {
        free(op->told->bytes);
        free(op->told->list);
        free(op->told->splits);
        free(op->told);
    }
    op->counts = NULL;
    op->shapes = NULL;
    op->told = NULL;
}
