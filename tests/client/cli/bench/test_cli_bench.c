/*
 * Goal: the checker of tutti bench lets pass what is right and counts what is wrong; its threads
 * end after the same call. Method: results made here by the words of each op's contract.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "client/cli/bench/gate.h"
#include "client/cli/bench/pattern.h"
#include "support/testing.h"

#include "client/cli/bench/bench.h"
#include "client/cli/bench/number.h"

#define RANKS 3
#define PART 700 /* elements: two parts are longer than a period */
#define WHOLE (RANKS * PART)

static void
fill(const bench_pattern *pattern, int32_t inputs[RANKS][WHOLE], uint64_t count)
{
    uint32_t rank;

    for (rank = 0; rank < RANKS; rank++) {
        bench_pattern_fill(pattern, rank, count, inputs[rank]);
    }
}

/* What `rank` gets of each op, from everyone's input. Returns how many elements. */
static uint64_t
run_op(const bench_pattern *pattern, int32_t inputs[RANKS][WHOLE], uint32_t rank, int32_t *ret)
{
    const bool gathers = pattern->kind == TUTTI_OP_ALL_GATHER || pattern->kind == TUTTI_OP_GATHER;
    const bool whole = gathers || pattern->kind == TUTTI_OP_ALL_TO_ALL || pattern->part == WHOLE;
    uint64_t i;

    for (i = 0; i < (whole ? WHOLE : PART); i++) {
        const uint64_t own = rank * PART + i;

        switch (pattern->kind) {
        case TUTTI_OP_REDUCE_SCATTER:
            ret[i] = inputs[0][own] + inputs[1][own] + inputs[2][own];
            break;
        case TUTTI_OP_ALL_GATHER:
        case TUTTI_OP_GATHER:
            ret[i] = inputs[i / PART][i % PART];
            break;
        case TUTTI_OP_ALL_TO_ALL:
            ret[i] = inputs[i / PART][rank * PART + i % PART];
            break;
        case TUTTI_OP_BROADCAST:
            ret[i] = inputs[pattern->root][i];
            break;
        case TUTTI_OP_SCATTER:
            ret[i] = inputs[pattern->root][own];
            break;
        case TUTTI_OP_PERMUTE:
        case TUTTI_OP_SEND:
            ret[i] = inputs[(rank + RANKS - 1) % RANKS][i];
            break;
        default:
            ret[i] = inputs[0][i] + inputs[1][i] + inputs[2][i];
        }
    }
    return whole ? WHOLE : PART;
}

static const struct {
    const char *word;
    bool cut;
} cases[] = {
    {"all_reduce", false}, {"reduce", false}, {"reduce_scatter", true}, {"broadcast", false},
    {"all-gather", true},  {"gather", true},  {"scatter", true},        {"all_to_all", true},
    {"permute", false},    {"recv", false},
};

static bench_pattern
pattern_of(size_t index)
{
    const bench_op *op = bench_op_find(cases[index].word);

    return (bench_pattern){.kind = op->kind,
                           .dtype = TUTTI_DTYPE_INT32,
                           .reduce = op->reduces ? TUTTI_REDUCE_SUM : TUTTI_REDUCE_NONE,
                           .ranks = RANKS,
                           .root = 1,
                           .part = cases[index].cut ? PART : WHOLE,
                           .salt = 5};
}

static void
test_check__passes_right_results_and_counts_each_wrong_element(void **state)
{
    static int32_t inputs[RANKS][WHOLE];
    static int32_t got[WHOLE];
    uint32_t rank;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const bench_pattern pattern = pattern_of(i);

        fill(&pattern, inputs, WHOLE);
        for (rank = 0; rank < RANKS; rank++) {
            const uint64_t count = run_op(&pattern, inputs, rank, got);

            assert_int_equal(bench_pattern_wrong(&pattern, rank, count, got), 0);
            got[0] += 1;
            got[count - 1] ^= 0x40000000;
            assert_int_equal(bench_pattern_wrong(&pattern, rank, count, got), 2);
        }
    }
}

/* Nothing came; it came to another rank; it came from the call before. */
static void
test_check__sees_results_that_are_missing_misplaced_or_old(void **state)
{
    static int32_t inputs[RANKS][WHOLE];
    static int32_t got[WHOLE];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        bench_pattern pattern = pattern_of(i);
        uint64_t count;

        fill(&pattern, inputs, WHOLE);
        count = run_op(&pattern, inputs, 0, got);
        if (cases[i].cut && pattern.kind != TUTTI_OP_ALL_GATHER &&
            pattern.kind != TUTTI_OP_GATHER) { /* of which all get the same */
            assert_true(bench_pattern_wrong(&pattern, 1, count, got) > count / 4);
        }
        pattern.salt++;
        assert_true(bench_pattern_wrong(&pattern, 0, count, got) > count / 4);
        memset(got, 0xa5, sizeof(got));
        assert_int_equal(bench_pattern_wrong(&pattern, 0, count, got), count);
    }
}

static void
test_check__allows_floats_one_unit_of_an_average_and_no_more(void **state)
{
    const bench_pattern average = {.kind = TUTTI_OP_ALL_REDUCE,
                                   .dtype = TUTTI_DTYPE_FP32,
                                   .reduce = TUTTI_REDUCE_AVG,
                                   .ranks = RANKS,
                                   .part = WHOLE};
    bench_pattern sum = average;
    float got[8];
    float inputs[RANKS][8];
    uint32_t i;

    (void)state;
    sum.reduce = TUTTI_REDUCE_SUM;
    for (i = 0; i < RANKS; i++) {
        bench_pattern_fill(&average, i, 8, inputs[i]);
    }
    for (i = 0; i < 8; i++) {
        got[i] = (inputs[0][i] + inputs[1][i] + inputs[2][i]) / RANKS;
    }
    assert_int_equal(bench_pattern_wrong(&average, 0, 8, got), 0);
    assert_true(got[1] > 0);
    got[1] *= 1 + 0x1p-23f;
    assert_int_equal(bench_pattern_wrong(&average, 0, 8, got), 0);
    got[1] *= 1 + 0x1p-21f;
    got[2] = (float)NAN;
    assert_int_equal(bench_pattern_wrong(&average, 0, 8, got), 2);
    for (i = 0; i < 8; i++) {
        got[i] = inputs[0][i] + inputs[1][i] + inputs[2][i];
    }
    assert_int_equal(bench_pattern_wrong(&sum, 0, 8, got), 0);
    got[1] *= 1 + 0x1p-23f;
    assert_int_equal(bench_pattern_wrong(&sum, 0, 8, got), 1);
}

static void
test_numbers__of_16_bits_are_what_the_standards_say(void **state)
{
    static const struct {
        double number;
        uint16_t half;
        uint16_t brain;
    } known[] = {{1, 0x3c00, 0x3f80},     {-2, 0xc000, 0xc000},      {0, 0, 0},
                 {2049, 0x6800, 0x4500},  {2051, 0x6802, 0x4500},    {1.0 / 3, 0x3555, 0x3eab},
                 {65504, 0x7bff, 0x4780}, {0x1p-14, 0x0400, 0x3880}, {0x1p-24, 0x0001, 0x3380},
                 {65520, 0x7c00, 0x4780}};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(known); i++) {
        const double number[2] = {known[i].number, 0};
        double back[2];
        uint16_t bits;

        bench_number_store(TUTTI_DTYPE_FP16, number, &bits);
        assert_int_equal(bits, known[i].half);
        bench_number_load(TUTTI_DTYPE_FP16, &bits, back);
        assert_true(isinf(back[0]) || fabs(back[0] - number[0]) <= fabs(number[0]) * 0x1p-11);
        bench_number_store(TUTTI_DTYPE_BF16, number, &bits);
        assert_int_equal(bits, known[i].brain);
        bench_number_load(TUTTI_DTYPE_BF16, &bits, back);
        assert_true(fabs(back[0] - number[0]) <= fabs(number[0]) * 0x1p-8);
    }
    assert_true(bench_number_wrap(TUTTI_DTYPE_INT8, 200) == -56);
    assert_true(bench_number_wrap(TUTTI_DTYPE_UINT8, 260) == 4);
}

static void
test_rows__fit_whole_parts_and_bus_factors_are_those_of_nccl_tests(void **state)
{
    bench_plan plan = {.op = bench_op_find("all_gather"), .dtype = TUTTI_DTYPE_FP32};

    (void)state;
    assert_int_equal(bench_plan_fit(&plan, 3, 1024), 1020);
    assert_int_equal(bench_plan_part(&plan, 3, 1020), 85);
    assert_int_equal(bench_plan_least(&plan, 3), 12);
    plan.op = bench_op_find("permute");
    assert_int_equal(bench_plan_fit(&plan, 3, 1024), 1024);
    assert_true(bench_bus_factor(bench_op_find("all_reduce"), 4) == 1.5);
    assert_true(bench_bus_factor(bench_op_find("all_to_all"), 4) == 0.75);
    assert_true(bench_bus_factor(bench_op_find("broadcast"), 4) == 1);
    assert_true(bench_bus_factor(bench_op_find("all_reduce"), 1) == 0);
    assert_null(bench_op_find("all_reduced"));
    assert_null(bench_op_find(""));
}

/* ------------------------------------------------------------------------------ the gate */

typedef struct walker {
    bench_gate *gate;
    uint64_t stop_at; /* fails there; UINT64_MAX = never */
    uint64_t calls;
} walker;

static void *
walk(void *arg)
{
    walker *self = arg;

    (void)bench_gate_meet(self->gate);
    while (bench_gate_pass(self->gate, self->calls)) {
        self->calls++;
        if (self->calls == self->stop_at) {
            bench_gate_stop(self->gate);
        }
    }
    return NULL;
}

static void
test_gate__lets_all_make_the_same_calls_whoever_stops(void **state)
{
    bench_gate *gate = bench_gate_new(RANKS);
    pthread_t threads[RANKS];
    walker walkers[RANKS];
    int round;
    int i;

    (void)state;
    for (round = 0; round < 50; round++) {
        bench_gate_reset(gate);
        for (i = 0; i < RANKS; i++) {
            walkers[i] = (walker){gate, i == round % RANKS ? 1000u : UINT64_MAX, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
        }
        for (i = 0; i < RANKS; i++) {
            (void)pthread_join(threads[i], NULL);
        }
        assert_true(walkers[0].calls >= 1000);
        assert_int_equal(walkers[0].calls, walkers[1].calls);
        assert_int_equal(walkers[0].calls, walkers[2].calls);
    }
    bench_gate_free(gate);
}

static void
test_gate__closes_for_signals_also_to_those_who_wait(void **state)
{
    bench_gate *gate = bench_gate_new(2);

    (void)state;
    bench_signals_catch();
    assert_true(bench_gate_pass(gate, 0));
    (void)raise(SIGTERM);
    assert_int_equal(bench_signal(), SIGTERM);
    assert_true(bench_gate_pass(gate, 0)); /* another one's same call */
    assert_false(bench_gate_pass(gate, 1));
    assert_false(bench_gate_meet(gate)); /* nobody else comes */
    bench_signals_release();
    bench_gate_free(gate);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check__passes_right_results_and_counts_each_wrong_element),
        cmocka_unit_test(test_check__sees_results_that_are_missing_misplaced_or_old),
        cmocka_unit_test(test_check__allows_floats_one_unit_of_an_average_and_no_more),
        cmocka_unit_test(test_numbers__of_16_bits_are_what_the_standards_say),
        cmocka_unit_test(test_rows__fit_whole_parts_and_bus_factors_are_those_of_nccl_tests),
        cmocka_unit_test(test_gate__lets_all_make_the_same_calls_whoever_stops),
        cmocka_unit_test(test_gate__closes_for_signals_also_to_those_who_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
