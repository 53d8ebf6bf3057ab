/*
 * Goal: a group's name stands for one ordered list of ranks, and every refusal has its reason.
 * Method: a formed world of a coordinator with a clock we turn.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/members.h"
#include "support/testing.h"

#define WORLD 6

static tutti_coordinator_group got;
static bool created;

static int
begin(void **state)
{
    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, WORLD);
    return 0;
}

static tutti_code
create(uint32_t caller, const char *name, const int32_t *ranks, size_t count, tutti_error *err)
{
    const tutti_coordinator_group_request request = {
        .member = member_of(caller), .name = name, .ranks = ranks, .count = count};

    return tutti_coordinator_group_create(fix.self, &request, &got, &created, err);
}

static tutti_code
remove_group(uint32_t caller, const char *name, tutti_error *err)
{
    const tutti_coordinator_group_end request = {.member = member_of(caller), .name = name};
    bool deleted;

    return tutti_coordinator_group_delete(fix.self, &request, &deleted, err);
}

static void
leave(uint32_t rank)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, "test", &err));
}

static void
come_back(uint32_t rank, uint64_t incarnation)
{
    joiner one;

    joiner_must_start(&fix, &one, WORLD, rank, incarnation);
    fixture_settle(&fix);
    assert_false(one.failed);
}

static void
assert_refused(uint32_t caller, const char *name, const int32_t *ranks, size_t count,
               tutti_code code, const char *reason, const char *text)
{
    tutti_error err;

    assert_fails(create(caller, name, ranks, count, &err), code);
    assert_string_equal(err.reason, reason);
    assert_text_has(err.text, text);
}

static void
test_group__keeps_the_order_of_its_ranks(void **state)
{
    const int32_t ranks[] = {4, 0, 2};
    tutti_error err;

    (void)state;
    assert_ok(create(0, "odd", ranks, 3, &err));
    assert_true(created);
    assert_string_equal(got.name, "odd");
    assert_int_equal(got.count, 3);
    assert_memory_equal(got.ranks, ranks, sizeof(ranks));
    assert_int_equal(got.epoch, 1);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "odd", -1, &got, &err));
    assert_memory_equal(got.ranks, ranks, sizeof(ranks));
}

static void
test_group__asked_for_again_is_the_same(void **state)
{
    const int32_t ranks[] = {4, 0, 2};
    uint64_t id;
    tutti_error err;

    (void)state;
    assert_ok(create(0, "g", ranks, 3, &err));
    id = got.id;
    assert_ok(create(2, "g", ranks, 3, &err));
    assert_false(created);
    assert_int_equal(got.id, id);
}

static void
test_group__of_other_ranks_finds_its_name_taken(void **state)
{
    const int32_t ranks[] = {0, 1, 2, 5};
    const int32_t swapped[] = {1, 0, 2, 5};

    (void)state;
    assert_int_equal(create(0, "g", ranks, 4, NULL), TUTTI_OK);
    assert_refused(0, "g", swapped, 4, TUTTI_ALREADY_EXISTS, "NAME_TAKEN", "ranks 0-2, 5");
    assert_refused(0, "g", ranks, 3, TUTTI_ALREADY_EXISTS, "NAME_TAKEN", "group g");
    assert_refused(0, "world", ranks, 4, TUTTI_ALREADY_EXISTS, "NAME_TAKEN", "all ranks");
}

static void
test_group__of_a_bad_list_is_refused(void **state)
{
    const int32_t twice[] = {1, 0, 3, 1};
    const int32_t beyond[] = {0, WORLD};
    const int32_t below[] = {-1, 0};
    const int32_t others[] = {1, 2};
    const int32_t many[WORLD + 1] = {0};

    (void)state;
    assert_refused(0, "g", NULL, 0, TUTTI_INVALID_ARGUMENT, "EMPTY_GROUP", "no ranks");
    assert_refused(0, "g", twice, 4, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK", "rank 1 twice");
    assert_refused(0, "g", many, WORLD + 1, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK", "7 ranks");
    assert_refused(0, "g", beyond, 2, TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank 6");
    assert_refused(0, "g", below, 2, TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank -1");
    assert_refused(5, "g", twice, 4, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK", "rank 1 twice");
    assert_refused(0, "g", others, 2, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP", "rank 0");
    assert_refused(1, "a b", others, 2, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "a b");
    assert_refused(1, "mesh:a/b", others, 2, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "mesh:a/b");
    assert_refused(9, "g", others, 2, TUTTI_NOT_FOUND, "NO_RANK", "rank 9");
}

static void
test_group__with_a_lost_rank_waits_for_its_return(void **state)
{
    const int32_t ranks[] = {0, 3};
    uint64_t id;
    tutti_error err;

    (void)state;
    assert_ok(create(0, "g", ranks, 2, &err));
    id = got.id;
    leave(3);
    assert_refused(0, "g", ranks, 2, TUTTI_UNAVAILABLE, "RANK_LOST", "rank 3");
    assert_refused(0, "h", ranks, 2, TUTTI_UNAVAILABLE, "RANK_LOST", "left: test");
    come_back(3, 503);
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_int_equal(got.id, id);
    assert_int_equal(got.epoch, 3); /* the newest at which a member joined */
}

static void
test_group_epoch__is_that_of_its_own_members(void **state)
{
    const int32_t ranks[] = {0, 1};
    const int32_t others[] = {3, 0};
    tutti_error err;

    (void)state;
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_ok(create(0, "h", others, 2, &err));
    leave(3);
    come_back(3, 503);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "g", -1, &got, &err));
    assert_int_equal(got.epoch, 1);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "h", -1, &got, &err));
    assert_int_equal(got.epoch, 3);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "", -1, &got, &err));
    assert_string_equal(got.name, "world");
    assert_int_equal(got.epoch, 3);
    assert_int_equal(got.count, WORLD);
    assert_null(got.ranks);
}

static void
test_world__exists_once_the_job_is_formed(void **state)
{
    const tutti_coordinator_join_request request = join_request("young", 2, 0, 1);
    bool found = true;
    joiner one;
    tutti_error err;

    (void)state;
    assert_ok(joiner_start(&fix, &one, &request, &err));
    assert_fails(tutti_coordinator_group_get(fix.self, "young", "world", -1, &got, &err),
                 TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_GROUP");
    assert_ok(tutti_coordinator_group_next(fix.self, "young", "", &got, &found, &err));
    assert_false(found);
    tutti_coordinator_join_withdraw(&one.join);
}

static void
test_group_delete__is_for_members_and_not_for_world(void **state)
{
    const int32_t ranks[] = {0, 1};
    tutti_error err;

    (void)state;
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_fails(remove_group(2, "g", &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_IN_GROUP");
    assert_fails(remove_group(0, "world", &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "WORLD_GROUP");
    assert_fails(remove_group(0, "none", &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_GROUP");
    assert_ok(remove_group(1, "g", &err));
    assert_fails(remove_group(1, "g", &err), TUTTI_NOT_FOUND);
}

static void
test_group_delete__is_told_and_its_id_never_comes_back(void **state)
{
    const int32_t ranks[] = {0, 1};
    static line one;
    uint64_t id;
    tutti_error err;

    (void)state;
    line_must_open(&fix, &one, 5);
    assert_ok(create(0, "g", ranks, 2, &err));
    id = got.id;
    assert_ok(remove_group(0, "g", &err));
    fixture_settle(&fix);
    assert_int_equal(one.event_count, 1);
    assert_int_equal(one.events[0].kind, TUTTI_COORDINATOR_GROUP_DELETED);
    assert_int_equal(one.events[0].group_id, id);
    assert_string_equal(one.group_name, "g");
    assert_ok(create(1, "g", ranks, 2, &err));
    assert_true(created);
    assert_true(got.id > id);
}

static void
test_group__that_is_ephemeral_goes_with_the_last_agent_it_was_made_of(void **state)
{
    static const int32_t ranks[] = {0, 1};
    const tutti_coordinator_group_request request = {
        .member = member_of(0), .name = "e", .ranks = ranks, .count = 2, .ephemeral = true};
    tutti_error err;

    (void)state;
    assert_ok(create(0, "kept", ranks, 2, &err));
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    leave(2);
    leave(0);
    come_back(0, 777);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "e", 0, &got, &err));
    leave(1);
    assert_fails(tutti_coordinator_group_get(fix.self, NULL, "e", 0, &got, &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "kept", 0, &got, &err));
}

static tutti_code
create_leased(uint32_t caller, const char *name, uint64_t lease, tutti_error *err)
{
    static const int32_t ranks[] = {0, 1};
    const tutti_coordinator_group_request request = {
        .member = member_of(caller), .name = name, .ranks = ranks, .count = 2, .lease = lease};

    return tutti_coordinator_group_create(fix.self, &request, &got, &created, err);
}

static bool
release(uint32_t caller, uint64_t lease)
{
    const tutti_coordinator_member member = member_of(caller);
    bool deleted = false;
    tutti_error err;

    assert_ok(tutti_coordinator_group_release(fix.self, &member, lease, &deleted, &err));
    return deleted;
}

static bool
is_there(const char *name)
{
    tutti_error err;

    return tutti_coordinator_group_get(fix.self, NULL, name, 0, &got, &err) == TUTTI_OK;
}

static void
test_group__with_leases_goes_with_the_last_of_them(void **state)
{
    static const int32_t ranks[] = {0, 1};
    tutti_error err;

    (void)state;
    assert_ok(create_leased(0, "g", 5, &err));
    assert_ok(create_leased(0, "g", 5, &err)); /* a call that is repeated */
    assert_ok(create_leased(1, "g", 5, &err)); /* the same number, of another agent */
    assert_ok(create_leased(1, "h", 6, &err));
    assert_ok(create(0, "plain", ranks, 2, &err));
    assert_ok(create_leased(1, "plain", 5, &err)); /* the call that made it decides */
    assert_false(release(0, 4));
    assert_false(release(0, 5));
    assert_true(is_there("g"));
    assert_true(release(1, 5));
    assert_false(is_there("g"));
    assert_true(is_there("h") && is_there("plain"));
    assert_false(release(1, 5));
    assert_true(release(1, 6));
    assert_false(is_there("h"));
    assert_true(is_there("plain"));
}

static void
test_group__with_leases_goes_with_the_agents_of_these(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(create_leased(0, "one", 5, &err));
    assert_ok(create_leased(0, "both", 5, &err));
    assert_ok(create_leased(1, "both", 9, &err));
    leave(0);
    come_back(0, 777);
    assert_false(is_there("one")); /* rank 1, a member, lives */
    assert_true(is_there("both"));
    leave(1);
    assert_false(is_there("both"));
}

static void
test_group__keeps_no_more_leases_than_an_agent_may_say(void **state)
{
    tutti_error err;
    uint64_t lease;

    (void)state;
    for (lease = 1; lease <= 1000; lease++) {
        assert_ok(create_leased(0, "g", lease, &err));
    }
    for (lease = 1; lease < 1000; lease++) {
        assert_false(release(0, lease));
    }
    assert_true(is_there("g"));
    assert_true(release(0, 1000));
    assert_false(is_there("g"));
}

static const tutti_coordinator_abort *aborted;
static bool is_new;

static tutti_code
abort_as(uint32_t caller, const char *name, uint64_t id, const char *reason, tutti_error *err)
{
    const tutti_coordinator_abort_request request = {
        .member = member_of(caller), .name = name, .id = id, .reason = reason, .identity = "ann"};

    return tutti_coordinator_group_abort(fix.self, &request, &aborted, &is_new, err);
}

static void
test_group_abort__is_told_once_and_the_first_reason_counts(void **state)
{
    const int32_t ranks[] = {0, 1};
    static line one;
    tutti_error err;

    (void)state;
    line_must_open(&fix, &one, 5);
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_ok(abort_as(1, "g", got.id, "nan", &err));
    assert_true(is_new);
    assert_string_equal(aborted->text, "group g was aborted by rank 1 (ann): nan");
    assert_ok(abort_as(0, "g", 0, "late", &err));
    assert_false(is_new);
    assert_string_equal(aborted->text, "group g was aborted by rank 1 (ann): nan");
    fixture_settle(&fix);
    assert_int_equal(one.event_count, 1);
    assert_int_equal(one.events[0].kind, TUTTI_COORDINATOR_GROUP_ABORTED);
    assert_int_equal(one.events[0].group_id, got.id);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "g", 0, &got, &err));
    assert_int_equal(got.abort->rank, 1);
}

static void
test_group_abort__ends_when_the_group_is_made_anew(void **state)
{
    const int32_t ranks[] = {0, 1};
    static line one;
    tutti_error err;

    (void)state;
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_ok(abort_as(1, "g", 0, NULL, &err));
    assert_string_equal(aborted->text, "group g was aborted by rank 1 (ann): no reason was given");
    assert_ok(remove_group(0, "g", &err));
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_null(got.abort);
    assert_ok(abort_as(1, "g", 0, "again", &err));
    assert_true(is_new);
    line_must_open(&fix, &one, 5); /* its agent asks for groups anew */
}

static void
test_group_abort__of_world_ends_with_its_epoch(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(abort_as(1, NULL, 0, "stop", &err));
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, NULL, 0, &got, &err));
    assert_non_null(got.abort);
    leave(2);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, NULL, 0, &got, &err));
    assert_non_null(got.abort);
    come_back(2, 777);
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, NULL, 0, &got, &err));
    assert_null(got.abort);
    assert_ok(abort_as(1, NULL, 0, "stop again", &err));
    assert_true(is_new);
}

static void
test_group_abort__is_for_members_and_says_what_is_wrong(void **state)
{
    const int32_t ranks[] = {0, 1};
    char reason[258];
    tutti_error err;

    (void)state;
    memset(reason, 'x', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    assert_ok(create(0, "g", ranks, 2, &err));
    assert_fails(abort_as(2, "g", 0, "", &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_IN_GROUP");
    assert_fails(abort_as(0, "g", 99, "", &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_GROUP");
    assert_fails(abort_as(0, "g", 0, reason, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "REASON_LIMIT");
    reason[256] = '\0';
    assert_ok(abort_as(0, "g", 0, reason, &err));
}

static void
test_groups__are_listed_in_order_of_their_names(void **state)
{
    static const char *const names[] = {"tp/1", "dp", "z", "tp/0"};
    static const char *const wanted[] = {"dp", "tp/0", "tp/1", "world", "z"};
    const int32_t ranks[] = {0, 1};
    bool found = false;
    size_t i;
    tutti_error err;

    (void)state;
    for (i = 0; i < COUNT_OF(names); i++) {
        assert_ok(create(0, names[i], ranks, 2, &err));
    }
    got.name = "";
    for (i = 0; i < COUNT_OF(wanted); i++) {
        assert_ok(tutti_coordinator_group_next(fix.self, NULL, got.name, &got, &found, &err));
        assert_true(found);
        assert_string_equal(got.name, wanted[i]);
    }
    assert_ok(tutti_coordinator_group_next(fix.self, NULL, got.name, &got, &found, &err));
    assert_false(found);
    assert_ok(tutti_coordinator_group_next(fix.self, NULL, "e", &got, &found, &err));
    assert_string_equal(got.name, "tp/0");
}

static void
test_groups__end_with_their_job(void **state)
{
    const int32_t ranks[] = {0, 1};
    uint32_t rank;
    tutti_error err;

    (void)state;
    assert_ok(create(0, "g", ranks, 2, &err));
    for (rank = 0; rank < WORLD; rank++) {
        leave(rank);
    }
    form_world(&fix, WORLD);
    assert_fails(tutti_coordinator_group_get(fix.self, NULL, "g", -1, &got, &err), TUTTI_NOT_FOUND);
}

static void
test_group__limits_name_themselves(void **state)
{
    const int32_t ranks[] = {0, 1, 2};
    tutti_coordinator_options options;
    tutti_error err;

    (void)state;
    fixture_close(&fix);
    fixture_options(&options);
    options.group_limit = 3; /* world is one */
    options.member_limit = 4;
    fixture_open(&fix, &options);
    form_world(&fix, WORLD);
    assert_ok(create(0, "a", ranks, 2, &err));
    assert_refused(0, "b", ranks, 3, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT",
                   "--group-members-limit");
    assert_ok(create(0, "b", ranks, 2, &err));
    assert_refused(0, "c", ranks, 1, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT", "--group-limit");
    assert_ok(create(0, "b", ranks, 2, &err)); /* it is there */
    assert_ok(remove_group(0, "a", &err));
    assert_ok(create(0, "c", ranks, 1, &err));
}

static void
test_deleted_groups__of_long_ago_end_the_session_that_has_not_heard_of_them(void **state)
{
    const int32_t ranks[] = {0, 1};
    static line slow;
    static line quick;
    tutti_error err;
    int i;

    (void)state;
    line_must_open(&fix, &slow, 4);
    line_must_open(&fix, &quick, 5);
    slow.stuck = true;
    for (i = 0; i < 1100; i++) {
        assert_ok(create(0, "g", ranks, 2, &err));
        assert_ok(remove_group(0, "g", &err));
        fixture_settle(&fix);
    }
    assert_int_equal(quick.event_count, 1100);
    assert_int_equal(quick.end_count, 0);
    slow.stuck = false;
    fixture_settle(&fix);
    assert_int_equal(slow.end_count, 1);
    assert_string_equal(slow.err.reason, "SLOW_SESSION");
    line_must_open(&fix, &slow, 4); /* within the grace: it goes on with what is remembered */
    assert_int_equal(slow.event_count, 1024);
    fixture_advance(&fix, 2 * SECOND);
    assert_int_equal(quick.event_count, 1100); /* nobody was lost */
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_group__keeps_the_order_of_its_ranks),
        SENTENCE(test_group__asked_for_again_is_the_same),
        SENTENCE(test_group__of_other_ranks_finds_its_name_taken),
        SENTENCE(test_group__of_a_bad_list_is_refused),
        SENTENCE(test_group__with_a_lost_rank_waits_for_its_return),
        SENTENCE(test_group_epoch__is_that_of_its_own_members),
        SENTENCE(test_world__exists_once_the_job_is_formed),
        SENTENCE(test_group_delete__is_for_members_and_not_for_world),
        SENTENCE(test_group_delete__is_told_and_its_id_never_comes_back),
        SENTENCE(test_group__that_is_ephemeral_goes_with_the_last_agent_it_was_made_of),
        SENTENCE(test_group__with_leases_goes_with_the_last_of_them),
        SENTENCE(test_group__with_leases_goes_with_the_agents_of_these),
        SENTENCE(test_group__keeps_no_more_leases_than_an_agent_may_say),
        SENTENCE(test_group_abort__is_told_once_and_the_first_reason_counts),
        SENTENCE(test_group_abort__ends_when_the_group_is_made_anew),
        SENTENCE(test_group_abort__of_world_ends_with_its_epoch),
        SENTENCE(test_group_abort__is_for_members_and_says_what_is_wrong),
        SENTENCE(test_groups__are_listed_in_order_of_their_names),
        SENTENCE(test_groups__end_with_their_job),
        SENTENCE(test_group__limits_name_themselves),
        SENTENCE(test_deleted_groups__of_long_ago_end_the_session_that_has_not_heard_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
