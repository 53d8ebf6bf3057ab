/*
 * Goal: rates of tutti top are those between two heartbeats, whenever samples are taken; unknown ones are not guessed; ranks
 * are sorted as --sort says. Method: answers of a coordinator, made up.
 */
#include "client/cli/diagnose/top.h"
#include "support/testing.h"

/* What a coordinator tells at `now_ms` of a heartbeat that came at `told_ms`. */
static void
turn(top_rank *rate, uint64_t incarnation, uint64_t told_ms, uint64_t now_ms, uint64_t ops)
{
    const tutti_rank_info info = {.incarnation = incarnation,
                                  .counted_ms = now_ms - told_ms,
                                  .op_count = ops,
                                  .op_bytes = 4 * ops};

    top_turn_rate(rate, &info, now_ms);
}

static void
test_rate__is_that_between_two_heartbeats(void **state)
{
    top_rank rate = {0};

    (void)state;
    turn(&rate, 7, 10000, 11900, 500);
    assert_true(rate.ops_per_s < 0); /* one heartbeat tells none */
    turn(&rate, 7, 10000, 11990, 500);
    assert_true(rate.ops_per_s < 0);
    turn(&rate, 7, 12000, 12100, 700);
    assert_float_equal(rate.ops_per_s, 100, 0.01);
    assert_float_equal(rate.bytes_per_s, 400, 0.01);
    turn(&rate, 7, 12003, 13900, 700); /* the same one: its age is rounded */
    assert_float_equal(rate.ops_per_s, 100, 0.01);
    turn(&rate, 7, 14000, 14001, 700);
    assert_float_equal(rate.ops_per_s, 0, 0.01);
}

static void
test_rate__begins_anew_with_a_process(void **state)
{
    top_rank rate = {0};
    const tutti_rank_info silent = {.incarnation = 9};

    (void)state;
    turn(&rate, 7, 10000, 10001, 500);
    turn(&rate, 7, 12000, 12001, 700);
    turn(&rate, 8, 14000, 14001, 3); /* another agent */
    assert_true(rate.ops_per_s < 0);
    turn(&rate, 8, 16000, 16001, 5);
    assert_float_equal(rate.ops_per_s, 1, 0.01);
    top_turn_rate(&rate, &silent, 17000); /* of which no heartbeat has come */
    assert_true(rate.ops_per_s < 0);
    turn(&rate, 9, 18000, 18001, 10);
    assert_true(rate.ops_per_s < 0);
    turn(&rate, 9, 20000, 20001, 9); /* a counter that fell */
    assert_true(rate.ops_per_s < 0);
}

static void
check_order(top_order order, const char *wanted)
{
    json_t *ranks = json_pack(
        "[{s:i,s:s,s:s,s:f,s:n,s:i},{s:i,s:s,s:s,s:n,s:f,s:i},{s:i,s:s,s:s,s:f,s:f,s:i}]", "rank",
        0, "state", "alive", "host", "b", "ops_per_s", 5.0, "bytes_per_s", "ops", 10, "rank", 1,
        "state", "lost", "host", "a", "ops_per_s", "bytes_per_s", 7.0, "ops", 30, "rank", 2,
        "state", "alive", "host", "a", "ops_per_s", 9.0, "bytes_per_s", 8.0, "ops", 20);
    json_t *sorted;
    char found[8] = "";
    size_t i;

    assert_non_null(ranks);
    sorted = top_sort(ranks, order);
    assert_int_equal(json_array_size(sorted), 3);
    for (i = 0; i < 3; i++) {
        found[i] =
            (char)('0' + json_integer_value(json_object_get(json_array_get(sorted, i), "rank")));
    }
    assert_string_equal(found, wanted);
    json_decref(sorted);
}

static void
test_sort__puts_first_what_is_looked_for(void **state)
{
    top_order order;

    (void)state;
    check_order(TOP_BY_RANK, "012");
    check_order(TOP_BY_STATE, "102");
    check_order(TOP_BY_HOST, "120");
    check_order(TOP_BY_OPS_RATE, "201");
    check_order(TOP_BY_BYTES_RATE, "210");
    check_order(TOP_BY_OPS, "120");
    assert_true(top_order_find("bytes/s", &order) && order == TOP_BY_BYTES_RATE);
    assert_false(top_order_find("size", &order));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate__is_that_between_two_heartbeats),
        cmocka_unit_test(test_rate__begins_anew_with_a_process),
        cmocka_unit_test(test_sort__puts_first_what_is_looked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
