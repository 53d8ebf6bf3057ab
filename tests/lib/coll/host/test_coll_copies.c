/*
 * Goal: a copy past the caches is a copy: each byte where it belongs, and none beside it. Method:
 * lengths around lines, chunks, pages and blocks of pages, from and to every kind of place in a
 * line, with memory of another colour around; pieces of rows beside plain memcpy.
 */
#include "support/testing.h"

#include <stdlib.h>

#include "coll/host/strided_copy.h"

#define PAGE 4096
#define BLOCK (4 * PAGE)
#define AROUND 256
#define MOST (5 * BLOCK)
#define COLOUR 0xa5

typedef struct places {
    unsigned char *from;
    unsigned char *to;
} places;

static int
open_places(void **state)
{
    places *self = calloc(1, sizeof(*self));
    size_t i;

    assert_non_null(self);
    self->from = aligned_alloc(PAGE, MOST + PAGE);
    self->to = aligned_alloc(PAGE, MOST + PAGE);
    assert_non_null(self->from);
    assert_non_null(self->to);
    for (i = 0; i < MOST + PAGE; i++) {
        self->from[i] = (unsigned char)(i * 7 + i / 251);
    }
    *state = self;
    return 0;
}

static int
close_places(void **state)
{
    places *self = *state;

    free(self->from);
    free(self->to);
    free(self);
    return 0;
}

static void
check_colour(const unsigned char *at, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++) {
        assert_int_equal(at[i], COLOUR);
    }
}

static void
check_copy(const places *self, size_t to_skew, size_t from_skew, size_t size)
{
    unsigned char *to = self->to + AROUND + to_skew;
    const unsigned char *from = self->from + from_skew;

    memset(to - AROUND, COLOUR, size + 2 * AROUND);
    tutti_host_copy_past_cache(to, from, size);
    if (memcmp(to, from, size) != 0) {
        fail_msg("%zu bytes from %zu to %zu of a line", size, from_skew, to_skew);
    }
    check_colour(to - AROUND, AROUND);
    check_colour(to + size, AROUND);
}

static void
test_copy__gives_every_byte_and_touches_no_other(void **state)
{
    static const size_t lengths[] = {0,           1,         63,        64,        65,
                                     511,         512,       513,       1023,      PAGE - 1,
                                     PAGE,        PAGE + 65, BLOCK - 1, BLOCK,     BLOCK + 1,
                                     BLOCK + 575, 2 * BLOCK, 3 * BLOCK, MOST - 512};
    static const size_t skews[] = {0, 1, 16, 63};
    size_t i;
    size_t j;
    size_t k;

    for (i = 0; i < COUNT_OF(lengths); i++) {
        for (j = 0; j < COUNT_OF(skews); j++) {
            for (k = 0; k < COUNT_OF(skews); k++) {
                check_copy(*state, skews[j], skews[k], lengths[i]);
            }
        }
    }
}

static void
test_copy__reads_nothing_behind_the_end(void **state)
{
    const places *self = *state;
    unsigned char *from = malloc(BLOCK + 100); /* a sanitizer looks at what is read behind it */

    assert_non_null(from);
    memcpy(from, self->from, BLOCK + 100);
    tutti_host_copy_past_cache(self->to, from, BLOCK + 100);
    assert_memory_equal(self->to, from, BLOCK + 100);
    free(from);
}

/* Rows of two strides into rows of another length, from the middle of one. */
static void
check_rows(const places *self, uint64_t row)
{
    const tutti_strided from = {
        .base = self->from, .rows = 4, .row_bytes = 2 * row, .stride = 2 * row + 128};
    const tutti_strided to = {.base = self->to, .rows = 8, .row_bytes = row, .stride = row + 192};
    const uint64_t at = row / 3;
    const uint64_t size = 4 * row;
    uint64_t i;

    memset(self->to, COLOUR, MOST + PAGE);
    tutti_host_strided_copy_past_cache(&to, at, &from, at, size);
    for (i = at; i < at + size; i++) {
        assert_int_equal(self->to[i / row * to.stride + i % row],
                         self->from[i / (2 * row) * from.stride + i % (2 * row)]);
    }
    check_colour(self->to, at);
    for (i = 0; i < 4; i++) {
        check_colour(self->to + i * to.stride + row, to.stride - row);
    }
    check_colour(self->to + 4 * to.stride + at, row - at);
}

static void
test_copy__goes_from_rows_to_rows(void **state)
{
    check_rows(*state, 300); /* too short to go past the caches */
    check_rows(*state, PAGE);
    check_rows(*state, 9000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy__gives_every_byte_and_touches_no_other),
        cmocka_unit_test(test_copy__reads_nothing_behind_the_end),
        cmocka_unit_test(test_copy__goes_from_rows_to_rows),
    };

    return cmocka_run_group_tests(tests, open_places, close_places);
}
