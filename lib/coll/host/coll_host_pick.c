#include "coll/host/coll_host_pick.h"

#include <inttypes.h>

#include "base/os/log.h"
#include "coll/host/coll_host.h"

/*
 * The word of votes: whether the hosts are known; the hash of the choice; and its complement. ANDed
 * over all ranks, hash and complement still fill each other's gaps if, and only if, all are alike.
 */
#define VOTE_KNOWS UINT64_C(1)
#define HASH_BITS 31
#define HASH_MASK ((UINT64_C(1) << HASH_BITS) - 1)

/* The one that this rank voted with: by now there may be another. */
static const tutti_choice *
choice_of(const tutti_coll_op *op)
{
    return op->backend_pin;
}

static uint64_t
hash_of(const tutti_choice *choice)
{
    return choice == NULL ? 0 : (choice->hash ^ choice->hash >> HASH_BITS) & HASH_MASK;
}

uint64_t
tutti_coll_host_vote(tutti_coll_op *op)
{
    tutti_choices *choices = tutti_coll_backend_arg(op);
    uint64_t hash;
    uint32_t count;

    op->backend_pin = choices != NULL ? tutti_choices_now(choices) : NULL;
    hash = hash_of(choice_of(op));
    return (tutti_coll_host_map(op, &count) != NULL ? VOTE_KNOWS : 0) | hash << 1 |
           (~hash & HASH_MASK) << (1 + HASH_BITS);
}

static bool
choose_alike(const tutti_coll_op *op)
{
    const uint64_t votes = tutti_coll_votes(op);
    const uint64_t hash = votes >> 1 & HASH_MASK;
    const uint64_t complement = votes >> (1 + HASH_BITS) & HASH_MASK;

    return hash == (~complement & HASH_MASK);
}

/* ------------------------------------------------------------------------------ telling */

#define FACT_KNOWN 1U
#define FACT_NEAR 2U
#define FACT_ALIKE 4U
#define FACT_HOSTS 8 /* bits before the number of hosts */

static void
tell(const tutti_coll_op *op, uint32_t host_count)
{
    tutti_coll_group_tell(op, FACT_KNOWN | (tutti_coll_is_near(op) ? FACT_NEAR : 0) |
                                  (choose_alike(op) ? FACT_ALIKE : 0) |
                                  (uint64_t)host_count << FACT_HOSTS);
}

/* Ranks that share memory are of one host, and two that do not are of two. */
static bool
knows_hosts(const tutti_coll_op *op)
{
    uint32_t count;

    return tutti_coll_is_near(op) || tutti_coll_group_size(op->group) <= 2 ||
           tutti_coll_host_map(op, &count) != NULL;
}

void
tutti_coll_host_tell(const tutti_coll_op *op)
{
    uint32_t count = tutti_coll_group_size(op->group);

    if (count > 2 && !tutti_coll_is_near(op)) {
        (void)tutti_coll_host_map(op, &count);
    }
    tell(op, tutti_coll_is_near(op) ? 1 : count);
}

tutti_coll_host_facts
tutti_coll_host_look(const tutti_coll_group *group)
{
    const uint64_t facts = tutti_coll_group_facts(group);

    return (tutti_coll_host_facts){.known = (facts & FACT_KNOWN) != 0,
                                   .near = (facts & FACT_NEAR) != 0,
                                   .alike = (facts & FACT_ALIKE) != 0,
                                   .host_count = (uint32_t)(facts >> FACT_HOSTS)};
}

/* ------------------------------------------------------------------------------ asking */

static tutti_choice_query
query_of(const tutti_coll_op *op, uint32_t host_count, bool near)
{
    const tutti_coll_args *args = &op->args;

    return (tutti_choice_query){
        .kind = args->kind,
        .class_ = tutti_choice_class_of(args->kind, args->reduce, args->spec.dtype),
        .bytes = args->has_spec ? tutti_spec_bytes(&args->spec) : 0,
        .ranks = tutti_coll_group_size(op->group),
        .hosts = host_count,
        .near = near,
        .regular = !args->has_splits && args->form != TUTTI_FORM_LIST && args->root_splits == NULL,
        .scaled = args->reduce == TUTTI_REDUCE_PREMUL_SUM,
    };
}

static tutti_algorithm
pick(const tutti_coll_op *op, const tutti_choice_query *query)
{
    const tutti_choice *choice = choice_of(op);

    if (choice == NULL || !choose_alike(op)) {
        return tutti_choice_base(query);
    }
    return tutti_choice_take(choice, query, NULL, NULL);
}

bool
tutti_coll_host_rides(const tutti_choice *choice, const tutti_choice_query *query)
{
    return query->kind == TUTTI_COLL_ALL_REDUCE &&
           (choice == NULL || choice->forced[query->kind] == TUTTI_ALGORITHM_NONE) &&
           query->bytes > 0 && query->bytes <= TUTTI_COLL_HOST_RIDE_BYTES && query->ranks > 1 &&
           query->ranks <= TUTTI_COLL_RIDE_RANKS_MAX;
}

bool
tutti_coll_host_may_ride(const tutti_coll_op *op)
{
    const tutti_choice_query query = query_of(op, 1, false);

    return !op->args.coalesced && tutti_coll_host_rides(choice_of(op), &query) && knows_hosts(op);
}

bool
tutti_coll_host_is_direct(const tutti_coll_op *op)
{
    const tutti_choice_query query = query_of(op, 1, tutti_coll_is_near(op));

    if (!tutti_coll_is_near(op) || op->args.kind == TUTTI_COLL_BARRIER || !op->args.has_spec ||
        pick(op, &query) != TUTTI_ALGORITHM_SHARED) {
        return false;
    }
    tell(op, 1);
    return true;
}

/* ------------------------------------------------------------------------------ beginning */

static tutti_code
begin(tutti_coll_op *op, tutti_algorithm algorithm, const host_scene *scene, tutti_error *err)
{
    const host_plan_fn make = tutti_host_plan_of(op->args.kind, algorithm);

    TUTTI_LOG("coll/host", DEBUG, "group %s op %" PRIu64 ": %s", tutti_coll_group_name(op->group),
              op->sequence, tutti_algorithm_name(algorithm));
    if (make != NULL) {
        return tutti_coll_host_run(op, make, scene, err);
    }
    if (op->args.kind == TUTTI_COLL_ALL_REDUCE) {
        return tutti_coll_host_all_reduce(op, algorithm == TUTTI_ALGORITHM_FLAT, err);
    }
    if (op->args.kind == TUTTI_COLL_ALL_GATHER && op->args.form != TUTTI_FORM_LIST) {
        return tutti_coll_host_all_gather(op, err);
    }
    return tutti_coll_host_exchange(op, algorithm == TUTTI_ALGORITHM_PAIRWISE, err);
}

/* Memory that cannot be lent makes all fall back to here: as if the ranks were not near. */
tutti_code
tutti_coll_host_pick(tutti_coll_op *op, bool learnt, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    const bool near = tutti_coll_is_near(op);
    host_scene scene = {.size = size,
                        .me = tutti_coll_group_rank(op->group),
                        .root = op->args.root,
                        .host_count = near ? 1 : size};
    tutti_choice_query query;

    if (size > 2 && !near && !learnt && (tutti_coll_votes(op) & VOTE_KNOWS) == 0) {
        return tutti_coll_host_learn(op, tutti_coll_host_pick, err);
    }
    if (size > 2 && !near) {
        scene.hosts = tutti_coll_host_map(op, &scene.host_count);
    }
    tell(op, scene.host_count);
    query = query_of(op, scene.host_count, false);
    return begin(op, pick(op, &query), &scene, err);
}
