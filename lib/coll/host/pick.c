/*
 * Which algorithm an op by messages takes, and what ranks must know of each other for that.
 *
 * Each rank votes before the agreement (one 63-bit word, ANDed over all ranks): whether it knows
 * the hosts of the group, and which selection it has. So all ranks learn, without a message more,
 * whether all know the hosts and whether all have the same selection. If not all know the hosts,
 * all learn them first; if selections differ, all use the base selection. Each decision below rests
 * on such common knowledge, never on what this rank alone knows.
 */
#include "coll/host/pick.h"

#include <inttypes.h>

#include "base/os/log.h"
#include "coll/host/host.h"

/*
 * The word of votes: whether the hosts are known; the hash of the selection; and its complement.
 * ANDed over all ranks, hash and complement still fill each other's gaps if, and only if, all are
 * alike.
 */
#define VOTE_KNOWS UINT64_C(1)
#define HASH_BITS 31
#define HASH_MASK ((UINT64_C(1) << HASH_BITS) - 1)

/* The one that this rank voted with; by now the user may have set another. NULL: there is no
 * selector. */
static const tutti_selection *
selection_of(const tutti_coll_op *op)
{
    return op->backend_pin;
}

/* Folded to 31 bits. Two selections with one hash would choose apart and end in a wrong size or a
 * timeout: the chance is one in 2^31 for a pair that differs. */
static uint64_t
hash_of(const tutti_selection *selection)
{
    return selection == NULL ? 0 : (selection->hash ^ selection->hash >> HASH_BITS) & HASH_MASK;
}

uint64_t
tutti_coll_host_vote(tutti_coll_op *op)
{
    tutti_selector *selector = tutti_coll_backend_arg(op);
    uint64_t hash;
    uint32_t count;

    op->backend_pin = selector != NULL ? tutti_selector_current(selector) : NULL;
    hash = hash_of(selection_of(op));
    return (tutti_coll_host_map(op, &count) != NULL ? VOTE_KNOWS : 0) | hash << 1 |
           (~hash & HASH_MASK) << (1 + HASH_BITS);
}

/*
 * AND of a hash keeps a bit only if all have it; AND of the complements keeps a bit only if none
 * has it. So after the AND they still are complements of each other if, and only if, all hashes are
 * the same.
 */
static bool
select_alike(const tutti_coll_op *op)
{
    const uint64_t votes = tutti_coll_votes(op);
    const uint64_t hash = votes >> 1 & HASH_MASK;
    const uint64_t complement = votes >> (1 + HASH_BITS) & HASH_MASK;

    return hash == (~complement & HASH_MASK);
}

/* ------------------------------------------------------------------------------ telling */

#define FACT_KNOWN 1U
#define FACT_SAME_HOST 2U
#define FACT_ALIKE 4U
#define FACT_HOSTS 8 /* bits before the number of hosts */

static void
vote_for_algorithm(const tutti_coll_op *op, uint32_t host_count)
{
    tutti_coll_group_tell(op, FACT_KNOWN | (tutti_coll_is_same_host(op) ? FACT_SAME_HOST : 0) |
                                  (select_alike(op) ? FACT_ALIKE : 0) |
                                  (uint64_t)host_count << FACT_HOSTS);
}

/* Ranks that share memory are of one host; two ranks that do not are of two. Only larger groups
 * have to ask. */
static bool
knows_hosts(const tutti_coll_op *op)
{
    uint32_t count;

    return tutti_coll_is_same_host(op) || tutti_coll_group_size(op->group) <= 2 ||
           tutti_coll_host_map(op, &count) != NULL;
}

void
tutti_coll_host_tell(const tutti_coll_op *op)
{
    uint32_t count = tutti_coll_group_size(op->group);

    if (count > 2 && !tutti_coll_is_same_host(op)) {
        (void)tutti_coll_host_map(op, &count);
    }
    vote_for_algorithm(op, tutti_coll_is_same_host(op) ? 1 : count);
}

tutti_coll_host_facts
tutti_coll_host_look(const tutti_coll_group *group)
{
    const uint64_t facts = tutti_coll_group_facts(group);

    return (tutti_coll_host_facts){.known = (facts & FACT_KNOWN) != 0,
                                   .same_host = (facts & FACT_SAME_HOST) != 0,
                                   .alike = (facts & FACT_ALIKE) != 0,
                                   .host_count = (uint32_t)(facts >> FACT_HOSTS)};
}

/* ------------------------------------------------------------------------------ asking */

static tutti_selection_query
query_of(const tutti_coll_op *op, uint32_t host_count, bool same_host)
{
    const tutti_coll_args *args = &op->args;

    return (tutti_selection_query){
        .kind = args->kind,
        .class_ = tutti_selection_class_of(args->kind, args->reduce, args->spec.dtype),
        .bytes = args->has_spec ? tutti_spec_bytes(&args->spec) : 0,
        .ranks = tutti_coll_group_size(op->group),
        .hosts = host_count,
        .same_host = same_host,
        .regular = !args->has_splits && args->form != TUTTI_FORM_LIST && args->root_splits == NULL,
        .scaled = args->reduce == TUTTI_REDUCE_PREMUL_SUM,
    };
}

static tutti_algorithm
pick_algorithm(const tutti_coll_op *op, const tutti_selection_query *query)
{
    const tutti_selection *selection = selection_of(op);

    if (selection == NULL || !select_alike(op)) {
        return tutti_selection_base(query);
    }
    return tutti_selection_pick(selection, query, NULL, NULL);
}

bool
tutti_coll_host_rides(const tutti_selection *selection, const tutti_selection_query *query)
{
    return query->kind == TUTTI_COLL_ALL_REDUCE &&
           (selection == NULL || selection->forced[query->kind] == TUTTI_ALGORITHM_NONE) &&
           query->bytes > 0 && query->bytes <= TUTTI_COLL_HOST_PIGGYBACK_BYTES &&
           query->ranks > 1 && query->ranks <= TUTTI_COLL_PIGGYBACK_RANKS_MAX;
}

/* Not before the hosts are known: a group that does nothing but tiny ops would else never learn
 * them, and its facts would be wrong. */
bool
tutti_coll_host_may_piggyback(const tutti_coll_op *op)
{
    const tutti_selection_query query = query_of(op, 1, false);

    return !op->args.coalesced && tutti_coll_host_rides(selection_of(op), &query) &&
           knows_hosts(op);
}

bool
tutti_coll_host_is_direct(const tutti_coll_op *op)
{
    const tutti_selection_query query = query_of(op, 1, tutti_coll_is_same_host(op));

    if (!tutti_coll_is_same_host(op) || op->args.kind == TUTTI_COLL_BARRIER || !op->args.has_spec ||
        pick_algorithm(op, &query) != TUTTI_ALGORITHM_SHARED) {
        return false;
    }
    vote_for_algorithm(op, 1);
    return true;
}

/* ------------------------------------------------------------------------------ beginning */

static tutti_code
begin_vote(tutti_coll_op *op, tutti_algorithm algorithm, const host_topology *topology,
           tutti_error *err)
{
    const host_plan_fn make = tutti_host_plan_of(op->args.kind, algorithm);

    TUTTI_LOG("coll/host", DEBUG, "group %s op %" PRIu64 ": %s", tutti_coll_group_name(op->group),
              op->sequence, tutti_algorithm_name(algorithm));
    if (make != NULL) {
        return tutti_coll_host_run(op, make, topology, err);
    }
    if (op->args.kind == TUTTI_COLL_ALL_REDUCE) {
        return tutti_coll_host_all_reduce(op, algorithm == TUTTI_ALGORITHM_FLAT, err);
    }
    if (op->args.kind == TUTTI_COLL_ALL_GATHER && op->args.form != TUTTI_FORM_LIST) {
        return tutti_coll_host_all_gather(op, err);
    }
    return tutti_coll_host_exchange(op, algorithm == TUTTI_ALGORITHM_PAIRWISE, err);
}

/* Begin an op by messages. An op whose memory could not be exposed falls back to here, as if the
 * ranks were not on one host: hence same_host false in the query. */
tutti_code
tutti_coll_host_pick(tutti_coll_op *op, bool learnt, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool same_host = tutti_coll_is_same_host(op);
    host_topology topology = {.size = size,
                              .me = tutti_coll_group_rank(op->group),
                              .root = op->args.root,
                              .host_count = same_host ? 1 : size};
    tutti_selection_query query;

    if (size > 2 && !same_host && !learnt && (tutti_coll_votes(op) & VOTE_KNOWS) == 0) {
        return tutti_coll_host_learn(op, tutti_coll_host_pick, err);
    }
    if (size > 2 && !same_host) {
        topology.hosts = tutti_coll_host_map(op, &topology.host_count);
    }
    vote_for_algorithm(op, topology.host_count);
    query = query_of(op, topology.host_count, false);
    return begin_vote(op, pick_algorithm(op, &query), &topology, err);
}
