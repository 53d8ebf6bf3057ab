/* What was measured, as a table that agents load. */
#include "client/cli/bench/tune.h"
#include "client/cli/util/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BETTER                                                                                     \
    0.95 /* a neighbour's algorithm is kept unless another takes less than that of it              \
          */

static bool
is_same_op(const tune_point *left, const tune_point *right)
{
    return strcmp(left->word, right->word) == 0 && strcmp(left->class_name, right->class_name) == 0;
}

/*
 * The fastest of the points from `first` on that are of one op and size. Near ties go to the
 * algorithm of the size before, so that noise does not cut the table into many rules.
 *
 * [out] ret_end  behind the last of these points
 */
static const tune_point *
fastest_tuned_row(const tune *self, size_t first, const tune_point *before, size_t *ret_end)
{
    const tune_point *best = &self->points[first];
    const tune_point *same = NULL;
    size_t i = first;

    for (; i < self->count && is_same_op(&self->points[i], &self->points[first]) &&
           self->points[i].bytes == self->points[first].bytes;
         i++) {
        const tune_point *one = &self->points[i];

        best = one->us < best->us ? one : best;
        same = before != NULL && strcmp(one->algorithm, before->algorithm) == 0 ? one : same;
    }
    *ret_end = i;
    return same != NULL && best->us > BETTER * same->us ? same : best;
}

/* Sizes of one op that have one algorithm. Between two that were measured, the middle. */
static void
write_rule(FILE *file, const tune *self, const tune_point *point, uint64_t from, uint64_t to)
{
    char range[64] = "*";

    if (from > 0 && to > 0) {
        (void)snprintf(range, sizeof(range), "%" PRIu64 "..%" PRIu64, from, to);
    } else if (from > 0) {
        (void)snprintf(range, sizeof(range), "%" PRIu64 "..", from);
    } else if (to > 0) {
        (void)snprintf(range, sizeof(range), "..%" PRIu64, to);
    }
    (void)fprintf(file, "%s %s %s %" PRIu32 " %" PRIu32 " %s\n", point->word, point->class_name,
                  range, self->world.count,
                  (self->world.count + self->host_count - 1) / self->host_count, point->algorithm);
}

/* Up to where the last sizes of an op speak for larger ones: 0 = for all, as they were the last to
 * be asked for. */
static uint64_t
reach_tuned_row(const tune *self, const tune_point *last)
{
    return last->bytes > self->end_bytes / 4 ? 0 : 2 * last->bytes;
}

/*
 * One rule for each run of sizes with the same algorithm. A rule is written when the next one
 * begins, as only then its end is known.
 */
static void
write_rules(FILE *file, const tune *self)
{
    const tune_point *now = NULL;
    uint64_t from = 0;
    size_t at = 0;

    while (at < self->count) {
        const bool goes_on = now != NULL && is_same_op(now, &self->points[at]);
        size_t end;
        const tune_point *best = fastest_tuned_row(self, at, goes_on ? now : NULL, &end);

        if (goes_on && strcmp(best->algorithm, now->algorithm) != 0) {
            const uint64_t middle = self->points[at].bytes / 2;

            write_rule(file, self, now, from, middle);
            from = middle + 1;
        } else if (now != NULL && !goes_on) {
            write_rule(file, self, now, from, reach_tuned_row(self, &self->points[at - 1]));
            from = 0;
        }
        now = best;
        at = end;
    }
    if (now != NULL) {
        write_rule(file, self, now, from, reach_tuned_row(self, &self->points[at - 1]));
    }
}

/*
 * The measurements stay in the file as comments, so that somebody can see later why a rule is
 * there.
 */
static void
write_figures(FILE *file, const tune *self)
{
    size_t i;

    (void)fprintf(file, "\n# measured: op, class, bytes, algorithm, microseconds a call, calls\n");
    for (i = 0; i < self->count; i++) {
        const tune_point *one = &self->points[i];

        (void)fprintf(file, "# %s %s %" PRIu64 " %s %.1f %" PRIu32 "\n", one->word, one->class_name,
                      one->bytes, one->algorithm, one->us, one->calls);
    }
}

/* "shipped" at the end means: what no rule covers is chosen by the built-in table. */
tutti_code
tune_write_table(const tune *self, char **ret_text, tutti_error *err)
{
    size_t size = 0;
    FILE *file = open_memstream(ret_text, &size);

    if (file == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the table");
    }
    (void)fprintf(file,
                  "tutti-table 1\n"
                  "# by tutti tune, on %" PRIu32 " ranks on %" PRIu32 " hosts\n"
                  "# op class bytes ranks ranks-per-host algorithm\n",
                  self->world.count, self->host_count);
    write_rules(file, self);
    (void)fprintf(file, "shipped\n");
    write_figures(file, self);
    if (fclose(file) != 0) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the table");
    }
    return TUTTI_OK;
}
