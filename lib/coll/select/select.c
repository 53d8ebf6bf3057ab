#include "coll/select/select.h"

#include <string.h>

#include "base/error/fail.h"

#define WHOLE_BYTES (64U << 20) /* what an algorithm keeps beside the tensors, at most */
#define SMALL_BYTES 8192
#define CHAIN_BYTES (128U << 10)
#define FLAT_BYTES 262144 /* of all inputs together */

/* ------------------------------------------------------------------------------ names */

const char *
tutti_algorithm_name(tutti_algorithm algorithm)
{
    static const char *const names[TUTTI_ALGORITHM_COUNT] = {"none",
                                                             "shared",
                                                             "flat",
                                                             "direct",
                                                             "bruck",
                                                             "chain",
                                                             "recursive_doubling",
                                                             "ring",
                                                             "rabenseifner",
                                                             "hierarchical",
                                                             "binomial",
                                                             "recursive_halving",
                                                             "pairwise",
                                                             "dissemination"};

    return (unsigned)algorithm < TUTTI_ALGORITHM_COUNT ? names[algorithm] : names[0];
}

const char *
tutti_selection_class_name(tutti_selection_class class_)
{
    static const char *const names[] = {"exact", "float", "half", "any"};

    return names[class_ < TUTTI_CLASS_COUNT ? class_ : TUTTI_CLASS_COUNT];
}

#define BIT(algorithm) (1U << TUTTI_ALGORITHM_##algorithm)

/* What there is for an op. */
static uint32_t
all_of(tutti_coll_kind kind)
{
    switch (kind) {
    case TUTTI_COLL_ALL_REDUCE:
        return BIT(SHARED) | BIT(FLAT) | BIT(DIRECT) | BIT(BRUCK) | BIT(CHAIN) |
               BIT(RECURSIVE_DOUBLING) | BIT(RING) | BIT(RABENSEIFNER) | BIT(HIERARCHICAL);
    case TUTTI_COLL_BROADCAST:
        return BIT(SHARED) | BIT(BINOMIAL) | BIT(CHAIN) | BIT(HIERARCHICAL);
    case TUTTI_COLL_ALL_GATHER:
        return BIT(SHARED) | BIT(DIRECT) | BIT(RING) | BIT(RECURSIVE_DOUBLING) | BIT(BRUCK) |
               BIT(HIERARCHICAL);
    case TUTTI_COLL_REDUCE:
        return BIT(SHARED) | BIT(DIRECT) | BIT(BINOMIAL) | BIT(CHAIN);
    case TUTTI_COLL_GATHER:
    case TUTTI_COLL_SCATTER:
        return BIT(SHARED) | BIT(DIRECT) | BIT(BINOMIAL);
    case TUTTI_COLL_REDUCE_SCATTER:
        return BIT(SHARED) | BIT(DIRECT) | BIT(PAIRWISE) | BIT(RING) | BIT(RECURSIVE_HALVING);
    case TUTTI_COLL_ALL_TO_ALL:
        return BIT(SHARED) | BIT(DIRECT) | BIT(PAIRWISE) | BIT(BRUCK);
    case TUTTI_COLL_PERMUTE:
        return BIT(SHARED) | BIT(DIRECT);
    case TUTTI_COLL_BARRIER:
        return BIT(DISSEMINATION);
    case TUTTI_COLL_SEND:
    case TUTTI_COLL_RECV:
        return 0;
    default: /* what coll_host_parts.c alone knows */
        return kind > 0 && kind < TUTTI_COLL_KIND_COUNT ? BIT(DIRECT) : 0;
    }
}

bool
tutti_algorithm_does(tutti_algorithm algorithm, tutti_coll_kind kind)
{
    return (unsigned)algorithm < TUTTI_ALGORITHM_COUNT && (all_of(kind) >> algorithm & 1) != 0;
}

/* ------------------------------------------------------------------------------ order */

tutti_selection_class
tutti_selection_class_of(tutti_coll_kind kind, tutti_reduce reduce, tutti_dtype dtype)
{
    const bool reduces = tutti_coll_is_reduction(kind);
    const bool rounds = reduce == TUTTI_REDUCE_SUM || reduce == TUTTI_REDUCE_PROD ||
                        reduce == TUTTI_REDUCE_AVG || reduce == TUTTI_REDUCE_PREMUL_SUM;

    if (!reduces || !rounds) {
        return TUTTI_CLASS_EXACT;
    }
    switch (dtype) {
    case TUTTI_DTYPE_FP16:
    case TUTTI_DTYPE_BF16:
        return TUTTI_CLASS_HALF;
    case TUTTI_DTYPE_FP32:
    case TUTTI_DTYPE_FP64:
    case TUTTI_DTYPE_COMPLEX64:
    case TUTTI_DTYPE_COMPLEX128:
        return TUTTI_CLASS_FLOAT;
    default:
        return TUTTI_CLASS_EXACT;
    }
}

/* All inputs are there when it reduces, if it does. */
static bool
sees_all(tutti_algorithm algorithm, tutti_coll_kind kind)
{
    const bool reduces = tutti_coll_is_reduction(kind);

    return !reduces ||
           ((BIT(SHARED) | BIT(FLAT) | BIT(DIRECT) | BIT(PAIRWISE)) >> algorithm & 1) != 0 ||
           (algorithm == TUTTI_ALGORITHM_BRUCK && kind == TUTTI_COLL_ALL_REDUCE);
}

bool
tutti_algorithm_keeps_order(tutti_algorithm algorithm, tutti_coll_kind kind)
{
    const bool reduces = tutti_coll_is_reduction(kind);

    return !reduces || sees_all(algorithm, kind) || algorithm == TUTTI_ALGORITHM_CHAIN;
}

/* ------------------------------------------------------------------------------ what fits */

static bool
is_power_of_two(uint32_t number)
{
    return (number & (number - 1)) == 0;
}

static bool
needs_power_of_two(tutti_algorithm algorithm, tutti_coll_kind kind)
{
    return algorithm == TUTTI_ALGORITHM_RECURSIVE_HALVING ||
           (algorithm == TUTTI_ALGORITHM_RECURSIVE_DOUBLING && kind == TUTTI_COLL_ALL_GATHER);
}

/* How many times its tensor it keeps beside it; 0 for what goes chunk by chunk. */
static uint64_t
copies_more(tutti_algorithm algorithm, const tutti_selection_query *query)
{
    const bool joins = query->kind == TUTTI_COLL_ALL_GATHER || query->kind == TUTTI_COLL_GATHER;

    switch (algorithm) {
    case TUTTI_ALGORITHM_FLAT:
        return query->ranks;
    case TUTTI_ALGORITHM_BRUCK:
        return query->kind == TUTTI_COLL_ALL_TO_ALL ? 3 : query->ranks;
    case TUTTI_ALGORITHM_RECURSIVE_DOUBLING:
        return joins ? query->ranks : 0;
    case TUTTI_ALGORITHM_BINOMIAL:
        return joins ? query->ranks : query->kind == TUTTI_COLL_SCATTER ? 1 : 0;
    default:
        return 0;
    }
}

static const char *
why_not(tutti_algorithm algorithm, const tutti_selection_query *query)
{
    const bool loose = algorithm == TUTTI_ALGORITHM_SHARED || algorithm == TUTTI_ALGORITHM_DIRECT;
    const uint64_t kept = copies_more(algorithm, query);

    if (!tutti_algorithm_does(algorithm, query->kind)) {
        return "not for this op";
    }
    if (algorithm == TUTTI_ALGORITHM_SHARED && !query->same_host) {
        return "not all ranks share memory";
    }
    if (!query->regular && !loose) {
        return "not for splits and lists";
    }
    if (query->class_ == TUTTI_CLASS_HALF &&
        (!sees_all(algorithm, query->kind) ||
         (query->scaled && algorithm == TUTTI_ALGORITHM_BRUCK))) {
        return "would round FP16 and BF16 more than once";
    }
    if (needs_power_of_two(algorithm, query->kind) && !is_power_of_two(query->ranks)) {
        return "needs a power of two ranks";
    }
    if (algorithm == TUTTI_ALGORITHM_HIERARCHICAL &&
        (query->hosts < 2 || query->hosts >= query->ranks)) {
        return "needs several hosts, and several ranks on one of them";
    }
    return kept > 0 && query->bytes > WHOLE_BYTES / kept
               ? "would keep more than 64 MiB beside the tensors"
               : NULL;
}

bool
tutti_algorithm_fits(tutti_algorithm algorithm, const tutti_selection_query *query,
                     const char **ret_why)
{
    const char *why = why_not(algorithm, query);

    if (ret_why != NULL && why != NULL) {
        *ret_why = why;
    }
    return why == NULL;
}

/* ------------------------------------------------------------------------------ the selection */

tutti_algorithm
tutti_selection_base(const tutti_selection_query *query)
{
    const bool small = query->bytes <= SMALL_BYTES;

    if (query->kind == TUTTI_COLL_BARRIER) {
        return TUTTI_ALGORITHM_DISSEMINATION;
    }
    if (query->same_host && (!small || !query->regular) &&
        tutti_algorithm_does(TUTTI_ALGORITHM_SHARED, query->kind)) {
        return TUTTI_ALGORITHM_SHARED;
    }
    if (query->kind == TUTTI_COLL_ALL_REDUCE) {
        return small && query->bytes * query->ranks <= FLAT_BYTES ? TUTTI_ALGORITHM_FLAT
                                                                  : TUTTI_ALGORITHM_DIRECT;
    }
    if (query->kind == TUTTI_COLL_BROADCAST) {
        return query->bytes < CHAIN_BYTES ? TUTTI_ALGORITHM_BINOMIAL : TUTTI_ALGORITHM_CHAIN;
    }
    return TUTTI_ALGORITHM_DIRECT;
}

static bool
is_in(const tutti_selection_range *range, uint64_t number)
{
    return number >= range->from && number <= range->to;
}

/* With splits and lists each rank has bytes of its own: no rule may ask for them. */
static bool
is_rule_holding(const tutti_selection_rule *rule, const tutti_selection_query *query)
{
    const bool any = rule->class_ == TUTTI_CLASS_COUNT;

    return query->regular && rule->kind == query->kind && (any || rule->class_ == query->class_) &&
           is_in(&rule->bytes, query->bytes) && is_in(&rule->ranks, query->ranks) &&
           is_in(&rule->per_host, (query->ranks + query->hosts - 1) / query->hosts) &&
           (!any || query->class_ == TUTTI_CLASS_EXACT ||
            tutti_algorithm_keeps_order(rule->algorithm, query->kind)) &&
           tutti_algorithm_fits(rule->algorithm, query, NULL);
}

tutti_algorithm
tutti_selection_pick(const tutti_selection *selection, const tutti_selection_query *query,
                     tutti_selection_why *ret_why, size_t *ret_rule)
{
    const tutti_algorithm forced = selection->forced[query->kind];
    tutti_selection_why why = TUTTI_SELECTION_BASE;
    tutti_algorithm algorithm = tutti_selection_base(query);
    size_t i = 0;

    if (forced != TUTTI_ALGORITHM_NONE && tutti_algorithm_fits(forced, query, NULL)) {
        why = TUTTI_SELECTION_FORCED;
        algorithm = forced;
    } else {
        while (i < selection->rule_count && !is_rule_holding(&selection->rules[i], query)) {
            i++;
        }
        if (i < selection->rule_count) {
            why = TUTTI_SELECTION_RULE;
            algorithm = selection->rules[i].algorithm;
        }
    }
    if (ret_why != NULL) {
        *ret_why = why;
        *ret_rule = i;
    }
    return algorithm;
}
