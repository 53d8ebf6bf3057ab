/*
 * Goal: a channel that follows calls the server that was named, else the next of its list, and no other one.
 * Method: a channel is told how calls ended; nobody listens at its addresses, and nothing is connected.
 */
#include "support/testing.h"

#include <stdio.h>
#include <string.h>

#include "rpc/channel/channel_private.h"
#include "rpc/follow.h"
#include "rpc/loop.h"

static tutti_rpc_channel *
open_channel(const char *target, const char *token, bool follow)
{
    const tutti_rpc_channel_options options = {.follow = follow, .token = token};
    tutti_rpc_channel *channel = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_channel_open(target, &options, &channel, &err));
    return channel;
}

static tutti_error
error_of(tutti_code code, const char *reason, const char *leader)
{
    tutti_error err = {.code = code};

    (void)snprintf(err.reason, sizeof(err.reason), "%s", reason);
    (void)snprintf(err.group, sizeof(err.group), "%s", leader);
    return err;
}

/* A call that began now has ended so. */
static void
end_call(tutti_rpc_channel *channel, tutti_code code, const char *reason, const char *leader,
         bool from_peer)
{
    const tutti_error err = error_of(code, reason, leader);

    rpc_channel_follow(channel, &err, from_peer, atomic_load(&channel->moves));
}

static void
lead_elsewhere(tutti_rpc_channel *channel, const char *leader)
{
    end_call(channel, TUTTI_UNAVAILABLE, "NOT_LEADER", leader, true);
}

static void
assert_at(tutti_rpc_channel *channel, const char *address)
{
    assert_string_equal(atomic_load(&channel->address)->text, address);
}

static void
test_targets__are_called_by_turns(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", NULL, true);

    (void)state;
    assert_true(tutti_rpc_channel_has_others(channel));
    assert_at(channel, "127.0.0.1:1");
    end_call(channel, TUTTI_UNAVAILABLE, "UNREACHABLE", "", false);
    assert_at(channel, "127.0.0.1:2");
    end_call(channel, TUTTI_UNAVAILABLE, "CONNECTION_LOST", "", false);
    assert_at(channel, "127.0.0.1:3");
    end_call(channel, TUTTI_UNAVAILABLE, "DRAINING", "", true);
    assert_at(channel, "127.0.0.1:1");
    end_call(channel, TUTTI_DEADLINE_EXCEEDED, "", "", false); /* it gave no answer */
    assert_at(channel, "127.0.0.1:2");
    lead_elsewhere(channel, ""); /* nobody leads */
    assert_at(channel, "127.0.0.1:3");
    tutti_rpc_channel_move_on(channel);
    assert_at(channel, "127.0.0.1:1");
    tutti_rpc_channel_close(channel);
}

static void
test_targets__stay_when_the_server_has_answered(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1,127.0.0.1:2", NULL, true);

    (void)state;
    end_call(channel, TUTTI_OK, "", "", true);
    end_call(channel, TUTTI_NOT_FOUND, "NO_KEY", "", true);
    end_call(channel, TUTTI_UNAVAILABLE, "CUT_OFF", "", true);
    end_call(channel, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT", "", true);
    end_call(channel, TUTTI_INVALID_ARGUMENT, "NOT_LEADER", "127.0.0.1:2", true);
    assert_at(channel, "127.0.0.1:1");
    tutti_rpc_channel_close(channel);
}

static void
test_targets__go_to_the_one_that_was_named(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", NULL, true);

    (void)state;
    lead_elsewhere(channel, "127.0.0.1:3");
    assert_at(channel, "127.0.0.1:3");
    lead_elsewhere(channel, "127.0.0.1:3"); /* itself: not again */
    assert_at(channel, "127.0.0.1:1");
    lead_elsewhere(channel, "127.0.0.1:9"); /* not in the list */
    assert_at(channel, "127.0.0.1:9");
    lead_elsewhere(channel, "no address");
    assert_at(channel, "127.0.0.1:1");           /* behind a told one the list begins */
    lead_elsewhere(channel, "unix:/tmp/socket"); /* of another machine perhaps */
    assert_at(channel, "127.0.0.1:2");
    tutti_rpc_channel_close(channel);
}

/* Servers that name one after the other, more than a channel keeps. */
static void
test_targets__that_were_told_are_few(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1", NULL, true);
    char text[32];
    int i;

    (void)state;
    assert_false(tutti_rpc_channel_has_others(channel));
    for (i = 0; i < 3 * TUTTI_RPC_TOLD_MAX; i++) {
        (void)snprintf(text, sizeof(text), "127.0.0.1:%d", 100 + i);
        lead_elsewhere(channel, text);
        assert_at(channel, text);
    }
    assert_true(tutti_rpc_channel_has_others(channel));
    end_call(channel, TUTTI_UNAVAILABLE, "UNREACHABLE", "", false);
    assert_at(channel, "127.0.0.1:1");
    tutti_rpc_channel_close(channel);
}

/* Calls that began together fail together: they are one reason to move, not several. */
static void
test_targets__move_once_for_calls_of_one_time(void **state)
{
    const tutti_error gone = error_of(TUTTI_UNAVAILABLE, "CONNECTION_LOST", "");
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", NULL, true);
    const size_t moves = atomic_load(&channel->moves);
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        rpc_channel_follow(channel, &gone, false, moves);
    }
    assert_at(channel, "127.0.0.1:2");
    tutti_rpc_channel_close(channel);
}

static void
test_targets__with_a_token_are_not_told_to_go_far_in_plaintext(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1,127.0.0.1:2", "secret", true);

    (void)state;
    lead_elsewhere(channel, "192.0.2.1:5");
    assert_at(channel, "127.0.0.1:2"); /* the next, not the one that was named */
    lead_elsewhere(channel, "127.0.0.1:5");
    assert_at(channel, "127.0.0.1:5");
    tutti_rpc_channel_close(channel);
}

static void
test_targets__of_a_channel_that_does_not_follow_stay(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1", NULL, false);
    tutti_rpc_channel *none = NULL;
    tutti_error err;

    (void)state;
    lead_elsewhere(channel, "127.0.0.1:2");
    end_call(channel, TUTTI_UNAVAILABLE, "UNREACHABLE", "", false);
    tutti_rpc_channel_move_on(channel);
    assert_at(channel, "127.0.0.1:1");
    tutti_rpc_channel_close(channel);
    assert_fails(tutti_rpc_channel_open("127.0.0.1:1,127.0.0.1:2", NULL, &none, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_null(none);
}

static void
test_targets__of_one_server_need_no_move(void **state)
{
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1", NULL, true);

    (void)state;
    end_call(channel, TUTTI_UNAVAILABLE, "UNREACHABLE", "", false);
    assert_int_equal(atomic_load(&channel->moves), 0); /* gRPC connects again */
    tutti_rpc_channel_try_now(channel);
    tutti_rpc_channel_try_now(channel);
    assert_at(channel, "127.0.0.1:1");
    assert_false(tutti_rpc_channel_has_others(channel));
    tutti_rpc_channel_close(channel);
}

/* A name that stands for several. It is resolved by gRPC, when somebody calls. */
static void
test_targets__behind_one_name_are_called_in_turns_behind_trouble(void **state)
{
    tutti_rpc_channel *channel = open_channel("coordinators.invalid:1", NULL, true);

    (void)state;
    end_call(channel, TUTTI_DEADLINE_EXCEEDED, "", "",
             false); /* nobody has said that there are others */
    assert_int_equal(atomic_load(&channel->moves), 0);
    assert_false(tutti_rpc_channel_has_others(channel));
    assert_true(channel->spread); /* but perhaps there are */
    tutti_rpc_channel_expect_others(channel, "127.0.0.1:9");
    assert_true(tutti_rpc_channel_has_others(channel));
    lead_elsewhere(channel, ""); /* a next call asks the next one of them */
    assert_int_equal(atomic_load(&channel->moves), 0);
    end_call(channel, TUTTI_DEADLINE_EXCEEDED, "", "", false);
    assert_int_equal(atomic_load(&channel->moves), 1);
    assert_at(channel, "coordinators.invalid:1");
    assert_true(channel->spread);
    lead_elsewhere(channel, "127.0.0.1:2");
    assert_at(channel, "127.0.0.1:2");
    assert_false(channel->spread);
    tutti_rpc_channel_move_on(channel);
    assert_at(channel, "coordinators.invalid:1");
    assert_true(channel->spread);
    tutti_rpc_channel_close(channel);
}

static void
test_targets__behind_one_number_stay_when_others_are_expected(void **state)
{
    tutti_rpc_channel *channel = open_channel("[::1]:1", NULL, true);

    (void)state;
    tutti_rpc_channel_expect_others(channel, "[::1]:1");
    end_call(channel, TUTTI_UNAVAILABLE, "UNREACHABLE", "", false);
    assert_int_equal(atomic_load(&channel->moves), 0);
    tutti_rpc_channel_move_on(channel); /* but who is silent is left, and connected to anew */
    assert_int_equal(atomic_load(&channel->moves), 1);
    assert_false(channel->spread);
    tutti_rpc_channel_close(channel);
}

/* Standbys tell it for as long as its lease lasts. */
static void
test_targets__do_not_go_back_to_a_silent_one_at_once(void **state)
{
    tutti_rpc_channel *channel = open_channel("coordinators.invalid:1", NULL, true);

    (void)state;
    tutti_rpc_channel_expect_others(channel, "127.0.0.1:2"); /* the first address of the name */
    tutti_rpc_channel_move_on(channel);
    lead_elsewhere(channel, "127.0.0.1:2");
    assert_at(channel, "coordinators.invalid:1");
    lead_elsewhere(channel, "127.0.0.1:3");
    assert_at(channel, "127.0.0.1:3");
    tutti_rpc_channel_move_on(channel);
    lead_elsewhere(channel, "127.0.0.1:3"); /* left last */
    assert_at(channel, "coordinators.invalid:1");
    channel->left_until_ns = 0; /* later on */
    lead_elsewhere(channel, "127.0.0.1:3");
    assert_at(channel, "127.0.0.1:3");
    tutti_rpc_channel_close(channel);
}

/* What the certificates of servers have that have told numbers of each other. */
static void
test_targets__that_were_told_by_number_have_the_name_of_all(void **state)
{
    const tutti_rpc_channel_options named = {.follow = true, .tls_name = "other.invalid"};
    tutti_rpc_channel *channel = open_channel("coordinators.invalid:1", NULL, true);
    tutti_error err;

    (void)state;
    assert_null(rpc_channel_certified_name(channel));
    lead_elsewhere(channel, "127.0.0.1:2");
    assert_string_equal(rpc_channel_certified_name(channel), "coordinators.invalid");
    lead_elsewhere(channel, "leader.invalid:2");
    assert_null(rpc_channel_certified_name(channel));
    tutti_rpc_channel_close(channel);
    channel = open_channel("127.0.0.1:1", NULL, true);
    lead_elsewhere(channel, "127.0.0.1:2");
    assert_null(rpc_channel_certified_name(channel));
    tutti_rpc_channel_close(channel);
    channel = open_channel("coordinators.invalid:1,127.0.0.1:2", NULL, true);
    lead_elsewhere(channel, "127.0.0.1:3"); /* a list says what names there are */
    assert_null(rpc_channel_certified_name(channel));
    tutti_rpc_channel_close(channel);
    assert_ok(tutti_rpc_channel_open("coordinators.invalid:1", &named, &channel, &err));
    assert_string_equal(rpc_channel_certified_name(channel), "other.invalid");
    tutti_rpc_channel_close(channel);
}

static int
begin_rpc(void **state)
{
    (void)state;
    tutti_rpc_init();
    return 0;
}

/* As gRPC tells it of a server that cancels what is under way, and of this program. */
static void
test_call__that_the_server_has_cancelled_was_not_cancelled_by_this_program(void **state)
{
    static const rpc_known known = {.path = (char *)(uintptr_t) "/a.Service/Call"};
    tutti_rpc_channel *channel = open_channel("127.0.0.1:1", NULL, false);
    rpc_outcome outcome;
    tutti_error err;

    (void)state;
    rpc_outcome_init(&outcome, NULL);
    outcome.status = GRPC_STATUS_CANCELLED;
    outcome.text = grpc_slice_from_static_string("CANCELLED");
    assert_fails(rpc_outcome_read(&outcome, channel, &known, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "CONNECTION_LOST");
    atomic_store(&outcome.cancelled, true);
    assert_fails(rpc_outcome_read(&outcome, channel, &known, &err), TUTTI_CANCELLED);
    assert_text_has(err.text, "was cancelled by this program");
    rpc_outcome_fini(&outcome);
    tutti_rpc_channel_close(channel);
}

static int
end_rpc(void **state)
{
    (void)state;
    tutti_rpc_fini();
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets__are_called_by_turns),
        cmocka_unit_test(test_targets__stay_when_the_server_has_answered),
        cmocka_unit_test(test_targets__go_to_the_one_that_was_named),
        cmocka_unit_test(test_targets__that_were_told_are_few),
        cmocka_unit_test(test_targets__move_once_for_calls_of_one_time),
        cmocka_unit_test(test_targets__with_a_token_are_not_told_to_go_far_in_plaintext),
        cmocka_unit_test(test_targets__of_a_channel_that_does_not_follow_stay),
        cmocka_unit_test(test_targets__of_one_server_need_no_move),
        cmocka_unit_test(test_targets__behind_one_name_are_called_in_turns_behind_trouble),
        cmocka_unit_test(test_targets__behind_one_number_stay_when_others_are_expected),
        cmocka_unit_test(test_targets__do_not_go_back_to_a_silent_one_at_once),
        cmocka_unit_test(test_targets__that_were_told_by_number_have_the_name_of_all),
        cmocka_unit_test(
            test_call__that_the_server_has_cancelled_was_not_cancelled_by_this_program),
    };

    return cmocka_run_group_tests_name("rpc/targets", tests, begin_rpc, end_rpc);
}
