/*
 * Algorithms: which one an op would take, and telling agents which to take.
 *
 *     tutti_explain_question question = {.op = "all_reduce", .bytes = 1 << 20};
 *     tutti_explanation why;
 *
 *     if (tutti_explain(client, &question, &why, &err) == TUTTI_OK) {
 *         puts(why.algorithm);
 *     }
 *
 * Threads, errors and outputs are those of tutti/client.h.
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

#define TUTTI_ALGORITHMS_MAX 16 /* of one op */

typedef struct tutti_alternative {
    char algorithm[32];
    bool possible;
    char why_not[96];      /* not possible: why */
    uint64_t predicted_ns; /* by a model, not measured here */
    bool keeps_order;      /* float sums have the bits of a sum in the order of ranks */
} tutti_alternative;

/* Zeroes are fine, but for the op. */
typedef struct tutti_explain_question {
    const char *op;      /* "all_reduce": with underscores; not send and recv */
    const char *group;   /* NULL = world */
    uint64_t bytes;      /* of the tensor that a rank gives; of broadcast and scatter, the root */
    tutti_dtype dtype;   /* of what is reduced; TUTTI_DTYPE_NONE = FP32 */
    tutti_reduce reduce; /* TUTTI_REDUCE_NONE = SUM */
} tutti_explain_question;

typedef struct tutti_explanation {
    char algorithm[32];
    char why[16];         /* "forced"; "rule"; "base": no rule fits, or the ranks differ; "small";
                             "one_rank": nothing to choose, and no alternatives */
    char rule[192];       /* as a line of a table; "" = none */
    uint32_t rule_number; /* from 1 */
    uint32_t rule_count;
    char table[256];       /* where it is from: "shipped", a file on the agent's machine, "told" */
    char order_class[16];  /* "exact", "float", "half" */
    char passed_over[192]; /* what is forced and cannot run it, and why; "" = nothing */
    uint32_t rank_count;
    uint32_t host_count;
    bool settled; /* an op has run, so hosts are known; else they are what the coordinator knows of
                     the world, or a host for each rank */
    bool same_host; /* all ranks share memory */
    bool alike;     /* all ranks have the same table, as of the last op */
    tutti_alternative alternatives[TUTTI_ALGORITHMS_MAX];
    size_t alternative_count;
} tutti_explanation;

/*
 * Ask an agent which algorithm an op would take in a group that it has been in.
 *
 * TUTTI_INVALID_ARGUMENT     BAD_ALGORITHM: no op with algorithms; BAD_REDUCE_OP, DTYPE_UNSUPPORTED
 * TUTTI_FAILED_PRECONDITION  NOT_JOINED
 * TUTTI_NOT_FOUND            NO_GROUP: no op was called on it at this agent yet
 */
TUTTI_API tutti_code tutti_explain(tutti_client *client, const tutti_explain_question *question,
                                   tutti_explanation *ret_explanation, tutti_error *err);

/*
 * Which algorithms the agent takes from now on. Tell all agents of a job the same: ranks that
 * differ take what needs no table. Ops in flight go on as they began.
 *
 * [in] table   as tutti tune writes it; NULL = that of the agent's start
 * [in] forced  "all_reduce=ring,broadcast=chain", in place of what was; NULL = nothing
 *
 * Both NULL: all as at the agent's start.
 *
 * TUTTI_INVALID_ARGUMENT    BAD_TABLE, BAD_ALGORITHM
 * TUTTI_RESOURCE_EXHAUSTED  CHOICE_LIMIT
 * TUTTI_PERMISSION_DENIED   with tokens, it takes the role admin
 */
TUTTI_API tutti_code tutti_algorithms_set(tutti_client *client, const char *table,
                                          const char *forced, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
