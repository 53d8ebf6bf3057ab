/*
 * Goal: a rank that goes is everybody's news, once, soon, and only when it is gone.
 * Method: a coordinator with a clock we turn; streams that write down what they are told.
 */
#include "support/testing.h"

#include "server/coordinator/fixture.h"

static void
leave(uint32_t rank, const char *reason)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, reason, &err));
    fixture_settle(&fix);
}

static tutti_coordinator_rank
rank_of(uint32_t rank)
{
    static tutti_coordinator_rank ranks[TUTTI_COORDINATOR_LOOKUP_MAX];
    size_t count = 0;
    tutti_error err;

    assert_ok(tutti_coordinator_lookup(fix.self, NULL, &rank, 1, ranks, &count, &err));
    return ranks[0];
}

static void
come_back(uint32_t rank, uint64_t incarnation)
{
    joiner one;

    joiner_must_start(&fix, &one, 4, rank, incarnation);
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_false(one.failed);
}

/* Time passes, and all of these give signs of life. */
static void
live(line *lines, size_t count, uint64_t wait_ns)
{
    uint64_t passed;
    size_t i;

    for (passed = 0; passed < wait_ns; passed += SECOND) {
        fixture_advance(&fix, SECOND);
        for (i = 0; i < count; i++) {
            line_beat(&lines[i]);
        }
    }
}

/* Between its seat and its first session it dies: its successor must not wait for long. */
static void
test_session__that_never_came_does_not_keep_a_seat(void **state)
{
    const tutti_coordinator_join_request request = join_request(NULL, 4, 2, 902);
    joiner one;
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_fails(joiner_start(&fix, &one, &request, &err), TUTTI_ALREADY_EXISTS);
    fixture_advance(&fix, SECOND);
    come_back(2, 902);
    assert_int_equal(rank_of(2).incarnation, 902);
}

static void
test_session__is_accepted_with_epoch_and_lost_ranks(void **state)
{
    static line one;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &one, 0);
    assert_int_equal(one.epoch, 1);
    assert_int_equal(one.lost_count, 0);
    tutti_coordinator_session_withdraw(&one.session);
    leave(2, NULL);
    line_must_open(&fix, &one, 0);
    assert_int_equal(one.epoch, 2);
    assert_int_equal(one.lost_count, 1);
    assert_int_equal(one.lost_rank, 2);
}

static void
test_session__of_a_stranger_is_refused(void **state)
{
    const tutti_coordinator_member stale = {.rank = 1, .incarnation = 999};
    const tutti_coordinator_member nobody = {.rank = 4, .incarnation = 1};
    const tutti_coordinator_member elsewhere = {.job = "other", .rank = 0, .incarnation = 100};
    const tutti_coordinator_member badly = {.job = "/x", .rank = 0, .incarnation = 100};
    static line lines[4];
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_fails(line_open(&fix, &lines[0], &stale, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "STALE_INCARNATION");
    assert_text_has(err.text, "host host, pid 101");
    assert_int_equal(err.rank, 1);
    assert_fails(line_open(&fix, &lines[1], &nobody, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_RANK");
    assert_fails(line_open(&fix, &lines[2], &elsewhere, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_JOB");
    assert_fails(line_open(&fix, &lines[3], &badly, &err), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(tutti_coordinator_parked(fix.self), 0);
}

static void
test_session__before_the_world_is_complete_is_refused(void **state)
{
    const tutti_coordinator_member member = {.rank = 1, .incarnation = 5};
    joiner waiting;
    static line one;
    tutti_error err;

    (void)state;
    joiner_must_start(&fix, &waiting, 2, 1, 5);
    assert_fails(line_open(&fix, &one, &member, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "still waits");
    tutti_coordinator_join_withdraw(&waiting.join);
}

static void
test_session__that_is_silent_for_the_timeout_is_a_lost_rank(void **state)
{
    static line lines[2];

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    live(&lines[0], 1, 9 * SECOND);
    assert_int_equal(lines[1].end_count, 0);
    live(&lines[0], 1, 1 * SECOND);
    assert_int_equal(lines[1].end_count, 1);
    assert_int_equal(lines[1].err.code, TUTTI_UNAVAILABLE);
    assert_string_equal(lines[1].err.reason, "RANK_LOST");
    assert_int_equal(lines[0].event_count, 1);
    assert_int_equal(lines[0].events[0].kind, TUTTI_COORDINATOR_RANK_LOST);
    assert_int_equal(lines[0].events[0].rank, 1);
    assert_int_equal(lines[0].events[0].incarnation, 101);
    assert_int_equal(lines[0].events[0].epoch, 2);
    assert_string_equal(lines[0].reason, "no heartbeat for 10 s");
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_LOST);
    assert_int_equal(lines[0].end_count, 0);
}

static void
test_session__that_beats_lives(void **state)
{
    static line one;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &one, 0);
    live(&one, 1, 120 * SECOND);
    assert_int_equal(one.end_count, 0);
    assert_int_equal(rank_of(0).state, TUTTI_COORDINATOR_ALIVE);
}

/* Four times in a heartbeat timeout, as far as heartbeats come; one word at a time. */
static void
test_session__that_beats_is_told_that_it_is_heard(void **state)
{
    static line lines[2];
    int before;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    live(lines, 2, 60 * SECOND);
    assert_in_range(lines[0].heard_count, 18, 24);
    assert_in_range(lines[1].heard_count, 18, 24);
    lines[1].stuck = true;
    live(lines, 2, 5 * SECOND);
    before = lines[1].heard_count;
    live(lines, 2, 4 * SECOND);
    assert_int_equal(lines[1].heard_count, before);
    lines[1].stuck = false;
}

static void
test_session__that_breaks_is_a_lost_rank_after_the_grace(void **state)
{
    static line lines[2];

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    tutti_coordinator_session_withdraw(&lines[1].session);
    fixture_advance(&fix, 499 * MS);
    assert_int_equal(lines[0].event_count, 0);
    fixture_advance(&fix, 1 * MS);
    assert_int_equal(lines[0].event_count, 1);
    assert_string_equal(lines[0].reason, "the connection to it broke");
    assert_int_equal(lines[1].end_count, 0); /* it was withdrawn */
}

static void
test_session__that_comes_again_within_the_grace_was_never_gone(void **state)
{
    static line first;
    static line again;
    static line other;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &first, 1);
    line_must_open(&fix, &other, 0);
    tutti_coordinator_session_withdraw(&first.session);
    fixture_advance(&fix, 400 * MS);
    line_must_open(&fix, &again, 1);
    fixture_advance(&fix, 5 * SECOND);
    assert_int_equal(other.event_count, 0);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_ALIVE);
    assert_int_equal(again.epoch, 1);
}

static void
test_session__of_the_same_incarnation_replaces_the_first(void **state)
{
    static line first;
    static line second;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &first, 1);
    line_must_open(&fix, &second, 1);
    assert_int_equal(first.end_count, 1);
    assert_int_equal(first.err.code, TUTTI_ABORTED);
    assert_string_equal(first.err.reason, "SUPERSEDED");
    tutti_coordinator_session_withdraw(&first.session); /* its stream ends now: too late */
    fixture_advance(&fix, 2 * SECOND);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_ALIVE);
    assert_int_equal(second.end_count, 0);
}

static void
test_agent__that_opens_no_session_is_lost(void **state)
{
    static line other;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &other, 0);
    live(&other, 1, 29 * SECOND);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_ALIVE);
    live(&other, 1, 1 * SECOND);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_LOST);
    assert_string_equal(rank_of(1).reason, "no session came");
    assert_int_equal(other.event_count, 3);
}

static void
test_agent__that_asks_for_its_seat_again_gets_time_again(void **state)
{
    joiner again;

    (void)state;
    form_world(&fix, 4);
    fixture_advance(&fix, 20 * SECOND);
    joiner_must_start(&fix, &again, 4, 1, 101);
    fixture_advance(&fix, 20 * SECOND);
    assert_int_equal(again.answer_count, 1);
    assert_int_equal(rank_of(0).state, TUTTI_COORDINATOR_LOST);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_ALIVE);
}

static void
test_join__of_an_agent_that_left_before_its_answer_hears_so(void **state)
{
    const tutti_coordinator_member member = member_of(0);
    joiner one;
    tutti_error err;

    (void)state;
    joiner_must_start(&fix, &one, 1, 0, 100); /* the world is complete, the answer on its way */
    assert_ok(tutti_coordinator_leave(fix.self, &member, "in a hurry", &err));
    fixture_settle(&fix);
    assert_int_equal(one.answer_count, 1);
    assert_true(one.failed);
    assert_string_equal(one.err.reason, "RANK_LOST");
    assert_text_has(one.err.text, "left: in a hurry");
}

static void
test_session__without_a_first_message_ends(void **state)
{
    tutti_error err;
    static line one;
    static line open;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &open, 0);
    one.session.on_end = open.session.on_end;
    tutti_coordinator_session_start(fix.self, &one.session);
    live(&open, 1, 10 * SECOND);
    assert_int_equal(one.end_count, 1);
    assert_int_equal(one.err.code, TUTTI_DEADLINE_EXCEEDED);
    tutti_coordinator_session_start(fix.self, &one.session);
    assert_fails(tutti_coordinator_session_heartbeat(&one.session, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "BAD_ORDER");
}

static void
test_session__cannot_be_opened_twice(void **state)
{
    const tutti_coordinator_member member = member_of(1);
    static line one;
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &one, 1);
    assert_fails(tutti_coordinator_session_open(&one.session, &member, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "BAD_ORDER");
    fixture_advance(&fix, 1 * SECOND);
    assert_int_equal(rank_of(1).state, TUTTI_COORDINATOR_LOST); /* its stream was ended */
}

static void
test_leave__is_told_with_its_reason_and_ends_the_session(void **state)
{
    static line lines[2];

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    leave(1, "pod deleted");
    assert_int_equal(lines[1].end_count, 1);
    assert_false(lines[1].failed);
    assert_int_equal(lines[0].event_count, 1);
    assert_string_equal(lines[0].reason, "left: pod deleted");
    leave(2, "\xff\n evil");
    assert_string_equal(lines[0].reason, "left: ?? evil");
    leave(3, "");
    assert_string_equal(lines[0].reason, "left");
}

static void
test_leave__with_a_long_reason_is_cut(void **state)
{
    char longest[1000];
    static line one;

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    form_world(&fix, 4);
    line_must_open(&fix, &one, 0);
    leave(1, longest);
    assert_int_equal(strlen(one.reason), 159);
}

static void
test_leave__of_a_stranger_or_twice_is_refused(void **state)
{
    const tutti_coordinator_member member = member_of(1);
    const tutti_coordinator_member stale = {.rank = 1, .incarnation = 1};
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    assert_fails(tutti_coordinator_leave(fix.self, &stale, NULL, &err), TUTTI_FAILED_PRECONDITION);
    leave(1, NULL);
    assert_fails(tutti_coordinator_leave(fix.self, &member, NULL, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_RANK");
    assert_text_has(err.text, "join again");
}

static void
assert_same_key(const tutti_coordinator_epoch_key *one, const tutti_coordinator_epoch_key *other)
{
    assert_int_equal(one->epoch, other->epoch);
    assert_memory_equal(one->bytes, other->bytes, sizeof(one->bytes));
}

static void
assert_other_key(const tutti_coordinator_epoch_key *one, const tutti_coordinator_epoch_key *other)
{
    assert_int_not_equal(one->epoch, other->epoch);
    assert_memory_not_equal(one->bytes, other->bytes, sizeof(one->bytes));
}

static void
test_epoch__has_a_key_of_its_own_for_its_members_alone(void **state)
{
    const tutti_coordinator_member newcomer = {.rank = 1, .incarnation = 501};
    tutti_coordinator_epoch_key keys[3];
    static line lines[4];
    static joiner back;
    uint32_t rank;
    tutti_error err;

    (void)state;
    form_world(&fix, 3);
    for (rank = 0; rank < 3; rank++) {
        line_must_open(&fix, &lines[rank], rank);
    }
    keys[0] = lines[0].key;
    assert_int_equal(keys[0].epoch, 1);
    assert_same_key(&lines[1].key, &keys[0]);
    leave(1, NULL);
    keys[1] = lines[0].key;
    assert_other_key(&keys[1], &keys[0]);
    assert_same_key(&lines[2].key, &keys[1]);
    assert_same_key(&lines[1].key, &keys[0]); /* who has left hears no other */
    joiner_must_start(&fix, &back, 3, 1, 501);
    fixture_settle(&fix);
    keys[2] = lines[0].key;
    assert_other_key(&keys[2], &keys[1]);
    assert_same_key(&back.seat.key, &keys[2]);
    assert_ok(line_open(&fix, &lines[3], &newcomer, &err));
    fixture_settle(&fix);
    assert_same_key(&lines[3].key, &keys[2]);
}

static void
test_rank__that_comes_back_is_told_to_the_others_only(void **state)
{
    const tutti_coordinator_member newcomer = {.rank = 1, .incarnation = 501};
    static line lines[2];
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    leave(2, NULL);
    leave(1, NULL);
    come_back(1, 501);
    assert_ok(line_open(&fix, &lines[1], &newcomer, &err));
    fixture_settle(&fix);
    assert_int_equal(lines[0].event_count, 3);
    assert_int_equal(lines[0].events[2].kind, TUTTI_COORDINATOR_RANK_JOINED);
    assert_int_equal(lines[0].events[2].rank, 1);
    assert_int_equal(lines[0].events[2].incarnation, 501);
    assert_int_equal(lines[0].events[2].epoch, 4);
    assert_int_equal(lines[1].accepted_count, 1);
    assert_int_equal(lines[1].epoch, 4);
    assert_int_equal(lines[1].lost_count, 1);
    assert_int_equal(lines[1].lost_rank, 2);
    assert_int_equal(lines[1].event_count, 0); /* what was before it joined is no news to it */
}

static void
test_seat__of_a_broken_session_may_be_taken_at_once(void **state)
{
    static line lines[2];

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    tutti_coordinator_session_withdraw(&lines[1].session);
    come_back(1, 501);
    assert_int_equal(rank_of(1).incarnation, 501);
    assert_int_equal(lines[0].event_count, 1); /* both changes at once: the last one counts */
    assert_int_equal(lines[0].events[0].kind, TUTTI_COORDINATOR_RANK_JOINED);
    assert_int_equal(lines[0].events[0].epoch, 3);
    fixture_advance(&fix, 1 * SECOND);
    assert_int_equal(lines[0].event_count, 1);
}

static void
test_slow_session__hears_only_the_last_of_each_rank(void **state)
{
    static line slow;
    uint64_t i;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &slow, 0);
    slow.stuck = true;
    leave(1, "first"); /* in flight, and does not leave */
    come_back(1, 501);
    for (i = 0; i < 50; i++) {
        const tutti_coordinator_member member = {.rank = 2, .incarnation = i == 0 ? 102 : 600 + i};
        tutti_error err;

        assert_ok(tutti_coordinator_leave(fix.self, &member, NULL, &err));
        come_back(2, 601 + i);
    }
    assert_int_equal(slow.event_count, 1);
    slow.stuck = false;
    fixture_settle(&fix);
    assert_int_equal(slow.event_count, 3);
    assert_int_equal(slow.events[1].rank, 1);
    assert_int_equal(slow.events[1].kind, TUTTI_COORDINATOR_RANK_JOINED);
    assert_int_equal(slow.events[2].rank, 2);
    assert_int_equal(slow.events[2].incarnation, 650);
    assert_int_equal(slow.events[2].epoch, 1 + 2 + 100);
}

static void
test_slow_session__that_stays_stuck_is_dropped(void **state)
{
    static line slow;
    static line other;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &slow, 0);
    line_must_open(&fix, &other, 3);
    slow.stuck = true;
    leave(1, NULL);
    while (slow.end_count == 0 && fix.now_ns < START_NS + 60 * SECOND) {
        fixture_advance(&fix, SECOND);
        line_beat(&other);
        if (slow.end_count == 0) {
            line_beat(&slow); /* it lives, but does not read */
        }
    }
    assert_int_equal(slow.end_count, 1);
    assert_int_equal(slow.err.code, TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(slow.err.reason, "SLOW_SESSION");
    assert_true(fix.now_ns <= START_NS + 21 * SECOND);
    fixture_advance(&fix, 500 * MS);
    assert_int_equal(rank_of(0).state, TUTTI_COORDINATOR_LOST);
}

static void
test_session__that_comes_again_hears_what_it_missed(void **state)
{
    static line first;
    static line again;
    static line other;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &first, 0);
    line_must_open(&fix, &other, 3);
    leave(1, NULL);
    leave(2, NULL);
    assert_int_equal(first.event_count, 2);
    tutti_coordinator_session_withdraw(&first.session);
    come_back(1, 501);
    line_must_open(&fix, &again, 0);
    assert_int_equal(again.lost_count, 1);
    assert_int_equal(again.lost_rank, 2);
    assert_int_equal(again.event_count, 1);
    assert_int_equal(again.events[0].kind, TUTTI_COORDINATOR_RANK_JOINED);
    assert_int_equal(again.events[0].rank, 1);
}

static void
test_session__of_a_world_with_many_lost_ranks_hears_of_all(void **state)
{
    const uint32_t world = TUTTI_COORDINATOR_LOST_MAX + 100;
    static line one;
    uint32_t rank;

    (void)state;
    form_world(&fix, world);
    for (rank = 1; rank < world; rank++) {
        const tutti_coordinator_member member = member_of(rank);
        tutti_error err;

        assert_ok(tutti_coordinator_leave(fix.self, &member, NULL, &err));
    }
    line_must_open(&fix, &one, 0);
    assert_int_equal(one.lost_count, TUTTI_COORDINATOR_LOST_MAX);
    assert_int_equal(one.event_count, world - 1); /* it joined before all of these */
    tutti_coordinator_session_withdraw(&one.session);
    line_must_open(&fix, &one, 0);
    assert_int_equal(one.lost_count, TUTTI_COORDINATOR_LOST_MAX);
    assert_int_equal(one.event_count, 99); /* those that the first message had no room for */
}

/* A switch fails: what the others are told is one message, not one for each. */
static void
test_burst__of_lost_ranks_is_one_message_to_each_session(void **state)
{
    enum {
        WORLD = 300,
        DEAD = 100
    };
    static line lines[WORLD];
    uint32_t rank;

    (void)state;
    form_world(&fix, WORLD);
    for (rank = 0; rank < WORLD; rank++) {
        line_must_open(&fix, &lines[rank], rank);
    }
    for (rank = 0; rank < DEAD; rank++) {
        tutti_coordinator_session_withdraw(&lines[rank].session);
    }
    fixture_advance(&fix, 600 * MS);
    for (rank = DEAD; rank < WORLD; rank++) {
        assert_int_equal(lines[rank].event_count, DEAD);
        assert_int_equal(lines[rank].message_count, 1);
        assert_int_equal(lines[rank].key.epoch, 1 + DEAD);
        tutti_coordinator_session_withdraw(&lines[rank].session);
    }
}

static void
test_burst__larger_than_a_message_comes_in_several(void **state)
{
    enum {
        WORLD = 3 * TUTTI_COORDINATOR_CHANGES_MAX
    };
    static line one;
    uint32_t rank;

    (void)state;
    form_world(&fix, WORLD);
    line_must_open(&fix, &one, 0);
    for (rank = 1; rank < WORLD; rank++) {
        const tutti_coordinator_member member = member_of(rank);
        tutti_error err;

        assert_ok(tutti_coordinator_leave(fix.self, &member, NULL, &err));
    }
    fixture_settle(&fix);
    assert_int_equal(one.event_count, WORLD - 1);
    assert_int_equal(one.message_count, 3);
}

static void
announce(uint32_t rank)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_coordinator_epoch_key key;
    tutti_error err;

    assert_ok(tutti_coordinator_announce_leave(fix.self, &member, "stopped", &key, &err));
}

/* Rank `first` is told first. Each of two ranks hears of the other's leave, not of its own. */
static void
leave_both(uint32_t first)
{
    static line lines[2];

    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], first);
    line_must_open(&fix, &lines[1], 1 - first);
    announce(1);
    leave(3, NULL);
    assert_int_equal(lines[first].event_count, 2); /* rank 0 */
    assert_int_equal(lines[1 - first].event_count, 1);
    assert_int_equal(lines[1 - first].events[0].rank, 3);
    tutti_coordinator_session_withdraw(&lines[0].session);
    tutti_coordinator_session_withdraw(&lines[1].session);
}

static void
test_leave__is_no_news_to_the_one_that_leaves_whoever_hears_first(void **state)
{
    (void)state;
    leave_both(0);
    fixture_close(&fix);
    fixture_open(&fix, NULL);
    leave_both(1);
}

/* Two sessions have read as far, and something happens between what they are told. */
static void
test_session__that_is_told_later_hears_of_what_was_since(void **state)
{
    const tutti_coordinator_member second = member_of(1);
    static line lines[2];
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    assert_ok(line_open(&fix, &lines[1], &second, &err));
    lines[0].stuck = lines[1].stuck = true; /* of the second one: the first message */
    announce(3);
    fixture_settle(&fix);
    assert_int_equal(lines[0].event_count, 1);
    announce(2);
    lines[1].stuck = false;
    fixture_settle(&fix);
    assert_int_equal(lines[1].message_count, 1);
    assert_int_equal(lines[1].event_count, 2);
    assert_int_equal(lines[1].events[1].rank, 2);
    lines[0].stuck = false;
    fixture_settle(&fix);
    assert_int_equal(lines[0].event_count, 2);
}

/* What has come and is not read yet is no silence. */
static void
test_silence__counts_only_when_all_that_came_was_read(void **state)
{
    static line lines[2];

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    live(lines, 2, 5 * SECOND);
    fixture_hold(&fix, 10 * SECOND); /* busy: nobody is read */
    assert_int_equal(lines[0].end_count, 0);
    line_beat(&lines[0]); /* that is read first */
    fixture_settle(&fix);
    assert_int_equal(lines[0].end_count, 0);
    assert_int_equal(lines[1].end_count, 1);
    assert_string_equal(lines[1].err.reason, "RANK_LOST");
    live(lines, 1, 30 * SECOND);
    assert_int_equal(lines[0].end_count, 0);
}

/* A coordinator that is busy all the time still notices. */
static void
test_silence__of_twice_the_timeout_counts_anyhow(void **state)
{
    static line one;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &one, 0);
    fixture_hold(&fix, 20 * SECOND - 1);
    assert_int_equal(one.end_count, 0);
    fixture_hold(&fix, 1);
    assert_int_equal(one.end_count, 1);
    assert_string_equal(one.err.reason, "RANK_LOST");
}

static void
test_stall__of_the_coordinator_is_nobodys_silence(void **state)
{
    static line one;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &one, 0);
    fixture_advance(&fix, SECOND);
    fix.now_ns += 60 * SECOND; /* we did not run */
    tutti_coordinator_set_time(fix.self, fix.now_ns, fix.now_ns);
    fixture_settle(&fix);
    assert_int_equal(one.end_count, 0);
    assert_int_equal(rank_of(0).state, TUTTI_COORDINATOR_ALIVE);
    fixture_advance(&fix, 10 * SECOND); /* but now it has to say something */
    assert_int_equal(one.end_count, 1);
}

static void
test_drain__ends_sessions_without_losing_ranks(void **state)
{
    const tutti_coordinator_member member = member_of(2);
    static line lines[2];
    static line late;
    tutti_error err;

    (void)state;
    form_world(&fix, 4);
    line_must_open(&fix, &lines[0], 0);
    line_must_open(&fix, &lines[1], 1);
    tutti_coordinator_drain(fix.self);
    fixture_settle(&fix);
    assert_int_equal(lines[0].end_count, 1);
    assert_int_equal(lines[0].err.code, TUTTI_UNAVAILABLE);
    assert_string_equal(lines[0].err.reason, "DRAINING");
    assert_int_equal(lines[1].end_count, 1);
    fixture_advance(&fix, 60 * SECOND);
    assert_int_equal(rank_of(0).state, TUTTI_COORDINATOR_ALIVE);
    assert_int_equal(rank_of(2).state, TUTTI_COORDINATOR_ALIVE); /* though no session came */
    assert_fails(line_open(&fix, &late, &member, &err), TUTTI_UNAVAILABLE);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, fixture_begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_session__that_never_came_does_not_keep_a_seat),
        SENTENCE(test_session__is_accepted_with_epoch_and_lost_ranks),
        SENTENCE(test_session__of_a_stranger_is_refused),
        SENTENCE(test_session__before_the_world_is_complete_is_refused),
        SENTENCE(test_session__that_is_silent_for_the_timeout_is_a_lost_rank),
        SENTENCE(test_session__that_beats_lives),
        SENTENCE(test_session__that_beats_is_told_that_it_is_heard),
        SENTENCE(test_session__that_breaks_is_a_lost_rank_after_the_grace),
        SENTENCE(test_session__that_comes_again_within_the_grace_was_never_gone),
        SENTENCE(test_session__of_the_same_incarnation_replaces_the_first),
        SENTENCE(test_agent__that_opens_no_session_is_lost),
        SENTENCE(test_agent__that_asks_for_its_seat_again_gets_time_again),
        SENTENCE(test_join__of_an_agent_that_left_before_its_answer_hears_so),
        SENTENCE(test_session__without_a_first_message_ends),
        SENTENCE(test_session__cannot_be_opened_twice),
        SENTENCE(test_leave__is_told_with_its_reason_and_ends_the_session),
        SENTENCE(test_leave__with_a_long_reason_is_cut),
        SENTENCE(test_leave__of_a_stranger_or_twice_is_refused),
        SENTENCE(test_epoch__has_a_key_of_its_own_for_its_members_alone),
        SENTENCE(test_rank__that_comes_back_is_told_to_the_others_only),
        SENTENCE(test_seat__of_a_broken_session_may_be_taken_at_once),
        SENTENCE(test_slow_session__hears_only_the_last_of_each_rank),
        SENTENCE(test_slow_session__that_stays_stuck_is_dropped),
        SENTENCE(test_session__that_comes_again_hears_what_it_missed),
        SENTENCE(test_session__of_a_world_with_many_lost_ranks_hears_of_all),
        SENTENCE(test_burst__of_lost_ranks_is_one_message_to_each_session),
        SENTENCE(test_burst__larger_than_a_message_comes_in_several),
        SENTENCE(test_leave__is_no_news_to_the_one_that_leaves_whoever_hears_first),
        SENTENCE(test_session__that_is_told_later_hears_of_what_was_since),
        SENTENCE(test_silence__counts_only_when_all_that_came_was_read),
        SENTENCE(test_silence__of_twice_the_timeout_counts_anyhow),
        SENTENCE(test_stall__of_the_coordinator_is_nobodys_silence),
        SENTENCE(test_drain__ends_sessions_without_losing_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
