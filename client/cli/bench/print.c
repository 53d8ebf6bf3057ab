/*
 * Rows as nccl-tests prints them: parsers of its output count columns and look for its words, so
 * that what we add (p50 and p99) stands after all of its columns, and only when it is asked for.
 * With --json an object on each line.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "client/cli/bench/bench.h"
#include "client/cli/util/progress.h"

#define FIGURES_WIDTH 33 /* of the four columns that come twice */

/* "SUM" of the op, "none" where nothing is reduced. */
static const char *
reduce_word(const bench_run *run)
{
    return run->plan->reduce == TUTTI_REDUCE_NONE ? "none" : tutti_reduce_name(run->plan->reduce);
}

/* Our own name, for JSON. */
static const char *
dtype_word(const bench_run *run)
{
    return run->bytes == 0 ? "none" : tutti_dtype_name(run->plan->dtype);
}

/* The name that nccl-tests has for a type; ours, where it has none. */
static const char *
nccl_dtype_word(const bench_run *run)
{
    if (run->bytes == 0) {
        return "none";
    }
    switch (run->plan->dtype) {
    case TUTTI_DTYPE_INT8:
        return "int8";
    case TUTTI_DTYPE_UINT8:
        return "uint8";
    case TUTTI_DTYPE_INT32:
        return "int32";
    case TUTTI_DTYPE_UINT32:
        return "uint32";
    case TUTTI_DTYPE_INT64:
        return "int64";
    case TUTTI_DTYPE_UINT64:
        return "uint64";
    case TUTTI_DTYPE_FP16:
        return "half";
    case TUTTI_DTYPE_FP32:
        return "float";
    case TUTTI_DTYPE_FP64:
        return "double";
    case TUTTI_DTYPE_BF16:
        return "bfloat16";
    case TUTTI_DTYPE_FP8_E4M3:
        return "f8e4m3";
    case TUTTI_DTYPE_FP8_E5M2:
        return "f8e5m2";
    default:
        return tutti_dtype_name(run->plan->dtype);
    }
}

/* nccl-tests prints -1 for an op without a root. */
static int64_t
root_of(const bench_run *run)
{
    return run->plan->op->rooted ? run->plan->root : -1;
}

void
bench_print_head(const bench_run *run)
{
    static const char *const where[] = {"in the agents", "of this process",
                                        "that both have mapped"};
    const bench_plan *plan = run->plan;
    const char *names = "     time   algbw   busbw  #wrong";
    const char *units = "     (us)  (GB/s)  (GB/s)";
    const char *more_names = plan->percentiles ? "      p50      p99" : "";
    const char *more_units = plan->percentiles ? "     (us)     (us)" : "";

    if (run->self->json || run->self->quiet) {
        return;
    }
    (void)fprintf(run->self->out,
                  "# %s on %" PRIu32 " ranks of %s: tensors %s%s%s, %" PRId64
                  " calls%s after %" PRId64 "%s\n",
                  plan->op->word, run->world.count, plan->group == NULL ? "world" : plan->group,
                  where[plan->way], plan->device != NULL ? " on " : "",
                  plan->device != NULL ? plan->device : "", plan->iterations,
                  plan->async ? " at once" : "", plan->warmup,
                  plan->op->kind == TUTTI_OP_SEND ? ", each to the next rank" : "");
    (void)fprintf(run->self->out, "#%77s%*s\n", "out-of-place", FIGURES_WIDTH, "in-place");
    (void)fprintf(run->self->out, "#%11s %12s %11s %11s %6s%s%s%s%s\n", "size", "count", "type",
                  "redop", "root", names, names, more_names, more_names);
    (void)fprintf(run->self->out, "#%11s %12s %30s%-*s%-*s%s%s\n", "(B)", "(elements)", "",
                  FIGURES_WIDTH, units, FIGURES_WIDTH, units, more_units, more_units);
}

/* ------------------------------------------------------------------------------ for people */

/*
 * A form that the op lacks is "nan" in numbers and "N/A" in the check: parsers read these columns
 * as numbers.
 */
static void
print_figures(FILE *file, const bench_figures *figures)
{
    if (!figures->known) {
        (void)fprintf(file, " %8s %7s %7s %7s", "nan", "nan", "nan", "N/A");
        return;
    }
    (void)fprintf(file, " %8.*f %7.2f %7.2f", figures->us < 99999 ? 1 : 0, figures->us,
                  figures->algorithm_gbps, figures->bus_gbps);
    if (figures->checked) {
        (void)fprintf(file, " %7" PRIu64, figures->wrong);
    } else {
        (void)fprintf(file, " %7s", "N/A");
    }
}

static void
print_percentiles(FILE *file, const bench_figures *figures)
{
    if (figures->known) {
        (void)fprintf(file, " %8.*f %8.*f", figures->p50_us < 99999 ? 1 : 0, figures->p50_us,
                      figures->p99_us < 99999 ? 1 : 0, figures->p99_us);
    } else {
        (void)fprintf(file, " %8s %8s", "nan", "nan");
    }
}

/* Elements of one rank's part, as nccl-tests count them. */
static uint64_t
count_of(const bench_run *run)
{
    return run->bytes == 0 ? 0 : run->part;
}

static void
print_words(const bench_run *run, const bench_figures figures[2])
{
    FILE *file = run->self->out;

    cli_status_clear(run->self);
    (void)fprintf(file, "%12" PRIu64 " %12" PRIu64 " %11s %11s %6" PRId64, run->bytes,
                  count_of(run), nccl_dtype_word(run), reduce_word(run), root_of(run));
    print_figures(file, &figures[0]);
    print_figures(file, &figures[1]);
    if (run->plan->percentiles) {
        print_percentiles(file, &figures[0]);
        print_percentiles(file, &figures[1]);
    }
    (void)fputc('\n', file);
    (void)fflush(file);
}

/* ------------------------------------------------------------------------------ for programs */

static json_t *
json_figures(const bench_figures *figures)
{
    if (!figures->known) {
        return json_null();
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o}", "us", figures->us, "p50_us", figures->p50_us,
                     "p99_us", figures->p99_us, "algbw_gb_per_s", figures->algorithm_gbps,
                     "busbw_gb_per_s", figures->bus_gbps, "wrong",
                     figures->checked ? json_integer((json_int_t)figures->wrong) : json_null());
}

static void
print_object(const bench_run *run, const bench_figures figures[2])
{
    const bench_plan *plan = run->plan;
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:I, s:s, s:s?, s:b, s:I, s:o, s:o}", "op",
        plan->op->word, "group", plan->group == NULL ? "world" : plan->group, "ranks",
        (json_int_t)run->world.count, "bytes", (json_int_t)run->bytes, "count",
        (json_int_t)count_of(run), "dtype", dtype_word(run), "redop", reduce_word(run), "root",
        (json_int_t)root_of(run), "way", bench_way_name(plan->way), "device", plan->device, "async",
        plan->async ? 1 : 0, "iterations", (json_int_t)plan->iterations, "out_of_place",
        json_figures(&figures[0]), "in_place", json_figures(&figures[1]));
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));

    (void)fprintf(run->self->out, "%s\n", text == NULL ? "" : text);
    (void)fflush(run->self->out);
    free(text);
    json_decref(object);
}

/* Flushed line by line, so that a person or a pipe sees each row when it is measured. */
void
bench_print_row(const bench_run *run, const bench_figures figures[2])
{
    if (run->self->json) {
        print_object(run, figures);
    } else {
        print_words(run, figures);
    }
}

void
bench_print_end(const bench_run *run, double bus_gbps, uint64_t wrong)
{
    if (run->self->json || run->self->quiet) {
        return;
    }
    if (run->plan->check) {
        (void)fprintf(run->self->out, "# Out of bounds values : %" PRIu64 " %s\n", wrong,
                      wrong == 0 ? "OK" : "FAILED");
    }
    if (run->plan->op->gives != BENCH_NOTHING) {
        (void)fprintf(run->self->out, "# Avg bus bandwidth    : %g\n", bus_gbps);
    }
}
