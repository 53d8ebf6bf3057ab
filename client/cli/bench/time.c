/*
 * How long calls take: all ranks together, each on a thread of its own. The ranks meet between
 * warming up and measuring, so that no rank's time contains another's warming up. The time of a
 * row is from the first rank's begin to the last one's end.
 */
#include <stdlib.h>
#include <time.h>

#include "client/cli/bench/bench.h"
#include "client/cli/bench/gate.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"

#define WINDOW 64 /* async calls of a rank that are not waited for yet */

static uint64_t
now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ------------------------------------------------------------------------------ calls */

/* One after the other, from call `first` on; [out] took_us  NULL = not wanted */
static tutti_code
run_calls(const bench_run *run, uint32_t index, uint64_t first, uint64_t count, double *took_us,
          tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    uint64_t began = now_ns();
    uint64_t i;

    for (i = 0; i < count && code == TUTTI_OK && bench_gate_pass(run->gate, first + i); i++) {
        code = bench_call(run, index, err);
        if (took_us != NULL) {
            const uint64_t ended = now_ns();

            took_us[i] = (double)(ended - began) * 1e-3;
            began = ended;
        }
    }
    return code;
}

/* All works of a window. Of a call with several the longest counts. */
static tutti_code
wait_window(const bench_run *run, uint32_t index, bench_work *works, size_t count, size_t each,
            double *took_us, tutti_error *err)
{
    tutti_work_status *statuses = calloc(count, sizeof(*statuses));
    const char **waited = calloc(count, sizeof(*waited));
    tutti_code code;
    size_t i;

    if (statuses == NULL || waited == NULL) {
        abort();
    }
    for (i = 0; i < count; i++) {
        waited[i] = works[i];
    }
    code =
        tutti_wait(run->world.clients[index], waited, count, run->self->timeout_ms, statuses, err);
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        const double us = (double)statuses[i].elapsed_us;

        if (statuses[i].error.code != TUTTI_OK) {
            *err = statuses[i].error;
            code = err->code;
        } else if (took_us != NULL) {
            took_us[i / each] = i % each == 0 || us > took_us[i / each] ? us : took_us[i / each];
        }
    }
    free(waited);
    free(statuses);
    return code;
}

/*
 * Calls are begun in windows and then waited for together, so that an agent never has more than
 * WINDOW calls of one rank that nobody has waited for.
 */
static tutti_code
run_async(const bench_run *run, uint32_t index, uint64_t first, uint64_t count, double *took_us,
          tutti_error *err)
{
    bench_work works[WINDOW * BENCH_WORKS_MAX];
    tutti_code code = TUTTI_OK;
    uint64_t done = 0;
    size_t each = 1;

    while (done < count && code == TUTTI_OK) {
        size_t calls = 0;
        size_t used = 0;

        while (calls < WINDOW && done + calls < count && code == TUTTI_OK &&
               bench_gate_pass(run->gate, first + done + calls)) {
            code = bench_begin(run, index, works + used, &each, err);
            used += each;
            calls++;
        }
        if (calls == 0) {
            break;
        }
        if (code == TUTTI_OK) {
            code = wait_window(run, index, works, used, each,
                               took_us == NULL ? NULL : took_us + done, err);
        }
        done += calls;
    }
    return code;
}

static tutti_code
run_some(const bench_run *run, uint32_t index, uint64_t first, uint64_t count, double *took_us,
         tutti_error *err)
{
    return (run->plan->async ? run_async : run_calls)(run, index, first, count, took_us, err);
}

/* A rank that fails stops the gate, so the others do not begin calls that can never end. */
static tutti_code
time_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const bench_run *run = arg;
    bench_rank *rank = &run->ranks[index];
    const uint64_t warmup = (uint64_t)run->plan->warmup;
    tutti_code code = run_some(run, index, 0, warmup, NULL, err);

    (void)client;
    if (code == TUTTI_OK && bench_gate_meet(run->gate)) {
        rank->began_ns = now_ns();
        code = run_some(run, index, warmup, (uint64_t)run->plan->iterations, rank->took_us, err);
        rank->ended_ns = now_ns();
    }
    if (code != TUTTI_OK) {
        bench_gate_stop(run->gate);
    }
    return code;
}

/* ------------------------------------------------------------------------------ figures */

static int
compare_times(const void *left, const void *right)
{
    const double one = *(const double *)left;
    const double other = *(const double *)right;

    return one < other ? -1 : one > other ? 1 : 0;
}

/* Of all calls of all ranks: always a time that was measured, and never one between two. */
static double
percentile_times(const double *sorted, size_t count, unsigned percent)
{
    const size_t place = (count * percent + 99) / 100;

    return sorted[place == 0 ? 0 : place - 1];
}

static void
add_percentiles(const bench_run *run, bench_figures *ret)
{
    const size_t each = (size_t)run->plan->iterations;
    const size_t count = each * run->world.count;
    double *all = calloc(count, sizeof(*all));
    size_t i;

    if (all == NULL) {
        abort();
    }
    for (i = 0; i < count; i++) {
        all[i] = run->ranks[i / each].took_us[i % each];
    }
    qsort(all, count, sizeof(*all), compare_times);
    ret->p50_us = percentile_times(all, count, 50);
    ret->p99_us = percentile_times(all, count, 99);
    free(all);
}

static void
make_figures(const bench_run *run, bench_figures *ret)
{
    uint64_t began = UINT64_MAX;
    uint64_t ended = 0;
    uint32_t i;

    for (i = 0; i < run->world.count; i++) {
        began = run->ranks[i].began_ns < began ? run->ranks[i].began_ns : began;
        ended = run->ranks[i].ended_ns > ended ? run->ranks[i].ended_ns : ended;
    }
    *ret = (bench_figures){.known = true};
    ret->us = (double)(ended - began) * 1e-3 / (double)run->plan->iterations;
    if (run->bytes > 0 && ret->us > 0) {
        /* bytes per microsecond are 1e6 bytes per second */
        ret->algorithm_gbps = (double)run->bytes / ret->us * 1e-3;
        ret->bus_gbps = ret->algorithm_gbps * bench_bus_factor(run->plan->op, run->world.count);
    }
    add_percentiles(run, ret);
}

/*
 * A signal is not an error of any rank: all calls that were begun have ended well. The row is
 * dropped all the same, as it has too few calls.
 */
tutti_code
bench_time(bench_run *run, bench_figures *ret, tutti_error *err)
{
    tutti_code code;

    bench_gate_reset(run->gate);
    code = cli_all_ranks_run(&run->world, time_one, run, err);
    if (code == TUTTI_OK && bench_signal() != 0) {
        return cli_fail(err, TUTTI_CANCELLED, "interrupted");
    }
    if (code == TUTTI_OK) {
        make_figures(run, ret);
    }
    return code;
}
