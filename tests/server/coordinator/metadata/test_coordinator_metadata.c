/*
 * Goal: the k-th calls of all members meet, whatever goes wrong is everybody's news, and nobody
 * waits for a rank that does not come.
 * Method: a formed world of a coordinator with a clock we turn.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/metadata/metadata.h"
#include "support/testing.h"

#define WORLD 4

static meeter meeters[8 * WORLD];

static int
begin(void **state)
{
    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, WORLD);
    return 0;
}

static void
reopen(const tutti_coordinator_options *options)
{
    fixture_close(&fix);
    fixture_open(&fix, options);
    form_world(&fix, WORLD);
}

static tutti_coordinator_meet_request
request_of(tutti_coordinator_meet_kind kind, uint32_t rank, const char *value)
{
    const size_t size = value == NULL ? 0 : strlen(value);

    return (tutti_coordinator_meet_request){
        .kind = kind,
        .member = member_of(rank),
        .key = BYTES("shape"),
        .deadline_ns = fix.now_ns + 10 * SECOND,
        .value = size == 0 ? NULL : strdup(value),
        .value_size = size,
    };
}

static void
broadcast(meeter *one, uint32_t rank, uint32_t root, const char *value)
{
    tutti_coordinator_meet_request request = request_of(TUTTI_COORDINATOR_BROADCAST, rank, value);
    tutti_error err;

    request.root = root;
    assert_ok(meeter_start(&fix, one, &request, &err));
    assert_int_equal(one->answer_count, 0); /* never inside the call */
}

static void
gather_with(meeter *one, uint32_t rank, const char *value, uint64_t token)
{
    tutti_coordinator_meet_request request = request_of(TUTTI_COORDINATOR_ALL_GATHER, rank, value);
    tutti_error err;

    request.token = token;
    assert_ok(meeter_start(&fix, one, &request, &err));
}

static void
gather(meeter *one, uint32_t rank, const char *value)
{
    gather_with(one, rank, value, 0);
}

static void
assert_got(const meeter *one, const char *values)
{
    assert_int_equal(one->answer_count, 1);
    if (one->failed) {
        fail_msg("failed: %s", one->err.text);
    }
    assert_string_equal(one->values, values);
}

static void
assert_failed(const meeter *one, tutti_code code, const char *reason, const char *text)
{
    assert_int_equal(one->answer_count, 1);
    assert_true(one->failed);
    assert_int_equal(one->err.code, code);
    assert_string_equal(one->err.reason, reason);
    assert_text_has(one->err.text, text);
}

static void
assert_refused(tutti_coordinator_meet_request *request, tutti_code code, const char *reason,
               const char *text)
{
    tutti_error err;

    assert_fails(meeter_start(&fix, &meeters[8], request, &err), code);
    assert_string_equal(err.reason, reason);
    assert_text_has(err.text, text);
    assert_null(request->value);
}

static void
leave(uint32_t rank)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, "test", &err));
    fixture_settle(&fix);
}

static void
test_broadcast__takes_the_roots_value_to_those_before_and_after_it(void **state)
{
    (void)state;
    broadcast(&meeters[0], 0, 2, NULL);
    broadcast(&meeters[1], 1, 2, "ignored");
    fixture_settle(&fix);
    assert_int_equal(meeters[0].answer_count, 0);
    broadcast(&meeters[2], 2, 2, "value");
    fixture_settle(&fix);
    broadcast(&meeters[3], 3, 2, NULL);
    fixture_settle(&fix);
    assert_got(&meeters[0], "value,");
    assert_got(&meeters[1], "value,");
    assert_got(&meeters[2], "value,");
    assert_got(&meeters[3], "value,");
}

static void
test_broadcast__lets_the_root_run_ahead(void **state)
{
    uint32_t i;

    (void)state;
    broadcast(&meeters[0], 0, 0, "one");
    broadcast(&meeters[1], 0, 0, "two");
    broadcast(&meeters[2], 0, 0, "");
    fixture_settle(&fix);
    assert_got(&meeters[2], ",");
    for (i = 1; i < WORLD; i++) {
        broadcast(&meeters[3], i, 0, NULL);
        broadcast(&meeters[4], i, 0, NULL);
        broadcast(&meeters[5], i, 0, NULL);
        fixture_settle(&fix);
        assert_got(&meeters[3], "one,");
        assert_got(&meeters[4], "two,");
        assert_got(&meeters[5], ",");
    }
}

static void
test_gather__gives_all_values_by_group_rank(void **state)
{
    uint32_t i;

    (void)state;
    gather(&meeters[3], 3, "d");
    gather(&meeters[0], 0, "a");
    gather(&meeters[2], 2, "");
    fixture_settle(&fix);
    assert_int_equal(meeters[0].answer_count, 0);
    gather(&meeters[1], 1, "b");
    fixture_settle(&fix);
    for (i = 0; i < WORLD; i++) {
        assert_got(&meeters[i], "a,b,,d,");
        assert_int_equal(meeters[i].value_count, WORLD);
    }
}

static void
test_meetings__match_by_order_of_each_members_calls(void **state)
{
    uint32_t i;

    (void)state;
    gather(&meeters[0], 0, "a1");
    gather(&meeters[1], 0, "a2");
    gather(&meeters[2], 1, "b1");
    gather(&meeters[3], 2, "c1");
    gather(&meeters[4], 2, "c2");
    gather(&meeters[5], 3, "d1");
    gather(&meeters[6], 3, "d2");
    gather(&meeters[7], 1, "b2");
    fixture_settle(&fix);
    for (i = 0; i < 8; i++) {
        const bool first = i == 0 || i == 2 || i == 3 || i == 5;

        assert_got(&meeters[i], first ? "a1,b1,c1,d1," : "a2,b2,c2,d2,");
    }
}

static void
test_keys_and_groups__are_sequences_of_their_own(void **state)
{
    const int32_t ranks[] = {2, 0};
    const tutti_coordinator_group_request group = {
        .member = member_of(0), .name = "pair", .ranks = ranks, .count = 2};
    tutti_coordinator_meet_request request;
    tutti_coordinator_group made;
    bool created;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_group_create(fix.self, &group, &made, &created, &err));
    gather(&meeters[0], 0, "world");
    request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 0, "x");
    request.key = BYTES("");
    assert_ok(meeter_start(&fix, &meeters[1], &request, &err));
    request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 0, "zero");
    request.group = "pair";
    assert_ok(meeter_start(&fix, &meeters[2], &request, &err));
    request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 2, "two");
    request.group = "pair";
    assert_ok(meeter_start(&fix, &meeters[3], &request, &err));
    fixture_settle(&fix);
    assert_got(&meeters[2], "two,zero,"); /* by group rank */
    assert_got(&meeters[3], "two,zero,");
    assert_int_equal(meeters[0].answer_count + meeters[1].answer_count, 0);
    tutti_coordinator_meet_withdraw(&meeters[0].meet);
    tutti_coordinator_meet_withdraw(&meeters[1].meet);
}

static void
test_gather__that_is_late_names_the_missing_on_all(void **state)
{
    (void)state;
    gather(&meeters[0], 0, "a");
    fixture_advance(&fix, 5 * SECOND);
    gather(&meeters[2], 2, "c");
    fixture_advance(&fix, 5 * SECOND);
    assert_failed(&meeters[0], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS",
                  "group world, key \"shape\": 2 of 4 members came in time, missing ranks 1, 3");
    assert_failed(&meeters[2], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "missing ranks 1, 3");
    assert_string_equal(meeters[0].err.group, "world");
    assert_int_equal(meeters[0].err.rank, 1);
}

static void
test_late_members__of_a_meeting_that_failed_hear_so_once(void **state)
{
    uint32_t i;

    (void)state;
    gather(&meeters[0], 0, "a");
    fixture_advance(&fix, 10 * SECOND);
    for (i = 1; i < WORLD; i++) {
        gather(&meeters[i], i, "late");
        fixture_settle(&fix);
        assert_failed(&meeters[i], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "ranks 1-3");
    }
    for (i = 0; i < WORLD; i++) { /* and the next calls meet */
        gather(&meeters[i], i, "x");
    }
    fixture_settle(&fix);
    assert_got(&meeters[0], "x,x,x,x,");
    assert_got(&meeters[3], "x,x,x,x,");
}

static void
test_broadcast__without_its_root_says_so(void **state)
{
    (void)state;
    broadcast(&meeters[0], 0, 3, NULL);
    broadcast(&meeters[1], 1, 3, NULL);
    fixture_advance(&fix, 10 * SECOND);
    assert_failed(&meeters[0], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS",
                  "the root, rank 3, did not come in time");
    assert_failed(&meeters[1], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "rank 3");
    broadcast(&meeters[3], 3, 3, "too late");
    fixture_settle(&fix);
    assert_failed(&meeters[3], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "rank 3");
}

static void
test_roots__that_differ_are_refused_on_all(void **state)
{
    (void)state;
    broadcast(&meeters[0], 0, 2, NULL);
    broadcast(&meeters[1], 1, 3, NULL);
    fixture_settle(&fix);
    assert_failed(&meeters[0], TUTTI_FAILED_PRECONDITION, "ROOT_MISMATCH",
                  "rank 1 named the root 3, others 2");
    assert_failed(&meeters[1], TUTTI_FAILED_PRECONDITION, "ROOT_MISMATCH", "rank 1");
    broadcast(&meeters[2], 2, 2, "value");
    broadcast(&meeters[3], 3, 2, NULL);
    fixture_settle(&fix);
    assert_failed(&meeters[2], TUTTI_FAILED_PRECONDITION, "ROOT_MISMATCH", "rank 1");
    assert_failed(&meeters[3], TUTTI_FAILED_PRECONDITION, "ROOT_MISMATCH", "rank 1");
}

static void
test_methods__that_differ_are_refused_on_all(void **state)
{
    (void)state;
    broadcast(&meeters[0], 0, 2, NULL);
    gather(&meeters[1], 1, "x");
    fixture_settle(&fix);
    assert_failed(&meeters[0], TUTTI_FAILED_PRECONDITION, "METHOD_MISMATCH",
                  "rank 1 called AllGather, others Broadcast");
    assert_failed(&meeters[1], TUTTI_FAILED_PRECONDITION, "METHOD_MISMATCH", "Broadcast");
}

static void
test_meet__says_what_is_wrong_with_the_request(void **state)
{
    static char long_key[128];
    tutti_coordinator_meet_request request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");

    (void)state;
    request.root = WORLD;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_ROOT", "root 4 in group world of 4");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");
    request.key = (tutti_bytes){long_key, sizeof(long_key)};
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_KEY", "128 bytes, at most 127");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");
    request.value_size = TUTTI_COORDINATOR_MEET_VALUE_MAX + 1; /* refused before it is read */
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "VALUE_LIMIT", "at most 1048576");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");
    request.group = "none";
    assert_refused(&request, TUTTI_NOT_FOUND, "NO_GROUP", "none");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");
    request.member.incarnation = 1;
    assert_refused(&request, TUTTI_FAILED_PRECONDITION, "STALE_INCARNATION", "rank 0");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 9, "x");
    assert_refused(&request, TUTTI_NOT_FOUND, "NO_RANK", "rank 9");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");
    request.member.job = "none";
    assert_refused(&request, TUTTI_NOT_FOUND, "NO_JOB", "none");
}

static void
test_meet__of_a_stranger_to_the_group_is_refused(void **state)
{
    const int32_t ranks[] = {2, 0};
    const tutti_coordinator_group_request group = {
        .member = member_of(0), .name = "pair", .ranks = ranks, .count = 2};
    tutti_coordinator_meet_request request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 1, "x");
    tutti_coordinator_group made;
    bool created;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_group_create(fix.self, &group, &made, &created, &err));
    request.group = "pair";
    assert_refused(&request, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP", "rank 1");
}

static void
test_values__of_more_than_3_mib_together_are_refused_on_all(void **state)
{
    const size_t mib = TUTTI_COORDINATOR_MEET_VALUE_MAX;
    uint32_t i;
    tutti_error err;

    (void)state;
    for (i = 0; i < WORLD; i++) {
        tutti_coordinator_meet_request request = request_of(TUTTI_COORDINATOR_ALL_GATHER, i, NULL);

        request.value = calloc(1, mib);
        request.value_size = i < 3 ? mib : 1;
        assert_ok(meeter_start(&fix, &meeters[i], &request, &err));
    }
    fixture_settle(&fix);
    for (i = 0; i < WORLD; i++) {
        assert_failed(&meeters[i], TUTTI_INVALID_ARGUMENT, "VALUE_LIMIT",
                      "3145729 bytes together, at most 3145728");
    }
}

static void
test_caller__that_goes_away_has_not_called(void **state)
{
    (void)state;
    gather(&meeters[0], 0, "gone");
    tutti_coordinator_meet_withdraw(&meeters[0].meet);
    gather(&meeters[1], 1, "b");
    gather(&meeters[2], 2, "c");
    gather(&meeters[3], 3, "d");
    fixture_settle(&fix);
    assert_int_equal(meeters[1].answer_count, 0);
    gather(&meeters[4], 0, "a");
    fixture_settle(&fix);
    assert_int_equal(meeters[0].answer_count, 0);
    assert_got(&meeters[4], "a,b,c,d,");
    assert_got(&meeters[1], "a,b,c,d,");
}

static void
test_caller__with_a_token_that_goes_away_keeps_its_place(void **state)
{
    (void)state;
    gather_with(&meeters[0], 0, "a", 77);
    tutti_coordinator_meet_withdraw(&meeters[0].meet);
    gather(&meeters[1], 1, "b");
    gather(&meeters[2], 2, "c");
    gather(&meeters[3], 3, "d");
    fixture_settle(&fix);
    assert_got(&meeters[1], "a,b,c,d,");
    gather_with(&meeters[4], 0, "other", 77); /* its answer had been lost */
    fixture_settle(&fix);
    assert_got(&meeters[4], "a,b,c,d,");
    gather_with(&meeters[5], 0, "next", 78); /* another call of its */
    fixture_settle(&fix);
    assert_int_equal(meeters[5].answer_count, 0);
    tutti_coordinator_meet_withdraw(&meeters[5].meet);
}

static void
test_call__repeated_with_its_token_does_not_count_twice(void **state)
{
    (void)state;
    gather_with(&meeters[0], 0, "a", 77);
    gather_with(&meeters[4], 0, "b", 77);
    fixture_settle(&fix);
    assert_failed(&meeters[0], TUTTI_ABORTED, "SUPERSEDED", "same token");
    assert_int_equal(meeters[4].answer_count, 0);
    gather(&meeters[1], 1, "b");
    gather(&meeters[2], 2, "c");
    gather(&meeters[3], 3, "d");
    fixture_settle(&fix);
    assert_got(&meeters[4], "a,b,c,d,");
}

static void
test_token__of_a_failed_meeting_hears_the_failure_again(void **state)
{
    (void)state;
    gather_with(&meeters[0], 0, "a", 77);
    fixture_advance(&fix, 10 * SECOND);
    assert_failed(&meeters[0], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "ranks 1-3");
    gather_with(&meeters[4], 0, "a", 77);
    fixture_settle(&fix);
    assert_failed(&meeters[4], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "ranks 1-3");
}

static void
test_token__is_forgotten_after_the_retry_window(void **state)
{
    tutti_coordinator_options options;
    uint32_t i;

    (void)state;
    fixture_options(&options);
    options.retry_window_ns = 5 * SECOND;
    reopen(&options);
    for (i = 0; i < WORLD; i++) {
        gather_with(&meeters[i], i, "x", 77);
    }
    fixture_advance(&fix, 5 * SECOND - 1);
    gather_with(&meeters[4], 0, "x", 77);
    fixture_settle(&fix);
    assert_got(&meeters[4], "x,x,x,x,");
    fixture_advance(&fix, 1);
    gather_with(&meeters[4], 0, "x", 77); /* a new call by now */
    fixture_settle(&fix);
    assert_int_equal(meeters[4].answer_count, 0);
    tutti_coordinator_meet_withdraw(&meeters[4].meet);
}

static void
test_tokens__of_the_last_meetings_only_are_kept(void **state)
{
    uint64_t k;
    uint32_t i;

    (void)state;
    for (k = 1; k <= 20; k++) {
        for (i = 0; i < WORLD; i++) {
            gather_with(&meeters[i], i, "x", k);
        }
        fixture_settle(&fix);
        assert_got(&meeters[0], "x,x,x,x,");
    }
    gather_with(&meeters[4], 0, "x", 20);
    gather_with(&meeters[5], 0, "x", 13);
    fixture_settle(&fix);
    assert_got(&meeters[4], "x,x,x,x,");
    assert_got(&meeters[5], "x,x,x,x,");
    gather_with(&meeters[6], 0, "x", 2);
    fixture_settle(&fix);
    assert_int_equal(meeters[6].answer_count, 0);
    tutti_coordinator_meet_withdraw(&meeters[6].meet);
}

static void
test_lost_rank__that_is_needed_fails_the_meeting(void **state)
{
    (void)state;
    gather(&meeters[0], 0, "a");
    gather(&meeters[1], 1, "b");
    leave(3);
    assert_failed(&meeters[0], TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3 of group world is lost");
    assert_failed(&meeters[1], TUTTI_UNAVAILABLE, "RANK_LOST", "left: test");
    assert_int_equal(meeters[0].err.rank, 3);
    gather(&meeters[2], 2, "late");
    fixture_settle(&fix);
    assert_failed(&meeters[2], TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3");
}

static void
test_lost_rank__whose_value_is_there_is_not_needed(void **state)
{
    (void)state;
    gather(&meeters[3], 3, "d");
    gather(&meeters[0], 0, "a");
    leave(3);
    assert_failed(&meeters[3], TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3"); /* who called for it */
    gather(&meeters[1], 1, "b");
    gather(&meeters[2], 2, "c");
    fixture_settle(&fix);
    assert_got(&meeters[0], "a,b,c,d,");
    assert_got(&meeters[2], "a,b,c,d,");
}

static void
test_lost_rank__is_refused_at_once_and_that_does_not_count(void **state)
{
    tutti_coordinator_meet_request request;
    joiner back;
    uint32_t i;

    (void)state;
    leave(3);
    for (i = 0; i < 5; i++) {
        request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 0, "x");
        assert_refused(&request, TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3");
    }
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "x");
    request.root = 3;
    assert_refused(&request, TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3");
    joiner_must_start(&fix, &back, WORLD, 3, 503);
    fixture_settle(&fix);
    for (i = 0; i < 3; i++) {
        gather(&meeters[i], i, "x");
    }
    request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 3, "back");
    request.member.incarnation = 503;
    assert_int_equal(meeter_start(&fix, &meeters[3], &request, NULL), TUTTI_OK);
    fixture_settle(&fix);
    assert_got(&meeters[0], "x,x,x,back,");
    assert_got(&meeters[3], "x,x,x,back,");
}

static void
test_broadcast__goes_on_without_a_lost_receiver(void **state)
{
    tutti_coordinator_meet_request request;
    joiner back;

    (void)state;
    broadcast(&meeters[0], 0, 1, NULL);
    leave(3);
    assert_int_equal(meeters[0].answer_count, 0);
    broadcast(&meeters[1], 1, 1, "one");
    broadcast(&meeters[2], 1, 1, "two"); /* begun while rank 3 was gone */
    fixture_settle(&fix);
    assert_got(&meeters[0], "one,");
    joiner_must_start(&fix, &back, WORLD, 3, 503);
    fixture_settle(&fix);
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 3, NULL);
    request.member.incarnation = 503;
    request.root = 1;
    assert_int_equal(meeter_start(&fix, &meeters[3], &request, NULL), TUTTI_OK);
    fixture_settle(&fix);
    assert_int_equal(meeters[3].answer_count, 0); /* it begins with the third */
    broadcast(&meeters[4], 1, 1, "three");
    fixture_settle(&fix);
    assert_got(&meeters[3], "three,");
    broadcast(&meeters[5], 2, 1, NULL);
    broadcast(&meeters[6], 2, 1, NULL);
    fixture_settle(&fix);
    assert_got(&meeters[5], "one,");
    assert_got(&meeters[6], "two,");
}

static void
test_meetings__of_a_deleted_group_fail(void **state)
{
    const int32_t ranks[] = {2, 0};
    const tutti_coordinator_group_request group = {
        .member = member_of(0), .name = "pair", .ranks = ranks, .count = 2};
    const tutti_coordinator_group_end end = {.member = member_of(2), .name = "pair"};
    tutti_coordinator_meet_request request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 0, "x");
    tutti_coordinator_group made;
    bool created;
    bool deleted;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_group_create(fix.self, &group, &made, &created, &err));
    request.group = "pair";
    assert_ok(meeter_start(&fix, &meeters[0], &request, &err));
    assert_ok(tutti_coordinator_group_delete(fix.self, &end, &deleted, &err));
    fixture_settle(&fix);
    assert_failed(&meeters[0], TUTTI_NOT_FOUND, "NO_GROUP", "group pair was deleted");
}

static void
test_member__that_is_too_far_ahead_is_refused(void **state)
{
    tutti_coordinator_options options;
    tutti_coordinator_meet_request request;

    (void)state;
    fixture_options(&options);
    options.exchange_round_limit = 3;
    reopen(&options);
    broadcast(&meeters[0], 0, 0, "1");
    broadcast(&meeters[1], 0, 0, "2");
    broadcast(&meeters[2], 0, 0, "3");
    request = request_of(TUTTI_COORDINATOR_BROADCAST, 0, "4");
    assert_refused(&request, TUTTI_RESOURCE_EXHAUSTED, "MEETING_LIMIT", "--meeting-limit");
    fixture_settle(&fix);
}

static void
test_values__beyond_the_limit_are_refused_and_do_not_count(void **state)
{
    tutti_coordinator_options options;
    tutti_coordinator_meet_request request;
    uint32_t i;

    (void)state;
    fixture_options(&options);
    options.metadata_bytes_limit = 16 << 10;
    reopen(&options);
    gather(&meeters[0], 0, "a");
    request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 1, NULL);
    request.value_size = 20 << 10;
    request.value = calloc(1, request.value_size);
    assert_refused(&request, TUTTI_RESOURCE_EXHAUSTED, "METADATA_LIMIT", "--metadata-bytes-limit");
    for (i = 1; i < WORLD; i++) {
        gather(&meeters[i], i, "x");
    }
    fixture_settle(&fix);
    assert_got(&meeters[0], "a,x,x,x,");
    for (i = 0; i < 2; i++) { /* one fits, two do not */
        request = request_of(TUTTI_COORDINATOR_ALL_GATHER, i, NULL);
        request.value_size = 8 << 10;
        request.value = calloc(1, request.value_size);
        if (i == 0) {
            assert_int_equal(meeter_start(&fix, &meeters[4], &request, NULL), TUTTI_OK);
        } else {
            assert_refused(&request, TUTTI_RESOURCE_EXHAUSTED, "METADATA_LIMIT", "bytes");
        }
    }
    tutti_coordinator_meet_withdraw(&meeters[4].meet);
}

static void
test_values__of_a_failed_meeting_are_let_go(void **state)
{
    tutti_coordinator_options options;
    tutti_coordinator_meet_request request;
    tutti_error err;
    int i;

    (void)state;
    fixture_options(&options);
    options.metadata_bytes_limit = 16 << 10;
    reopen(&options);
    for (i = 0; i < 2; i++) { /* both would not fit; the first still waits for late members */
        request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 0, NULL);
        request.value_size = 8 << 10;
        request.value = calloc(1, request.value_size);
        assert_ok(meeter_start(&fix, &meeters[i], &request, &err));
        fixture_advance(&fix, 10 * SECOND);
        assert_failed(&meeters[i], TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS", "ranks 1-3");
    }
}

static void
test_token__of_a_lost_process_is_not_its_successors(void **state)
{
    tutti_coordinator_meet_request request;
    joiner back;

    (void)state;
    gather_with(&meeters[3], 3, "old", 5);
    gather(&meeters[0], 0, "a");
    leave(3);
    joiner_must_start(&fix, &back, WORLD, 3, 503);
    fixture_settle(&fix);
    request = request_of(TUTTI_COORDINATOR_ALL_GATHER, 3, "new");
    request.member.incarnation = 503;
    request.token = 5;
    assert_int_equal(meeter_start(&fix, &meeters[4], &request, NULL), TUTTI_OK);
    gather(&meeters[1], 1, "b");
    gather(&meeters[2], 2, "c");
    fixture_settle(&fix);
    assert_got(&meeters[0], "a,b,c,old,");
    assert_int_equal(meeters[4].answer_count, 0); /* it waits for the next exchange round */
    tutti_coordinator_meet_withdraw(&meeters[4].meet);
}

static void
test_meetings__many_and_unended_are_let_go(void **state)
{
    tutti_coordinator_options options;
    char key[32];
    uint32_t i;
    tutti_error err;

    (void)state;
    fixture_options(&options);
    options.metadata_bytes_limit = 16 << 10;
    reopen(&options);
    for (i = 0; i < 1000; i++) { /* keys used once by one rank that then goes */
        tutti_coordinator_meet_request request =
            request_of(TUTTI_COORDINATOR_ALL_GATHER, 0, "value");

        (void)snprintf(key, sizeof(key), "key %u", i);
        request.key = tutti_bytes_of(key);
        assert_ok(meeter_start(&fix, &meeters[0], &request, &err));
        tutti_coordinator_meet_withdraw(&meeters[0].meet);
    }
    assert_int_equal(tutti_coordinator_parked(fix.self), 0);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_broadcast__takes_the_roots_value_to_those_before_and_after_it),
        SENTENCE(test_broadcast__lets_the_root_run_ahead),
        SENTENCE(test_gather__gives_all_values_by_group_rank),
        SENTENCE(test_meetings__match_by_order_of_each_members_calls),
        SENTENCE(test_keys_and_groups__are_sequences_of_their_own),
        SENTENCE(test_gather__that_is_late_names_the_missing_on_all),
        SENTENCE(test_late_members__of_a_meeting_that_failed_hear_so_once),
        SENTENCE(test_broadcast__without_its_root_says_so),
        SENTENCE(test_roots__that_differ_are_refused_on_all),
        SENTENCE(test_methods__that_differ_are_refused_on_all),
        SENTENCE(test_meet__says_what_is_wrong_with_the_request),
        SENTENCE(test_meet__of_a_stranger_to_the_group_is_refused),
        SENTENCE(test_values__of_more_than_3_mib_together_are_refused_on_all),
        SENTENCE(test_caller__that_goes_away_has_not_called),
        SENTENCE(test_caller__with_a_token_that_goes_away_keeps_its_place),
        SENTENCE(test_call__repeated_with_its_token_does_not_count_twice),
        SENTENCE(test_token__of_a_failed_meeting_hears_the_failure_again),
        SENTENCE(test_token__is_forgotten_after_the_retry_window),
        SENTENCE(test_tokens__of_the_last_meetings_only_are_kept),
        SENTENCE(test_lost_rank__that_is_needed_fails_the_meeting),
        SENTENCE(test_lost_rank__whose_value_is_there_is_not_needed),
        SENTENCE(test_lost_rank__is_refused_at_once_and_that_does_not_count),
        SENTENCE(test_broadcast__goes_on_without_a_lost_receiver),
        SENTENCE(test_meetings__of_a_deleted_group_fail),
        SENTENCE(test_member__that_is_too_far_ahead_is_refused),
        SENTENCE(test_values__beyond_the_limit_are_refused_and_do_not_count),
        SENTENCE(test_values__of_a_failed_meeting_are_let_go),
        SENTENCE(test_token__of_a_lost_process_is_not_its_successors),
        SENTENCE(test_meetings__many_and_unended_are_let_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
