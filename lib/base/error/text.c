/*
 * Text in a buffer of a fixed size. What does not fit is cut, and `cut` says so: a message that
 * lost its end is better than none.
 */
#include "base/error/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

tutti_text
tutti_text_in(char *buffer, size_t size)
{
    tutti_text text = {.start = buffer, .size = size};

    assert(buffer != NULL && size >= 1);
    buffer[0] = '\0';
    return text;
}

/* After each call the text ends with a NUL and `used` is below `size`, whatever was added. */
void
tutti_text_add_args(tutti_text *text, const char *format, va_list args)
{
    const size_t room = text->size - text->used;
    const int want = vsnprintf(text->start + text->used, room, format, args);

    if (want < 0) {
        text->start[text->used] = '\0';
        text->cut = true;
    } else if ((size_t)want >= room) {
        text->used = text->size - 1;
        text->cut = true;
    } else {
        text->used += (size_t)want;
    }
}

void
tutti_text_add(tutti_text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tutti_text_add_args(text, format, args);
    va_end(args);
}

void
tutti_text_add_count(tutti_text *text, uint64_t count, const char *word)
{
    tutti_text_add(text, "%" PRIu64 " %s%s", count, word, count == 1 ? "" : "s");
}

/* The end of the run of consecutive numbers that begins at `first`. */
static size_t
run_text_end(const uint32_t *ranks, size_t first, size_t count)
{
    size_t last = first;

    while (last + 1 < count && ranks[last + 1] == ranks[last] + 1) {
        last++;
    }
    return last;
}

/* Two neighbours are written as "3, 4", and only three or more as "3-5". */
void
tutti_text_add_ranks(tutti_text *text, const uint32_t *ranks, size_t count, size_t most)
{
    size_t first = 0;
    size_t runs = 0;

    while (first < count) {
        const size_t last = run_text_end(ranks, first, count);

        if (runs == most) {
            tutti_text_add(text, ", and %zu more", count - first);
            return;
        }
        tutti_text_add(text, "%s%" PRIu32, runs == 0 ? "" : ", ", ranks[first]);
        if (last > first) {
            tutti_text_add(text, "%s%" PRIu32, last == first + 1 ? ", " : "-", ranks[last]);
        }
        runs++;
        first = last + 1;
    }
}

void
tutti_text_add_shape(tutti_text *text, const int64_t *dims, size_t count)
{
    size_t i;

    tutti_text_add(text, "[");
    for (i = 0; i < count; i++) {
        tutti_text_add(text, "%s%" PRId64, i == 0 ? "" : ", ", dims[i]);
    }
    tutti_text_add(text, "]");
}

void
tutti_text_add_bytes(tutti_text *text, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    double amount = (double)bytes;

    while (amount >= 1024.0 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        amount /= 1024.0;
        unit++;
    }
    if (unit == 0 || amount == (double)(uint64_t)amount) {
        tutti_text_add(text, "%" PRIu64 " %s", (uint64_t)amount, units[unit]);
    } else {
        tutti_text_add(text, "%.1f %s", amount, units[unit]);
    }
}
