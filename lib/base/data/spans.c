/*
 * Lists of ranks as runs (first, count, step). Groups are nearly always a range of ranks or every
 * n-th one, so a list of thousands becomes three numbers.
 */
#include "base/data/spans.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "tutti/types.h"

#define BLOCK 16 /* numbers that are looked at without a branch: the compiler does them at once */

/* Are the BLOCK ranks behind this one a step each behind the one before? */
static bool
is_block(const uint32_t *ranks, uint32_t step)
{
    bool same = true;
    size_t i;

    for (i = 0; i < BLOCK; i++) {
        same &= ranks[i + 1] - ranks[i] == step;
    }
    return same;
}

/*
 * How many ranks from `ranks` on are one span. When all of a world of 10 000 ask for a group of all,
 * this looks at 10 000 ranks 10 000 times.
 */
static size_t
measure_span(const uint32_t *ranks, size_t count, uint32_t *ret_step)
{
    size_t length = 1;

    *ret_step = 1;
    if (count > 1 && ranks[1] > ranks[0]) {
        *ret_step = ranks[1] - ranks[0];
        while (length + BLOCK <= count && is_block(ranks + length - 1, *ret_step)) {
            length += BLOCK;
        }
        while (length < count && ranks[length] > ranks[length - 1] &&
               ranks[length] - ranks[length - 1] == *ret_step) {
            length++;
        }
    }
    return length;
}

static void
fill_span(uint32_t *restrict ranks, uint32_t first, uint32_t count, uint32_t step)
{
    uint32_t i;
    uint32_t k;

    for (i = 0; i + BLOCK <= count; i += BLOCK) {
        for (k = 0; k < BLOCK; k++) {
            ranks[i + k] = first + (i + k) * step;
        }
    }
    for (; i < count; i++) {
        ranks[i] = first + i * step;
    }
}

/* False: there is no room for one more, or it is no span of ranks. */
static bool
add_span(tutti_spans *spans, size_t most, const uint32_t span[TUTTI_SPAN_NUMBERS])
{
    const uint64_t last = span[0] + (uint64_t)(span[1] - 1) * span[2];

    if (spans->count + TUTTI_SPAN_NUMBERS > most || last >= TUTTI_RANKS_MAX) {
        return false;
    }
    memcpy(spans->numbers + spans->count, span, TUTTI_SPAN_NUMBERS * sizeof(*span));
    spans->count += TUTTI_SPAN_NUMBERS;
    return true;
}

/*
 * The result is used only when it is shorter than the list itself. Otherwise `count` is 0, and
 * the caller sends the list.
 */
void
tutti_spans_pack(const uint32_t *ranks, size_t count, tutti_spans *ret_spans)
{
    const size_t all = TUTTI_SPANS_MAX * TUTTI_SPAN_NUMBERS;
    const size_t most = count <= all ? count - 1 : all; /* of none: no span is looked for */
    bool fits = count <= TUTTI_RANKS_MAX;
    size_t i = 0;

    ret_spans->count = 0;
    while (fits && i < count) {
        uint32_t span[TUTTI_SPAN_NUMBERS] = {0, (uint32_t)count, 1};

        if (ranks != NULL) {
            span[0] = ranks[i];
            span[1] = (uint32_t)measure_span(ranks + i, count - i, &span[2]);
        }
        fits = add_span(ret_spans, most, span);
        i += span[1];
    }
    if (!fits) {
        ret_spans->count = 0;
    }
}

static tutti_code
fail_span(const uint32_t *span, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SPANS",
                          "a span of %" PRIu32 " ranks from %" PRIu32 " in steps of %" PRIu32
                          ", need a step of at least 1, ranks below %d, and at most %d ranks",
                          span[1], span[0], span[2], TUTTI_RANKS_MAX, TUTTI_RANKS_MAX);
}

/*
 * The spans come from somebody else. They are checked one by one and together, so that they never
 * need more memory than the largest group, and no sum overflows.
 */
static tutti_code
check_spans(const uint32_t *numbers, size_t count, size_t *ret_total, tutti_error *err)
{
    size_t total = 0;
    size_t i;

    if (count % TUTTI_SPAN_NUMBERS != 0 || count > TUTTI_SPANS_MAX * TUTTI_SPAN_NUMBERS) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SPANS",
                              "spans of %zu numbers, need three for each (first, count, step), and "
                              "%d spans at most",
                              count, TUTTI_SPANS_MAX);
    }
    for (i = 0; i < count; i += TUTTI_SPAN_NUMBERS) {
        const uint64_t length = numbers[i + 1];
        const uint64_t step = numbers[i + 2];

        if (length == 0 || length > TUTTI_RANKS_MAX || step == 0 || step > TUTTI_RANKS_MAX ||
            numbers[i] + (length - 1) * step >= TUTTI_RANKS_MAX ||
            total + length > TUTTI_RANKS_MAX) {
            return fail_span(numbers + i, err);
        }
        total += length;
    }
    *ret_total = total;
    return TUTTI_OK;
}

tutti_code
tutti_spans_unpack(const uint32_t *numbers, size_t count, uint32_t **ret_ranks, size_t *ret_count,
                   tutti_error *err)
{
    size_t total = 0;
    size_t used = 0;
    uint32_t *ranks;
    size_t i;

    TUTTI_TRY(check_spans(numbers, count, &total, err));
    ranks = malloc((total + 1) * sizeof(*ranks));
    if (ranks == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for a list of %zu ranks", total);
    }
    for (i = 0; i < count; i += TUTTI_SPAN_NUMBERS) {
        fill_span(ranks + used, numbers[i], numbers[i + 1], numbers[i + 2]);
        used += numbers[i + 1];
    }
    *ret_ranks = ranks;
    *ret_count = total;
    return TUTTI_OK;
}
