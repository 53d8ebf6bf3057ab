/*
 * Goal: timers run once, in order, and may start and stop each other.
 * Method: time is a number we choose.
 */
#include "support/testing.h"

#include "base/data/bytes.h"
#include "base/os/clock.h"
#include "base/os/timers.h"

typedef struct probe {
    tutti_timer timer;
    int number;
} probe;

static char order[16];
static size_t order_count;
static tutti_timers timers;

static void
note(tutti_timer *timer)
{
    order[order_count++] = (char)('0' + tutti_container_of(timer, probe, timer)->number);
    order[order_count] = '\0';
}

static void
note_and_start_again(tutti_timer *timer)
{
    note(timer);
    if (order_count < 3) {
        tutti_timers_start(&timers, timer, 20);
    }
}

static int
begin(void **state)
{
    (void)state;
    tutti_timers_init(&timers);
    order_count = 0;
    order[0] = '\0';
    return 0;
}

static void
test_timers__run_in_order_of_time_then_of_start(void **state)
{
    probe probes[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        probes[i].timer.on_expiry = note;
    }
    tutti_timers_start(&timers, &probes[2].timer, 5);
    tutti_timers_start(&timers, &probes[0].timer, 10);
    tutti_timers_start(&timers, &probes[1].timer, 10);
    assert_int_equal(tutti_timers_next(&timers), 5);
    tutti_timers_run(&timers, 4);
    assert_string_equal(order, "");
    tutti_timers_run(&timers, 10);
    assert_string_equal(order, "312");
    assert_int_equal(tutti_timers_next(&timers), TUTTI_TIMERS_NEVER);
}

static void
test_timers__that_were_stopped_or_moved_obey(void **state)
{
    probe one = {.timer = {.on_expiry = note}, .number = 1};
    probe two = {.timer = {.on_expiry = note}, .number = 2};

    (void)state;
    tutti_timers_start(&timers, &one.timer, 5);
    tutti_timers_start(&timers, &two.timer, 5);
    tutti_timers_stop(&timers, &one.timer);
    tutti_timers_stop(&timers, &one.timer);
    tutti_timers_start(&timers, &two.timer, 50);
    tutti_timers_run(&timers, 49);
    assert_string_equal(order, "");
    tutti_timers_start(&timers, &two.timer, TUTTI_TIMERS_NEVER);
    tutti_timers_run(&timers, UINT64_MAX);
    assert_string_equal(order, "");
}

static void
test_timers__may_start_themselves_again(void **state)
{
    probe one = {.timer = {.on_expiry = note_and_start_again}, .number = 1};

    (void)state;
    tutti_timers_start(&timers, &one.timer, 5);
    tutti_timers_run(&timers, 20);
    assert_string_equal(order, "111");
}

static void
test_clock__moves_and_does_not_overflow(void **state)
{
    const uint64_t before = tutti_clock_ns();

    (void)state;
    assert_true(tutti_clock_ns() >= before);
    assert_true(tutti_clock_wall_ns() > 1600000000ULL * TUTTI_NS_PER_S);
    assert_int_equal(tutti_clock_add(5, 6), 11);
    assert_int_equal(tutti_clock_add(5, UINT64_MAX), UINT64_MAX);
}

static void
test_clock_deadline__leaves_time_for_the_answer_to_travel(void **state)
{
    const uint64_t s = TUTTI_NS_PER_S;
    const uint64_t ms = TUTTI_NS_PER_MS;

    (void)state;
    assert_int_equal(tutti_clock_deadline(100 * s, 0, UINT64_MAX, 5 * s), 105 * s);
    assert_int_equal(tutti_clock_deadline(100 * s, 250, UINT64_MAX, 5 * s), 100 * s + 250 * ms);
    assert_int_equal(tutti_clock_deadline(100 * s, 0, 101 * s, 5 * s), 101 * s - 100 * ms);
    assert_int_equal(tutti_clock_deadline(100 * s, 0, 200 * s, 5 * s), 200 * s - 500 * ms);
    assert_int_equal(tutti_clock_deadline(100 * s, 0, 100 * s + 50 * ms, 5 * s), 100 * s + 30 * ms);
    assert_int_equal(tutti_clock_deadline(100 * s, 0, 100 * s + 10 * ms, 5 * s), 100 * s);
    assert_int_equal(tutti_clock_deadline(100 * s, 0, 99 * s, 5 * s), 100 * s);
    assert_int_equal(tutti_clock_deadline(100 * s, 60000, 101 * s, 5 * s), 101 * s - 100 * ms);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_timers__run_in_order_of_time_then_of_start, begin),
        cmocka_unit_test_setup(test_timers__that_were_stopped_or_moved_obey, begin),
        cmocka_unit_test_setup(test_timers__may_start_themselves_again, begin),
        cmocka_unit_test(test_clock__moves_and_does_not_overflow),
        cmocka_unit_test(test_clock_deadline__leaves_time_for_the_answer_to_travel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
