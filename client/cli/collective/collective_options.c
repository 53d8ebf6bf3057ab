/* The options of collectives. */
#include "client/cli/cli.h"
#include "client/cli/collective/commands.h"
#include "client/cli/parse/options.h"

#define WORDS_REDUCE "sum prod min max avg band bor bxor premul_sum"
#define WORDS_FORM "concat stack flat"

#define OPTION_OP                                                                                  \
    {                                                                                              \
        "op", 0, "OP",                                                                             \
            "reduction: sum, prod, min, max, avg, band, bor, bxor, premul_sum (default: sum)",     \
            WORDS_REDUCE                                                                           \
    }
#define OPTION_FACTOR                                                                              \
    {                                                                                              \
        "factor", 0, "F", "factor of premul_sum", NULL                                             \
    }
#define OPTION_STEP                                                                                \
    {                                                                                              \
        "step", 0, "N",                                                                            \
            "your count of steps: ranks that give another number are refused (default: none)",     \
            NULL                                                                                   \
    }
#define OPTION_SAVE                                                                                \
    {                                                                                              \
        "output", 'o', "FILE", "save the result here, %d being the group rank; keep no tensor",    \
            "FILE"                                                                                 \
    }
#define OPTION_SAVE_EACH                                                                           \
    {                                                                                              \
        "output", 'o', "FILE", "save the results here, %d being the group rank; keep no tensors",  \
            "FILE"                                                                                 \
    }
#define OPTION_ROOT_GLOBAL                                                                         \
    {                                                                                              \
        "root-global", 0, "R", "the root as a rank of the job, instead of --root", NULL            \
    }
#define OPTION_JOIN_AXIS                                                                           \
    {                                                                                              \
        "axis", 0, "A", "the dimension along which inputs are joined; negative from the end", NULL \
    }
#define OPTION_CUT_AXIS                                                                            \
    {                                                                                              \
        "axis", 0, "A", "the dimension that is cut; negative from the end", NULL                   \
    }
#define OPTION_JOIN_FORM                                                                           \
    {                                                                                              \
        "form", 0, "FORM",                                                                         \
            "concat along --axis, stack along a new one, or flat: elements in order", WORDS_FORM   \
    }
#define OPTION_CUT_FORM                                                                            \
    {                                                                                              \
        "form", 0, "FORM",                                                                         \
            "concat cuts --axis evenly, stack takes one entry of it and removes it, flat cuts "    \
            "the elements",                                                                        \
            WORDS_FORM                                                                             \
    }
#define OPTION_SHAPE                                                                               \
    {                                                                                              \
        "shape", 0, "DIMS",                                                                        \
            "shape of the result of --form flat, such as 2,3 (default: one dimension)", NULL       \
    }

const cli_option cli_all_reduce_options[] = {
    OPTION_OP,       OPTION_FACTOR,
    OPTION_SAVE,     {"name", 0, "NAME", "name of the results, when files are given", NULL},
    OPTION_GROUP,    OPTION_STEP,
    OPTION_RANK_ONE, OPTION_INTO,
    OPTION_ASYNC,    OPTION_END,
};

const cli_option cli_reduce_options[] = {
    OPTION_OP,
    OPTION_FACTOR,
    {"root", 0, "R", "the group rank that gets the result (default: 0)", NULL},
    OPTION_ROOT_GLOBAL,
    OPTION_SAVE,
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_INTO,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_reduce_scatter_options[] = {
    OPTION_OP,    OPTION_FACTOR, OPTION_CUT_AXIS, OPTION_CUT_FORM, OPTION_SHAPE, OPTION_SAVE_EACH,
    OPTION_GROUP, OPTION_STEP,   OPTION_RANK_ONE, OPTION_INTO,     OPTION_ASYNC, OPTION_END,
};

const cli_option cli_broadcast_options[] = {
    {"root", 0, "R", "the group rank that gives (default: 0)", NULL},
    OPTION_ROOT_GLOBAL,
    {"name", 0, "NAME", "name of the tensor on all ranks", NULL},
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_INTO,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_all_gather_options[] = {
    OPTION_JOIN_AXIS, OPTION_JOIN_FORM, {"stack", 0, NULL, "the same as --form stack", NULL},
    OPTION_SHAPE,     OPTION_SAVE,      OPTION_GROUP,
    OPTION_STEP,      OPTION_RANK_ONE,  OPTION_INTO,
    OPTION_ASYNC,     OPTION_END,
};

const cli_option cli_gather_options[] = {
    {"root", 0, "R", "the group rank that gets the result (default: 0)", NULL},
    OPTION_ROOT_GLOBAL,
    OPTION_JOIN_AXIS,
    OPTION_JOIN_FORM,
    OPTION_SHAPE,
    OPTION_SAVE,
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_INTO,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_scatter_options[] = {
    {"root", 0, "R", "the group rank that gives (default: 0)", NULL},
    OPTION_ROOT_GLOBAL,
    OPTION_CUT_AXIS,
    OPTION_CUT_FORM,
    OPTION_SHAPE,
    OPTION_SAVE_EACH,
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_INTO,
    OPTION_ASYNC,
    OPTION_END,
};

#define OPTION_SPLITS                                                                              \
    {                                                                                              \
        "splits", 0, "ROWS", "parts of any length: for each sender what each rank gets: 1,2/3,0",  \
            NULL                                                                                   \
    }

const cli_option cli_all_to_all_options[] = {
    {"split-axis", 0, "A", "the dimension that is cut into equal parts; negative from the end",
     NULL},
    {"concat-axis", 0, "A", "the dimension along which parts are joined; negative from the end",
     NULL},
    OPTION_SPLITS,
    OPTION_SAVE_EACH,
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_INTO,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_permute_options[] = {
    {"to", 0, "RANKS", "by sender, the group rank that gets its tensor: 1,2,0", NULL},
    OPTION_SAVE_EACH,
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_INTO,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_barrier_options[] = {
    {"monitored", 0, NULL, "when time is up, fail with MISSING_RANKS instead of TIMEOUT", NULL},
    OPTION_GROUP,
    OPTION_STEP,
    OPTION_RANK_ONE,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_infer_options[] = {
    {"count", 'n', "N", "ranks of the group (default: all of the job)", NULL},
    {"group-rank", 0, "R", "show the result of this group rank alone", NULL},
    OPTION_OP,
    OPTION_FACTOR,
    {"root", 0, "R", "the group rank that gives, or gets (default: 0)", NULL},
    {"axis", 0, "A", "the dimension that is cut, or along which inputs are joined", NULL},
    {"form", 0, "FORM", "concat, stack or flat, as the op has it", WORDS_FORM},
    OPTION_SHAPE,
    {"split-axis", 0, "A", "of all-to-all", NULL},
    {"concat-axis", 0, "A", "of all-to-all", NULL},
    OPTION_SPLITS,
    {"to", 0, "RANKS", "of permute: by sender, the group rank that gets its tensor", NULL},
    OPTION_RANK,
    OPTION_END,
};

const cli_option cli_batch_options[] = {
    OPTION_RANK,
    {"stop-on-error", 0, NULL, "begin each call only when the one before it has succeeded", NULL},
    {"in-flight", 0, "N",
     "calls that may be without an answer (default: as many as the agent takes)", NULL},
    OPTION_END,
};

#define OPTION_GROUP_OFFSET                                                                        \
    {                                                                                              \
        "group-offset", 0, "N", "with --group-count: how many blocks further; negative = before",  \
            NULL                                                                                   \
    }
#define OPTION_GROUP_COUNT                                                                         \
    {                                                                                              \
        "group-count", 0, "N",                                                                     \
            "number of blocks of ranks: the peer has the same place in another block", NULL        \
    }

const cli_option cli_send_options[] = {
    OPTION_RANK,
    {"to", 0, "R", "the group rank to send to", NULL},
    {"tag", 0, "T", "a number that send and recv agree on (default: 0)", NULL},
    OPTION_GROUP_OFFSET,
    OPTION_GROUP_COUNT,
    OPTION_GROUP,
    OPTION_ASYNC,
    OPTION_END,
};

const cli_option cli_recv_options[] = {
    OPTION_RANK,
    {"from", 0, "R", "the group rank to receive from (default: any rank)", NULL},
    {"tag", 0, "T", "a number that send and recv agree on (default: 0)", NULL},
    OPTION_INTO,
    OPTION_GROUP_OFFSET,
    OPTION_GROUP_COUNT,
    OPTION_GROUP,
    OPTION_ASYNC,
    OPTION_END,
};
