/*
 * Which algorithm an op takes: what each can do, the rules, and the selection of an engine that may
 * change while ops run.
 *
 * Pure, any thread, but the selector: its lock guards the list and `now`. A selection that was put
 * is never changed or freed before tutti_selector_free, so an op may go on with the pointer that it
 * voted with, without a lock and without counting.
 *
 * All ranks of an op must come to the same algorithm from the same query. So nothing here may look
 * at anything that one rank alone knows: no measurement, no free memory. What differs between
 * ranks, the selection itself, is compared by its hash in the agreement (lib/coll/host/pick.c); if
 * it differs, tutti_selection_base decides.
 */
#include "coll/select/select.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "base/error/text.h"

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

/* The algorithms of an op, as bits. */
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
    default: /* what coll/host/parts.c alone knows */
        return kind > 0 && kind < TUTTI_COLL_KIND_COUNT ? BIT(DIRECT) : 0;
    }
}

bool
tutti_algorithm_does(tutti_algorithm algorithm, tutti_coll_kind kind)
{
    return (unsigned)algorithm < TUTTI_ALGORITHM_COUNT && (all_of(kind) >> algorithm & 1) != 0;
}

/* ------------------------------------------------------------------------------ order */

/*
 * MIN, MAX and bits give the same bits in any order, also of floats; integers wrap, which is
 * associative. FP16 and BF16 are computed with in FP32 and rounded once, so all inputs must be
 * there at once (docs/decisions/0006-reduction.md).
 */
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

/* Does it have all inputs of an element at once when it reduces, if it does? Then order and
 * rounding are those of one machine. */
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

/* These two pair ranks by single bits of their numbers and do not fold others in. */
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

/* The checks are in the order in which a user wants to hear of them. Each is a function of the
 * query alone. */
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

/* Needs no table, so it is also what ranks with different tables agree on. It must therefore not
 * change between versions that may meet in a job. */
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

/*
 * With splits and lists each rank has bytes of its own, so a rule that asks for bytes would hold on
 * some ranks only: then no rule holds. A rule for any class is never a way to a reordered float
 * sum: that must be named (class float, or forced).
 */
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

/* A forced algorithm that does not fit this op is passed over, not refused: it fits or not on all
 * ranks alike. */
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

/* ------------------------------------------------------------------------------ force */

static bool
is_word(const char *name, const char *word, size_t size)
{
    return strlen(name) == size && memcmp(name, word, size) == 0;
}

tutti_coll_kind
tutti_selection_kind_of(const char *word, size_t size)
{
    int kind;

    for (kind = 1; kind < TUTTI_COLL_KIND_COUNT; kind++) {
        if (is_word(tutti_coll_kind_name((tutti_coll_kind)kind), word, size) &&
            kind != TUTTI_COLL_SEND && kind != TUTTI_COLL_RECV) {
            return (tutti_coll_kind)kind;
        }
    }
    return (tutti_coll_kind)0;
}

static tutti_algorithm
get_set_algorithm(const char *word, size_t size)
{
    int algorithm;

    for (algorithm = 1; algorithm < TUTTI_ALGORITHM_COUNT; algorithm++) {
        if (is_word(tutti_algorithm_name((tutti_algorithm)algorithm), word, size)) {
            return (tutti_algorithm)algorithm;
        }
    }
    return TUTTI_ALGORITHM_NONE;
}

tutti_code
tutti_selection_refuse_kind(const char *word, size_t size, tutti_error *err)
{
    char list[256];
    tutti_text text = tutti_text_in(list, sizeof(list));
    int i;

    for (i = 1; i < TUTTI_COLL_KIND_COUNT; i++) {
        if (i != TUTTI_COLL_SEND && i != TUTTI_COLL_RECV) {
            tutti_text_add(&text, " %s", tutti_coll_kind_name((tutti_coll_kind)i));
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ALGORITHM",
                          "%.*s is no op with algorithms: there are%s",
                          (int)(size < 64 ? size : 64), word, list);
}

tutti_code
tutti_selection_check_pair(const char *kind_word, size_t kind_size, const char *word, size_t size,
                           tutti_coll_kind *ret_kind, tutti_algorithm *ret_algorithm,
                           tutti_error *err)
{
    const tutti_coll_kind kind = tutti_selection_kind_of(kind_word, kind_size);
    const tutti_algorithm algorithm = get_set_algorithm(word, size);
    char list[256];
    tutti_text text = tutti_text_in(list, sizeof(list));
    int i;

    if (kind == 0) {
        return tutti_selection_refuse_kind(kind_word, kind_size, err);
    }
    for (i = 1; i < TUTTI_ALGORITHM_COUNT; i++) {
        if (tutti_algorithm_does((tutti_algorithm)i, kind)) {
            tutti_text_add(&text, " %s", tutti_algorithm_name((tutti_algorithm)i));
        }
    }
    if (!tutti_algorithm_does(algorithm, kind)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ALGORITHM",
                              "%.*s is no algorithm of %s: there are%s",
                              (int)(size < 64 ? size : 64), word, tutti_coll_kind_name(kind), list);
    }
    *ret_kind = kind;
    *ret_algorithm = algorithm;
    return TUTTI_OK;
}

tutti_code
tutti_selection_force(tutti_selection *selection, const char *text, tutti_error *err)
{
    const char *at = text;

    while (*at != '\0') {
        const size_t size = strcspn(at, ",");
        const char *equals = memchr(at, '=', size);
        tutti_coll_kind kind;
        tutti_algorithm algorithm;
        tutti_code code;

        if (equals == NULL) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ALGORITHM",
                                  "%.*s says no algorithm: write it as all_reduce=ring",
                                  (int)(size < 64 ? size : 64), at);
        }
        code = tutti_selection_check_pair(at, (size_t)(equals - at), equals + 1,
                                          size - (size_t)(equals + 1 - at), &kind, &algorithm, err);
        if (code != TUTTI_OK) {
            return code;
        }
        selection->forced[kind] = algorithm;
        at += size + (at[size] == ',' ? 1 : 0);
    }
    tutti_selection_seal(selection);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ default */

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
static const tutti_selection_rule default_rules[] = {
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
    *ret_count = sizeof(default_rules) / sizeof(default_rules[0]);
    return default_rules;
}

void
tutti_selection_init(tutti_selection *ret_selection)
{
    *ret_selection = (tutti_selection){
        .rules = default_rules, .rule_count = sizeof(default_rules) / sizeof(default_rules[0])};
    tutti_selection_seal(ret_selection);
}

/* ------------------------------------------------------------------------------ selector */

#define SELECTORS_MAX 4096
#define RULES_KEPT_MAX (16 * TUTTI_SELECTION_RULES_MAX)

typedef struct kept {
    tutti_list_node link;
    tutti_selection selection;
    tutti_selection_rule rules[]; /* those of a table of its own */
} kept;

struct tutti_selector {
    pthread_mutex_t lock;
    tutti_list_node all;
    const tutti_selection *now;
    size_t count;
    size_t rules;
};

/* The same once more: agents that are tuned are told few things many times. */
static const tutti_selection *
find_kept(const tutti_selector *self, const tutti_selection *selection)
{
    const tutti_list_node *link;

    for (link = self->all.next; link != &self->all; link = link->next) {
        const kept *one = tutti_container_of(link, kept, link);

        if (one->selection.rules == selection->rules &&
            one->selection.rule_count == selection->rule_count &&
            memcmp(one->selection.forced, selection->forced, sizeof(selection->forced)) == 0) {
            return &one->selection;
        }
    }
    return NULL;
}

/* The copy is made before the lock is taken. Nothing is freed before the end, so the number of
 * changes is bounded; without that, a client that tunes for ever would fill our memory. */
tutti_code
tutti_selector_put(tutti_selector *self, const tutti_selection *selection, bool own_rules,
                   tutti_error *err)
{
    const size_t rules = own_rules ? selection->rule_count : 0;
    kept *one = calloc(1, sizeof(*one) + rules * sizeof(one->rules[0]));
    const tutti_selection *known;
    tutti_code code = TUTTI_OK;

    if (one == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu rules", rules);
    }
    one->selection = *selection;
    if (own_rules) {
        memcpy(one->rules, selection->rules, rules * sizeof(one->rules[0]));
        one->selection.rules = one->rules;
    }
    tutti_selection_seal(&one->selection);
    (void)pthread_mutex_lock(&self->lock);
    known = own_rules ? NULL : find_kept(self, selection);
    if (known != NULL) {
        self->now = known;
        free(one);
    } else if (self->count == SELECTORS_MAX || self->rules + rules > RULES_KEPT_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "CHOICE_LIMIT",
                              "algorithms were set %zu times with %zu rules, the limits are %d and "
                              "%d: restart the agent",
                              self->count, self->rules, SELECTORS_MAX, RULES_KEPT_MAX);
        free(one);
    } else {
        tutti_list_add(&self->all, &one->link);
        self->now = &one->selection;
        self->count++;
        self->rules += rules;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return code;
}

tutti_code
tutti_selector_new(const tutti_selection *first, bool own_rules, tutti_selector **ret,
                   tutti_error *err)
{
    tutti_selector *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for rules");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_list_init(&self->all);
    code = tutti_selector_put(self, first, own_rules, err);
    if (code != TUTTI_OK) {
        tutti_selector_free(self);
        return code;
    }
    *ret = self;
    return TUTTI_OK;
}

const tutti_selection *
tutti_selector_current(tutti_selector *self)
{
    const tutti_selection *now;

    (void)pthread_mutex_lock(&self->lock);
    now = self->now;
    (void)pthread_mutex_unlock(&self->lock);
    return now;
}

void
tutti_selector_free(tutti_selector *self)
{
    tutti_list_node *link;

    if (self == NULL) {
        return;
    }
    while ((link = tutti_list_pop(&self->all)) != NULL) {
        free(tutti_container_of(link, kept, link));
    }
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}
