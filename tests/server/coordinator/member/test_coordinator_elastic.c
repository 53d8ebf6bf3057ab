/*
 * Goal: a job that needs fewer ranks than it has seats begins and goes on with those that are
 * there. Method: a coordinator with a clock we turn.
 */
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/members.h"
#include "support/testing.h"

static joiner joiners[4];

/* One of four seats, of which two are needed. */
static tutti_code
come(uint32_t place, uint64_t id, uint32_t min_world, tutti_error *err)
{
    tutti_coordinator_join_request request = join_request(NULL, 4, ANY_RANK, id);

    request.min_world_size = min_world;
    return joiner_start(&fix, &joiners[place], &request, err);
}

static void
must_come(uint32_t place, uint64_t id)
{
    tutti_error err;

    assert_ok(come(place, id, 2, &err));
    fixture_settle(&fix);
}

static void
begin_with_two(void)
{
    must_come(0, 100);
    must_come(1, 101);
    fixture_advance(&fix, 4 * SECOND);
    assert_int_equal(joiners[0].answer_count, 1);
    assert_false(joiners[0].failed);
}

static tutti_coordinator_group
world(void)
{
    tutti_coordinator_group group;
    tutti_error err;

    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "world", -1, &group, &err));
    return group;
}

static void
lose(uint32_t rank, uint64_t incarnation)
{
    const tutti_coordinator_member member = {
        .job = "default", .rank = rank, .incarnation = incarnation};
    tutti_error err;

    assert_ok(tutti_coordinator_leave(fix.self, &member, "done", &err));
    fixture_settle(&fix);
}

static void
test_elastic__begins_when_enough_are_there_and_nobody_comes(void **state)
{
    (void)state;
    must_come(0, 100);
    fixture_advance(&fix, 10 * SECOND);
    assert_int_equal(joiners[0].answer_count, 0);
    must_come(1, 101);
    assert_int_equal(joiners[0].answer_count, 0);
    fixture_advance(&fix, 4 * SECOND);
    assert_int_equal(joiners[0].answer_count, 1);
    assert_int_equal(joiners[1].seat.rank, 1);
    assert_int_equal(joiners[1].seat.min_world_size, 2);
    assert_int_equal(world().count, 2);
}

static void
test_elastic__begins_at_once_when_all_are_there(void **state)
{
    uint32_t i;

    (void)state;
    for (i = 0; i < 4; i++) {
        must_come(i, 100 + i);
    }
    assert_int_equal(joiners[3].answer_count, 1);
    assert_int_equal(world().count, 4);
}

static void
test_elastic__gives_newcomers_free_seats_and_the_world_another_id(void **state)
{
    uint64_t id;

    (void)state;
    begin_with_two();
    id = world().id;
    must_come(2, 102);
    assert_int_equal(joiners[2].seat.rank, 2);
    assert_int_equal(joiners[2].seat.epoch, 2);
    assert_int_equal(world().count, 3);
    assert_int_not_equal(world().id, id);
    assert_int_equal(world().epoch, 2);
    lose(0, 100);
    assert_int_equal(world().count, 2);
    assert_int_equal(world().ranks[0], 1);
    must_come(3, 103);
    assert_int_equal(joiners[3].seat.rank, 0);
}

static void
test_elastic__keeps_the_world_when_too_few_are_left(void **state)
{
    uint64_t id;

    (void)state;
    begin_with_two();
    id = world().id;
    lose(1, 101);
    assert_int_equal(world().count, 2);
    assert_int_equal(world().id, id);
    must_come(2, 102);
    assert_int_equal(joiners[2].seat.rank, 1);
    assert_int_not_equal(world().id, id);
}

static void
test_elastic__outlives_the_process(void **state)
{
    uint64_t id;

    (void)state;
    begin_with_two();
    must_come(2, 102);
    lose(1, 101);
    id = world().id;
    fixture_restart(&fix);
    assert_int_equal(world().id, id);
    assert_int_equal(world().count, 2);
    assert_int_equal(world().ranks[1], 2);
    must_come(3, 103);
    assert_int_equal(joiners[3].seat.rank, 1);
    assert_true(world().id > id);
}

static void
test_elastic__needs_all_to_want_the_same(void **state)
{
    tutti_error err;

    (void)state;
    assert_fails(come(0, 99, 5, &err), TUTTI_INVALID_ARGUMENT);
    must_come(0, 100);
    assert_fails(come(1, 101, 3, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "WORLD_SIZE");
    assert_fails(come(1, 101, 0, &err), TUTTI_INVALID_ARGUMENT);
}

#define SENTENCE(function)                                                                         \
    cmocka_unit_test_setup_teardown(function, fixture_begin_durable, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_elastic__begins_when_enough_are_there_and_nobody_comes),
        SENTENCE(test_elastic__begins_at_once_when_all_are_there),
        SENTENCE(test_elastic__gives_newcomers_free_seats_and_the_world_another_id),
        SENTENCE(test_elastic__keeps_the_world_when_too_few_are_left),
        SENTENCE(test_elastic__outlives_the_process),
        SENTENCE(test_elastic__needs_all_to_want_the_same),
    };

    return cmocka_run_group_tests_name("coordinator/elastic", tests, NULL, NULL);
}
