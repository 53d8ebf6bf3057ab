/*
 * The shipped table: what the cost model of docs/algorithms.md says for hosts with a network of 10
 * to 100 Gbit/s, where it says it clearly; everything else is left to tutti_selection_base. Where
 * agents load a table of their own (`tutti tune`), that one holds instead.
 */
#include "coll/select/select.h"

#define KIB UINT64_C(1024)
#define MIB UINT64_C(1048576)
#define UP_TO(most)                                                                                \
    {                                                                                              \
        0, most                                                                                    \
    }
#define FROM(least)                                                                                \
    {                                                                                              \
        least, UINT64_MAX                                                                          \
    }
#define ANY FROM(0)
#define ALL TUTTI_CLASS_COUNT
#define RULE(kind, class_, bytes, ranks, per_host, algorithm)                                      \
    {                                                                                              \
        TUTTI_COLL_##kind, class_, bytes, ranks, per_host, TUTTI_ALGORITHM_##algorithm             \
    }

/* op, class, bytes, ranks, ranks per host, algorithm; the first that fits */
static const tutti_selection_rule rules[] = {
    RULE(ALL_REDUCE, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(ALL_REDUCE, ALL, UP_TO(8 * KIB), UP_TO(8), ANY, FLAT),
    RULE(ALL_REDUCE, TUTTI_CLASS_EXACT, FROM(64 * KIB), ANY, FROM(2), HIERARCHICAL),
    RULE(ALL_REDUCE, TUTTI_CLASS_EXACT, UP_TO(32 * KIB), FROM(9), ANY, RECURSIVE_DOUBLING),
    RULE(ALL_REDUCE, TUTTI_CLASS_EXACT, UP_TO(MIB), FROM(17), ANY, RABENSEIFNER),
    RULE(ALL_REDUCE, TUTTI_CLASS_EXACT, FROM(MIB), FROM(33), ANY, RING),
    RULE(ALL_REDUCE, ALL, UP_TO(8 * KIB), UP_TO(64), ANY, BRUCK),
    RULE(ALL_REDUCE, ALL, UP_TO(512), ANY, ANY, BRUCK),
    RULE(ALL_REDUCE, TUTTI_CLASS_FLOAT, FROM(4 * MIB), ANY, FROM(3), CHAIN),
    RULE(ALL_REDUCE, TUTTI_CLASS_FLOAT, FROM(16 * MIB), FROM(33), ANY, CHAIN),

    RULE(BROADCAST, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(BROADCAST, ALL, UP_TO(128 * KIB), ANY, FROM(2), HIERARCHICAL),
    RULE(BROADCAST, ALL, UP_TO(4 * MIB), FROM(17), ANY, BINOMIAL),

    RULE(ALL_GATHER, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(ALL_GATHER, ALL, UP_TO(64 * KIB), FROM(9), FROM(2), HIERARCHICAL),
    RULE(ALL_GATHER, ALL, UP_TO(8 * KIB), FROM(9), ANY, RECURSIVE_DOUBLING),
    RULE(ALL_GATHER, ALL, UP_TO(8 * KIB), FROM(9), ANY, BRUCK),
    RULE(ALL_GATHER, ALL, FROM(64 * KIB), FROM(17), ANY, RING),

    RULE(REDUCE_SCATTER, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(REDUCE_SCATTER, TUTTI_CLASS_EXACT, UP_TO(MIB), FROM(9), ANY, RECURSIVE_HALVING),
    RULE(REDUCE_SCATTER, TUTTI_CLASS_EXACT, FROM(MIB), FROM(33), ANY, RING),
    RULE(REDUCE_SCATTER, ALL, FROM(MIB), FROM(33), ANY, PAIRWISE),

    RULE(ALL_TO_ALL, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(ALL_TO_ALL, ALL, UP_TO(8 * KIB), FROM(9), ANY, BRUCK),
    RULE(ALL_TO_ALL, ALL, FROM(MIB), FROM(33), ANY, PAIRWISE),

    RULE(REDUCE, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(REDUCE, TUTTI_CLASS_EXACT, UP_TO(64 * KIB), FROM(9), ANY, BINOMIAL),
    RULE(REDUCE, TUTTI_CLASS_FLOAT, FROM(MIB), FROM(9), ANY, CHAIN),
    RULE(REDUCE, TUTTI_CLASS_EXACT, FROM(MIB), FROM(9), ANY, CHAIN),

    RULE(GATHER, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(GATHER, ALL, UP_TO(8 * KIB), FROM(9), ANY, BINOMIAL),
    RULE(SCATTER, ALL, FROM(8 * KIB + 1), ANY, ANY, SHARED),
    RULE(SCATTER, ALL, UP_TO(64 * KIB), FROM(9), ANY, BINOMIAL),
};

const tutti_selection_rule *
tutti_selection_default(size_t *ret_count)
{
    *ret_count = sizeof(rules) / sizeof(rules[0]);
    return rules;
}

void
tutti_selection_init(tutti_selection *ret_selection)
{
    *ret_selection =
        (tutti_selection){.rules = rules, .rule_count = sizeof(rules) / sizeof(rules[0])};
    tutti_selection_seal(ret_selection);
}
