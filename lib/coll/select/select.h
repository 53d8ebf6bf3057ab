/*
 * Selection: which algorithm an op takes, of those of the host backend, and why.
 *
 * A selection is plain data: a table of rules, and what the user forces. All ranks of an op must
 * choose alike; tutti_selection_hash is what they compare (lib/coll/host/pick.c). Nothing
 * here allocates, but loading a table; any thread.
 */
#ifndef TUTTI_COLL_SELECT_SELECT_H
#define TUTTI_COLL_SELECT_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error/text.h"
#include "coll/coll.h"

/* Numbers are part of what ranks compare: new ones go to the end. */
typedef enum tutti_algorithm {
    TUTTI_ALGORITHM_NONE,
    TUTTI_ALGORITHM_SHARED,             /* in each other's memory; all ranks on one host */
    TUTTI_ALGORITHM_FLAT,               /* everything to everybody, one round */
    TUTTI_ALGORITHM_DIRECT,             /* each part straight to who needs it, all pairs at once */
    TUTTI_ALGORITHM_BRUCK,              /* log2 n rounds, any n */
    TUTTI_ALGORITHM_CHAIN,              /* from rank to rank, pipelined */
    TUTTI_ALGORITHM_RECURSIVE_DOUBLING, /* log2 n rounds, all of it in each */
    TUTTI_ALGORITHM_RING,               /* slices around a ring */
    TUTTI_ALGORITHM_RABENSEIFNER,       /* recursive halving, then doubling */
    TUTTI_ALGORITHM_HIERARCHICAL,       /* in hosts, between hosts, in hosts */
    TUTTI_ALGORITHM_BINOMIAL,           /* a tree of log2 n levels */
    TUTTI_ALGORITHM_RECURSIVE_HALVING,
    TUTTI_ALGORITHM_PAIRWISE, /* one partner after the other */
    TUTTI_ALGORITHM_DISSEMINATION,
    TUTTI_ALGORITHM_COUNT,
} tutti_algorithm;

/* "recursive_doubling". Static; "none" for what is none. */
const char *tutti_algorithm_name(tutti_algorithm algorithm);

/* Are there such an algorithm and such an op, and does it do that op at all? */
bool tutti_algorithm_does(tutti_algorithm algorithm, tutti_coll_kind kind);

/*
 * What may be done to the elements of an op.
 *
 *   EXACT  in any order: the bits are the same (integers, logic, MIN and MAX; what only moves)
 *   FLOAT  the order of the ranks gives the bits that are promised (decision 0006); another one
 *          gives all ranks the same bits, but others. Only where the user names an algorithm
 *   HALF   all inputs at once, in FP32, rounded once
 */
typedef enum tutti_selection_class {
    TUTTI_CLASS_EXACT,
    TUTTI_CLASS_FLOAT,
    TUTTI_CLASS_HALF,
    TUTTI_CLASS_COUNT,
} tutti_selection_class;

const char *tutti_selection_class_name(tutti_selection_class class_); /* "exact" */
tutti_selection_class tutti_selection_class_of(tutti_coll_kind kind, tutti_reduce reduce,
                                               tutti_dtype dtype);

/* Does it keep the order of the ranks, or does order not matter to it? */
bool tutti_algorithm_keeps_order(tutti_algorithm algorithm, tutti_coll_kind kind);

/* The op that an algorithm is wanted for: alike on all ranks. */
typedef struct tutti_selection_query {
    tutti_coll_kind kind;
    tutti_selection_class class_;
    uint64_t bytes; /* of the tensor that a rank gives; of scatter and broadcast, the root */
    uint32_t ranks;
    uint32_t hosts; /* 1: all on one */
    bool same_host; /* all can touch each other's memory */
    bool regular;   /* equal blocks: no splits, no list of shapes of its own */
    bool scaled;    /* PREMUL_SUM */
} tutti_selection_query;

/* Can it run this? Alike on all ranks. [out] ret_why  if not; static; NULL = not wanted */
bool tutti_algorithm_fits(tutti_algorithm algorithm, const tutti_selection_query *query,
                          const char **ret_why);

/* What is promised to run, whatever the tables say: when those of the ranks differ. */
tutti_algorithm tutti_selection_base(const tutti_selection_query *query);

/* ------------------------------------------------------------------------------ tables */

#define TUTTI_SELECTION_RULES_MAX 1024

/* From, to: both inside. */
typedef struct tutti_selection_range {
    uint64_t from;
    uint64_t to;
} tutti_selection_range;

typedef struct tutti_selection_rule {
    tutti_coll_kind kind;
    tutti_selection_class
        class_; /* TUTTI_CLASS_COUNT: any; then what reorders is for EXACT alone */
    tutti_selection_range bytes;
    tutti_selection_range ranks;
    tutti_selection_range per_host; /* ranks on a host, rounded up */
    tutti_algorithm algorithm;
} tutti_selection_rule;

typedef struct tutti_selection {
    tutti_algorithm forced[TUTTI_COLL_KIND_COUNT]; /* by kind; NONE = by the table */
    const tutti_selection_rule *rules;             /* the first that fits holds; NULL = shipped */
    size_t rule_count;
    uint64_t hash; /* of all this, and of the rules' language: tutti_selection_seal */
} tutti_selection;

/* The shipped rules. Static. */
const tutti_selection_rule *tutti_selection_default(size_t *ret_count);

/* The shipped rules, and nothing forced. [out] */
void tutti_selection_init(tutti_selection *ret_selection);

/*
 * A table as text (table.c says its form).
 *
 * [out] ret_rules  room for TUTTI_SELECTION_RULES_MAX; written to also on failure
 *
 * TUTTI_INVALID_ARGUMENT  BAD_TABLE: with the line, and what is wrong in it
 */
tutti_code tutti_selection_parse(const char *text, size_t size, tutti_selection_rule *ret_rules,
                                 size_t *ret_count, tutti_error *err);

/* A rule as a line of a table. */
void tutti_selection_write_rule(const tutti_selection_rule *rule, tutti_text *text);

/* After a change. */
void tutti_selection_seal(tutti_selection *selection);

/*
 * "all_reduce=ring,broadcast=chain": forces.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ALGORITHM: no such op or algorithm, or not for that op; the words
 *                         list those there are
 */
tutti_code tutti_selection_force(tutti_selection *selection, const char *text, tutti_error *err);

/* The error of a word that is no op with algorithms: names those that are. INVALID_ARGUMENT, BAD_ALGORITHM */
tutti_code tutti_selection_refuse_kind(const char *word, size_t size, tutti_error *err);

/* Words as above: which they mean, or the same failures. */
tutti_code tutti_selection_check_pair(const char *kind_word, size_t kind_size, const char *word,
                                      size_t size, tutti_coll_kind *ret_kind,
                                      tutti_algorithm *ret_algorithm, tutti_error *err);

/* 0, NONE: there is none of that name. */
tutti_coll_kind tutti_selection_kind_of(const char *word, size_t size);

/* Why an algorithm was taken. */
typedef enum tutti_selection_why {
    TUTTI_SELECTION_FORCED,
    TUTTI_SELECTION_RULE,
    TUTTI_SELECTION_BASE, /* no rule fits, or the ranks' tables differ */
} tutti_selection_why;

/* [out] ret_why, ret_rule  the index of the rule; NULL = not wanted */
tutti_algorithm tutti_selection_pick(const tutti_selection *selection,
                                     const tutti_selection_query *query,
                                     tutti_selection_why *ret_why, size_t *ret_rule);

/* ------------------------------------------------------------------------------ changing
 *
 * The selection of an engine: its backend_arg. It may change at any time, by any thread; an op goes
 * on with the one it began with, so none is freed before all are.
 */
typedef struct tutti_selector tutti_selector;

/*
 * [in] own_rules  copy the rules; else they stay as they are for ever
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory; CHOICE_LIMIT: it was changed too often
 */
tutti_code tutti_selector_new(const tutti_selection *first, bool own_rules,
                              tutti_selector **ret_selector, tutti_error *err);
tutti_code tutti_selector_put(tutti_selector *selector, const tutti_selection *selection,
                              bool own_rules, tutti_error *err);
const tutti_selection *tutti_selector_current(tutti_selector *selector); /* good until the end */
void tutti_selector_free(tutti_selector *selector);                      /* NULL is fine */

/* ------------------------------------------------------------------------------ cost
 *
 * Nanoseconds, and nanoseconds a byte: docs/algorithms.md has the formulas. The numbers are those
 * of a good network of today, not measured where this runs: they rank algorithms, no more.
 */
typedef struct tutti_selection_model {
    double alpha_ns; /* a message */
    double more_ns;  /* one more, while others are on their way */
    double beta_ns;  /* a byte over the network */
    double gamma_ns; /* a byte joined */
    double intra_node_alpha_ns;
    double intra_node_beta_ns;
} tutti_selection_model;

void tutti_selection_model_init(tutti_selection_model *ret_model);

/* With the agreement before it. */
uint64_t tutti_selection_cost_ns(tutti_algorithm algorithm, const tutti_selection_query *query,
                                 const tutti_selection_model *model);

#endif
