/*
 * Goal: a tag and its ranks are one group; without tag and name the k-th calls of all members meet
 * in the k-th group.
 * Method: a formed world of a coordinator with a clock we turn.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/members.h"
#include "support/testing.h"

#define WORLD 4

static tutti_coordinator_group got;
static bool created;
static const int32_t pair[] = {0, 1};
static const int32_t swapped[] = {1, 0};

static int
begin(void **state)
{
    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, WORLD);
    return 0;
}

static tutti_coordinator_group_request
request_of(uint32_t caller, const int32_t ranks[2])
{
    return (tutti_coordinator_group_request){
        .member = member_of(caller), .ranks = ranks, .count = 2};
}

/* The id of the group of a call without name and tag. */
static uint64_t
turn_of(uint32_t caller, const int32_t ranks[2])
{
    const tutti_coordinator_group_request request = request_of(caller, ranks);
    tutti_error err;

    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    return got.id;
}

static uint64_t
tagged(uint32_t caller, const int32_t ranks[2], const char *tag)
{
    tutti_coordinator_group_request request = request_of(caller, ranks);
    tutti_error err;

    request.tag = tag;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_string_equal(got.tag, tag);
    return got.id;
}

static void
assert_refused(const tutti_coordinator_group_request *request, tutti_code code, const char *reason,
               const char *text)
{
    tutti_error err;

    assert_fails(tutti_coordinator_group_create(fix.self, request, &got, &created, &err), code);
    assert_string_equal(err.reason, reason);
    assert_text_has(err.text, text);
}

static void
delete_group(uint32_t caller, const char *name, uint64_t id)
{
    const tutti_coordinator_group_end request = {
        .member = member_of(caller), .name = name, .id = id};
    bool deleted = false;
    tutti_error err;

    assert_ok(tutti_coordinator_group_delete(fix.self, &request, &deleted, &err));
    assert_true(deleted);
}

static void
come_back(uint32_t rank, uint64_t incarnation)
{
    const tutti_coordinator_member member = member_of(rank);
    joiner one;
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, "test", &err));
    joiner_must_start(&fix, &one, WORLD, rank, incarnation);
    fixture_settle(&fix);
    assert_false(one.failed);
}

/* ------------------------------------------------------------------------------ tags */

static void
test_tag__and_ranks_are_one_group(void **state)
{
    uint64_t id;

    (void)state;
    id = tagged(0, pair, "blu");
    assert_true(created);
    assert_int_equal(tagged(1, pair, "blu"), id);
    assert_false(created);
    assert_int_equal(got.rank, 1);
    assert_int_equal(tagged(0, pair, "blu"), id);
    assert_int_not_equal(tagged(0, pair, "red"), id);
    assert_int_not_equal(tagged(0, swapped, "blu"), id);
    assert_int_not_equal(turn_of(0, pair), id);
}

static void
test_tag__of_a_deleted_group_makes_another(void **state)
{
    uint64_t id;
    char name[128];

    (void)state;
    id = tagged(0, pair, "blu");
    (void)snprintf(name, sizeof(name), "%s", got.name);
    delete_group(1, name, 0);
    assert_int_not_equal(tagged(0, pair, "blu"), id);
    assert_true(created);
}

static void
test_tag__goes_with_one_name(void **state)
{
    tutti_coordinator_group_request request = request_of(0, pair);
    tutti_error err;

    (void)state;
    request.name = "g";
    request.tag = "blu";
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_false(created);
    assert_int_equal(tagged(1, pair, "blu"), got.id);
    request.name = "h";
    assert_refused(&request, TUTTI_ALREADY_EXISTS, "NAME_TAKEN",
                   "group g exists already, with ranks 0, 1, "
                   "tag blu");
    request.name = "g";
    request.tag = "red";
    assert_refused(&request, TUTTI_ALREADY_EXISTS, "NAME_TAKEN", "tag blu");
    request.tag = "";
    assert_refused(&request, TUTTI_ALREADY_EXISTS, "NAME_TAKEN", "tag blu");
    request.tag = "a b";
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "tag name \"a b\"");
}

/* ------------------------------------------------------------------------------ turns */

static void
test_turns__of_all_members_meet_in_order(void **state)
{
    uint64_t first;
    uint64_t second;

    (void)state;
    first = turn_of(0, pair);
    second = turn_of(0, pair);
    assert_int_not_equal(first, second);
    assert_true(created);
    assert_int_equal(turn_of(1, pair), first);
    assert_false(created);
    assert_int_equal(turn_of(1, pair), second);
    assert_int_not_equal(turn_of(1, swapped), first);
    assert_int_not_equal(turn_of(0, swapped), second);
    assert_false(created);
}

static void
test_turns__have_names_that_serve_like_any_other(void **state)
{
    tutti_coordinator_group found;
    char name[128];
    tutti_error err;

    (void)state;
    (void)turn_of(0, pair);
    (void)snprintf(name, sizeof(name), "%s", got.name);
    assert_text_has(name, "unnamed/");
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, name, 3, &found, &err));
    assert_int_equal(found.id, got.id);
    assert_int_equal(found.rank, -1);
}

static void
test_turns__never_take_a_name_that_is_taken(void **state)
{
    tutti_coordinator_group_request request = request_of(0, pair);
    char name[64];
    uint64_t id;
    tutti_error err;

    (void)state;
    (void)snprintf(name, sizeof(name), "unnamed/%u", (unsigned)turn_of(0, pair) + 2);
    request.name = name;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    id = got.id;
    assert_int_not_equal(turn_of(0, pair), id);
    assert_string_not_equal(got.name, name);
}

static void
test_turn__repeated_with_its_token_is_the_same(void **state)
{
    tutti_coordinator_group_request request = request_of(0, pair);
    uint64_t id;
    tutti_error err;

    (void)state;
    request.token = 7;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    id = got.id;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_int_equal(got.id, id);
    request.token = 8;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_int_not_equal(got.id, id);
    assert_int_equal(turn_of(1, pair), id);
}

static void
test_turn__of_a_deleted_group_fails_and_counts(void **state)
{
    const tutti_coordinator_group_request request = request_of(1, pair);
    char name[128];
    uint64_t second;

    (void)state;
    (void)turn_of(0, pair);
    (void)snprintf(name, sizeof(name), "%s", got.name);
    delete_group(0, name, 0);
    second = turn_of(0, pair);
    assert_refused(&request, TUTTI_NOT_FOUND, "NO_GROUP", "before rank 1 asked");
    assert_int_equal(turn_of(1, pair), second);
}

static void
test_turns__of_a_fresh_process_begin_again(void **state)
{
    tutti_coordinator_group_request request = request_of(1, pair);
    uint64_t first;
    uint64_t second;
    tutti_error err;

    (void)state;
    first = turn_of(0, pair);
    second = turn_of(0, pair);
    assert_int_equal(turn_of(1, pair), first);
    come_back(1, 501);
    request.member.incarnation = 501;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_int_equal(got.id, first);
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &created, &err));
    assert_int_equal(got.id, second);
}

static void
test_turns__refused_for_a_lost_rank_do_not_count(void **state)
{
    const tutti_coordinator_group_request request = request_of(0, pair);
    const tutti_coordinator_member member = member_of(1);
    joiner one;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_leave(fix.self, &member, "test", &err));
    assert_refused(&request, TUTTI_UNAVAILABLE, "RANK_LOST", "rank 1");
    joiner_must_start(&fix, &one, WORLD, 1, 501);
    fixture_settle(&fix);
    (void)turn_of(0, pair);
    assert_true(created);
}

static void
test_turns__of_deleted_groups_count_against_the_limit_until_all_had_them(void **state)
{
    tutti_coordinator_options options;
    tutti_coordinator_group_request request = request_of(0, pair);
    char name[128];

    (void)state;
    fixture_close(&fix);
    fixture_options(&options);
    options.member_limit = 4;
    fixture_open(&fix, &options);
    form_world(&fix, WORLD);
    (void)turn_of(0, pair);
    (void)snprintf(name, sizeof(name), "%s", got.name);
    delete_group(0, name, 0);
    request.ranks = swapped; /* two that remember, two of the group, none of the pair's */
    assert_refused(&request, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT", "--group-members-limit");
    request = request_of(1, pair);
    assert_refused(&request, TUTTI_NOT_FOUND, "NO_GROUP", "deleted");
    (void)turn_of(0, swapped);
    assert_true(created);
}

/* ------------------------------------------------------------------------------ deletion */

static void
test_group_delete__by_all_members_is_fine_when_they_say_so(void **state)
{
    tutti_coordinator_group_end request = {
        .member = member_of(1), .name = "g", .allow_missing = true};
    tutti_coordinator_group_request group = request_of(0, pair);
    bool deleted = true;
    tutti_error err;

    (void)state;
    group.name = "g";
    assert_ok(tutti_coordinator_group_create(fix.self, &group, &got, &created, &err));
    request.id = got.id;
    delete_group(0, "g", got.id);
    assert_ok(tutti_coordinator_group_delete(fix.self, &request, &deleted, &err));
    assert_false(deleted);
    assert_ok(tutti_coordinator_group_create(fix.self, &group, &got, &created, &err));
    assert_ok(tutti_coordinator_group_delete(fix.self, &request, &deleted, &err));
    assert_false(deleted); /* another one by now */
    request.allow_missing = false;
    assert_fails(tutti_coordinator_group_delete(fix.self, &request, &deleted, &err),
                 TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_GROUP");
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_tag__and_ranks_are_one_group),
        SENTENCE(test_tag__of_a_deleted_group_makes_another),
        SENTENCE(test_tag__goes_with_one_name),
        SENTENCE(test_turns__of_all_members_meet_in_order),
        SENTENCE(test_turns__have_names_that_serve_like_any_other),
        SENTENCE(test_turns__never_take_a_name_that_is_taken),
        SENTENCE(test_turn__repeated_with_its_token_is_the_same),
        SENTENCE(test_turn__of_a_deleted_group_fails_and_counts),
        SENTENCE(test_turns__of_a_fresh_process_begin_again),
        SENTENCE(test_turns__refused_for_a_lost_rank_do_not_count),
        SENTENCE(test_turns__of_deleted_groups_count_against_the_limit_until_all_had_them),
        SENTENCE(test_group_delete__by_all_members_is_fine_when_they_say_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
