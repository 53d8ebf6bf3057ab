/*
 * Goal: who asks what hangs is told the op, who is in it, and of each other rank what it does.
 * Method: a coordinator with a clock we turn; agents that answer, answer something odd, or do not.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/stall/progress.h"
#include "support/testing.h"

#define RANKS 4
#define WORLD_ID 1

/* Somebody who asks, and a copy of what was answered. */
typedef struct asker {
    tutti_coordinator_stall_query query;
    int answer_count;
    bool failed;
    tutti_error err;
    size_t count;
    uint32_t silent_count;
    uint32_t lost_count;
    tutti_coordinator_stall stall; /* the first */
    char text[1024];
    size_t uneven_count;
    tutti_coordinator_uneven uneven; /* the first */
    char uneven_text[1024];
} asker;

static line lines[RANKS];
static uint64_t wanted[RANKS]; /* the question that each was told */
static asker one;

static void
on_wanted(tutti_coordinator_session *session, uint64_t number)
{
    line *self = tutti_container_of(session, line, session);

    assert_false(self->in_flight);
    self->in_flight = true;
    wanted[self - lines] = number;
}

static int
begin(void **state)
{
    uint32_t rank;

    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, RANKS);
    for (rank = 0; rank < RANKS; rank++) {
        line_must_open(&fix, &lines[rank], rank);
        lines[rank].session.on_wanted = on_wanted;
        wanted[rank] = 0;
    }
    return 0;
}

static void
on_answer(tutti_coordinator_stall_query *query, const tutti_coordinator_stalls *stalls,
          const tutti_error *err)
{
    asker *self = tutti_container_of(query, asker, query);
    tutti_text text = tutti_text_in(self->text, sizeof(self->text));

    self->answer_count++;
    self->failed = err != NULL;
    if (err != NULL) {
        self->err = *err;
        return;
    }
    self->count = stalls->count;
    self->silent_count = stalls->silent_count;
    self->lost_count = stalls->lost_count;
    if (stalls->count > 0) {
        self->stall = stalls->stalls[0];
        tutti_coordinator_stall_describe(&stalls->stalls[0], &text);
    }
    self->uneven_count = stalls->uneven_count;
    if (stalls->uneven_count > 0) {
        text = tutti_text_in(self->uneven_text, sizeof(self->uneven_text));
        self->uneven = stalls->uneven[0];
        tutti_coordinator_uneven_describe(&stalls->uneven[0], &text);
    }
}

static tutti_code
start(const tutti_coordinator_stall_query_request *request, tutti_error *err)
{
    tutti_code code;

    one = (asker){.query.on_answer = on_answer};
    code = tutti_coordinator_stall_query_start(fix.self, request, &one.query, err);
    fixture_settle(&fix);
    return code;
}

static void
ask(const tutti_coordinator_stall_query_request *request)
{
    tutti_error err;

    assert_ok(start(request, &err));
    assert_int_equal(one.answer_count, 0);
}

/* All those ranks say that they have heard. */
static void
answer(uint32_t first, uint32_t behind)
{
    uint32_t rank;

    for (rank = first; rank < behind; rank++) {
        if (lines[rank].end_count > 0) {
            continue;
        }
        line_beat(&lines[rank]);
        tutti_coordinator_session_answered(&lines[rank].session, wanted[rank]);
    }
    fixture_settle(&fix);
}

static void
tell(uint32_t rank, const tutti_coordinator_progress_report *told)
{
    line_beat(&lines[rank]);
    tutti_coordinator_session_report(&lines[rank].session, told);
}

static tutti_coordinator_progress_report
told_of(uint64_t left, uint64_t entered, const tutti_coordinator_pending *pending)
{
    return (tutti_coordinator_progress_report){.group = "world",
                                               .id = WORLD_ID,
                                               .epoch = 1,
                                               .came = entered,
                                               .entered = entered,
                                               .left = left,
                                               .last_op = "all_reduce(sum, FP32[4])",
                                               .last_ms = 4000,
                                               .last_sequence = left,
                                               .pending = pending,
                                               .pending_count = pending == NULL ? 0 : 1};
}

static const tutti_coordinator_pending in_barrier = {
    .sequence = 8, .op = "barrier()", .waited_ms = 3000, .peer = -1};

/* Ranks from 0 to behind are in op 8. */
static void
enter(uint32_t behind)
{
    const tutti_coordinator_progress_report told = told_of(7, 8, &in_barrier);
    uint32_t rank;

    for (rank = 0; rank < behind; rank++) {
        tell(rank, &told);
    }
}

static void
ask_and_answer(void)
{
    const tutti_coordinator_stall_query_request request = {.job = NULL};

    ask(&request);
    answer(0, RANKS);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
}

/* ------------------------------------------------------------------------------ who is missing */

static void
test_stall__names_who_has_not_come_and_what_it_did_last(void **state)
{
    const tutti_coordinator_progress_report outside = told_of(7, 7, NULL);

    (void)state;
    enter(3);
    tell(3, &outside);
    fixture_advance(&fix, SECOND);
    ask_and_answer();
    assert_int_equal(one.count, 1);
    assert_int_equal(one.stall.arrived_count, 3);
    assert_int_equal(one.stall.missing_count, 1);
    assert_int_equal(one.stall.others[0].standing, TUTTI_COORDINATOR_ABSENT);
    assert_string_equal(one.text, "group world op 8 barrier(): 3 of 4 ranks are in it, for 4 s; "
                                  "rank 3 is alive and has not called it; its last op, op 7 "
                                  "all_reduce(sum, FP32[4]), ended 5 s ago");
}

static void
test_stall__tells_a_rank_that_never_did_anything(void **state)
{
    (void)state;
    enter(3);
    ask_and_answer();
    assert_text_has(one.text, "rank 3 is alive and has not called it, nor anything else here");
}

static void
test_stall__tells_a_silent_rank_apart_when_time_is_up(void **state)
{
    const tutti_coordinator_stall_query_request request = {.wait_ms = 200};

    (void)state;
    enter(3);
    fixture_advance(&fix, SECOND);
    ask(&request);
    answer(0, 2);
    fixture_advance(&fix, 199 * MS);
    assert_int_equal(one.answer_count, 0);
    fixture_advance(&fix, MS);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(one.silent_count, 2);
    assert_text_has(one.text, "3 of 4 ranks are in it");
    assert_text_has(one.text, "rank 2 is in it and does not answer (stopped, starved or cut off), "
                              "heard last 1.2 s ago");
    assert_text_has(one.text, "rank 3 does not answer (stopped, starved or cut off)");
    assert_int_equal(one.stall.others[1].standing, TUTTI_COORDINATOR_SILENT);
}

static void
test_stall__tells_a_lost_rank_apart(void **state)
{
    const tutti_coordinator_member member = member_of(3);
    tutti_error err;

    (void)state;
    enter(3);
    assert_ok(tutti_coordinator_leave(fix.self, &member, "pod deleted", &err));
    fixture_settle(&fix);
    ask_and_answer();
    assert_int_equal(one.lost_count, 1);
    assert_text_has(one.text, "rank 3 is gone: left: pod deleted");
}

static void
test_stall__tells_a_slow_rank_apart(void **state)
{
    const tutti_coordinator_pending earlier = {.sequence = 7, .op = "reduce()", .waited_ms = 500};
    tutti_coordinator_progress_report told = told_of(6, 7, &earlier);

    (void)state;
    enter(3);
    tell(3, &told);
    ask_and_answer();
    assert_int_equal(one.stall.sequence, 7); /* the others wait behind it */
    assert_text_has(one.text, "group world op 7 reduce(): 4 of 4 ranks are in it");
    told = told_of(7, 7, NULL);
    told.last_ms = 20;
    fixture_advance(&fix, 100 * MS);
    tell(3, &told);
    ask_and_answer();
    assert_int_equal(one.stall.others[0].standing, TUTTI_COORDINATOR_SLOW);
    assert_text_has(one.text, "rank 3 is behind and moves: op 7 all_reduce(sum, FP32[4])");
}

static void
test_stall__tells_a_call_that_waits_for_its_tensors(void **state)
{
    const tutti_coordinator_pending queued = {
        .sequence = 8, .op = "barrier()", .queued = true, .waited_ms = 2000, .peer = -1};
    const tutti_coordinator_progress_report told = told_of(7, 7, &queued);

    (void)state;
    enter(3);
    tell(3, &told);
    ask_and_answer();
    assert_int_equal(one.stall.others[0].standing, TUTTI_COORDINATOR_QUEUED);
    assert_text_has(one.text, "rank 3 has called it and waits for its tensors: op 8 barrier(), "
                              "for 2 s");
}

static void
test_stall__with_all_ranks_in_it_says_that_data_moves(void **state)
{
    (void)state;
    enter(4);
    ask_and_answer();
    assert_int_equal(one.stall.missing_count, 0);
    assert_text_has(one.text, "4 of 4 ranks are in it, for 3 s; every rank has called it, data is "
                              "moving");
}

static void
test_stall__of_a_receive_names_the_sender(void **state)
{
    const tutti_coordinator_pending pending = {
        .op = "recv(from group rank 2, tag 7)", .waited_ms = 1500, .peer = 2};
    const tutti_coordinator_progress_report told = told_of(0, 0, &pending);

    (void)state;
    tell(1, &told);
    ask_and_answer();
    assert_int_equal(one.count, 1);
    assert_text_has(one.text, "group world recv(from group rank 2, tag 7): rank 1 is in it, for "
                              "1.5 s; rank 2 is alive and has not called it");
}

/* ------------------------------------------------------------------------------ uneven groups */

static void
stand_at(uint32_t rank, uint64_t sequence)
{
    const tutti_coordinator_progress_report told = told_of(sequence, sequence, NULL);

    tell(rank, &told);
}

static void
test_uneven__ranks_at_different_ops_are_named_when_nothing_runs(void **state)
{
    (void)state;
    stand_at(0, 7);
    stand_at(1, 4);
    stand_at(2, 7);
    ask_and_answer();
    assert_int_equal(one.count, 0);
    assert_int_equal(one.uneven_count, 1);
    assert_int_equal(one.uneven.behind_count, 2);
    assert_int_equal(one.uneven.behind[0].rank, 1);
    assert_string_equal(one.uneven_text,
                        "group world: rank 1 is behind, it has called 4 ops (the last, "
                        "all_reduce(sum, FP32[4]), ended 4 s ago); rank 3 is behind, it has called "
                        "no op; rank 0 has called 7 ops (the last, all_reduce(sum, FP32[4]), ended "
                        "4 s ago); nothing runs there");
}

static void
test_uneven__ranks_at_the_same_op_are_not(void **state)
{
    uint32_t rank;

    (void)state;
    ask_and_answer();
    assert_int_equal(one.uneven_count, 0);
    for (rank = 0; rank < RANKS; rank++) {
        stand_at(rank, 7);
    }
    fixture_advance(&fix, SECOND);
    ask_and_answer();
    assert_int_equal(one.uneven_count, 0);
}

static void
test_uneven__an_older_epoch_counts_from_zero(void **state)
{
    tutti_coordinator_progress_report told = told_of(2, 2, NULL);
    uint32_t rank;

    (void)state;
    stand_at(0, 7);
    told.epoch = 2;
    for (rank = 1; rank < RANKS; rank++) {
        tell(rank, &told);
    }
    ask_and_answer();
    assert_int_equal(one.uneven_count, 1);
    assert_text_has(one.uneven_text, "rank 0 is behind, it has called no op; rank 1 has called 2");
}

static void
test_uneven__of_ranks_that_move_or_do_not_answer_nothing_is_said(void **state)
{
    tutti_coordinator_progress_report told = told_of(7, 7, NULL);
    const tutti_coordinator_stall_query_request older = {.older_than_ms = 5000, .wait_ms = 200};

    (void)state;
    stand_at(1, 4);
    told.last_ms = 100; /* a moment ago */
    tell(0, &told);
    ask(&older);
    answer(0, RANKS);
    assert_int_equal(one.uneven_count, 0);
    told = told_of(7, 8, &in_barrier); /* it is in the next one */
    fixture_advance(&fix, SECOND);
    tell(0, &told);
    ask(&older);
    answer(0, RANKS);
    assert_int_equal(one.uneven_count, 0);
    stand_at(0, 7);
    fixture_advance(&fix, SECOND);
    ask(&older);
    answer(0, RANKS - 1);
    fixture_advance(&fix, 200 * MS);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(one.uneven_count, 0); /* nobody knows of rank 3 */
    fixture_advance(&fix, SECOND);
    ask_and_answer();
    assert_int_equal(one.uneven_count, 1);
}

/* ------------------------------------------------------------------------------ questions */

static void
test_question__is_answered_when_the_last_agent_has_told(void **state)
{
    const tutti_coordinator_stall_query_request request = {.wait_ms = 10000};

    (void)state;
    ask(&request);
    assert_int_equal(wanted[0], 1);
    answer(0, 3);
    assert_int_equal(one.answer_count, 0);
    answer(0, 3); /* the same again counts once */
    assert_int_equal(one.answer_count, 0);
    answer(3, 4);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(one.count, 0);
}

static void
test_question__just_behind_another_waits_for_its_turn(void **state)
{
    static asker other;
    const tutti_coordinator_stall_query_request request = {.wait_ms = 10000};
    tutti_error err;

    (void)state;
    ask(&request);
    other = (asker){.query.on_answer = on_answer};
    assert_ok(tutti_coordinator_stall_query_start(fix.self, &request, &other.query, &err));
    fixture_settle(&fix);
    assert_int_equal(wanted[0], 1); /* nobody is asked yet for the second one */
    answer(0, RANKS);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(other.answer_count, 0);
    fixture_advance(&fix, 99 * MS);
    assert_int_equal(wanted[0], 1);
    fixture_advance(&fix, MS);
    assert_int_equal(wanted[0], 2);
    answer(0, RANKS);
    assert_int_equal(other.answer_count, 1);
}

static void
test_question__leaves_out_other_groups_and_young_ops(void **state)
{
    tutti_coordinator_stall_query_request request = {.group = "tp", .wait_ms = 1};

    (void)state;
    enter(3);
    ask(&request);
    answer(0, RANKS);
    assert_int_equal(one.count, 0);
    request = (tutti_coordinator_stall_query_request){.older_than_ms = 3200};
    fixture_advance(&fix, 100 * MS);
    ask(&request);
    answer(0, RANKS);
    assert_int_equal(one.count, 0);
    request.older_than_ms = 3000;
    fixture_advance(&fix, 100 * MS);
    ask(&request);
    answer(0, RANKS);
    assert_int_equal(one.count, 1);
}

static void
test_question__that_makes_no_sense_is_refused(void **state)
{
    tutti_coordinator_stall_query_request request = {.wait_ms = 10001};
    tutti_error err;

    (void)state;
    assert_fails(start(&request, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_WAIT");
    request = (tutti_coordinator_stall_query_request){.job = "none"};
    assert_fails(start(&request, &err), TUTTI_NOT_FOUND);
    request = (tutti_coordinator_stall_query_request){.group = "a b"};
    assert_fails(start(&request, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_question__ends_with_a_drain_and_can_be_withdrawn(void **state)
{
    const tutti_coordinator_stall_query_request request = {.wait_ms = 10000};

    (void)state;
    ask(&request);
    tutti_coordinator_stall_query_withdraw(&one.query);
    tutti_coordinator_stall_query_withdraw(&one.query);
    fixture_advance(&fix, 20 * MS);
    assert_int_equal(one.answer_count, 0);
    ask(&request);
    tutti_coordinator_drain(fix.self);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_int_equal(one.err.code, TUTTI_UNAVAILABLE);
}

/* ------------------------------------------------------------------------------ odd agents */

static void
test_told__of_an_older_epoch_does_not_count_as_arrived(void **state)
{
    const tutti_coordinator_pending first = {.sequence = 1, .op = "barrier()", .peer = -1};
    tutti_coordinator_progress_report told = told_of(0, 1, &first);

    (void)state;
    enter(1); /* op 8 of epoch 1 */
    told.epoch = 2;
    tell(1, &told);
    ask_and_answer();
    assert_int_equal(one.count, 1);
    assert_int_equal(one.stall.sequence, 1);
    assert_int_equal(one.stall.arrived_count, 1);
    assert_int_equal(one.stall.arrived[0], 1);
}

static void
test_told__of_a_group_that_is_none_is_left_out(void **state)
{
    tutti_coordinator_progress_report told = told_of(7, 8, &in_barrier);

    (void)state;
    told.group = "none";
    told.id = 77;
    tell(0, &told);
    told.group = "world"; /* with the number of another */
    told.id = 78;
    tell(0, &told);
    ask_and_answer();
    assert_int_equal(one.count, 0);
}

static void
test_told__is_bounded_and_made_printable(void **state)
{
    static tutti_coordinator_pending many[3 * TUTTI_COORDINATOR_PENDING_MAX];
    char words[2 * TUTTI_COORDINATOR_OP_WORDS_MAX];
    tutti_coordinator_progress_report told = told_of(0, 1, many);
    size_t i;

    (void)state;
    memset(words, 'x', sizeof(words));
    words[0] = '\n';
    words[sizeof(words) - 1] = '\0';
    for (i = 0; i < COUNT_OF(many); i++) {
        many[i] = (tutti_coordinator_pending){.sequence = i + 1, .op = words, .peer = -1};
    }
    told.pending_count = COUNT_OF(many);
    tell(0, &told);
    for (i = 0; i < 3 * TUTTI_COORDINATOR_GROUPS_REPORTED_MAX; i++) {
        told.id = 1000 + i;
        tell(1, &told);
    }
    ask_and_answer();
    assert_int_equal(one.count, 1);
    assert_text_has(one.text, "group world op 1 ?xxx");
    assert_int_equal(strlen(one.stall.op), TUTTI_COORDINATOR_OP_WORDS_MAX - 1);
}

static void
test_answered__of_a_question_that_nobody_asked_is_ignored(void **state)
{
    const tutti_coordinator_stall_query_request request = {.wait_ms = 100};

    (void)state;
    tutti_coordinator_session_answered(&lines[0].session, UINT64_MAX);
    ask(&request);
    answer(1, RANKS);
    assert_int_equal(one.answer_count, 0);
    fixture_advance(&fix, 100 * MS);
    assert_int_equal(one.silent_count, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_stall__names_who_has_not_come_and_what_it_did_last),
        TEST(test_stall__tells_a_rank_that_never_did_anything),
        TEST(test_stall__tells_a_silent_rank_apart_when_time_is_up),
        TEST(test_stall__tells_a_lost_rank_apart),
        TEST(test_stall__tells_a_slow_rank_apart),
        TEST(test_stall__tells_a_call_that_waits_for_its_tensors),
        TEST(test_stall__with_all_ranks_in_it_says_that_data_moves),
        TEST(test_stall__of_a_receive_names_the_sender),
        TEST(test_uneven__ranks_at_different_ops_are_named_when_nothing_runs),
        TEST(test_uneven__ranks_at_the_same_op_are_not),
        TEST(test_uneven__an_older_epoch_counts_from_zero),
        TEST(test_uneven__of_ranks_that_move_or_do_not_answer_nothing_is_said),
        TEST(test_question__is_answered_when_the_last_agent_has_told),
        TEST(test_question__just_behind_another_waits_for_its_turn),
        TEST(test_question__leaves_out_other_groups_and_young_ops),
        TEST(test_question__that_makes_no_sense_is_refused),
        TEST(test_question__ends_with_a_drain_and_can_be_withdrawn),
        TEST(test_told__of_an_older_epoch_does_not_count_as_arrived),
        TEST(test_told__of_a_group_that_is_none_is_left_out),
        TEST(test_told__is_bounded_and_made_printable),
        TEST(test_answered__of_a_question_that_nobody_asked_is_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
