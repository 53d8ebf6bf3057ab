/*
 * Goal: a list of ranks is the same behind packing and unpacking, and numbers of a stranger never
 * make a list that is too long or has a rank that no job has.
 * Method: lists of all kinds, there and back; spans at the limits and beyond.
 */
#include "support/testing.h"

#include "base/data/spans.h"
#include "tutti/types.h"

/* There and back; how many numbers it took. */
static size_t
round_trip(const uint32_t *ranks, size_t count)
{
    tutti_spans spans;
    uint32_t *back = NULL;
    size_t back_count = 0;
    tutti_error err;

    tutti_spans_pack(ranks, count, &spans);
    if (spans.count == 0) {
        return 0;
    }
    assert_ok(tutti_spans_unpack(spans.numbers, spans.count, &back, &back_count, &err));
    assert_int_equal(back_count, count);
    assert_memory_equal(back, ranks, count * sizeof(*ranks));
    free(back);
    return spans.count;
}

static void
test_list__of_a_whole_job_is_one_span(void **state)
{
    static uint32_t ranks[TUTTI_RANKS_MAX];
    tutti_spans spans;
    uint32_t i;

    (void)state;
    for (i = 0; i < TUTTI_RANKS_MAX; i++) {
        ranks[i] = i;
    }
    assert_int_equal(round_trip(ranks, TUTTI_RANKS_MAX), 3);
    tutti_spans_pack(NULL, TUTTI_RANKS_MAX, &spans);
    assert_int_equal(spans.count, 3);
    assert_int_equal(spans.numbers[1], TUTTI_RANKS_MAX);
}

static void
test_list__of_steps_and_pieces_comes_back(void **state)
{
    uint32_t ranks[256];
    uint32_t i;

    (void)state;
    for (i = 0; i < 256; i++) {
        ranks[i] = 5 + 8 * i;
    }
    assert_int_equal(round_trip(ranks, 256), 3);
    ranks[100] = 4; /* [5 ...] [4, 813 ...] in other steps, [then the rest] */
    assert_in_range(round_trip(ranks, 256), 6, 12);
    for (i = 0; i < 256; i++) {
        ranks[i] = i / 16 % 2 == 0 ? 1000 + i : i; /* back and forth */
    }
    assert_int_equal(round_trip(ranks, 256), 16 * 3);
}

static void
test_list__without_steps_stays_a_list(void **state)
{
    uint32_t ranks[1000];
    uint32_t i;

    (void)state;
    for (i = 0; i < 1000; i++) {
        ranks[i] = 999 - i;
    }
    assert_int_equal(round_trip(ranks, 1000), 0);
    assert_int_equal(round_trip(ranks, 0), 0);
    assert_int_equal(round_trip(ranks, 1), 0); /* a span would be longer */
    for (i = 0; i < 1000; i++) {
        ranks[i] =
            TUTTI_RANKS_MAX - 999 + i; /* the last one is no rank: who reads the list says so */
    }
    assert_int_equal(round_trip(ranks, 999), 3);
    assert_int_equal(round_trip(ranks, 1000), 0);
    for (i = 0; i < 1000; i++) {
        ranks[i] = 65000 - 70 * (i / 8) + i % 8; /* 125 spans of 8: too many */
    }
    assert_int_equal(round_trip(ranks, 1000), 0);
}

static void
test_spans__of_strangers_are_refused(void **state)
{
    static const struct {
        uint32_t numbers[6];
        size_t count;
    } bad[] = {{{0, 4}, 2},
               {{0, 4, 1, 9}, 4},
               {{0, 0, 1}, 3},
               {{0, 2, 0}, 3},
               {{0, TUTTI_RANKS_MAX + 1, 1}, 3},
               {{TUTTI_RANKS_MAX, 1, 1}, 3},
               {{1, TUTTI_RANKS_MAX, 1}, 3},
               {{0, 2, UINT32_MAX}, 3},
               {{UINT32_MAX, 2, 1}, 3},
               {{0, UINT32_MAX, UINT32_MAX}, 3},
               {{0, TUTTI_RANKS_MAX, 1, 0, 1, 1}, 6}};
    static uint32_t many[(TUTTI_SPANS_MAX + 1) * TUTTI_SPAN_NUMBERS];
    uint32_t *ranks = NULL;
    size_t count = 77;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(tutti_spans_unpack(bad[i].numbers, bad[i].count, &ranks, &count, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_SPANS");
    }
    for (i = 0; i < COUNT_OF(many); i++) {
        many[i] = 1;
    }
    assert_fails(tutti_spans_unpack(many, COUNT_OF(many), &ranks, &count, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_null(ranks);
    assert_int_equal(count, 77); /* outputs are written on success only */
}

/* They are looked at and written by blocks: breaks at each place in and between blocks. */
static void
test_spans__of_every_length_and_break_come_back(void **state)
{
    uint32_t ranks[70];
    uint32_t *again = NULL;
    tutti_spans spans;
    size_t count = 0;
    size_t breach;
    size_t size;
    size_t i;
    tutti_error err;

    (void)state;
    for (size = 8; size <= 70; size++) {
        for (breach = 1; breach < size; breach++) {
            for (i = 0; i < size; i++) {
                ranks[i] = (uint32_t)(5 + 3 * i + (i >= breach ? 100 : 0));
            }
            tutti_spans_pack(ranks, size, &spans);
            assert_int_equal(spans.count, 6);
            assert_int_equal(spans.numbers[0], 5);
            assert_int_equal(spans.numbers[1], breach == 1 ? 2 : breach);
            assert_ok(tutti_spans_unpack(spans.numbers, spans.count, &again, &count, &err));
            assert_int_equal(count, size);
            assert_memory_equal(again, ranks, size * sizeof(ranks[0]));
            free(again);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list__of_a_whole_job_is_one_span),
        cmocka_unit_test(test_list__of_steps_and_pieces_comes_back),
        cmocka_unit_test(test_list__without_steps_stays_a_list),
        cmocka_unit_test(test_spans__of_strangers_are_refused),
        cmocka_unit_test(test_spans__of_every_length_and_break_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
