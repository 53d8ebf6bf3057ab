/*
 * Which piece goes where, for each op that is an exchange: reduce, gather, scatter, reduce_scatter,
 * all_to_all, permute, and all_gather of lists. Pieces are views: nothing is copied here, except
 * the input of an all_to_all in place.
 *
 * Sizes on both sides of a pair follow from args that were agreed on, or from what was announced
 * (splits, shapes), so sender and receiver always find the same number of bytes.
 */
#include <string.h>

#include "base/error/fail.h"
#include "coll/host/exchange.h"
#include "coll/infer/infer.h"
#include "coll/packet/strided.h"

typedef struct place {
    tutti_spec spec;
    uint32_t axis;
} place;

/* A tensor as rows and columns: flat and scalar ones have one row. */
static place
place_in(const tutti_coll_op *op)
{
    const tutti_coll_args *args = &op->args;
    place self = {.spec = args->spec, .axis = args->axis};

    if (args->form == TUTTI_FORM_FLAT || args->spec.dim_count == 0) {
        self.spec = (tutti_spec){.dtype = args->spec.dtype,
                                 .dim_count = 1,
                                 .dims = {(int64_t)tutti_spec_count(&args->spec)}};
        self.axis = 0;
    } else if ((int32_t)self.axis < 0) {
        self.axis += self.spec.dim_count;
    }
    return self;
}

static void
cut_input(const tutti_coll_op *op, host_exchange *exchange)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const place at = place_in(op);
    uint32_t i;

    for (i = 0; i < size; i++) {
        exchange->out[i] = tutti_strided_cut(op->input, &at.spec, at.axis, i, size);
    }
}

/* A tensor for each rank. */
static void
take_parts_list(const tutti_coll_op *op, host_exchange *exchange)
{
    uint32_t i;

    for (i = 0; i < op->args.list_count; i++) {
        exchange->out[i] =
            tutti_strided_view(op->args.list[i].data, tutti_spec_bytes(&op->args.list[i].spec));
    }
}

/* ------------------------------------------------------------------------------ to and from a root
 */

/* Each rank has one piece, for the root; the root has a place of full size for each rank, all at
 * its output: they are combined there, not placed. */
static tutti_code
set_up_reduce(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place, tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t i;

    (void)ret_in_place;
    (void)err;
    exchange->out[op->args.root] = tutti_strided_view(op->input, bytes);
    for (i = 0; i < size && tutti_coll_group_rank(op->group) == op->args.root; i++) {
        exchange->in[i] = tutti_strided_view(op->output, bytes);
    }
    return TUTTI_OK;
}

/* Tensors of their own shapes: from each rank what it announced (op->shapes). */
static void
join_list(const tutti_coll_op *op, host_exchange *exchange, bool gets)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const size_t first = (size_t)op->part * size;
    uint32_t i;

    for (i = 0; i < size && gets; i++) {
        exchange->in[i] = tutti_strided_view(op->outputs[first + i].data,
                                             tutti_spec_bytes(&op->shapes[first + i]));
    }
}

static tutti_code
set_up_all_gather(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place, tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    uint32_t i;

    (void)ret_in_place;
    (void)err;
    for (i = 0; i < tutti_coll_group_size(op->group); i++) {
        exchange->out[i] = tutti_strided_view(op->input, bytes);
    }
    join_list(op, exchange, true);
    return TUTTI_OK;
}

static tutti_code
set_up_gather(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place, tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t size = tutti_coll_group_size(op->group);
    const place at = place_in(op);
    uint32_t i;

    (void)ret_in_place;
    (void)err;
    exchange->out[op->args.root] = tutti_strided_view(op->input, bytes);
    if (op->args.form == TUTTI_FORM_LIST) {
        join_list(op, exchange, tutti_coll_group_rank(op->group) == op->args.root);
        return TUTTI_OK;
    }
    for (i = 0; i < size && tutti_coll_group_rank(op->group) == op->args.root; i++) {
        exchange->in[i] = tutti_strided_join(op->output, &at.spec, at.axis, i, size);
    }
    return TUTTI_OK;
}

static tutti_code
set_up_scatter(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place, tutti_error *err)
{
    const uint32_t me = tutti_coll_group_rank(op->group);
    tutti_spec part;
    const tutti_code code =
        tutti_coll_infer(&op->args, tutti_coll_group_size(op->group), me, &part, err);

    (void)ret_in_place;
    if (code != TUTTI_OK) {
        return code;
    }
    if (me == op->args.root && op->args.form == TUTTI_FORM_LIST) {
        take_parts_list(op, exchange);
    } else if (me == op->args.root && op->args.root_splits != NULL) {
        tutti_pieces_of_rows(op->input, &op->args.spec, op->args.root_splits,
                             tutti_coll_group_size(op->group), exchange->out);
    } else if (me == op->args.root) {
        cut_input(op, exchange);
    }
    exchange->in[op->args.root] = tutti_strided_view(op->output, tutti_spec_bytes(&part));
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ among all */

static tutti_code
set_up_reduce_scatter(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place,
                      tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint64_t bytes = tutti_spec_bytes(&op->args.spec) / size;
    uint32_t i;

    (void)ret_in_place;
    (void)err;
    if (op->args.form == TUTTI_FORM_LIST) {
        take_parts_list(op, exchange);
        bytes = tutti_strided_bytes(&exchange->out[tutti_coll_group_rank(op->group)]);
    } else {
        cut_input(op, exchange);
    }
    for (i = 0; i < size; i++) {
        exchange->in[i] = tutti_strided_view(op->output, bytes);
    }
    return TUTTI_OK;
}

/* In place, later parts would be overwritten before they have left: they leave from a copy. */
static tutti_code
copy_input(tutti_coll_op *op, const void **ret_input, tutti_error *err)
{
    const size_t bytes = (size_t)tutti_spec_bytes(&op->args.spec);
    unsigned char *copy = NULL;

    TUTTI_TRY(tutti_coll_host_stage(op, bytes, &copy, err));

    memcpy(copy, op->input, bytes);
    *ret_input = copy;
    return TUTTI_OK;
}

static tutti_code
set_up_all_to_all(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const void *input = op->input;
    tutti_spec part = {0};
    tutti_code code = op->args.has_splits || op->args.form == TUTTI_FORM_LIST
                          ? TUTTI_OK
                          : tutti_coll_infer_part(&op->args, size, &part, err);
    uint32_t i;

    (void)ret_in_place;
    if (op->args.form == TUTTI_FORM_LIST) {
        take_parts_list(op, exchange);
        join_list(op, exchange, true);
        return TUTTI_OK;
    }
    if (code == TUTTI_OK && op->input == op->output) {
        code = copy_input(op, &input, err);
    }
    if (code == TUTTI_OK && op->args.has_splits) {
        tutti_pieces_of_rows(input, &op->args.spec, op->args.send_splits,
                             tutti_coll_group_size(op->group), exchange->out);
        tutti_pieces_of_rows(op->output, &op->args.spec, op->args.recv_splits,
                             tutti_coll_group_size(op->group), exchange->in);
        return TUTTI_OK;
    }
    for (i = 0; i < size && code == TUTTI_OK; i++) {
        exchange->out[i] = tutti_strided_cut(input, &op->args.spec, op->args.axis, i, size);
        exchange->in[i] = tutti_strided_join(op->output, &part, op->args.concat_axis, i, size);
    }
    return code;
}

/* In place, what comes may be written before our own has left: ret_in_place makes the exchange pack
 * what leaves. */
static tutti_code
set_up_permute(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place, tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t me = tutti_coll_group_rank(op->group);
    uint32_t i;

    (void)err;
    *ret_in_place = op->input == op->output;
    exchange->out[op->args.to[me]] = tutti_strided_view(op->input, bytes);
    for (i = 0; i < op->args.to_count; i++) {
        if (op->args.to[i] == me) {
            exchange->in[i] = tutti_strided_view(op->output, bytes);
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the ops */

typedef tutti_code (*set_up_fn)(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place,
                                tutti_error *err);

static set_up_fn
set_up_of(tutti_coll_kind kind)
{
    switch (kind) {
    case TUTTI_COLL_REDUCE:
        return set_up_reduce;
    case TUTTI_COLL_ALL_GATHER: /* as a list */
        return set_up_all_gather;
    case TUTTI_COLL_GATHER:
        return set_up_gather;
    case TUTTI_COLL_SCATTER:
        return set_up_scatter;
    case TUTTI_COLL_REDUCE_SCATTER:
        return set_up_reduce_scatter;
    case TUTTI_COLL_ALL_TO_ALL:
        return set_up_all_to_all;
    case TUTTI_COLL_PERMUTE:
        return set_up_permute;
    default:
        return NULL;
    }
}

tutti_code
tutti_host_exchange_pieces(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place,
                           tutti_error *err)
{
    const set_up_fn set_up = set_up_of(op->args.kind);

    if (set_up == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNIMPLEMENTED, "NO_BACKEND",
                              "the host backend does not know this op");
    }
    return set_up(op, exchange, ret_in_place, err);
}

tutti_strided
tutti_host_exchange_source(const tutti_coll_op *op, const void *base, uint64_t bytes)
{
    const place at = place_in(op);

    if (op->args.form == TUTTI_FORM_LIST || op->args.root_splits != NULL) {
        return tutti_strided_view(base, bytes);
    }
    if (op->args.kind == TUTTI_COLL_SCATTER || op->args.kind == TUTTI_COLL_REDUCE_SCATTER) {
        return tutti_strided_cut(base, &at.spec, at.axis, 0, tutti_coll_group_size(op->group));
    }
    if (op->args.kind == TUTTI_COLL_ALL_TO_ALL && !op->args.has_splits) {
        return tutti_strided_cut(base, &op->args.spec, op->args.axis, 0,
                                 tutti_coll_group_size(op->group));
    }
    return tutti_strided_view(base, bytes);
}

tutti_strided
tutti_host_exchange_dest(const tutti_coll_op *op, void *base, uint64_t bytes)
{
    const place at = place_in(op);

    return op->args.kind == TUTTI_COLL_GATHER && op->args.form != TUTTI_FORM_LIST
               ? tutti_strided_join(base, &at.spec, at.axis, 0, tutti_coll_group_size(op->group))
               : tutti_strided_view(base, bytes);
}

tutti_code
tutti_coll_host_exchange(tutti_coll_op *op, bool pairwise, tutti_error *err)
{
    const bool reduces =
        op->args.kind == TUTTI_COLL_REDUCE || op->args.kind == TUTTI_COLL_REDUCE_SCATTER;
    host_exchange *exchange = NULL;
    bool in_place = false;

    TUTTI_TRY(tutti_host_exchange_new(op, reduces, &exchange, err));
    TUTTI_TRY(tutti_host_exchange_pieces(op, exchange, &in_place, err));
    exchange->partners = pairwise ? 1 : exchange->partners;
    return tutti_host_exchange_ready(op, exchange, in_place, err);
}
