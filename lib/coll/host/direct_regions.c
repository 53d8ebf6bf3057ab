/* Whose memory a direct op is about: what is exposed to whom, and what must have come. */
#include "base/error/fail.h"
#include "coll/host/direct.h"

tutti_transport_region
tutti_host_direct_region_of(const tutti_strided *piece)
{
    const uint64_t bytes = piece->rows == 0 || piece->row_bytes == 0
                               ? 0
                               : (piece->rows - 1) * piece->stride + piece->row_bytes;

    return (tutti_transport_region){.input = bytes > 0 ? piece->base : NULL, .input_size = bytes};
}

/* What rank `to` needs of ours. */
tutti_transport_region
tutti_host_direct_region_for(const tutti_coll_op *op, const host_exchange *exchange, uint32_t to)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t me = tutti_coll_group_rank(op->group);
    tutti_transport_region region = {.input = op->input, .input_size = bytes};

    if (op->args.kind == TUTTI_COLL_ALL_REDUCE ||
        (op->args.kind == TUTTI_COLL_REDUCE && me == op->args.root)) {
        region.output = op->output;
        region.output_size = bytes;
    } else if (op->args.kind != TUTTI_COLL_REDUCE) {
        const tutti_transport_region help = tutti_host_direct_help_for(op, exchange, to);

        region = tutti_host_direct_region_of(&exchange->out[to]);
        region.output = help.output;
        region.output_size = help.output_size;
    }
    return region;
}

bool
tutti_host_direct_can_expose(const tutti_coll_op *op, const host_exchange *exchange)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t i;

    for (i = 0; i < size; i++) {
        const tutti_transport_region region = tutti_host_direct_region_for(op, exchange, i);

        if (i != tutti_coll_group_rank(op->group) && !tutti_coll_can_expose(op, &region)) {
            return false;
        }
    }
    return true;
}

/* A rank that exposes less than was agreed would have us read what is not there. */
tutti_code
tutti_host_direct_check_regions(const tutti_coll_op *op, const host_exchange *exchange,
                                tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const host_direct *self = exchange->direct;
    const uint64_t whole = tutti_spec_bytes(&op->args.spec);
    uint32_t i;

    for (i = 0; i < size; i++) {
        const tutti_transport_region *region = &self->views[i].memory;
        const uint64_t bytes = tutti_strided_bytes(&exchange->in[i]);
        uint64_t needed = 0;
        uint64_t written = 0;

        if (bytes > 0 && region->input_size > 0) {
            const tutti_strided source = tutti_host_exchange_source(op, region->input, bytes);

            needed = tutti_host_direct_region_of(&source).input_size;
        } else if (bytes > 0) {
            needed = bytes;
        }
        if (self->reduces && op->args.kind != TUTTI_COLL_REDUCE_SCATTER) {
            needed = whole;
            written = op->args.kind == TUTTI_COLL_ALL_REDUCE || i == op->args.root ? whole : 0;
        } else if (region->output_size > 0) {
            written = tutti_host_direct_helped(op, exchange, i);
        }
        if (region->input_size < needed || region->output_size < written) {
            return TUTTI_FAIL(err, TUTTI_INTERNAL, "rank %u lent less memory than was agreed",
                              tutti_coll_group_ranks(op->group)[i]);
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ setting up */

/* The elements that this rank reduces. */
void
tutti_host_direct_take_slice(const tutti_coll_op *op, const host_exchange *exchange)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint64_t element = tutti_dtype_bytes(op->args.spec.dtype);
    const uint64_t count = tutti_spec_count(&op->args.spec);
    const uint64_t base = count / size;
    const uint64_t longer = count % size;

    if (op->args.kind == TUTTI_COLL_REDUCE_SCATTER) {
        exchange->direct->bytes = tutti_strided_bytes(&exchange->out[me]);
        return;
    }
    exchange->direct->first = (base * me + (me < longer ? me : longer)) * element;
    exchange->direct->bytes = (base + (me < longer ? 1 : 0)) * element;
}

static void
join_all(const tutti_coll_op *op, host_exchange *exchange)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t i;

    for (i = 0; i < size; i++) {
        exchange->out[i] = tutti_strided_view(op->input, bytes);
        exchange->in[i] = tutti_strided_join(op->output, &op->args.spec, op->args.axis, i, size);
    }
}

static void
take_from_root(const tutti_coll_op *op, host_exchange *exchange)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool root = tutti_coll_group_rank(op->group) == op->args.root;
    uint32_t i;

    for (i = 0; i < size && root; i++) {
        exchange->out[i] = tutti_strided_view(op->input, bytes);
    }
    if (!root || (op->output != NULL && op->output != op->input)) {
        exchange->in[op->args.root] = tutti_strided_view(op->output, bytes);
    }
}

/* What is where; `ret_in_place`: it would be overwritten while others read it. */
tutti_code
tutti_host_direct_set_up(tutti_coll_op *op, host_exchange *exchange, bool *ret_in_place,
                         tutti_error *err)
{
    switch (op->args.kind) {
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_REDUCE:
        return TUTTI_OK;
    case TUTTI_COLL_ALL_GATHER:
        if (op->args.form == TUTTI_FORM_LIST) {
            break;
        }
        join_all(op, exchange);
        return TUTTI_OK;
    case TUTTI_COLL_BROADCAST:
        take_from_root(op, exchange);
        return TUTTI_OK;
    default:
        break;
    }
    return tutti_host_exchange_pieces(op, exchange, ret_in_place, err);
}
