/*
 * Goal: flight records of several ranks become one timeline that says who was late.
 * Method: records written by hand; what comes out is read as JSON.
 */
#include "client/cli/connect/fan_out.h"
#include "client/cli/diagnose/trace.h"
#include "support/testing.h"

#define MS 1000000ULL
#define BEGIN (1000 * MS)

static tutti_flight_entry left[4];
static tutti_flight_entry right[4];
static trace_flown flown[2];
static tutti_rank_info infos[2];
static cli_fan_out fan_out;
static trace whole;

static tutti_flight_entry
op(uint64_t epoch, uint64_t sequence, uint64_t started_ms, uint64_t ended_ms)
{
    return (tutti_flight_entry){
        .group = "world",
        .group_id = 1,
        .epoch = epoch,
        .sequence = sequence,
        .name = "barrier",
        .state = "completed",
        .created_ns = BEGIN + started_ms * MS,
        .started_ns = BEGIN + started_ms * MS,
        .completed_ns = ended_ms == 0 ? 0 : BEGIN + ended_ms * MS,
    };
}

/* Two ranks with so many records each. */
static void
match(size_t left_count, size_t right_count)
{
    infos[0] = (tutti_rank_info){.rank = 0, .state = TUTTI_RANK_ALIVE, .host = "a"};
    infos[1] = (tutti_rank_info){.rank = 1, .state = TUTTI_RANK_ALIVE, .host = "b"};
    fan_out = (cli_fan_out){.infos = infos, .count = 2, .job = {.name = "default"}};
    flown[0] = (trace_flown){.answered = true, .entries = left, .count = left_count};
    flown[1] = (trace_flown){.answered = true, .entries = right, .count = right_count};
    whole = (trace){.fan_out = &fan_out, .flown = flown};
    trace_match(&whole);
}

static void
forget(void)
{
    free(flown[0].meets);
    free(flown[1].meets);
    free(whole.meets);
}

/* The spans of one name, and the first of them. */
static size_t
find_spans(const json_t *events, const char *name, json_t **ret_first)
{
    size_t count = 0;
    size_t i;

    for (i = 0; i < json_array_size(events); i++) {
        json_t *one = json_array_get(events, i);

        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0) {
            *ret_first = count == 0 ? one : *ret_first;
            count++;
        }
    }
    return count;
}

static void
test_trace_match__finds_who_came_last(void **state)
{
    (void)state;
    left[0] = op(1, 1, 0, 30);
    right[0] = op(1, 1, 20, 31);
    match(1, 1);
    assert_int_equal(whole.meet_count, 1);
    assert_int_equal(whole.meets[0].last_rank, 1);
    assert_int_equal(trace_late_ns(&whole.meets[0]), 20 * MS);
    assert_false(whole.meets[0].open);
    assert_int_equal(whole.begin_ns, BEGIN);
    assert_int_equal(whole.end_ns, BEGIN + 31 * MS);
    forget();
}

static void
test_trace_match__keeps_epochs_groups_and_messages_apart(void **state)
{
    (void)state;
    left[0] = op(1, 1, 0, 1);
    left[1] = op(2, 1, 5, 6);
    left[2] = op(1, 0, 7, 8); /* a send */
    right[0] = op(2, 1, 5, 6);
    right[1] = op(1, 1, 0, 1);
    right[1].group_id = 2;
    match(3, 2);
    assert_int_equal(whole.meet_count, 3);
    assert_int_equal(flown[0].meets[2], TRACE_ALONE);
    assert_int_equal(flown[0].meets[1], flown[1].meets[0]);
    assert_int_not_equal(flown[0].meets[0], flown[1].meets[1]);
    forget();
}

static void
test_trace_events__show_who_waits_for_whom(void **state)
{
    json_t *first = NULL;
    json_t *document;
    json_t *events;

    (void)state;
    left[0] = op(1, 1, 0, 30);
    right[0] = op(1, 1, 20, 31);
    match(1, 1);
    document = trace_events(&whole);
    events = json_object_get(document, "traceEvents");
    assert_int_equal(find_spans(events, "barrier", &first), 2);
    assert_int_equal(find_spans(events, "waits for rank 1", &first), 1);
    assert_int_equal(json_integer_value(json_object_get(first, "pid")), 0);
    assert_true(json_real_value(json_object_get(first, "dur")) == 20000.0);
    json_decref(document);
    forget();
}

static void
test_trace_events__draw_ops_at_once_in_lanes_of_their_own(void **state)
{
    json_t *first = NULL;
    json_t *document;
    json_t *events;

    (void)state;
    left[0] = op(1, 1, 0, 0); /* runs still */
    left[1] = op(1, 2, 5, 9);
    left[2] = op(1, 3, 10, 12);
    match(3, 0);
    document = trace_events(&whole);
    events = json_object_get(document, "traceEvents");
    assert_int_equal(find_spans(events, "barrier (running)", &first), 1);
    assert_true(json_real_value(json_object_get(first, "dur")) == 12000.0);
    assert_int_equal(find_spans(events, "thread_name", &first), 2);
    json_decref(document);
    forget();
}

static void
test_trace_around__leaves_out_what_is_far_away(void **state)
{
    json_t *first = NULL;
    json_t *document;

    (void)state;
    left[0] = op(1, 1, 0, 1);
    left[1] = op(1, 2, 1000, 1001);
    left[2] = op(1, 3, 2000, 2001);
    match(3, 0);
    assert_false(trace_around(&whole, "world", 4, MS));
    assert_false(trace_around(&whole, "worl", 2, MS));
    assert_true(trace_around(&whole, "world", 2, 100 * MS));
    document = trace_events(&whole);
    assert_int_equal(find_spans(json_object_get(document, "traceEvents"), "barrier", &first), 1);
    json_decref(document);
    forget();
}

static void
test_trace_match__of_nothing_is_fine(void **state)
{
    json_t *document;

    (void)state;
    match(0, 0);
    document = trace_events(&whole);
    assert_non_null(document);
    json_decref(document);
    forget();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_match__finds_who_came_last),
        cmocka_unit_test(test_trace_match__keeps_epochs_groups_and_messages_apart),
        cmocka_unit_test(test_trace_events__show_who_waits_for_whom),
        cmocka_unit_test(test_trace_events__draw_ops_at_once_in_lanes_of_their_own),
        cmocka_unit_test(test_trace_around__leaves_out_what_is_far_away),
        cmocka_unit_test(test_trace_match__of_nothing_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
