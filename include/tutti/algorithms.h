/*
 * Algorithms: which one an op would take, and telling agents which ones to take.
 *
 *     tutti_explain_question question = {"all_reduce", NULL, 1 << 20, TUTTI_DTYPE_FP32,
 *                                        TUTTI_REDUCE_SUM};
 *     tutti_explanation why;
 *
 *     if (tutti_explain(client, &question, &why, &err) == TUTTI_OK) {
 *         printf("%s (%s)\n", why.algorithm, why.why);               // "shared (rule)"
 *     }
 *     tutti_algorithms_set(client, NULL, "all_reduce=ring", &err);   // at each agent
 *
 * For an op in host memory there are several ways to move and reduce the data: a ring, trees,
 * direct messages ... Which one is fastest depends on the bytes, the ranks and the hosts. Each
 * agent has a table of rules; the first rule that fits the op names the algorithm. The ranks of an
 * op agree on it before data moves. docs/algorithms.md lists the algorithms with the time that each
 * takes. They are known from the literature:
 *
 *   ring                all_reduce by Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce
 *                       algorithms for clusters of workstations"
 *   rabenseifner        Rabenseifner (2004), "Optimization of collective reduction operations"
 *   recursive_doubling, recursive_halving, pairwise, binomial
 *                       Thakur, Rabenseifner and Gropp (2005), "Optimization of collective
 *                       communication operations in MPICH"
 *   bruck               Bruck, Ho, Kipnis, Upfal and Weathersby (1997), "Efficient algorithms for
 *                       all-to-all communications in multiport message-passing systems"
 *   dissemination       Hensgen, Finkel and Manber (1988), "Two algorithms for barrier
 *                       synchronization"
 *   flat, direct, chain, shared, hierarchical
 *                       each rank to all others; in one or two steps; a pipeline; in shared memory;
 *                       within hosts, then between them
 *
 * The names are text, for later versions may have others. Ops on GPUs are NCCL's, which chooses
 * itself.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h. The calls go to the
 * agent of this client alone.
 *
 * Caveats
 *
 * - Agents with different tables work, but slower. The trap: tutti_algorithms_set at one rank. How
 *   it looks: `why` is "base" and `alike` is false. What to do: call it at every agent of the job
 *   (`tutti tune --load` does).
 * - Float sums change their bits if what is chosen does not keep the order of ranks
 *   (tutti_alternative.keeps_order). The shipped table names only what keeps it, for floats.
 * - predicted_ns comes from a model with the numbers of a good network of today. It ranks
 *   algorithms; it does not tell times. `tutti tune` measures.
 */
#ifndef TUTTI_ALGORITHMS_H
#define TUTTI_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Alternatives in one tutti_explanation, at most. */
#define TUTTI_ALGORITHMS_MAX 16

/* An algorithm that the op has. Plain data. */
typedef struct tutti_alternative {
    /* "ring", "direct", "recursive_doubling" ... */
    char algorithm[32];
    /* It can run this op, of these bytes and dtype, in this group. */
    bool possible;
    /* Not possible: why. Else "". */
    char why_not[96];
    /* Possible: nanoseconds by the model of docs/algorithms.md, not measured here. Else 0. */
    uint64_t predicted_ns;
    /* Float sums have the bits of a sum in the order of group ranks. */
    bool keeps_order;
} tutti_alternative;

/* Which op is asked about. Begin with zeroes; only `op` has to be set. */
typedef struct tutti_explain_question {
    /*
     * With underscores: "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all",
     * "reduce", "gather", "scatter", "barrier" ... Not send and recv, which have no algorithms. Not
     * NULL.
     */
    const char *op;
    /* NULL or "" = "world". */
    const char *group;
    /* Bytes of the tensor that a rank gives; of broadcast and scatter, that the root gives. */
    uint64_t bytes;
    /* Of the ops that reduce: their dtype; TUTTI_DTYPE_NONE = FP32. */
    tutti_dtype dtype;
    /* Of the ops that reduce: their reduce op; TUTTI_REDUCE_NONE = SUM. */
    tutti_reduce reduce;
} tutti_explain_question;

/* What the agent would do. Plain data. */
typedef struct tutti_explanation {
    /* The algorithm; "agreement" if `why` is "small", "self" if it is "one_rank". */
    char algorithm[32];
    /*
     * Why that one:
     *
     *   "forced"    --algorithm, or tutti_algorithms_set, names it for this op
     *   "rule"      `rule` is the first rule of the table that fits
     *   "base"      no rule fits, or the ranks have different tables: what needs no table
     *   "small"     the data is so small that it travels with the agreement of the ranks
     *   "one_rank"  the group has one rank: nothing to choose, and no alternatives
     */
    char why[16];
    /* "rule": the rule, as a line of a table. Else "". */
    char rule[192];
    /* "rule": its number in the table, from 1. Else 0. */
    uint32_t rule_number;
    /* Rules of the table, at most 1024. */
    uint32_t rule_count;
    /* Where the table is from: "shipped"; the file of --tune-table; "told" by a client. */
    char table[256];
    /*
     * What may be done to the elements: "exact" = any order gives the same bits (integers, logic,
     * MIN, MAX, ops that only move); "float" = sums and products of FP32, FP64 and complex numbers;
     * "half" = the same of FP16 and BF16, which are rounded once.
     */
    char order_class[16];
    /* What is forced for this op and cannot run it, and why: "ring: needs two ranks". Else "". */
    char passed_over[192];
    /* Ranks of the group, and hosts that they are on. */
    uint32_t rank_count;
    uint32_t host_count;
    /*
     * An op has run in the group, so its agents know which ranks share a host. false = host_count
     * is what the coordinator knows of the world, or one host for each rank.
     */
    bool settled;
    /* All ranks share memory. */
    bool same_host;
    /* All ranks have the same table, as of the last op; true while none has run. */
    bool alike;
    /* The algorithms that the op has, possible or not: the first `alternative_count`. */
    tutti_alternative alternatives[TUTTI_ALGORITHMS_MAX];
    size_t alternative_count;
} tutti_explanation;

/*
 * Ask an agent which algorithm an op would take in a group, with the agent's present table. No op
 * runs. If no op has run in "world" yet, libtutti asks the coordinator for the hosts, for 2 s at
 * most; if that fails, each rank is taken to be on a host of its own.
 *
 * [in]  question         borrowed
 * [out] ret_explanation
 *
 * TUTTI_INVALID_ARGUMENT     BAD_ALGORITHM: no op of that name has algorithms;
 *                            BAD_REDUCE_OP, DTYPE_UNSUPPORTED: the reduce op does not take that
 *                            dtype
 * TUTTI_FAILED_PRECONDITION  NOT_JOINED: the agent takes part in no job yet
 * TUTTI_NOT_FOUND            NO_GROUP: no op was called on that group at this agent yet. Call one,
 *                            a barrier say
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_explain(tutti_client *client, const tutti_explain_question *question,
                                   tutti_explanation *ret_explanation, tutti_error *err);

/*
 * Say which algorithms the agent takes from now on. Ops in flight go on as they began. Call it at
 * all agents of the job; while their tables differ, ops take what needs no table, on all ranks
 * alike. It holds until the next call or the agent's end.
 *
 *   table  forced  what holds then
 *   NULL   NULL    all as at the agent's start: --tune-table and --algorithm
 *   text   NULL    this table, and nothing is forced
 *   NULL   text    the table of the start, and what `forced` says
 *   text   text    both
 *
 * [in] table   a table as `tutti tune` writes it, of at most 1024 rules and 256 KiB:
 *                  tutti-table 1
 *                  # op        class  bytes     ranks  ranks per host  algorithm
 *                  all_reduce  float  4M..      *      3..             chain
 *              NULL or "" = that of the agent's start
 * [in] forced  algorithms that go before all rules: "all_reduce=ring,broadcast=chain"; what was
 *              forced before does not hold any more. NULL or "" = nothing
 *
 * TUTTI_INVALID_ARGUMENT    BAD_TABLE: the text names the line; BAD_ALGORITHM: an op or algorithm
 *                           of `forced` does not exist, or the one is not for the other
 * TUTTI_RESOURCE_EXHAUSTED  CHOICE_LIMIT: the agent was told 4096 times, or 16384 rules in all.
 *                           Start the agent again
 * TUTTI_PERMISSION_DENIED   WRONG_ROLE: where there are tokens, it takes the role admin
 * and the statuses common to all calls (tutti/client.h)
 *
 * On failure the agent keeps what it had.
 */
TUTTI_API tutti_code tutti_algorithms_set(tutti_client *client, const char *table,
                                          const char *forced, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
