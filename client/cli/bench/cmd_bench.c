/* tutti bench: rows of sizes, until the last one, an error or Ctrl-C. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/cli/bench/bench.h"
#include "client/cli/bench/commands.h"
#include "client/cli/bench/gate.h"
#include "client/cli/bench/pattern.h"
#include "client/cli/cli.h"
#include "client/cli/collective/collective.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/values.h"

#define LEAST_BYTES 8

/* What all rows make together. */
typedef struct totals {
    double bus_gbps;
    unsigned figures;
    uint64_t wrong;
} totals;

/* Out of place, or in place, where the op has that. */
static bool
has_form(const bench_run *run, bool in_place)
{
    const bench_op *op = run->plan->op;
    const bool inline_broadcast =
        run->plan->way == BENCH_INLINE && op->kind == TUTTI_OP_BROADCAST; /* its data is both */

    return in_place ? op->in_place : !inline_broadcast;
}

/*
 * One half of a row, on tensors of its own. They are made anew for each half, so that a large
 * size does not need memory for both.
 */
static tutti_code
measure_op(bench_run *run, bench_figures *ret, tutti_error *err)
{
    tutti_code code = bench_memory_make(run, err);
    uint64_t wrong = 0;

    if (code == TUTTI_OK) {
        code = bench_time(run, ret, err);
    }
    if (code == TUTTI_OK && run->plan->check) {
        code = bench_check(run, &wrong, err);
        ret->checked = code == TUTTI_OK;
        ret->wrong = wrong;
    }
    bench_memory_forget(run);
    return code;
}

/* The average at the end is over both halves, as nccl-tests has it. */
static void
add_up(totals *sum, const bench_figures *figures)
{
    if (figures->known) {
        sum->bus_gbps += figures->bus_gbps;
        sum->figures++;
        sum->wrong += figures->wrong;
    }
}

/* Both forms are measured before the row is printed, since they stand in one line. */
static tutti_code
run_row(bench_run *run, uint64_t bytes, totals *sum, tutti_error *err)
{
    bench_figures figures[2] = {{0}, {0}};
    char size[CLI_WORD_SIZE];
    tutti_code code = TUTTI_OK;
    int form;

    run->bytes = bytes;
    run->part = bench_plan_part(run->plan, run->world.count, bytes);
    for (form = 0; form < 2 && code == TUTTI_OK; form++) {
        run->in_place = form == 1;
        cli_status_line(run->self, "%s of %s, %s", run->plan->op->word,
                        cli_format_size(bytes, size), form == 1 ? "in place" : "out of place");
        if (has_form(run, run->in_place)) {
            code = measure_op(run, &figures[form], err);
        }
    }
    cli_status_clear(run->self);
    if (code == TUTTI_OK) {
        bench_print_row(run, figures);
        bench_plot_add(run, figures);
        add_up(sum, &figures[0]);
        add_up(sum, &figures[1]);
    }
    return code;
}

/* The first size: the one of --begin, but no less than what gives each rank something. Sizes are
 * rounded to whole elements, as nccl-tests rounds them, so that scripts may sweep from any size;
 * nccl-tests goes down to rows of 0 bytes, whose figures say nothing. */
static uint64_t
first_size(const bench_run *run)
{
    const bench_plan *plan = run->plan;
    const bool small = plan->end_bytes < LEAST_BYTES;
    const uint64_t begin = plan->begin_bytes > 0 ? plan->begin_bytes : small ? 1 : LEAST_BYTES;
    const uint64_t least = bench_plan_least(plan, run->world.count);

    return begin < least ? least : begin;
}

/* An op that moves nothing has one row. */
static tutti_code
run_rows(bench_run *run, totals *sum, tutti_error *err)
{
    const bench_plan *plan = run->plan;
    uint64_t bytes = 0;
    uint64_t end = 0;
    tutti_code code = TUTTI_OK;

    bench_print_head(run);
    if (plan->op->gives == BENCH_NOTHING) {
        return run_row(run, 0, sum, err);
    }
    bytes = first_size(run);
    end = bytes > plan->end_bytes ? bytes : plan->end_bytes;
    for (; code == TUTTI_OK && bytes <= end; bytes *= (uint64_t)plan->factor) {
        code = run_row(run, bench_plan_fit(plan, run->world.count, bytes), sum, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ all of it */

/*
 * What can only be checked when the number of ranks is known. At the end all ranks are brought to
 * the same place in the group's order of calls.
 */
static tutti_code
check_plan(const bench_run *run, tutti_error *err)
{
    const bench_plan *plan = run->plan;
    const bench_pattern pattern = {.dtype = plan->dtype, .reduce = plan->reduce};

    if (plan->op->rooted && plan->root >= run->world.count) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "--root %" PRId64 ": there are %" PRIu32
                        " ranks, need a group rank below that number",
                        plan->root, run->world.count);
    }
    if (plan->check && !bench_pattern_known(&pattern)) {
        return cli_fail(
            err, TUTTI_INVALID_ARGUMENT,
            "--check: no reduction of %s exists, leave the option out or take another --dtype",
            tutti_dtype_name(plan->dtype));
    }
    return collective_catch_up(&run->world, plan->group, err);
}

static void
open_run(bench_run *run)
{
    uint32_t i;

    run->ranks = calloc(run->world.count, sizeof(*run->ranks));
    run->next = calloc(run->world.count, sizeof(*run->next));
    if (run->ranks == NULL || run->next == NULL) {
        abort();
    }
    for (i = 0; i < run->world.count; i++) {
        run->next[i] = (int32_t)((i + 1) % run->world.count);
    }
    run->gate = bench_gate_new(run->world.count);
}

static void
close_run(bench_run *run)
{
    bench_gate_free(run->gate);
    free(run->rows);
    free(run->next);
    free(run->ranks);
    cli_all_ranks_close(&run->world);
}

/* An interrupted run is told by the signal's exit code, as a shell would, and not as a failure. */
int
cli_bench(cli *self)
{
    bench_plan plan;
    bench_run run = {.self = self, .plan = &plan};
    totals sum = {0};
    tutti_error err;
    tutti_code code;

    if (!bench_plan_read(self, &plan)) {
        return CLI_USAGE;
    }
    if (plan.plot != NULL && bench_plot_check(plan.plot, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    bench_signals_catch();
    code = cli_all_ranks_open(self, plan.group, &run.world, &err);
    if (code == TUTTI_OK) {
        open_run(&run);
        code = check_plan(&run, &err);
    }
    if (code == TUTTI_OK) {
        code = run_rows(&run, &sum, &err);
    }
    if (code == TUTTI_OK) {
        bench_print_end(&run, sum.figures > 0 ? sum.bus_gbps / sum.figures : 0, sum.wrong);
    }
    if (plan.plot != NULL && run.row_count > 0) { /* also of what an interrupted run has measured */
        tutti_error why = {0};

        if (bench_plot_write(&run, plan.plot, &why) != TUTTI_OK && code == TUTTI_OK) {
            code = why.code;
            err = why;
        }
    }
    close_run(&run);
    bench_signals_release();
    if (code != TUTTI_OK) {
        const int exit_code = cli_failed(self, NULL, &err);

        return bench_signal() != 0 ? 128 + bench_signal() : exit_code;
    }
    return sum.wrong == 0 ? CLI_FINE : CLI_FAILED;
}
