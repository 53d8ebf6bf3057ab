/* Which ops there are to measure, and what a user asks of them. */
#include <inttypes.h>
#include <string.h>

#include "client/cli/bench/bench.h"
#include "client/cli/bench/commands.h"
#include "client/cli/cli.h"
#include "client/cli/parse/options.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/values.h"

#define BYTES_MAX ((uint64_t)1 << 40)
#define TIMES_MAX 10000000

static const bench_op ops[] = {
    {TUTTI_OP_ALL_REDUCE, "all_reduce", tutti_all_reduce, BENCH_WHOLE, BENCH_WHOLE, true, false,
     true, 2},
    {TUTTI_OP_REDUCE_TO_ROOT, "reduce", tutti_reduce_to_root, BENCH_WHOLE, BENCH_WHOLE_AT_ROOT,
     true, true, true, 0},
    {TUTTI_OP_REDUCE_SCATTER, "reduce_scatter", tutti_reduce_scatter, BENCH_WHOLE, BENCH_PART, true,
     false, false, 1},
    {TUTTI_OP_BROADCAST, "broadcast", tutti_broadcast, BENCH_WHOLE_AT_ROOT, BENCH_WHOLE, false,
     true, true, 0},
    {TUTTI_OP_ALL_GATHER, "all_gather", tutti_all_gather, BENCH_PART, BENCH_WHOLE, false, false,
     false, 1},
    {TUTTI_OP_GATHER, "gather", tutti_gather, BENCH_PART, BENCH_WHOLE_AT_ROOT, false, true, false,
     1},
    {TUTTI_OP_SCATTER, "scatter", tutti_scatter, BENCH_WHOLE_AT_ROOT, BENCH_PART, false, true,
     false, 1},
    {TUTTI_OP_ALL_TO_ALL, "all_to_all", tutti_all_to_all, BENCH_WHOLE, BENCH_WHOLE, false, false,
     true, 1},
    {TUTTI_OP_PERMUTE, "permute", tutti_permute, BENCH_WHOLE, BENCH_WHOLE, false, false, true, 0},
    {TUTTI_OP_BARRIER, "barrier", tutti_barrier, BENCH_NOTHING, BENCH_NOTHING, false, false, false,
     0},
    {TUTTI_OP_SEND, "send", tutti_send, BENCH_WHOLE, BENCH_WHOLE, false, false, false, 0},
};

const cli_option cli_bench_options[] = {
    {"begin", 'b', "SIZE", "the smallest size (default: 8)", NULL},
    {"end", 'e', "SIZE", "the largest size (default: that of -b, or 64MiB without -b)", NULL},
    {"factor", 'f', "N", "factor from one size to the next (default: 2)", NULL},
    {"iterations", 'n', "N", "measured calls of each size (default: 20)", NULL},
    {"warmup", 'w', "N", "calls before them, which are not measured (default: 5)", NULL},
    {"dtype", 'd', "DTYPE", "dtype of the elements (default: FP32)",
     "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 BF16 FP32 FP64 COMPLEX64 "
     "COMPLEX128 FP8_E4M3 FP8_E5M2"},
    {"op", 'o', "OP",
     "reduction: sum, prod, min, max, avg, band, bor, bxor, premul_sum (default: sum)",
     "sum prod min max avg band bor bxor premul_sum"},
    {"root", 'r', "R", "the group rank that gives, or gets (default: 0)", NULL},
    OPTION_GROUP,
    {"device", 0, "DEVICE", "where the tensors are: cpu, cuda (default: each agent's first)", NULL},
    {"check", 0, NULL, "compare results with what this command works out by itself", NULL},
    {"plot", 0, "FILE", "draw time and bus bandwidth over the size, as an SVG file", "FILE"},
    {"percentiles", 0, NULL, "add columns for p50 and p99 of all calls, after all others", NULL},
    {"async", 0, NULL, "begin all calls, then wait; p50 and p99 are inside the agents then", NULL},
    {"handle", 0, NULL, "tensors in the agents (default)", NULL},
    {"inline", 0, NULL, "tensors of this process, sent and received with each call", NULL},
    {"share", 0, NULL, "tensors in the agents, whose memory this process has mapped", NULL},
    OPTION_END,
};

/* ------------------------------------------------------------------------------ ops */

/* '_' in our word stands for '-' as well. */
static bool
same_words(const char *left, const char *right)
{
    while (*left != '\0' && (*left == *right || (*left == '_' && *right == '-'))) {
        left++;
        right++;
    }
    return *left == '\0' && *right == '\0';
}

const bench_op *
bench_op_at(int index)
{
    return (size_t)index < sizeof(ops) / sizeof(ops[0]) ? &ops[index] : NULL;
}

const bench_op *
bench_op_find(const char *word)
{
    size_t i;

    if (strcmp(word, "recv") == 0) { /* of the two each rank does both */
        word = "send";
    }
    for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (same_words(ops[i].word, word)) {
            return &ops[i];
        }
    }
    return NULL;
}

const char *
bench_way_name(bench_way way)
{
    static const char *const names[] = {"handle", "inline", "share"};

    return names[way];
}

/*
 * How nccl-tests turns algorithm bandwidth into bus bandwidth: what each link must carry at
 * least, so that the figure can be compared with the hardware's, whatever the number of ranks.
 */
double
bench_bus_factor(const bench_op *op, uint32_t ranks)
{
    return op->links == 0 ? 1 : (double)op->links * (ranks - 1) / ranks;
}

/* ------------------------------------------------------------------------------ the plan */

static bool
read_op(cli *self, bench_plan *plan)
{
    plan->op = bench_op_find(self->arguments[0]);
    if (plan->op == NULL) {
        (void)cli_usage(self,
                        "no op \"%s\": need all_reduce, reduce, reduce_scatter, broadcast, "
                        "all_gather, gather, scatter, all_to_all, permute, barrier, send or recv",
                        self->arguments[0]);
    }
    return plan->op != NULL;
}

/* What says nothing about this op is not silently left out. */
static bool
check_op_words(cli *self, const bench_plan *plan)
{
    static const char *const of_sizes[] = {"begin",  "end",    "factor", "dtype",
                                           "inline", "handle", "share",  NULL};
    const bool moves = plan->op->gives != BENCH_NOTHING;
    const char *word = plan->op->word;
    int i;

    for (i = 0; of_sizes[i] != NULL && !moves; i++) {
        if (cli_flag(self, of_sizes[i])) {
            (void)cli_usage(self, "--%s: %s moves no tensors", of_sizes[i], word);
            return false;
        }
    }
    if (!plan->op->reduces && cli_flag(self, "op")) {
        (void)cli_usage(self, "--op: %s reduces nothing", word);
    } else if (!plan->op->rooted && cli_flag(self, "root")) {
        (void)cli_usage(self, "--root: %s has no root, leave the option out", word);
    } else if (cli_flag(self, "handle") + cli_flag(self, "inline") + cli_flag(self, "share") > 1) {
        (void)cli_usage(self, "--handle, --inline and --share: give only one of them");
    } else if (plan->device != NULL && plan->way == BENCH_INLINE) {
        (void)cli_usage(
            self,
            "--device: with --inline tensors are in this process, leave one of the options out");
    } else if (plan->async && plan->way != BENCH_HANDLE) {
        (void)cli_usage(self,
                        "--async: a call with --%s ends only when its data is back, leave one of "
                        "the options out",
                        bench_way_name(plan->way));
    } else if (plan->op->kind == TUTTI_OP_SEND && plan->way == BENCH_INLINE) {
        (void)cli_usage(
            self, "--inline: send and recv move tensors in agents only, leave the option out");
    } else {
        return true;
    }
    return false;
}

static bool
read_types(cli *self, bench_plan *plan)
{
    const char *dtype = cli_value(self, "dtype");
    const char *reduce = cli_value(self, "op");

    plan->dtype = dtype == NULL ? TUTTI_DTYPE_FP32 : tutti_dtype_parse(dtype);
    if (plan->dtype == TUTTI_DTYPE_NONE) {
        (void)cli_usage(self, "--dtype \"%s\": need FP32, INT64, BF16 ...", dtype);
        return false;
    }
    plan->reduce = !plan->op->reduces ? TUTTI_REDUCE_NONE
                   : reduce == NULL   ? TUTTI_REDUCE_SUM
                                      : tutti_reduce_parse(reduce);
    if (plan->op->reduces && plan->reduce == TUTTI_REDUCE_NONE) {
        (void)cli_usage(self,
                        "--op \"%s\": need sum, prod, min, max, avg, band, bor, bxor or premul_sum",
                        reduce);
        return false;
    }
    return true;
}

static bool
read_size(cli *self, const char *option, uint64_t *ret)
{
    const char *text = cli_value(self, option);

    if (text == NULL || (cli_parse_size(text, ret) && *ret > 0 && *ret <= BYTES_MAX)) {
        return true;
    }
    (void)cli_usage(self, "--%s \"%s\": need a size from 1 to 1TiB: 8, 64KiB, 1G ...", option,
                    text);
    return false;
}

/* --begin alone means one size. That is what a person expects who asks for one. */
static bool
read_sizes(cli *self, bench_plan *plan)
{
    plan->end_bytes = cli_flag(self, "begin") ? 0 : (uint64_t)64 << 20;
    if (!read_size(self, "begin", &plan->begin_bytes) ||
        !read_size(self, "end", &plan->end_bytes)) {
        return false;
    }
    plan->end_bytes = plan->end_bytes == 0 ? plan->begin_bytes : plan->end_bytes;
    if (plan->end_bytes < plan->begin_bytes) {
        (void)cli_usage(self, "--end: %" PRIu64 " bytes are less than those of --begin, %" PRIu64,
                        plan->end_bytes, plan->begin_bytes);
    } else {
        return true;
    }
    return false;
}

bool
bench_plan_read(cli *self, bench_plan *ret_plan)
{
    bench_plan plan = {.factor = 2, .iterations = 20, .warmup = 5};

    if (!read_op(self, &plan)) {
        return false;
    }
    plan.group = cli_value(self, "group");
    plan.device = cli_value(self, "device");
    plan.way = cli_flag(self, "inline")  ? BENCH_INLINE
               : cli_flag(self, "share") ? BENCH_SHARE
                                         : BENCH_HANDLE;
    plan.async = cli_flag(self, "async");
    plan.check = cli_flag(self, "check");
    plan.percentiles = cli_flag(self, "percentiles");
    plan.plot = cli_value(self, "plot");
    if (!check_op_words(self, &plan) || !read_types(self, &plan) || !read_sizes(self, &plan) ||
        !cli_number(self, "factor", 2, 1024, &plan.factor) ||
        !cli_number(self, "iterations", 1, TIMES_MAX, &plan.iterations) ||
        !cli_number(self, "warmup", 0, TIMES_MAX, &plan.warmup) ||
        !cli_number(self, "root", 0, TUTTI_RANKS_MAX - 1, &plan.root)) {
        return false;
    }
    *ret_plan = plan;
    return true;
}

/* ------------------------------------------------------------------------------ rows */

/* Into how many parts each whole is cut. */
static uint64_t
parts_of(const bench_op *op, uint32_t ranks)
{
    const bool cut =
        op->gives == BENCH_PART || op->gets == BENCH_PART || op->kind == TUTTI_OP_ALL_TO_ALL;

    return cut ? ranks : 1;
}

uint64_t
bench_plan_least(const bench_plan *plan, uint32_t ranks)
{
    return tutti_dtype_bytes(plan->dtype) * parts_of(plan->op, ranks);
}

/* Rounded down to whole elements for each part. */
uint64_t
bench_plan_fit(const bench_plan *plan, uint32_t ranks, uint64_t bytes)
{
    const uint64_t step = bench_plan_least(plan, ranks);

    return bytes < step ? step : bytes / step * step;
}

uint64_t
bench_plan_part(const bench_plan *plan, uint32_t ranks, uint64_t bytes)
{
    return bytes / bench_plan_least(plan, ranks);
}
