/* Which piece goes where in each op that is an exchange: the same views as in coll/host/parts.c, of
 * device memory, which is never touched here. Pure. */
#include "base/error/fail.h"
#include "coll/infer/infer.h"
#include "coll/nccl/plan.h"
#include "coll/packet/strided.h"

tutti_spec
tutti_nccl_view_of(const tutti_coll_op *op, uint32_t *ret_axis)
{
    const tutti_coll_args *args = &op->args;

    *ret_axis = args->axis;
    if (args->form == TUTTI_FORM_FLAT || args->spec.dim_count == 0) {
        *ret_axis = 0;
        return (tutti_spec){.dtype = args->spec.dtype,
                            .dim_count = 1,
                            .dims = {(int64_t)tutti_spec_count(&args->spec)}};
    }
    if ((int32_t)args->axis < 0) {
        *ret_axis += args->spec.dim_count;
    }
    return args->spec;
}

static void
cut_input(const tutti_coll_op *op, const void *input, nccl_pieces *pieces)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t axis;
    const tutti_spec view = tutti_nccl_view_of(op, &axis);
    uint32_t i;

    for (i = 0; i < size; i++) {
        pieces->out[i] = tutti_strided_cut(input, &view, axis, i, size);
    }
}

static void
cut_list(const tutti_coll_op *op, nccl_pieces *pieces)
{
    uint32_t i;

    for (i = 0; i < op->args.list_count; i++) {
        pieces->out[i] =
            tutti_strided_view(op->args.list[i].data, tutti_spec_bytes(&op->args.list[i].spec));
    }
}

/* Tensors of their own shapes: from each rank what it said. */
static void
join_list(const tutti_coll_op *op, nccl_pieces *pieces)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const size_t first = (size_t)op->part * size;
    uint32_t i;

    for (i = 0; i < size; i++) {
        pieces->in[i] = tutti_strided_view(op->outputs[first + i].data,
                                           tutti_spec_bytes(&op->shapes[first + i]));
    }
}

static void
set_all_gather(const tutti_coll_op *op, const void *input, nccl_pieces *pieces)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    uint32_t i;

    for (i = 0; i < tutti_coll_group_size(op->group); i++) {
        pieces->out[i] = tutti_strided_view(input, bytes);
    }
    join_list(op, pieces);
}

static void
set_gather(const tutti_coll_op *op, const void *input, nccl_pieces *pieces)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t axis;
    const tutti_spec view = tutti_nccl_view_of(op, &axis);
    uint32_t i;

    pieces->out[op->args.root] = tutti_strided_view(input, tutti_spec_bytes(&op->args.spec));
    if (tutti_coll_group_rank(op->group) != op->args.root) {
        return;
    }
    if (op->args.form == TUTTI_FORM_LIST) {
        join_list(op, pieces);
        return;
    }
    for (i = 0; i < size; i++) {
        pieces->in[i] = tutti_strided_join(op->output, &view, axis, i, size);
    }
}

static tutti_code
set_scatter(const tutti_coll_op *op, const void *input, nccl_pieces *pieces, tutti_error *err)
{
    const uint32_t me = tutti_coll_group_rank(op->group);
    tutti_spec part;

    TUTTI_TRY(tutti_coll_infer(&op->args, tutti_coll_group_size(op->group), me, &part, err));
    if (me == op->args.root && op->args.form == TUTTI_FORM_LIST) {
        cut_list(op, pieces);
    } else if (me == op->args.root && op->args.root_splits != NULL) {
        tutti_pieces_of_rows(input, &op->args.spec, op->args.root_splits,
                             tutti_coll_group_size(op->group), pieces->out);
    } else if (me == op->args.root) {
        cut_input(op, input, pieces);
    }
    pieces->in[op->args.root] = tutti_strided_view(op->output, tutti_spec_bytes(&part));
    return TUTTI_OK;
}

/* What is reduced: as much from each rank as is ours. */
static void
set_reduce_scatter(const tutti_coll_op *op, const void *input, nccl_pieces *pieces)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint64_t bytes;
    uint32_t i;

    if (op->args.form == TUTTI_FORM_LIST) {
        cut_list(op, pieces);
    } else {
        cut_input(op, input, pieces);
    }
    bytes = tutti_strided_bytes(&pieces->out[tutti_coll_group_rank(op->group)]);
    for (i = 0; i < size; i++) {
        pieces->in[i] = tutti_strided_view(op->output, bytes);
    }
}

static tutti_code
set_all_to_all(const tutti_coll_op *op, const void *input, nccl_pieces *pieces, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    tutti_spec part = {0};
    uint32_t i;

    if (op->args.form == TUTTI_FORM_LIST) {
        cut_list(op, pieces);
        join_list(op, pieces);
        return TUTTI_OK;
    }
    if (op->args.has_splits) {
        tutti_pieces_of_rows(input, &op->args.spec, op->args.send_splits,
                             tutti_coll_group_size(op->group), pieces->out);
        tutti_pieces_of_rows(op->output, &op->args.spec, op->args.recv_splits,
                             tutti_coll_group_size(op->group), pieces->in);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_coll_infer_part(&op->args, size, &part, err));
    for (i = 0; i < size; i++) {
        pieces->out[i] = tutti_strided_cut(input, &op->args.spec, op->args.axis, i, size);
        pieces->in[i] = tutti_strided_join(op->output, &part, op->args.concat_axis, i, size);
    }
    return TUTTI_OK;
}

static void
set_permute(const tutti_coll_op *op, const void *input, nccl_pieces *pieces)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t me = tutti_coll_group_rank(op->group);
    uint32_t i;

    pieces->out[op->args.to[me]] = tutti_strided_view(input, bytes);
    for (i = 0; i < op->args.to_count; i++) {
        if (op->args.to[i] == me) {
            pieces->in[i] = tutti_strided_view(op->output, bytes);
        }
    }
}

tutti_code
tutti_nccl_pieces_of(const tutti_coll_op *op, const void *input, nccl_pieces *pieces,
                     tutti_error *err)
{
    switch (op->args.kind) {
    case TUTTI_COLL_ALL_GATHER: /* as a list */
        set_all_gather(op, input, pieces);
        return TUTTI_OK;
    case TUTTI_COLL_GATHER:
        set_gather(op, input, pieces);
        return TUTTI_OK;
    case TUTTI_COLL_SCATTER:
        return set_scatter(op, input, pieces, err);
    case TUTTI_COLL_REDUCE_SCATTER:
        set_reduce_scatter(op, input, pieces);
        return TUTTI_OK;
    case TUTTI_COLL_ALL_TO_ALL:
        return set_all_to_all(op, input, pieces, err);
    default:
        set_permute(op, input, pieces);
        return TUTTI_OK;
    }
}
