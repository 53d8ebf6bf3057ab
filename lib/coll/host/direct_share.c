/*
 * Who copies what. In an op with a root one side would copy while the other one waits: a root its
 * gathered pieces, one after the other, or each of the others what a root has for it. So whoever
 * gets exposes where it gets it, and whoever gives writes its part of it:
 *
 *   broadcast, scatter  the root 1/n of each piece, so that all n ranks copy (n-1)/n of one
 *   gather              each of the others (n-1)/n of its piece, the root the rest of all
 *
 * Both count by themselves. Who cannot expose where it gets it copies all of it; small pieces are
 * not worth it.
 */
#include "coll/host/direct.h"

#define SHARED_BYTES_MIN (64U << 10)
#define PAGE_BYTES 4096U /* no page is written by two */

/* Of a piece that goes from `from` to `to`: what its giver copies, if it may. */
static uint64_t
given_by_giver(const tutti_coll_op *op, uint32_t from, uint32_t to, uint64_t bytes)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool gathers = op->args.kind == TUTTI_COLL_GATHER;
    const bool spreads =
        op->args.kind == TUTTI_COLL_BROADCAST || op->args.kind == TUTTI_COLL_SCATTER;
    const uint32_t root = op->args.root;

    if (from == to || bytes < SHARED_BYTES_MIN || (gathers && to != root) ||
        (spreads && from != root) || (!gathers && !spreads)) {
        return 0;
    }
    return bytes / size * (gathers ? size - 1 : 1) / PAGE_BYTES * PAGE_BYTES;
}

tutti_transport_region
tutti_host_direct_help_for(const tutti_coll_op *op, const host_exchange *exchange, uint32_t to)
{
    const uint32_t me = tutti_coll_group_rank(op->group);
    const tutti_strided *piece = &exchange->in[to];
    const tutti_transport_region none = {0};
    tutti_transport_region region;

    if (given_by_giver(op, to, me, tutti_strided_bytes(piece)) == 0) {
        return none;
    }
    region = tutti_host_direct_region_of(piece);
    region = (tutti_transport_region){.output = piece->base, .output_size = region.input_size};
    return tutti_coll_can_expose(op, &region) ? region : none;
}

uint64_t
tutti_host_direct_helped(const tutti_coll_op *op, const host_exchange *exchange, uint32_t to)
{
    const tutti_strided dest = tutti_host_exchange_dest(
        op, exchange->direct->views[to].memory.output, tutti_strided_bytes(&exchange->out[to]));

    return tutti_host_direct_region_of(&dest).input_size;
}

/* What we get from `from`, but for what it copies itself. */
static host_transfer
fetch_shared(const tutti_coll_op *op, const host_exchange *exchange, uint32_t from)
{
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint64_t bytes = tutti_strided_bytes(&exchange->in[from]);
    const bool helped = tutti_host_direct_help_for(op, exchange, from).output_size > 0;

    return (host_transfer){
        .to = exchange->in[from],
        .from = tutti_host_exchange_source(op, exchange->direct->views[from].memory.input, bytes),
        .at = helped ? given_by_giver(op, from, me, bytes) : 0,
        .end = bytes};
}

/* What we have for `to`, as far as we copy it. */
static host_transfer
push_shared(const tutti_coll_op *op, const host_exchange *exchange, uint32_t to)
{
    const uint32_t me = tutti_coll_group_rank(op->group);
    const tutti_transport_region *lent = &exchange->direct->views[to].memory;
    const uint64_t bytes = tutti_strided_bytes(&exchange->out[to]);

    if (to == me || lent->output_size == 0) {
        return (host_transfer){0};
    }
    return (host_transfer){.to = tutti_host_exchange_dest(op, lent->output, bytes),
                           .from = exchange->out[to],
                           .end = given_by_giver(op, me, to, bytes)};
}

host_transfer
tutti_host_direct_transfer(const tutti_coll_op *op, const host_exchange *exchange, uint32_t number)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool shared = exchange->direct->huge && op->args.kind == TUTTI_COLL_ALL_GATHER;
    const uint32_t first = shared ? 0 : tutti_coll_group_rank(op->group);
    const uint32_t other = (first + number) % size;

    return number < size ? fetch_shared(op, exchange, other) : push_shared(op, exchange, other);
}
