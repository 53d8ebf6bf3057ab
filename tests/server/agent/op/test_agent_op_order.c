/*
 * Goal: ops of a group begin on every rank in the order of the calls, whatever happens to one of
 * them; who is in a group is learnt from the coordinator, and changes when the coordinator says so.
 * Method: agents of one process; the test is their callers, their coordinator and their clock.
 */
#include <sched.h>

#include "base/os/clock.h"
#include "server/agent/op/agent_rig.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/group.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "support/testing.h"

static const double ones[] = {1, 1};
static const double twos[] = {2, 2};

static bool
is_answered(const rig_call *call)
{
    return atomic_load(&call->call.answered);
}

/* A barrier on the rank, in the group ("" = world). */
static rig_call *
begin_barrier(agent_rig *rig, uint32_t rank, const char *group)
{
    agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);

    request.group = group;
    return agent_rig_begin(rig, rank, &request);
}

static rig_call *
begin_timed_barrier(agent_rig *rig, uint32_t rank, uint32_t timeout_ms)
{
    agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);

    request.options.timeout_ms = timeout_ms;
    return agent_rig_begin(rig, rank, &request);
}

/* All ranks from `first` on; all end well, with that number in the group. */
static void
run_barriers(agent_rig *rig, uint32_t first, const char *group, uint64_t sequence)
{
    rig_call *calls[RIG_AGENTS_MAX];
    uint32_t i;

    for (i = first; i < rig->size; i++) {
        calls[i] = begin_barrier(rig, i, group);
    }
    for (i = first; i < rig->size; i++) {
        agent_rig_end_well(rig, calls[i]);
        assert_int_equal(calls[i]->result.sequence, sequence);
    }
}

/* ------------------------------------------------------------------------------ the coordinator */

static void
test_group__is_asked_for_once(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[4];
    uint32_t i;

    rig->coordinator.holds = true;
    for (i = 0; i < 4; i++) {
        calls[i] = begin_barrier(rig, i % 2, "");
    }
    (void)agent_rig_run(rig);
    assert_int_equal(rig->coordinator.channel.count, 2); /* once by each rank */
    rig->coordinator.holds = false;
    for (i = 0; i < 4; i++) {
        agent_rig_end_well(rig, calls[i]);
        assert_int_equal(calls[i]->result.sequence, 1 + i / 2);
    }
    run_barriers(rig, 0, "", 3);
    assert_int_equal(rig->coordinator.channel.count, 2); /* and not again */
}

static void
test_group__that_is_unknown_is_asked_for_again_by_the_next_op(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    rig_call *call = begin_barrier(rig, 0, "later");

    agent_rig_end_failed(rig, call, TUTTI_NOT_FOUND, "NO_GROUP");
    (void)fake_coordinator_group(&rig->coordinator, "later", ranks, 2);
    run_barriers(rig, 0, "later", 1); /* nobody counted the one that failed */
}

static void
test_group__is_asked_for_again_while_the_coordinator_is_away(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[2];
    unsigned asked;
    uint32_t i;

    (void)TUTTI_FAIL(&rig->coordinator.refuses, TUTTI_UNAVAILABLE, "nobody listens");
    for (i = 0; i < 2; i++) {
        calls[i] = begin_barrier(rig, i, "");
    }
    (void)agent_rig_run(rig);
    asked = rig->coordinator.channel.count;
    agent_rig_step(rig, TUTTI_NS_PER_S);
    assert_true(rig->coordinator.channel.count > asked);
    assert_false(is_answered(calls[0]) || is_answered(calls[1]));
    rig->coordinator.refuses.code = TUTTI_OK;
    agent_rig_step(rig, TUTTI_NS_PER_S);
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
    }
}

static void
test_group__that_is_refused_fails_its_ops_with_the_coordinators_words(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[2];
    uint32_t i;

    (void)TUTTI_FAIL_FOR(&rig->coordinator.refuses, TUTTI_PERMISSION_DENIED, "NOT_ALLOWED",
                         "group world is not for you");
    for (i = 0; i < 2; i++) {
        calls[i] = begin_barrier(rig, 0, "");
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_failed(rig, calls[i], TUTTI_PERMISSION_DENIED, "NOT_ALLOWED");
        assert_string_equal(calls[i]->call.err.text, "group world is not for you");
    }
}

static void
test_group__that_is_not_told_in_time_fails_its_op_with_a_timeout(void **state)
{
    agent_rig *rig = *state;
    rig_call *call;

    rig->coordinator.holds = true;
    call = begin_timed_barrier(rig, 0, 1000);
    agent_rig_step(rig, TUTTI_NS_PER_S / 2);
    assert_false(is_answered(call));
    agent_rig_step(rig, TUTTI_NS_PER_S);
    agent_rig_end_failed(rig, call, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_text_has(call->call.err.text, "coordinator");
    assert_string_equal(call->call.err.group, "world");
}

static void
test_group__may_be_told_as_spans_of_ranks(void **state)
{
    agent_rig *rig = *state;

    rig->coordinator.answers_spans = true;
    run_barriers(rig, 0, "", 1);
}

static void
test_group__answers_without_ranks_are_an_error_of_the_coordinator(void **state)
{
    agent_rig *rig = *state;
    rig_call *call;

    rig->coordinator.answers_nothing = true;
    call = begin_barrier(rig, 0, "");
    assert_fails(agent_rig_end(rig, call), TUTTI_INTERNAL);
    assert_text_has(call->call.err.text, "the coordinator's answer has no group");
}

static void
test_group__is_only_for_its_members(void **state)
{
    static const uint32_t ranks[] = {1};
    agent_rig *rig = *state;

    (void)fake_coordinator_group(&rig->coordinator, "one", ranks, 1);
    agent_rig_end_failed(rig, begin_barrier(rig, 0, "one"), TUTTI_FAILED_PRECONDITION,
                         "NOT_IN_GROUP");
    agent_rig_end_well(rig, begin_barrier(rig, 1, "one"));
}

static void
test_group__cannot_be_asked_for_without_memory(void **state)
{
    agent_rig *rig = *state;

    rig->coordinator.channel.broken = true;
    assert_fails(agent_rig_end(rig, begin_barrier(rig, 0, "")), TUTTI_RESOURCE_EXHAUSTED);
    rig->coordinator.channel.broken = false;
    run_barriers(rig, 0, "", 1);
}

/* ------------------------------------------------------------------------------ order */

/* A rank's first op waits for its tensor; its second one would be another op to the others. */
static void
test_op__waits_for_those_that_came_before_it_in_its_group(void **state)
{
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *first[2];
    rig_call *second[2];
    rig_lock lock;
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
    }
    agent_rig_write(rig, 0, tensors[0], &lock);
    for (i = 0; i < 2; i++) {
        reduce = rig_all_reduce(tensors[i]);
        first[i] = agent_rig_begin(rig, i, &reduce);
        second[i] = begin_barrier(rig, i, "");
    }
    agent_rig_step(rig, TUTTI_NS_PER_S);
    for (i = 0; i < 2; i++) {
        assert_false(is_answered(first[i]) || is_answered(second[i]));
    }
    rig_lock_end(&lock);
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, first[i]);
        agent_rig_end_well(rig, second[i]);
        assert_int_equal(first[i]->result.sequence, 1);
        assert_int_equal(second[i]->result.sequence, 2);
        agent_rig_check(rig, i, first[i]->result.handle, twos, 2);
    }
}

static void
test_op__does_not_wait_for_those_of_other_groups(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *held[2];
    rig_lock lock;
    uint32_t i;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
    }
    agent_rig_write(rig, 0, tensors[0], &lock);
    for (i = 0; i < 2; i++) {
        reduce = rig_all_reduce(tensors[i]);
        held[i] = agent_rig_begin(rig, i, &reduce);
    }
    run_barriers(rig, 0, "pair", 1);
    assert_false(is_answered(held[0]) || is_answered(held[1]));
    rig_lock_end(&lock);
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, held[i]);
    }
}

/* The result of one op is the input of the next, before there is one. */
static void
test_op__may_name_the_result_of_one_that_still_runs(void **state)
{
    const double fours[] = {4, 4};
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    char work_results[2][RIG_HANDLE_SIZE];
    rig_call *calls[2];
    agent_request request;
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
        request = rig_all_reduce(tensors[i]);
        request.options.async = true;
        calls[i] = agent_rig_begin(rig, i, &request);
        memcpy(work_results[i], calls[i]->result.handle, RIG_HANDLE_SIZE);
        request = rig_all_reduce(work_results[i]);
        calls[i] = agent_rig_begin(rig, i, &request);
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
        agent_rig_check(rig, i, calls[i]->result.handle, fours, 2);
    }
}

static void
test_op__with_a_number_runs_as_that_number_or_not_at_all(void **state)
{
    agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    agent_rig *rig = *state;

    request.options.sequence = 2;
    agent_rig_end_failed(rig, agent_rig_begin(rig, 0, &request), TUTTI_FAILED_PRECONDITION,
                         "OUT_OF_SEQUENCE");
    run_barriers(rig, 0, "", 1); /* it took no place */
    request.options.sequence = 1;
    agent_rig_end_failed(rig, agent_rig_begin(rig, 0, &request), TUTTI_FAILED_PRECONDITION,
                         "OUT_OF_SEQUENCE");
    run_barriers(rig, 0, "", 2);
}

/* ------------------------------------------------------------------------------ deadlines */

/* The op of rank 0 waits for its tensor until its time is up; then everybody hears of it. */
static void
test_op__whose_time_is_up_in_line_keeps_its_place(void **state)
{
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *calls[2];
    rig_call *behind;
    rig_lock lock;
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
    }
    agent_rig_write(rig, 0, tensors[0], &lock);
    for (i = 0; i < 2; i++) {
        reduce = rig_all_reduce(tensors[i]);
        reduce.options.timeout_ms = i == 0 ? 1000 : 0;
        calls[i] = agent_rig_begin(rig, i, &reduce);
    }
    behind = begin_timed_barrier(rig, 0, 1000);
    (void)agent_rig_run(rig);
    agent_rig_step(rig, 2 * TUTTI_NS_PER_S);
    agent_rig_end_failed(rig, calls[0], TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_text_has(calls[0]->call.err.text, "its tensors are in use");
    assert_int_equal(calls[0]->call.err.sequence, 1);
    agent_rig_end_failed(rig, behind, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_text_has(behind->call.err.text, "an earlier op");
    assert_false(is_answered(calls[1])); /* rank 0 has not come to it yet */
    rig_lock_end(&lock);
    agent_rig_end_failed(rig, calls[1], TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_int_equal(calls[1]->call.err.rank, 0);
    agent_rig_end_failed(rig, begin_barrier(rig, 1, ""), TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    run_barriers(rig, 0, "", 3);
}

static void
test_op__times_out_when_a_rank_does_not_call(void **state)
{
    agent_rig *rig = *state;
    rig_call *call = begin_timed_barrier(rig, 0, 1000);

    (void)agent_rig_run(rig);
    agent_rig_step(rig, TUTTI_NS_PER_S / 2);
    assert_false(is_answered(call));
    agent_rig_end_in_time(rig, call);
    agent_rig_end_failed(rig, call, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_text_has(call->call.err.text, "rank 1");
}

/* ------------------------------------------------------------------------------ callers that go */

static void
test_op__of_a_caller_who_is_gone_is_refused_when_its_turn_comes(void **state)
{
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *calls[2];
    rig_lock lock;
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
    }
    agent_rig_write(rig, 0, tensors[0], &lock);
    for (i = 0; i < 2; i++) {
        reduce = rig_all_reduce(tensors[i]);
        calls[i] = agent_rig_begin(rig, i, &reduce);
    }
    fake_call_cancel(&calls[0]->call, false);
    agent_rig_step(rig, TUTTI_NS_PER_MS);
    assert_false(is_answered(calls[0]) || is_answered(calls[1]));
    rig_lock_end(&lock);
    for (i = 0; i < 2; i++) {
        agent_rig_end_failed(rig, calls[i], TUTTI_CANCELLED, "CALLER_GONE");
        assert_int_equal(calls[i]->call.err.rank, 0);
    }
    agent_rig_settle(rig);
    for (i = 0; i < 2; i++) { /* results that were made for it are gone */
        assert_int_equal(tutti_table_count(rig->agents[i]->table), 1);
    }
    run_barriers(rig, 0, "", 2);
}

/* Rank 0 has heard of an op that ended on rank 1. */
static void
wait_told(agent_rig *rig)
{
    const agent_group *group = agent_group_find(rig->agents[0], "world");
    const uint64_t until = tutti_clock_ns() + 60 * TUTTI_NS_PER_S;

    while (!tutti_coll_group_has_ends(group->coll)) {
        assert_true(tutti_clock_ns() < until);
        (void)sched_yield();
    }
}

static void
test_op__that_runs_fails_for_all_when_a_caller_goes(void **state)
{
    agent_rig *rig = *state;
    rig_call *gone;
    rig_call *call;

    run_barriers(rig, 0, "", 1); /* rank 0's client is there */
    gone = begin_barrier(rig, 1, "");
    (void)agent_rig_run(rig);
    fake_call_cancel(&gone->call, false);
    agent_rig_end_failed(rig, gone, TUTTI_CANCELLED, "CALLER_GONE");
    wait_told(rig); /* before that rank 0 may find all it needs, and succeed */
    call = begin_barrier(rig, 0, "");
    agent_rig_end_failed(rig, call, TUTTI_CANCELLED, "CALLER_GONE");
    assert_int_equal(call->call.err.rank, 1);
    assert_string_equal(call->call.err.text, "group world op 2: the caller of rank 1 went away");
    run_barriers(rig, 0, "", 3);
}

static rig_call *
begin_barrier_of(agent_rig *rig, uint32_t rank, const char *program)
{
    const agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    rig_call *call = agent_rig_call(rig, rank);

    call->call.user_agent = program;
    agent_rig_make(rig, rank, call, &request);
    return call;
}

static void
test_op__of_a_new_client_is_behind_what_ended_before_it_came(void **state)
{
    static const char *const programs[] = {"tutti/0.1 a", "tutti/0.1 b"};
    agent_rig *rig = *state;
    rig_call *gone;
    rig_call *calls[3];
    uint64_t round;
    size_t i;

    run_barriers(rig, 0, "", 1);
    for (round = 0; round < 2; round++) {
        gone = begin_barrier_of(rig, 1, programs[round]);
        (void)agent_rig_run(rig);
        fake_call_cancel(&gone->call, false);
        agent_rig_end_failed(rig, gone, TUTTI_CANCELLED, "CALLER_GONE");
        wait_told(rig);
        for (i = 0; i < 2; i++) {
            calls[i] = begin_barrier_of(rig, 0, programs[round]);
        }
        calls[2] = begin_barrier(rig, 1, "");
        agent_rig_end_well(rig, calls[0]);
        assert_int_equal(calls[0]->result.sequence, 3 * round + 3);
        agent_rig_end_well(rig, calls[2]);
        agent_rig_end_well(rig, begin_barrier(rig, 1, ""));
        agent_rig_end_well(rig, calls[1]);
    }
    run_barriers(rig, 0, "", 8);
}

/* It would keep the memory of each program for ever. */
static void
test_clients__are_forgotten_when_many_came_behind_them(void **state)
{
    const agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    char program[32];
    agent_rig *rig = *state;
    agent_clients *clients = &rig->agents[0]->clients;
    const uint32_t seen = clients->idle_count;
    rig_call *call = agent_rig_call(rig, 0);
    int i;

    call->call.user_agent = program;
    for (i = 0; i < AGENT_CLIENTS_IDLE + 10; i++) {
        (void)snprintf(program, sizeof(program), "tutti/0.1 %d", i);
        agent_clients_note(clients, &call->call);
        agent_clients_note(clients, &call->call);
        if (i == 0) {
            assert_int_equal(clients->idle_count, seen + 1);
        }
    }
    assert_int_equal(clients->idle_count, AGENT_CLIENTS_IDLE);
    agent_rig_make(rig, 0, call, &request);
    assert_int_equal(clients->idle_count, AGENT_CLIENTS_IDLE - 1);
    agent_rig_end_well(rig, begin_barrier(rig, 1, ""));
    agent_rig_end_well(rig, call);
}

/* The answer has not reached anybody, so nobody can name the result. */
static void
test_op__drops_a_result_whose_caller_went_before_the_answer(void **state)
{
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *calls[2];
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
        reduce = rig_all_reduce(tensors[i]);
        calls[i] = agent_rig_begin(rig, i, &reduce);
    }
    atomic_store(&calls[0]->call.cancelled, true); /* as the server sees it at the end */
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
    }
    agent_rig_settle(rig);
    assert_false(agent_rig_has(rig, 0, calls[0]->result.handle));
    assert_true(agent_rig_has(rig, 1, calls[1]->result.handle));
}

/* ------------------------------------------------------------------------------ limits */

static void
test_op__is_refused_above_the_limit_of_all(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[2];
    rig_call *more;
    uint32_t i;

    rig->options.ops_max = 2;
    for (i = 0; i < 2; i++) {
        calls[i] = begin_barrier(rig, 0, "");
    }
    more = begin_barrier(rig, 0, "");
    agent_rig_end_failed(rig, more, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT");
    assert_text_has(more->call.err.text, "--ops-max");
    for (i = 0; i < 2; i++) { /* it took no place */
        agent_rig_end_well(rig, begin_barrier(rig, 1, ""));
        agent_rig_end_well(rig, calls[i]);
    }
}

/* Two programs by their numbers, as our clients say them; a third one by its connection. */
static void
test_op__is_refused_above_the_limit_of_one_client(void **state)
{
    static const char *const programs[] = {"tutti/0.1 a", "tutti/0.1 b", "other/1.0"};
    const agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    agent_rig *rig = *state;
    rig_call *calls[COUNT_OF(programs)];
    rig_call *more;
    size_t i;

    for (i = 0; i < COUNT_OF(programs); i++) {
        rig->agents[0]->clients.ops_max = 1;
        calls[i] = agent_rig_call(rig, 0);
        calls[i]->call.user_agent = programs[i];
        agent_rig_make(rig, 0, calls[i], &request);
        more = agent_rig_call(rig, 0);
        more->call.user_agent = programs[i];
        agent_rig_make(rig, 0, more, &request);
        agent_rig_end_failed(rig, more, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT");
        assert_text_has(more->call.err.text, "--client-ops-max");
    }
    for (i = 0; i < COUNT_OF(programs); i++) {
        agent_rig_end_well(rig, begin_barrier(rig, 1, ""));
        agent_rig_end_well(rig, calls[i]);
    }
}

static void
test_op__may_not_begin_where_the_agent_is_not_open(void **state)
{
    agent_rig *rig = *state;

    rig->agents[0]->state = AGENT_JOINING;
    agent_rig_end_failed(rig, begin_barrier(rig, 0, ""), TUTTI_FAILED_PRECONDITION, "NOT_JOINED");
    rig->agents[0]->state = AGENT_JOINED;
    (void)TUTTI_FAIL_FOR(&rig->closed, TUTTI_UNAVAILABLE, "SOMETHING", "not now");
    agent_rig_end_failed(rig, begin_barrier(rig, 0, ""), TUTTI_UNAVAILABLE, "SOMETHING");
    rig->closed.code = TUTTI_OK;
    run_barriers(rig, 0, "", 1);
}

/* ------------------------------------------------------------------------------ groups that go */

static void
test_group__that_is_deleted_ends_its_ops(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    rig_call *call;
    uint32_t i;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    run_barriers(rig, 0, "pair", 1);
    call = begin_barrier(rig, 0, "pair");
    (void)agent_rig_run(rig);
    for (i = 0; i < 2; i++) {
        agent_group_deleted(rig->agents[i], "pair");
    }
    agent_rig_end_in_time(rig, call);
    agent_rig_end_failed(rig, call, TUTTI_NOT_FOUND, "NO_GROUP");
    agent_rig_settle(rig);
    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    run_barriers(rig, 0, "pair", 1); /* another group of that name, which counts from one */
}

/* Its op has not begun: it waits for its tensor, and ends when that is free. */
static void
test_group__that_is_deleted_ends_ops_in_line(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    char tensor[RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *held;
    rig_call *behind;
    rig_lock lock;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    run_barriers(rig, 0, "pair", 1);
    agent_rig_put(rig, 0, ones, 2, tensor);
    agent_rig_write(rig, 0, tensor, &lock);
    reduce = rig_all_reduce(tensor);
    reduce.group = "pair";
    held = agent_rig_begin(rig, 0, &reduce);
    behind = begin_barrier(rig, 0, "pair");
    agent_group_deleted(rig->agents[0], "pair");
    agent_rig_end_failed(rig, behind, TUTTI_NOT_FOUND, "NO_GROUP");
    assert_false(is_answered(held));
    rig_lock_end(&lock);
    agent_rig_end_failed(rig, held, TUTTI_NOT_FOUND, "NO_GROUP");
}

/* The agent was without the coordinator when the group was deleted and made anew. */
static void
test_group__that_was_made_anew_is_found_when_it_is_checked(void **state)
{
    static const uint32_t both[] = {0, 1};
    static const uint32_t one[] = {0};
    agent_rig *rig = *state;

    (void)fake_coordinator_group(&rig->coordinator, "team", both, 2);
    run_barriers(rig, 0, "team", 1);
    agent_groups_check(rig->agents[0]); /* nothing has changed */
    (void)agent_rig_run(rig);
    run_barriers(rig, 0, "team", 2);
    (void)fake_coordinator_group(&rig->coordinator, "team", one, 1);
    agent_groups_check(rig->agents[0]);
    (void)agent_rig_run(rig);
    agent_rig_end_well(rig, begin_barrier(rig, 0, "team")); /* alone */
}

/* ------------------------------------------------------------------------------ ranks that return
 */

static void
test_group__whose_rank_is_back_counts_from_one_again(void **state)
{
    agent_rig *rig = *state;
    rig_call *call;
    uint32_t i;

    run_barriers(rig, 0, "", 1);
    call = begin_barrier(rig, 0, "");
    (void)agent_rig_run(rig);
    for (i = 0; i < 2; i++) {
        agent_groups_renew(rig->agents[i], 1, 2);
    }
    agent_rig_end_failed(rig, call, TUTTI_UNAVAILABLE, "EPOCH_CHANGED");
    run_barriers(rig, 0, "", 1);
    agent_groups_renew(rig->agents[0], 1, 2); /* news that is known already */
    run_barriers(rig, 0, "", 2);
}

/* A call between the loss of a rank and the news of its return belongs to the new epoch. */
static void
test_op__waits_a_moment_for_the_return_of_a_lost_rank(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[2];
    uint32_t i;

    run_barriers(rig, 0, "", 1);
    agent_groups_note_lost(rig->agents[0], 1);
    calls[0] = begin_barrier(rig, 0, "");
    agent_rig_step(rig, AGENT_BACKOFF_NS / 2);
    for (i = 0; i < 2; i++) {
        agent_groups_renew(rig->agents[i], 1, 2);
    }
    calls[1] = begin_barrier(rig, 1, "");
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
        assert_int_equal(calls[i]->result.sequence, 1);
    }
}

static void
test_op__begins_without_a_lost_rank_when_the_moment_is_over(void **state)
{
    agent_rig *rig = *state;
    rig_call *call;

    run_barriers(rig, 0, "", 1);
    agent_groups_note_lost(rig->agents[0], 1);
    tutti_coll_lose_peer(rig->agents[0]->engine, 1, 0, "killed");
    call = begin_barrier(rig, 0, "");
    agent_rig_step(rig, AGENT_BACKOFF_NS / 2);
    assert_false(is_answered(call));
    agent_rig_step(rig, AGENT_BACKOFF_NS);
    agent_rig_end_failed(rig, call, TUTTI_UNAVAILABLE, "RANK_LOST");
    assert_int_equal(call->call.err.rank, 1);
    agent_rig_settle(rig);
    assert_true(rig->agents[0]->broken); /* the next one waits for the return, too */
}

/* Calls that came long before the news were numbered with the old epoch's. */
static void
test_op__in_line_since_before_the_loss_fails_with_the_old_epoch(void **state)
{
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *old;
    rig_call *fresh;
    rig_lock lock;
    uint32_t i;

    run_barriers(rig, 0, "", 1);
    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, 0, ones, 2, tensors[i]);
    }
    agent_rig_write(rig, 0, tensors[0], &lock);
    reduce = rig_all_reduce(tensors[0]);
    old = agent_rig_begin(rig, 0, &reduce);
    agent_rig_step(rig, 2 * AGENT_BACKOFF_NS);
    fresh = begin_barrier(rig, 0, "");
    for (i = 0; i < 2; i++) {
        agent_groups_renew(rig->agents[i], 1, 2);
    }
    rig_lock_end(&lock);
    agent_rig_end_failed(rig, old, TUTTI_UNAVAILABLE, "EPOCH_CHANGED");
    /* It keeps its place in line, and so is the first op of the new epoch. */
    agent_rig_end_failed(rig, begin_barrier(rig, 1, ""), TUTTI_UNAVAILABLE, "EPOCH_CHANGED");
    agent_rig_end_well(rig, begin_barrier(rig, 1, ""));
    agent_rig_end_well(rig, fresh);
}

static void
test_op__of_a_fresh_process_waits_until_the_others_know_it(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[2];
    uint32_t i;

    rig->agents[0]->settled_ns = tutti_clock_ns() + TUTTI_NS_PER_S;
    for (i = 0; i < 2; i++) {
        calls[i] = begin_barrier(rig, i, "");
    }
    agent_rig_step(rig, TUTTI_NS_PER_S / 2);
    assert_false(is_answered(calls[0]) || is_answered(calls[1]));
    agent_rig_step(rig, TUTTI_NS_PER_S);
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
    }
}

/* ------------------------------------------------------------------------------ an elastic world
 */

static void
test_world__of_an_elastic_job_is_another_group_when_members_change(void **state)
{
    static const uint32_t rest[] = {0, 1};
    agent_rig *rig = *state;
    rig_call *calls[2];
    fake_group *world;
    uint32_t i;

    run_barriers(rig, 0, "", 1);
    calls[0] = begin_barrier(rig, 0, "");
    (void)agent_rig_run(rig);
    world = fake_coordinator_group(&rig->coordinator, "world", rest, 2);
    world->epoch = 2;
    for (i = 0; i < 3; i++) {
        rig->agents[i]->elastic = true;
        agent_world_changed(rig->agents[i], 2, "has left");
    }
    agent_rig_end_failed(rig, calls[0], TUTTI_UNAVAILABLE, "EPOCH_CHANGED");
    for (i = 0; i < 2; i++) {
        calls[i] = begin_barrier(rig, i, "");
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
        assert_int_equal(calls[i]->result.sequence, 1);
    }
}

static void
test_world__of_an_elastic_job_counts_the_ops_that_stay_in_line(void **state)
{
    static const uint32_t rest[] = {0, 1};
    agent_rig *rig = *state;
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request requests[2];
    rig_call *calls[2][2];
    rig_lock lock;
    uint32_t i;
    uint32_t k;

    run_barriers(rig, 0, "", 1);
    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, i, ones, 2, tensors[i]);
    }
    agent_rig_write(rig, 0, tensors[0], &lock);
    requests[0] = rig_all_reduce(tensors[0]);
    calls[0][0] = agent_rig_begin(rig, 0, &requests[0]); /* the second of the old world */
    fake_coordinator_group(&rig->coordinator, "world", rest, 2)->epoch = 2;
    for (i = 0; i < 3; i++) {
        rig->agents[i]->elastic = true;
        agent_world_changed(rig->agents[i], 2, "has left");
    }
    requests[1] = rig_request(TUTTI_COLL_BARRIER, NULL);
    requests[1].options.sequence = 2;
    calls[0][1] = agent_rig_begin(rig, 0, &requests[1]);
    rig_lock_wait(&lock);
    rig_lock_end(&lock);
    requests[0] = rig_all_reduce(tensors[1]);
    for (k = 0; k < 2; k++) {
        calls[1][k] = agent_rig_begin(rig, 1, &requests[k]);
    }
    for (k = 0; k < 2; k++) {
        for (i = 0; i < 2; i++) {
            agent_rig_end_well(rig, calls[i][k]);
            assert_int_equal(calls[i][k]->result.sequence, k + 1);
        }
    }
}

/* Who leaves politely has ended its ops: those that still run here may end well, too. */
static void
test_world__of_an_elastic_job_changes_when_its_ops_have_ended(void **state)
{
    static const uint32_t left[] = {0};
    agent_rig *rig = *state;
    rig_call *calls[2];
    rig_call *next;
    uint32_t i;

    run_barriers(rig, 0, "", 1);
    rig->agents[0]->elastic = true;
    calls[0] = begin_barrier(rig, 0, "");
    (void)agent_rig_run(rig);
    fake_coordinator_group(&rig->coordinator, "world", left, 1)->epoch = 2;
    assert_true(agent_world_settles(rig->agents[0], 2));
    next = begin_barrier(rig, 0, ""); /* of the new world */
    calls[1] = begin_barrier(rig, 1, "");
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
        assert_int_equal(calls[i]->result.sequence, 2);
    }
    agent_rig_end_in_time(rig, next);
    agent_rig_end_well(rig, next);
    assert_int_equal(next->result.sequence, 1);
    assert_false(agent_world_settles(rig->agents[0], 2)); /* known already */
}

/* ------------------------------------------------------------------------------ the end */

static void
test_op__in_line_ends_when_the_agent_leaves(void **state)
{
    agent_rig *rig = *state;
    rig_call *call;

    rig->coordinator.holds = true;
    call = begin_barrier(rig, 0, "");
    (void)agent_rig_run(rig);
    rig->agents[0]->draining = true;
    assert_false(agent_groups_leave(rig->agents[0])); /* no group is open yet */
    agent_rig_end_failed(rig, call, TUTTI_UNAVAILABLE, "STOPPING");
    agent_rig_end_failed(rig, begin_barrier(rig, 0, ""), TUTTI_UNAVAILABLE, "STOPPING");
}

static void
test_op__of_the_others_fails_when_a_rank_leaves(void **state)
{
    agent_rig *rig = *state;
    rig_call *call;

    run_barriers(rig, 0, "", 1);
    rig->agents[1]->draining = true;
    assert_true(agent_groups_leave(rig->agents[1]));
    call = begin_barrier(rig, 0, "");
    agent_rig_end_in_time(rig, call); /* it may have heard of it before, and waits a moment then */
    agent_rig_end_failed(rig, call, TUTTI_UNAVAILABLE, "RANK_LEAVING");
    assert_int_equal(call->call.err.rank, 1);
}

static void
test_op__running_and_in_line_ends_when_the_agent_gives_up(void **state)
{
    agent_rig *rig = *state;
    char tensor[RIG_HANDLE_SIZE];
    agent_request reduce;
    rig_call *running = begin_barrier(rig, 0, "");
    rig_call *held;
    rig_lock lock;
    tutti_error why;

    agent_rig_put(rig, 0, ones, 2, tensor);
    agent_rig_write(rig, 0, tensor, &lock);
    reduce = rig_all_reduce(tensor);
    held = agent_rig_begin(rig, 0, &reduce);
    (void)agent_rig_run(rig);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_UNAVAILABLE, "SESSION_LOST", "the session is over");
    agent_ops_give_up(rig->agents[0], &why);
    agent_rig_end_failed(rig, held, TUTTI_UNAVAILABLE, "SESSION_LOST"); /* its tensor is not free */
    agent_rig_end_failed(rig, running, TUTTI_UNAVAILABLE, "SESSION_LOST");
    rig_lock_end(&lock);
}

int
main(void)
{
#define WITH_TWO(name) cmocka_unit_test_setup_teardown(name, agent_rig_setup_2, agent_rig_teardown)
#define WITH_THREE(name)                                                                           \
    cmocka_unit_test_setup_teardown(name, agent_rig_setup_3, agent_rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_TWO(test_group__is_asked_for_once),
        WITH_TWO(test_group__that_is_unknown_is_asked_for_again_by_the_next_op),
        WITH_TWO(test_group__is_asked_for_again_while_the_coordinator_is_away),
        WITH_TWO(test_group__that_is_refused_fails_its_ops_with_the_coordinators_words),
        WITH_TWO(test_group__that_is_not_told_in_time_fails_its_op_with_a_timeout),
        WITH_TWO(test_group__may_be_told_as_spans_of_ranks),
        WITH_TWO(test_group__answers_without_ranks_are_an_error_of_the_coordinator),
        WITH_TWO(test_group__is_only_for_its_members),
        WITH_TWO(test_group__cannot_be_asked_for_without_memory),
        WITH_TWO(test_op__waits_for_those_that_came_before_it_in_its_group),
        WITH_TWO(test_op__does_not_wait_for_those_of_other_groups),
        WITH_TWO(test_op__may_name_the_result_of_one_that_still_runs),
        WITH_TWO(test_op__with_a_number_runs_as_that_number_or_not_at_all),
        WITH_TWO(test_op__whose_time_is_up_in_line_keeps_its_place),
        WITH_TWO(test_op__times_out_when_a_rank_does_not_call),
        WITH_TWO(test_op__of_a_caller_who_is_gone_is_refused_when_its_turn_comes),
        WITH_TWO(test_op__that_runs_fails_for_all_when_a_caller_goes),
        WITH_TWO(test_op__of_a_new_client_is_behind_what_ended_before_it_came),
        WITH_TWO(test_clients__are_forgotten_when_many_came_behind_them),
        WITH_TWO(test_op__drops_a_result_whose_caller_went_before_the_answer),
        WITH_TWO(test_op__is_refused_above_the_limit_of_all),
        WITH_TWO(test_op__is_refused_above_the_limit_of_one_client),
        WITH_TWO(test_op__may_not_begin_where_the_agent_is_not_open),
        WITH_TWO(test_group__that_is_deleted_ends_its_ops),
        WITH_TWO(test_group__that_is_deleted_ends_ops_in_line),
        WITH_TWO(test_group__that_was_made_anew_is_found_when_it_is_checked),
        WITH_TWO(test_group__whose_rank_is_back_counts_from_one_again),
        WITH_TWO(test_op__waits_a_moment_for_the_return_of_a_lost_rank),
        WITH_TWO(test_op__begins_without_a_lost_rank_when_the_moment_is_over),
        WITH_TWO(test_op__in_line_since_before_the_loss_fails_with_the_old_epoch),
        WITH_TWO(test_op__of_a_fresh_process_waits_until_the_others_know_it),
        WITH_THREE(test_world__of_an_elastic_job_is_another_group_when_members_change),
        WITH_THREE(test_world__of_an_elastic_job_counts_the_ops_that_stay_in_line),
        WITH_TWO(test_world__of_an_elastic_job_changes_when_its_ops_have_ended),
        WITH_TWO(test_op__in_line_ends_when_the_agent_leaves),
        WITH_TWO(test_op__of_the_others_fails_when_a_rank_leaves),
        WITH_TWO(test_op__running_and_in_line_ends_when_the_agent_gives_up),
    };

    return cmocka_run_group_tests_name("agent_op_order", tests, NULL, NULL);
}
