/*
 * Direct: all ranks are processes of one host and work in each other's memory. One round to expose
 * what the others need of ours, then each rank does its share, then all give back; an op ends when
 * all have given back what they had of us.
 *
 *   all_reduce, reduce  each rank reduces one slice of the elements from all inputs, in the order
 *                       of group ranks, and writes it to all outputs (the root's): block by block,
 *                       so that a block is still in the cache when it is written again
 *   reduce_scatter      the same, but the slice is the piece that it gets
 *   all others          each rank copies what it gets, straight from where it stands; where a root
 *                       and the others would wait for each other they share the copying
 *
 * A slice is read and written by one rank alone, so it does not matter whether some ranks work in
 * place. Where an op in place would overwrite what others still read, or memory cannot be exposed,
 * the rank exposes nothing, all see it, and all fall back to messages.
 */
/*
 * Rounds: 0 exposes and maps; 1 looks at what came; then work, a turn of TURN_BYTES at a time; then
 * unmap, and done when all others have unmapped ours. If a rank dies, the engine fails the op,
 * gives back what this rank had mapped, and calls finish only when what it had exposed is back; so
 * no rank ever works in memory that was freed.
 */
#include "coll/host/direct.h"

#include <string.h>

#include "base/error/fail.h"

#define STEP_REGION 0x40000U   /* beyond those of any message of an op */
#define BLOCK_BYTES (8U << 10) /* of a result: it is in the first-level cache when it is copied */
#define TURN_BYTES (2U << 20)  /* before others have their turn */
#define NOTHING UINT64_C(0x7ff4746f6e74616e) /* instead of a factor: it cannot be exposed */

/* ------------------------------------------------------------------------------ reducing */

/* In place the lines are in the cache, as they have just been read; elsewhere, for huge ops, stores
 * past the cache save the reading of what is overwritten. */
static void
write_result(const host_direct *self, const tutti_transport_region *to, uint64_t at,
             const void *result, uint64_t bytes)
{
    unsigned char *dest = (unsigned char *)to->output + at;

    if (self->huge && to->output != to->input) {
        tutti_host_copy_past_cache(dest, result, (size_t)bytes);
    } else {
        memcpy(dest, result, (size_t)bytes);
    }
}

/* The kernel writes to the first output, or, when that is better not read, to a block of ours. */
static void
reduce_run(tutti_coll_op *op, host_exchange *self, uint64_t in_at, uint64_t out_at, uint64_t bytes)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint32_t first = op->args.kind == TUTTI_COLL_REDUCE ? op->args.root : me;
    const uint32_t count = op->args.kind == TUTTI_COLL_ALL_REDUCE ? size : 1;
    const tutti_coll_mapping *views = self->direct->views;
    const tutti_transport_region *own = &views[first].memory;
    const bool in_place = own->output == own->input || self->direct->block == NULL;
    void *result = in_place ? (unsigned char *)own->output + out_at : self->direct->block;
    uint32_t i;

    for (i = 0; i < size; i++) {
        self->inputs[i] = (const char *)views[i].memory.input + in_at;
    }
    tutti_reduce_run_far(op->args.reduce, op->args.spec.dtype, self->inputs, size,
                         op->args.reduce == TUTTI_REDUCE_PREMUL_SUM ? self->factors : NULL,
                         (size_t)(bytes / tutti_dtype_bytes(op->args.spec.dtype)), result);
    for (i = in_place ? 1 : 0; i < count; i++) {
        write_result(self->direct, &views[(first + i) % size].memory, out_at, result, bytes);
    }
}

/* The next block of our slice, and no farther than its row: where it stands in the inputs. For
 * reduce_scatter along an axis, a slice is rows in each input. */
static uint64_t
next_block(const tutti_coll_op *op, const host_direct *self, uint64_t *ret_in_at)
{
    const tutti_strided slice =
        tutti_host_exchange_source(op, op->output, self->bytes); /* the base says nothing */
    const uint64_t in_row = self->at % slice.row_bytes;
    const uint64_t rest = slice.row_bytes - in_row;

    *ret_in_at = self->first + self->at / slice.row_bytes * slice.stride + in_row;
    return rest < BLOCK_BYTES ? rest : BLOCK_BYTES;
}

static bool
reduce_some(tutti_coll_op *op, host_exchange *exchange)
{
    host_direct *self = exchange->direct;
    uint64_t budget = TURN_BYTES;

    while (self->at < self->bytes && budget > 0) {
        uint64_t in_at;
        const uint64_t bytes = next_block(op, self, &in_at);
        const bool whole = op->args.kind != TUTTI_COLL_REDUCE_SCATTER;

        reduce_run(op, exchange, in_at, whole ? in_at : self->at, bytes);
        self->at += bytes;
        budget -= bytes < budget ? bytes : budget;
    }
    return self->at == self->bytes;
}

/* ------------------------------------------------------------------------------ copying */

/* Transfers are numbered from this rank on, so not all ranks read the same memory first (huge
 * all-gathers are the exception: all read the same piece, while it is in the shared cache). */
static bool
copy_some(tutti_coll_op *op, host_exchange *exchange)
{
    const uint32_t count = 2 * tutti_coll_group_size(op->group);
    host_direct *self = exchange->direct;
    uint64_t budget = TURN_BYTES;

    while (self->copy < count && budget > 0) {
        const host_transfer one = tutti_host_direct_transfer(op, exchange, self->copy);
        const uint64_t at = one.at + self->at;
        const uint64_t rest = one.end - at;
        const uint64_t bytes = rest < budget ? rest : budget;

        if (bytes > 0 && self->huge) {
            tutti_host_strided_copy_past_cache(&one.to, at, &one.from, at, bytes);
        } else if (bytes > 0) {
            tutti_host_strided_copy(&one.to, at, &one.from, at, bytes);
        }
        self->at += bytes;
        budget -= bytes;
        if (bytes == rest) {
            self->copy++;
            self->at = 0;
        }
    }
    return self->copy == count;
}

/* ------------------------------------------------------------------------------ rounds */

/* NOTHING in place of a factor says "I expose nothing". It is a signalling NaN that no arithmetic
 * makes; a user's factor with these very bits becomes another NaN, which has the same effect. */
static uint64_t
factor_of(const tutti_coll_op *op)
{
    const uint64_t factor = tutti_coll_host_factor(op);

    return factor == NOTHING ? factor + 1 : factor;
}

static void
expose_and_map(tutti_coll_op *op, const host_exchange *exchange)
{
    static const tutti_transport_region none = {0};
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    host_direct *self = exchange->direct;
    const uint64_t extra = self->lends ? factor_of(op) : NOTHING;
    uint32_t k;

    self->views[me].memory = tutti_host_direct_region_for(op, exchange, me);
    self->views[me].memory.output = op->output; /* also when nobody else writes there */
    for (k = 1; k < size; k++) {
        const uint32_t to = (me + k) % size;
        const tutti_transport_region region = tutti_host_direct_region_for(op, exchange, to);

        tutti_coll_expose(op, STEP_REGION, to, self->lends ? &region : &none, extra);
    }
    for (k = 1; k < size; k++) {
        const uint32_t from = (me + size - k) % size;

        tutti_coll_map(op, STEP_REGION, from, &self->views[from]);
    }
}

/*
 * Did every rank expose what it has to? All ranks get the same words, so all stay or all fall back.
 */
static bool
is_all_there(const tutti_coll_op *op, const host_direct *self)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    bool good = self->lends;
    uint32_t i;

    for (i = 0; i < size && good; i++) {
        good = i == tutti_coll_group_rank(op->group) || self->views[i].extra != NOTHING;
    }
    return good;
}

static void
take_factors(tutti_coll_op *op, host_exchange *exchange)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    host_direct *self = exchange->direct;
    uint32_t i;

    self->views[tutti_coll_group_rank(op->group)].extra = factor_of(op);
    for (i = 0; i < size; i++) {
        memcpy(&exchange->factors[i], &self->views[i].extra, sizeof(double));
    }
}

/* One turn of work. The regions were checked, so nothing outside of them is touched, whatever a
 * peer exposed. */
static void
run_direct_part(tutti_coll_op *op, host_exchange *exchange)
{
    host_direct *self = exchange->direct;

    self->done = self->reduces ? reduce_some(op, exchange) : copy_some(op, exchange);
    if (self->done) {
        tutti_coll_unmap(op);
    } else {
        tutti_coll_again(op);
    }
}

static tutti_code
advance_direct(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    host_exchange *exchange = op->backend_state;
    host_direct *self = exchange->direct;

    if (op->round == 0) {
        expose_and_map(op, exchange);
        return TUTTI_OK;
    }
    if (op->round == 1 && !is_all_there(op, self)) {
        self->fallen = true;
        tutti_coll_unmap(op);
        return TUTTI_OK;
    }
    if (self->fallen) {
        return tutti_coll_host_restart(op, self->by_messages, false, ret_done, err);
    }
    if (op->round == 1 && tutti_host_direct_check_regions(op, exchange, err) != TUTTI_OK) {
        return TUTTI_INTERNAL;
    }
    if (op->round == 1 && self->reduces) {
        take_factors(op, exchange);
    }
    if (self->done) {
        *ret_done = true;
        return TUTTI_OK;
    }
    run_direct_part(op, exchange);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ starting */

tutti_code
tutti_coll_host_direct(tutti_coll_op *op, host_start_fn by_messages, tutti_error *err)
{
    static const host_algorithm algorithm = {.advance = advance_direct};
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool reduces = tutti_coll_is_reduction(op->args.kind);
    const size_t bytes = sizeof(host_direct) + size * sizeof(tutti_coll_mapping);
    host_exchange *exchange = NULL;
    unsigned char *stage = NULL;
    bool in_place = false;

    TUTTI_TRY(tutti_host_exchange_new(op, reduces, &exchange, err));
    TUTTI_TRY(tutti_coll_host_stage(op, bytes, &stage, err));
    memset(stage, 0, bytes);
    exchange->base.algorithm = &algorithm;
    exchange->direct = (host_direct *)(void *)stage;
    exchange->direct->views = (tutti_coll_mapping *)(exchange->direct + 1);
    exchange->direct->by_messages = by_messages;
    exchange->direct->reduces = reduces;
    exchange->direct->huge = tutti_spec_bytes(&op->args.spec) * size >=
                             (reduces ? HOST_REDUCE_PAST_CACHE_BYTES : HOST_PAST_CACHE_BYTES);
    TUTTI_TRY(tutti_host_direct_set_up(op, exchange, &in_place, err));
    exchange->direct->lends = !in_place && tutti_host_direct_can_expose(op, exchange);
    if (reduces) {
        tutti_host_direct_take_slice(op, exchange);
    }
    if (reduces && exchange->direct->huge) {
        TUTTI_TRY(tutti_coll_host_stage(op, BLOCK_BYTES, &exchange->direct->block, err));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ direct regions */

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

/* A rank that exposes less than was agreed would have us read what is not there: a fault of a peer,
 * so the op fails with its name. */
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
            return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "BAD_PACKET",
                                  "rank %u lent less memory than was agreed",
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

/* ------------------------------------------------------------------------------ direct share */

#define SHARED_BYTES_MIN (64U << 10)
#define PAGE_BYTES 4096U /* no page is written by two */

/*
 * Of a piece that goes from `from` to `to`: how many bytes its giver copies, if it may. In an op
 * with a root one side would copy while the other waits, so they share: in proportion to how many
 * copy (docs/decisions/0012-shared-memory.md). Whole pages, so no page is written by two processes.
 */
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
