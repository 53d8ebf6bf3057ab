/*
 * Goal: callers that know a key and how many they are get numbers they agree on, or words.
 * Method: a coordinator with a clock we turn.
 */
#include "support/testing.h"

#include "server/coordinator/fixture.h"
#include "server/coordinator/rendezvous/rendezvous.h"
#include "tutti/types.h"

typedef struct comer {
    tutti_coordinator_caller caller;
    int answer_count;
    tutti_coordinator_met met;
    bool failed;
    tutti_error err;
} comer;

static void
on_met(tutti_coordinator_caller *caller, const tutti_coordinator_met *met, const tutti_error *err)
{
    comer *one = tutti_container_of(caller, comer, caller);

    one->answer_count++;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    } else {
        one->met = *met;
    }
}

static tutti_coordinator_caller_request
request_of(const char *key, uint32_t count, const char *name)
{
    return (tutti_coordinator_caller_request){.key = key_of(key),
                                              .count = count,
                                              .rank = TUTTI_COORDINATOR_NO_CALLER,
                                              .name = tutti_bytes_of(name),
                                              .deadline_ns = fix.now_ns + SECOND};
}

static tutti_code
start(comer *one, const tutti_coordinator_caller_request *request, tutti_error *err)
{
    *one = (comer){.caller = {.on_answer = on_met}};
    return tutti_coordinator_caller_start(fix.self, request, &one->caller, err);
}

static void
come(comer *one, const char *key, uint32_t count, const char *name)
{
    const tutti_coordinator_caller_request request = request_of(key, count, name);
    tutti_error err;

    assert_ok(start(one, &request, &err));
}

static void
come_as(comer *one, uint32_t count, uint32_t rank, bool is_root, const char *name)
{
    tutti_coordinator_caller_request request = request_of("k", count, name);
    tutti_error err;

    request.rank = rank;
    request.is_root = is_root;
    assert_ok(start(one, &request, &err));
}

static void
test_callers__are_numbered_by_their_names(void **state)
{
    static comer comers[4];

    (void)state;
    come(&comers[0], "k", 4, "host-b");
    come(&comers[1], "k", 4, "host-c");
    come(&comers[2], "k", 4, "host-a");
    fixture_settle(&fix);
    assert_int_equal(comers[0].answer_count, 0);
    come(&comers[3], "k", 4, "host-b");
    assert_int_equal(comers[3].answer_count, 0); /* never inside the call */
    fixture_settle(&fix);
    assert_int_equal(comers[2].met.rank, 0);
    assert_int_equal(comers[0].met.rank, 1);
    assert_int_equal(comers[3].met.rank, 2);
    assert_int_equal(comers[1].met.rank, 3);
    assert_true(comers[0].met.hash == comers[1].met.hash);
    assert_true(comers[0].met.root_rank == TUTTI_COORDINATOR_NO_CALLER);
}

static void
test_callers__that_all_state_ranks_keep_them(void **state)
{
    static comer comers[3];
    uint64_t hash;

    (void)state;
    come_as(&comers[2], 3, 2, false, "");
    come_as(&comers[0], 3, 0, true, "");
    come_as(&comers[1], 3, 1, false, "");
    fixture_settle(&fix);
    assert_int_equal(comers[0].met.rank, 0);
    assert_int_equal(comers[1].met.rank, 1);
    assert_int_equal(comers[2].met.rank, 2);
    assert_int_equal(comers[1].met.root_rank, 0);
    hash = comers[0].met.hash;
    come_as(&comers[1], 2, 1, true, "b"); /* the key can be used again */
    come_as(&comers[0], 2, TUTTI_COORDINATOR_NO_CALLER, false, "a");
    fixture_settle(&fix);
    assert_int_equal(comers[1].answer_count, 1);
    assert_int_equal(comers[1].met.rank, 1); /* by name: not all stated one */
    assert_int_equal(comers[0].met.root_rank, 1);
    assert_true(comers[0].met.hash != hash);
}

static void
test_callers__of_different_counts_are_all_told(void **state)
{
    const tutti_coordinator_caller_request third = request_of("k", 2, "c");
    static comer comers[3];
    tutti_error err;

    (void)state;
    come(&comers[0], "k", 3, "a");
    come(&comers[1], "k", 3, "b");
    assert_fails(start(&comers[2], &third, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "GROUP_SIZE");
    assert_text_has(err.text, "this one says 2, another one says 3");
    fixture_settle(&fix);
    assert_string_equal(comers[0].err.reason, "GROUP_SIZE");
    assert_text_has(comers[1].err.text, "this one says 3, another one says 2");
    come(&comers[0], "k", 1, "a"); /* nothing is left of it */
    fixture_settle(&fix);
    assert_false(comers[0].failed);
}

static void
test_callers__that_state_one_rank_twice_are_all_told(void **state)
{
    static comer comers[2];

    (void)state;
    come_as(&comers[0], 2, 1, false, "a");
    come_as(&comers[1], 2, 1, false, "b");
    fixture_settle(&fix);
    assert_string_equal(comers[0].err.reason, "DUPLICATE_RANK");
    assert_string_equal(comers[1].err.reason, "DUPLICATE_RANK");
    assert_text_has(comers[1].err.text, "rank 1");
}

static void
test_caller__with_bad_words_is_refused(void **state)
{
    static char name[TUTTI_COORDINATOR_CALLER_NAME_MAX + 1];
    tutti_coordinator_caller_request request = request_of("k", 0, "a");
    static comer one;
    tutti_error err;

    (void)state;
    assert_fails(start(&one, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "GROUP_SIZE");
    request.count = TUTTI_RANKS_MAX + 1;
    assert_fails(start(&one, &request, &err), TUTTI_INVALID_ARGUMENT);
    request.count = 2;
    request.rank = 2;
    assert_fails(start(&one, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANK_RANGE");
    request.rank = 1;
    request.name = (tutti_bytes){name, sizeof(name)};
    assert_fails(start(&one, &request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "NAME_LIMIT");
}

static void
test_caller__whose_time_is_up_hears_who_is_here(void **state)
{
    static comer comers[3];

    (void)state;
    come(&comers[0], "k", 3, "a");
    fixture_advance(&fix, 10 * MS);
    come_as(&comers[1], 3, 2, false, "b");
    fixture_advance(&fix, SECOND - 5 * MS);
    assert_string_equal(comers[0].err.reason, "TIMEOUT");
    assert_text_has(comers[0].err.text,
                    "1 of 3 callers did not come to \"k\" in time; here: \"a\", rank 2 \"b\"");
    assert_int_equal(comers[1].answer_count, 0);
    fixture_advance(&fix, 10 * MS);
    assert_text_has(comers[1].err.text, "2 of 3 callers");
}

static void
test_caller__that_goes_away_has_not_come(void **state)
{
    static comer comers[3];

    (void)state;
    come(&comers[0], "k", 2, "a");
    tutti_coordinator_caller_withdraw(&comers[0].caller);
    come(&comers[1], "k", 2, "b");
    fixture_settle(&fix);
    assert_int_equal(comers[1].answer_count, 0);
    come(&comers[2], "k", 2, "c");
    fixture_settle(&fix);
    assert_int_equal(comers[0].answer_count, 0);
    assert_int_equal(comers[1].met.rank, 0);
    assert_int_equal(comers[2].met.rank, 1);
}

static void
test_token__makes_a_repeated_caller_count_once(void **state)
{
    tutti_coordinator_caller_request request = request_of("k", 2, "b");
    static comer comers[4];
    tutti_error err;

    (void)state;
    request.token = 9;
    assert_ok(start(&comers[0], &request, &err));
    assert_ok(start(&comers[1], &request, &err));
    assert_int_equal(comers[0].err.code, TUTTI_ABORTED);
    assert_string_equal(comers[0].err.reason, "SUPERSEDED");
    fixture_settle(&fix);
    assert_int_equal(comers[1].answer_count, 0);
    come(&comers[2], "k", 2, "a");
    fixture_settle(&fix);
    assert_int_equal(comers[1].met.rank, 1);
    assert_ok(start(&comers[3], &request, &err)); /* its answer was lost on the way */
    fixture_settle(&fix);
    assert_int_equal(comers[3].met.rank, 1);
    assert_true(comers[3].met.hash == comers[2].met.hash);
}

static void
test_callers__in_great_number_meet(void **state)
{
    static comer comers[2000];
    static bool seen[2000];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(comers); i++) {
        come(&comers[i], "k", COUNT_OF(comers), "host");
    }
    fixture_settle(&fix);
    for (i = 0; i < COUNT_OF(comers); i++) {
        assert_int_equal(comers[i].answer_count, 1);
        assert_false(seen[comers[i].met.rank]);
        seen[comers[i].met.rank] = true;
    }
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_callers__are_numbered_by_their_names),
        SENTENCE(test_callers__that_all_state_ranks_keep_them),
        SENTENCE(test_callers__of_different_counts_are_all_told),
        SENTENCE(test_callers__that_state_one_rank_twice_are_all_told),
        SENTENCE(test_caller__with_bad_words_is_refused),
        SENTENCE(test_caller__whose_time_is_up_hears_who_is_here),
        SENTENCE(test_caller__that_goes_away_has_not_come),
        SENTENCE(test_token__makes_a_repeated_caller_count_once),
        SENTENCE(test_callers__in_great_number_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
