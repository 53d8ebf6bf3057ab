/*
 * Goal: the survivors of a group agree on one list, whoever dies, is late or calls twice meanwhile.
 * Method: a formed world of a coordinator with a clock we turn.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/members.h"
#include "support/testing.h"
#include "tutti/types.h"

#define WORLD 5

typedef struct caller {
    tutti_coordinator_shrink call;
    int answer_count;
    bool failed;
    tutti_error err;
    uint64_t id;
    char name[TUTTI_NAME_MAX + 1];
    uint32_t ranks[WORLD];
    uint32_t count;
    int64_t rank;
    char left_out[256];
} caller;

static caller callers[WORLD];

static int
begin(void **state)
{
    static const int32_t ranks[] = {4, 0, 1, 2};
    const tutti_coordinator_group_request request = {.name = "g", .ranks = ranks, .count = 4};
    tutti_coordinator_group_request mine = request;
    tutti_coordinator_group got;
    bool created;
    tutti_error err;

    (void)state;
    memset(callers, 0, sizeof(callers));
    fixture_open(&fix, NULL);
    form_world(&fix, WORLD);
    mine.member = member_of(0);
    assert_ok(tutti_coordinator_group_create(fix.self, &mine, &got, &created, &err));
    return 0;
}

static void
on_answer(tutti_coordinator_shrink *call, const tutti_coordinator_shrunk *shrunk,
          const tutti_error *err)
{
    caller *self = tutti_container_of(call, caller, call);

    self->answer_count++;
    self->failed = err != NULL;
    if (err != NULL) {
        self->err = *err;
        return;
    }
    self->id = shrunk->group.id;
    self->count = shrunk->group.count;
    self->rank = shrunk->group.rank;
    (void)snprintf(self->name, sizeof(self->name), "%s", shrunk->group.name);
    (void)snprintf(self->left_out, sizeof(self->left_out), "%s", shrunk->left_out);
    memcpy(self->ranks, shrunk->group.ranks, self->count * sizeof(*self->ranks));
}

static tutti_code
shrink(uint32_t rank, const char *name, uint64_t wait_ns, tutti_error *err)
{
    const tutti_coordinator_shrink_request request = {
        .member = member_of(rank), .name = name, .deadline_ns = fix.now_ns + wait_ns};

    callers[rank] = (caller){.call.on_answer = on_answer};
    return tutti_coordinator_shrink_start(fix.self, &request, &callers[rank].call, err);
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
assert_got(uint32_t rank, const char *name, const uint32_t *ranks, uint32_t count)
{
    const caller *one = &callers[rank];

    assert_int_equal(one->answer_count, 1);
    if (one->failed) {
        fail_msg("rank %u: %s", rank, one->err.text);
    }
    assert_string_equal(one->name, name);
    assert_int_equal(one->count, count);
    assert_memory_equal(one->ranks, ranks, count * sizeof(*ranks));
    assert_int_equal(ranks[one->rank], rank);
}

static void
assert_reason(uint32_t rank, const char *reason)
{
    assert_int_equal(callers[rank].answer_count, 1);
    assert_true(callers[rank].failed);
    assert_string_equal(callers[rank].err.reason, reason);
}

static void
test_shrink__ends_when_all_that_are_alive_have_called(void **state)
{
    static const uint32_t left[] = {4, 0, 2};
    tutti_coordinator_group old;
    tutti_error err;

    (void)state;
    leave(1);
    assert_ok(shrink(0, "g", SECOND, &err));
    assert_ok(shrink(2, "g", SECOND, &err));
    fixture_settle(&fix);
    assert_int_equal(callers[0].answer_count, 0);
    assert_ok(shrink(4, "g", SECOND, &err));
    assert_int_equal(callers[4].answer_count, 0);
    fixture_settle(&fix);
    assert_got(0, "g.2", left, 3);
    assert_got(2, "g.2", left, 3);
    assert_got(4, "g.2", left, 3);
    assert_int_equal(callers[0].id, callers[4].id);
    assert_string_equal(callers[0].left_out, "rank 1 is lost: left: test");
    assert_ok(tutti_coordinator_group_get(fix.self, NULL, "g", 0, &old, &err));
    assert_string_equal(old.abort->text, "group g was aborted by rank 0: it was shrunk to g.2");
}

static bool
is_there(const char *name)
{
    tutti_coordinator_group got;
    tutti_error err;

    return tutti_coordinator_group_get(fix.self, NULL, name, 0, &got, &err) == TUTTI_OK;
}

/* What is left of a group goes as the group would. */
static void
test_shrink__gives_a_group_that_ends_with_the_leases_of_its_members(void **state)
{
    static const int32_t ranks[] = {0, 1, 2};
    tutti_coordinator_group_request request = {
        .member = member_of(0), .name = "e", .ranks = ranks, .count = 3, .lease = 7};
    tutti_coordinator_member member = member_of(0);
    tutti_coordinator_group got;
    bool flag;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &flag, &err));
    request.member = member_of(1);
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &got, &flag, &err));
    leave(1);
    assert_ok(shrink(0, "e", SECOND, &err));
    assert_ok(shrink(2, "e", SECOND, &err));
    fixture_settle(&fix);
    assert_string_equal(callers[0].name, "e.2");
    assert_true(is_there("e") && is_there("e.2"));
    assert_ok(tutti_coordinator_group_release(fix.self, &member, 7, &flag, &err));
    assert_true(flag && !is_there("e") && !is_there("e.2"));
}

static void
test_shrink__leaves_out_who_does_not_call_in_time(void **state)
{
    static const uint32_t left[] = {0, 2};
    tutti_error err;

    (void)state;
    assert_ok(shrink(0, "g", SECOND, &err));
    assert_ok(shrink(2, "g", 5 * SECOND, &err));
    fixture_advance(&fix, SECOND - MS);
    assert_int_equal(callers[0].answer_count, 0);
    fixture_advance(&fix, MS);
    assert_got(0, "g.2", left, 2);
    assert_got(2, "g.2", left, 2);
    assert_string_equal(callers[0].left_out, "rank 4 did not call within 1000 ms; rank 1 did not "
                                             "call within 1000 ms");
    assert_ok(shrink(1, "g", SECOND, &err));
    fixture_settle(&fix);
    assert_reason(1, "SHRUNK_WITHOUT");
    assert_text_has(callers[1].err.text, "group g was shrunk to g.2 with ranks 0, 2");
}

static void
test_shrink__asked_again_gives_the_same(void **state)
{
    static const uint32_t left[] = {0};
    uint64_t id;
    tutti_error err;

    (void)state;
    assert_ok(shrink(0, "g", MS, &err));
    fixture_advance(&fix, MS);
    assert_got(0, "g.2", left, 1);
    id = callers[0].id;
    assert_ok(shrink(0, "g", SECOND, &err));
    fixture_settle(&fix);
    assert_got(0, "g.2", left, 1);
    assert_int_equal(callers[0].id, id);
    assert_ok(shrink(0, "g.2", SECOND, &err));
    fixture_settle(&fix);
    assert_got(0, "g.3", left, 1);
}

static void
test_shrink__goes_on_when_a_caller_dies(void **state)
{
    static const uint32_t left[] = {4, 2};
    tutti_error err;

    (void)state;
    assert_ok(shrink(0, "g", SECOND, &err));
    assert_ok(shrink(4, "g", SECOND, &err));
    assert_ok(shrink(2, "g", SECOND, &err));
    leave(0);
    assert_reason(0, "RANK_LOST");
    leave(1);
    assert_got(4, "g.2", left, 2);
    assert_got(2, "g.2", left, 2);
}

static void
test_shrink__counts_no_call_that_was_withdrawn(void **state)
{
    static const uint32_t left[] = {4, 0, 1};
    tutti_error err;

    (void)state;
    assert_ok(shrink(2, "g", SECOND, &err));
    tutti_coordinator_shrink_withdraw(&callers[2].call); /* the round goes with it */
    assert_ok(shrink(0, "g", SECOND, &err));
    assert_ok(shrink(2, "g", SECOND, &err));
    assert_ok(shrink(4, "g", SECOND, &err));
    tutti_coordinator_shrink_withdraw(&callers[2].call);
    assert_ok(shrink(1, "g", SECOND, &err));
    fixture_advance(&fix, SECOND);
    assert_got(0, "g.2", left, 3);
    assert_int_equal(callers[2].answer_count, 0);
}

static void
test_shrink__of_one_rank_twice_answers_the_second_call(void **state)
{
    static caller first;
    const tutti_coordinator_shrink_request request = {
        .member = member_of(0), .name = "g", .deadline_ns = fix.now_ns + SECOND};
    static const uint32_t left[] = {0};
    tutti_error err;

    (void)state;
    first = (caller){.call.on_answer = on_answer};
    assert_ok(tutti_coordinator_shrink_start(fix.self, &request, &first.call, &err));
    assert_ok(shrink(0, "g", SECOND, &err));
    assert_int_equal(first.answer_count, 1);
    assert_string_equal(first.err.reason, "SUPERSEDED");
    fixture_advance(&fix, SECOND);
    assert_got(0, "g.2", left, 1);
}

static void
test_shrink__ends_with_its_group(void **state)
{
    const tutti_coordinator_group_end end = {.member = member_of(0), .name = "g"};
    bool deleted;
    tutti_error err;

    (void)state;
    assert_ok(shrink(0, "g", SECOND, &err));
    assert_ok(tutti_coordinator_group_delete(fix.self, &end, &deleted, &err));
    fixture_settle(&fix);
    assert_reason(0, "NO_GROUP");
}

static void
test_shrink__of_world_is_over_when_a_rank_comes_back(void **state)
{
    static const uint32_t left[] = {0, 1, 2, 3};
    joiner one;
    uint32_t i;
    tutti_error err;

    (void)state;
    leave(4);
    for (i = 0; i < 4; i++) {
        assert_ok(shrink(i, NULL, SECOND, &err));
    }
    fixture_settle(&fix);
    assert_got(3, "world.2", left, 4);
    joiner_must_start(&fix, &one, WORLD, 4, 777);
    fixture_settle(&fix);
    assert_ok(shrink(0, NULL, MS, &err));
    fixture_advance(&fix, MS);
    assert_got(0, "world.3", left, 1);
}

static void
test_shrink__says_what_is_wrong(void **state)
{
    tutti_error err;

    (void)state;
    assert_fails(shrink(3, "g", SECOND, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_IN_GROUP");
    assert_fails(shrink(0, "none", SECOND, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_GROUP");
    assert_ok(shrink(0, "g", SECOND, &err)); /* still waits when the fixture is closed */
}

#define SENTENCE(test) cmocka_unit_test_setup_teardown(test, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_shrink__ends_when_all_that_are_alive_have_called),
        SENTENCE(test_shrink__gives_a_group_that_ends_with_the_leases_of_its_members),
        SENTENCE(test_shrink__leaves_out_who_does_not_call_in_time),
        SENTENCE(test_shrink__asked_again_gives_the_same),
        SENTENCE(test_shrink__goes_on_when_a_caller_dies),
        SENTENCE(test_shrink__counts_no_call_that_was_withdrawn),
        SENTENCE(test_shrink__of_one_rank_twice_answers_the_second_call),
        SENTENCE(test_shrink__ends_with_its_group),
        SENTENCE(test_shrink__of_world_is_over_when_a_rank_comes_back),
        SENTENCE(test_shrink__says_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
