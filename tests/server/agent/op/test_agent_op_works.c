/*
 * Goal: callers who do not wait for an op learn what became of it: by Wait and Test, by Sync, and
 * by a call that is made again with the token of one whose answer was lost. Method: agents of one
 * process; the test is their callers and their clock.
 */
#include "server/agent/op/agent_rig.h"
#include "server/agent/op/group.h"
#include "server/agent/state/op.h"
#include "support/testing.h"

static const double ones[] = {1, 1};
static const double twos[] = {2, 2};

static bool
is_answered(const rig_call *call)
{
    return atomic_load(&call->call.answered);
}

static rig_call *
begin_barrier(agent_rig *rig, uint32_t rank, const char *group, bool async)
{
    agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);

    request.group = group;
    request.options.async = async;
    return agent_rig_begin(rig, rank, &request);
}

/* An async AllReduce of a new tensor of ones. */
static rig_call *
begin_sum(agent_rig *rig, uint32_t rank)
{
    char tensor[RIG_HANDLE_SIZE];
    agent_request request;

    agent_rig_put(rig, rank, ones, 2, tensor);
    request = rig_all_reduce(tensor);
    request.options.async = true;
    return agent_rig_begin(rig, rank, &request);
}

static rig_call *
wait_for(agent_rig *rig, rig_call *call, uint32_t timeout_ms)
{
    char *works[] = {call->result.work};

    return agent_rig_wait(rig, 0, works, 1, timeout_ms);
}

/* ------------------------------------------------------------------------------ async ops */

static void
test_async_op__is_answered_when_it_has_its_place(void **state)
{
    agent_rig *rig = *state;
    rig_call *call = begin_sum(rig, 0);
    rig_call *other;

    assert_true(is_answered(call)); /* nobody else has called */
    assert_int_equal(call->result.sequence, 1);
    assert_string_not_equal(call->result.work, "");
    assert_false(call->result.has_spec);
    other = begin_sum(rig, 1);
    agent_rig_check(rig, 0, call->result.handle, twos, 2); /* readers wait for the op */
    agent_rig_check(rig, 1, other->result.handle, twos, 2);
}

static void
test_async_op__that_is_refused_at_once_fails_its_call_and_counts(void **state)
{
    agent_rig *rig = *state;
    agent_request request = rig_all_reduce("tensor:nothing");
    rig_call *call;

    request.options.async = true;
    call = agent_rig_begin(rig, 0, &request);
    agent_rig_end_failed(rig, call, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE");
    call = begin_barrier(rig, 1, "", false);
    agent_rig_end_failed(rig, call, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE");
    assert_int_equal(call->call.err.rank, 0);
}

static void
test_async_op__takes_no_inline_tensor(void **state)
{
    agent_rig *rig = *state;
    agent_request request = rig_all_reduce(NULL);

    request.args.spec = rig_vector(2);
    request.options.async = true;
    agent_rig_end_failed(rig, agent_rig_begin_inline(rig, 0, &request, ones, 16),
                         TUTTI_INVALID_ARGUMENT, "ASYNC_INLINE");
}

/* Its result has a name already, so it stays and has the error. */
static void
test_async_op__that_fails_leaves_its_error_in_the_result(void **state)
{
    agent_rig *rig = *state;
    rig_call *call = begin_sum(rig, 0);
    rig_call *wait;

    agent_rig_end_failed(rig, begin_barrier(rig, 1, "", false), TUTTI_FAILED_PRECONDITION,
                         "OP_MISMATCH");
    agent_rig_check_failed(rig, 0, call->result.handle, TUTTI_FAILED_PRECONDITION);
    wait = wait_for(rig, call, 0);
    agent_rig_end_well(rig, wait);
    assert_true(wait->statuses[0].done && wait->statuses[0].failed);
    assert_string_equal(wait->statuses[0].err.reason, "OP_MISMATCH");
}

/* ------------------------------------------------------------------------------ Wait and Test */

static void
test_wait__ends_when_all_works_have(void **state)
{
    agent_rig *rig = *state;
    rig_call *sum = begin_sum(rig, 0);
    rig_call *barrier = begin_barrier(rig, 0, "", true);
    char *works[] = {barrier->result.work, sum->result.work, barrier->result.work};
    rig_call *wait = agent_rig_wait(rig, 0, works, 3, 0);

    (void)begin_sum(rig, 1);
    agent_rig_check(rig, 0, sum->result.handle, twos, 2);
    assert_false(is_answered(wait));
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    agent_rig_end_well(rig, wait);
    assert_int_equal(wait->status_count, 3); /* in the order asked */
    assert_string_equal(wait->statuses[0].work, barrier->result.work);
    assert_string_equal(wait->statuses[1].work, sum->result.work);
    assert_string_equal(wait->statuses[1].handle, sum->result.handle);
    assert_int_equal(wait->statuses[1].spec.dims[0], 2);
    assert_string_equal(wait->statuses[2].work, barrier->result.work);
    wait = agent_rig_wait(rig, 0, works, 3, 0); /* again, of what has ended */
    assert_true(is_answered(wait));
    assert_true(wait->statuses[0].done && !wait->statuses[0].failed);
}

static void
test_test__says_how_works_stand_without_waiting(void **state)
{
    agent_rig *rig = *state;
    rig_call *sum = begin_sum(rig, 0);
    char *works[] = {sum->result.work};
    rig_call *test = agent_rig_test(rig, 0, works, 1);

    assert_true(is_answered(test));
    assert_false(test->statuses[0].done);
    (void)begin_sum(rig, 1);
    agent_rig_settle(rig);
    test = agent_rig_test(rig, 0, works, 1);
    assert_true(test->statuses[0].done);
}

static void
test_wait__whose_time_is_up_names_what_still_runs(void **state)
{
    agent_rig *rig = *state;
    rig_call *sum = begin_sum(rig, 0);
    rig_call *barrier = begin_barrier(rig, 0, "", true);
    char *works[] = {sum->result.work, barrier->result.work};
    rig_call *wait;

    (void)begin_sum(rig, 1);
    agent_rig_check(rig, 0, sum->result.handle, twos, 2);
    agent_rig_end_well(rig, wait_for(rig, sum, 0));
    wait = agent_rig_wait(rig, 0, works, 2, 1000);
    agent_rig_step(rig, TUTTI_NS_PER_S / 2);
    assert_false(is_answered(wait));
    agent_rig_step(rig, TUTTI_NS_PER_S);
    agent_rig_end_failed(rig, wait, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_text_has(wait->call.err.text, barrier->result.work);
    assert_null(strstr(wait->call.err.text, sum->result.work));
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false)); /* the op goes on */
    agent_rig_end_well(rig, wait_for(rig, barrier, 0));
}

static void
test_wait__refuses_what_is_no_work_of_this_process(void **state)
{
    static const struct {
        const char *work;
        tutti_code code;
        const char *reason;
    } rows[] = {
        {"", TUTTI_INVALID_ARGUMENT, "BAD_HANDLE"},
        {"tensor:0.0000000000000100.1", TUTTI_INVALID_ARGUMENT, "BAD_HANDLE"},
        {"work:0.0000000000000100", TUTTI_INVALID_ARGUMENT, "BAD_HANDLE"},
        {"work:0.0000000000000009.1", TUTTI_FAILED_PRECONDITION, "STALE_HANDLE"},
        {"work:1.0000000000000101.1", TUTTI_FAILED_PRECONDITION, "FOREIGN_HANDLE"},
        {"work:0.0000000000000100.9", TUTTI_NOT_FOUND, "NO_WORK"},
    };
    agent_rig *rig = *state;
    rig_call *good = begin_barrier(rig, 0, "", true);
    size_t i;

    for (i = 0; i < COUNT_OF(rows); i++) {
        char *works[] = {good->result.work, (char *)(uintptr_t)rows[i].work};

        agent_rig_end_failed(rig, agent_rig_wait(rig, 0, works, 2, 0), rows[i].code,
                             rows[i].reason);
        agent_rig_end_failed(rig, agent_rig_test(rig, 0, works, 2), rows[i].code, rows[i].reason);
    }
    agent_rig_end_failed(rig, agent_rig_wait(rig, 0, NULL, 0, 0), TUTTI_INVALID_ARGUMENT,
                         "WORK_COUNT");
    agent_rig_end_failed(rig, agent_rig_test(rig, 0, NULL, AGENT_WAIT_MAX + 1),
                         TUTTI_INVALID_ARGUMENT, "WORK_COUNT");
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
}

static void
test_wait__finds_the_works_that_finished_last(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[4];
    uint32_t i;

    rig->options.works_max = 2;
    for (i = 0; i < 4; i++) {
        calls[i] = begin_barrier(rig, 0, "", true);
        agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
        agent_rig_settle(rig);
    }
    for (i = 0; i < 2; i++) {
        rig_call *wait = wait_for(rig, calls[i], 0);

        agent_rig_end_failed(rig, wait, TUTTI_NOT_FOUND, "NO_WORK");
        assert_text_has(wait->call.err.text, "--works-max");
        agent_rig_end_well(rig, wait_for(rig, calls[i + 2], 0));
    }
    assert_int_equal(agent_works_count(rig->agents[0]), 2);
}

/* A call that waits keeps the works that it will tell of. */
static void
test_wait__keeps_its_works_from_being_forgotten(void **state)
{
    agent_rig *rig = *state;
    rig_call *calls[4];
    char *works[4];
    rig_call *wait;
    uint32_t i;

    rig->options.works_max = 1;
    for (i = 0; i < 4; i++) {
        calls[i] = begin_barrier(rig, 0, "", true);
        works[i] = calls[i]->result.work;
    }
    wait = agent_rig_wait(rig, 0, works, 4, 0);
    for (i = 0; i < 4; i++) {
        agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    }
    agent_rig_end_well(rig, wait);
    for (i = 0; i < 4; i++) {
        assert_true(wait->statuses[i].done && !wait->statuses[i].failed);
    }
}

static void
test_wait__may_be_given_up(void **state)
{
    agent_rig *rig = *state;
    rig_call *barrier = begin_barrier(rig, 0, "", true);
    rig_call *wait = wait_for(rig, barrier, 0);

    fake_call_cancel(&wait->call, false);
    assert_fails(agent_rig_end(rig, wait), TUTTI_CANCELLED);
    wait = wait_for(rig, barrier, 0);
    agent_works_drain(rig->agents[0]);
    agent_rig_end_failed(rig, wait, TUTTI_UNAVAILABLE, "STOPPING");
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false)); /* the op goes on */
    agent_rig_end_well(rig, wait_for(rig, barrier, 0));
}

static void
test_wait__for_a_receive_tells_who_sent_and_what_came_along(void **state)
{
    agent_request send = rig_request(TUTTI_COLL_SEND, NULL);
    agent_request recv = rig_request(TUTTI_COLL_RECV, NULL);
    char tensor[RIG_HANDLE_SIZE];
    agent_rig *rig = *state;
    rig_call *got;
    rig_call *wait;

    recv.args.peer = TUTTI_COLL_ANY_SOURCE;
    recv.options.async = true;
    got = agent_rig_begin(rig, 0, &recv);
    wait = wait_for(rig, got, 0);
    agent_rig_put(rig, 1, ones, 2, tensor);
    send.input = tensor;
    send.args.peer = 0;
    send.args.meta = (tutti_bytes){"epoch 3", 7};
    agent_rig_end_well(rig, agent_rig_begin(rig, 1, &send));
    agent_rig_end_well(rig, wait);
    assert_int_equal(wait->statuses[0].source, 1);
    assert_int_equal(wait->statuses[0].meta.size, 7);
    assert_memory_equal(wait->statuses[0].meta.data, "epoch 3", 7);
    agent_rig_check(rig, 0, got->result.handle, ones, 2);
}

/* ------------------------------------------------------------------------------ Sync */

static void
test_sync__waits_for_the_ops_that_came_before_it(void **state)
{
    agent_rig *rig = *state;
    rig_call *sync = agent_rig_sync(rig, 0, "", 0);
    rig_call *after;

    assert_true(is_answered(sync)); /* there are none */
    assert_int_equal(sync->sync.waited, 0);
    (void)begin_sum(rig, 0);
    (void)begin_barrier(rig, 0, "", true);
    sync = agent_rig_sync(rig, 0, "", 0);
    after = begin_barrier(rig, 0, "", false);
    (void)begin_sum(rig, 1);
    (void)agent_rig_run(rig);
    assert_false(is_answered(sync));
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    agent_rig_end_well(rig, sync);
    assert_int_equal(sync->sync.waited, 2);
    assert_int_equal(sync->sync.failed, 0);
    assert_false(is_answered(after));
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    agent_rig_end_well(rig, after);
}

static void
test_sync__of_a_group_waits_for_that_one(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    rig_call *world;
    rig_call *sync;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    world = begin_barrier(rig, 0, "", false);
    (void)begin_barrier(rig, 0, "pair", true);
    sync = agent_rig_sync(rig, 0, "pair", 0);
    agent_rig_end_well(rig, begin_barrier(rig, 1, "pair", false));
    agent_rig_end_well(rig, sync);
    assert_int_equal(sync->sync.waited, 1);
    assert_false(is_answered(world));
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    assert_fails(agent_rig_end(rig, agent_rig_sync(rig, 0, "no group", 0)), TUTTI_INVALID_ARGUMENT);
}

static void
test_sync__tells_how_many_failed_and_why_the_first_one_did(void **state)
{
    agent_rig *rig = *state;
    rig_call *sync;

    (void)begin_barrier(rig, 0, "", true);
    (void)begin_sum(rig, 0);
    sync = agent_rig_sync(rig, 0, "", 0);
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    agent_rig_end_failed(rig, begin_barrier(rig, 1, "", false), TUTTI_FAILED_PRECONDITION,
                         "OP_MISMATCH");
    agent_rig_end_well(rig, sync); /* the Sync itself has not failed */
    assert_int_equal(sync->sync.waited, 2);
    assert_int_equal(sync->sync.failed, 1);
    assert_string_equal(sync->sync.err.reason, "OP_MISMATCH");
}

static void
test_sync__whose_time_is_up_names_what_still_runs(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_request recv = rig_request(TUTTI_COLL_RECV, NULL);
    agent_rig *rig = *state;
    rig_call *sync;
    rig_call *got;
    uint32_t i;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    recv.group = "pair";
    recv.args.peer = 1;
    got = agent_rig_begin(rig, 0, &recv);
    for (i = 0; i < 9; i++) {
        (void)begin_barrier(rig, 0, "", true);
    }
    sync = agent_rig_sync(rig, 0, "", 1000);
    agent_rig_step(rig, 2 * TUTTI_NS_PER_S);
    agent_rig_end_failed(rig, sync, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_text_has(sync->call.err.text, "10 of 10 ops");
    assert_text_has(sync->call.err.text, "a send or recv in group pair");
    assert_text_has(sync->call.err.text, "op 7 of group world, and 2 more");
    fake_call_cancel(&got->call, false);
    agent_rig_end_failed(rig, got, TUTTI_CANCELLED, "CALLER_GONE");
}

/* The group is forgotten before its op ends. */
static void
test_sync__of_a_group_that_is_deleted_ends_with_its_ops(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    rig_call *sync;
    rig_call *call;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    call = begin_barrier(rig, 0, "pair", false);
    (void)agent_rig_run(rig);
    sync = agent_rig_sync(rig, 0, "pair", 0);
    agent_group_deleted(rig->agents[0], "pair");
    agent_rig_end_in_time(rig, call);
    agent_rig_end_failed(rig, call, TUTTI_NOT_FOUND, "NO_GROUP");
    agent_rig_settle(rig);
    assert_true(is_answered(sync));
    agent_rig_end_well(rig, sync);
    assert_int_equal(sync->sync.failed, 1);
    assert_string_equal(sync->sync.err.reason, "NO_GROUP");
}

static void
test_sync__may_be_given_up(void **state)
{
    agent_rig *rig = *state;
    rig_call *barrier = begin_barrier(rig, 0, "", false);
    rig_call *sync = agent_rig_sync(rig, 0, "", 0);

    fake_call_cancel(&sync->call, false);
    assert_fails(agent_rig_end(rig, sync), TUTTI_CANCELLED);
    sync = agent_rig_sync(rig, 0, "", 0);
    agent_sync_drain(rig->agents[0]);
    agent_rig_end_failed(rig, sync, TUTTI_UNAVAILABLE, "STOPPING");
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
    agent_rig_end_well(rig, barrier);
}

/* ------------------------------------------------------------------------------ tokens */

/* Both ranks, rank 0 with the token; its call, which has ended. */
static rig_call *
run_with_token(agent_rig *rig, uint64_t token, char inputs[2][RIG_HANDLE_SIZE])
{
    rig_call *calls[2];
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_request request = rig_all_reduce(inputs[i]);

        request.options.token = i == 0 ? token : 0;
        calls[i] = agent_rig_begin(rig, i, &request);
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
    }
    agent_rig_settle(rig);
    return calls[0];
}

static void
put_inputs(agent_rig *rig, char inputs[2][RIG_HANDLE_SIZE])
{
    agent_rig_put(rig, 0, ones, 2, inputs[0]);
    agent_rig_put(rig, 1, ones, 2, inputs[1]);
}

static rig_call *
call_again(agent_rig *rig, uint64_t token, const char *input)
{
    agent_request request = rig_all_reduce(input);

    request.options.token = token;
    return agent_rig_begin(rig, 0, &request);
}

static void
test_token__gives_a_second_call_the_answer_of_the_first(void **state)
{
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    rig_call *first;
    rig_call *again;

    put_inputs(rig, inputs);
    first = run_with_token(rig, 5, inputs);
    again = call_again(rig, 5, inputs[0]);
    assert_true(is_answered(again)); /* nothing runs: rank 1 does not call */
    assert_string_equal(again->result.handle, first->result.handle);
    assert_int_equal(again->result.sequence, 1);
    assert_int_equal(tutti_table_count(rig->agents[0]->table), 2);
    assert_int_equal(run_with_token(rig, 6, inputs)->result.sequence, 2);
}

static void
test_token__of_an_op_that_runs_tells_to_come_later(void **state)
{
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    agent_request request;
    rig_call *first;

    put_inputs(rig, inputs);
    first = call_again(rig, 5, inputs[0]);
    agent_rig_end_failed(rig, call_again(rig, 5, inputs[0]), TUTTI_ABORTED, "TOKEN_IN_FLIGHT");
    request = rig_all_reduce(inputs[1]);
    agent_rig_end_well(rig, agent_rig_begin(rig, 1, &request));
    agent_rig_end_well(rig, first);
}

static void
test_token__of_an_op_that_failed_runs_it_again(void **state)
{
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    rig_call *first;

    put_inputs(rig, inputs);
    first = call_again(rig, 5, inputs[0]);
    agent_rig_end_failed(rig, begin_barrier(rig, 1, "", false), TUTTI_FAILED_PRECONDITION,
                         "OP_MISMATCH");
    agent_rig_end_failed(rig, first, TUTTI_FAILED_PRECONDITION, "OP_MISMATCH");
    agent_rig_settle(rig);
    assert_int_equal(run_with_token(rig, 5, inputs)->result.sequence, 2);
}

static void
test_token__is_forgotten_after_the_window(void **state)
{
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    rig_call *first;

    put_inputs(rig, inputs);
    first = run_with_token(rig, 5, inputs);
    agent_rig_step(rig, rig->options.retry_window_ns / 2);
    assert_string_equal(call_again(rig, 5, inputs[0])->result.handle, first->result.handle);
    agent_rig_step(rig, rig->options.retry_window_ns);
    assert_int_equal(run_with_token(rig, 5, inputs)->result.sequence, 2);
    assert_true(agent_rig_has(rig, 0, first->result.handle)); /* its caller has it */
}

/* The answer was lost: the result stays for who comes again, and goes when nobody does. */
static void
test_token__keeps_a_result_that_nobody_has_heard_of_yet(void **state)
{
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    rig_call *calls[2];
    rig_call *again;
    uint32_t i;

    put_inputs(rig, inputs);
    for (i = 0; i < 2; i++) { /* token 5 is called again, 6 is not */
        agent_request request = rig_all_reduce(inputs[1]);

        calls[i] = call_again(rig, 5 + i, inputs[0]);
        atomic_store(&calls[i]->call.cancelled, true);
        agent_rig_end_well(rig, agent_rig_begin(rig, 1, &request));
        agent_rig_end_well(rig, calls[i]);
        agent_rig_settle(rig);
        assert_true(agent_rig_has(rig, 0, calls[i]->result.handle));
    }
    again = call_again(rig, 5, inputs[0]);
    assert_string_equal(again->result.handle, calls[0]->result.handle);
    agent_rig_step(rig, 2 * rig->options.retry_window_ns);
    assert_true(agent_rig_has(rig, 0, calls[0]->result.handle));
    assert_false(agent_rig_has(rig, 0, calls[1]->result.handle));
}

static void
test_token__gives_way_to_newer_ones_above_the_limit_of_memory(void **state)
{
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    rig_call *first;
    rig_call *second;

    put_inputs(rig, inputs);
    first = run_with_token(rig, 5, inputs);
    rig->options.retry_bytes_limit = rig->agents[0]->answers.bytes; /* one answer */
    second = run_with_token(rig, 6, inputs);
    assert_string_equal(call_again(rig, 6, inputs[0])->result.handle, second->result.handle);
    assert_int_equal(run_with_token(rig, 5, inputs)->result.sequence, 3);
    assert_true(agent_rig_has(rig, 0, first->result.handle));
}

static void
test_token__belongs_to_one_kind_of_op_in_one_group(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    agent_rig *rig = *state;
    char inputs[2][RIG_HANDLE_SIZE];
    agent_request request;
    rig_call *calls[2];
    uint32_t i;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    put_inputs(rig, inputs);
    (void)run_with_token(rig, 5, inputs);
    for (i = 0; i < 2; i++) { /* each waits for rank 1, so it is not repeated */
        request = rig_request(TUTTI_COLL_BARRIER, NULL);
        request.options.token = 5;
        request.group = i == 0 ? "" : "pair";
        calls[i] = agent_rig_begin(rig, 0, &request);
        assert_false(is_answered(calls[i]));
        agent_rig_end_well(rig, begin_barrier(rig, 1, request.group, false));
        agent_rig_end_well(rig, calls[i]);
    }
    request.group = "world"; /* what "" stands for */
    assert_true(is_answered(agent_rig_begin(rig, 0, &request)));
}

static void
test_token__belongs_to_one_caller(void **state)
{
    static const char *const callers[] = {"anna", "bert"};
    agent_rig *rig = *state;
    agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    rig_call *call;
    uint32_t i;

    request.options.token = 5;
    for (i = 0; i < 2; i++) { /* bert's call waits for rank 1, so it is not repeated */
        call = agent_rig_call(rig, 0);
        call->call.identity = callers[i];
        agent_rig_make(rig, 0, call, &request);
        assert_false(is_answered(call));
        agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));
        agent_rig_end_well(rig, call);
    }
    assert_int_equal(call->result.sequence, 2);
    call = agent_rig_call(rig, 0);
    call->call.identity = "anna";
    agent_rig_make(rig, 0, call, &request);
    assert_true(is_answered(call));
    assert_int_equal(call->result.sequence, 1);
}

static void
test_token__repeats_work_ids_and_inline_results(void **state)
{
    agent_rig *rig = *state;
    agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    rig_call *calls[2];
    rig_call *again;
    uint32_t i;

    request.options.async = true;
    request.options.token = 5;
    calls[0] = agent_rig_begin(rig, 0, &request);
    again = agent_rig_begin(rig, 0, &request); /* it runs still */
    assert_true(is_answered(again));
    assert_string_equal(again->result.work, calls[0]->result.work);
    agent_rig_end_well(rig, begin_barrier(rig, 1, "", false));

    request = rig_all_reduce(NULL);
    request.args.spec = rig_vector(2);
    request.options.token = 6;
    for (i = 0; i < 2; i++) {
        calls[i] = agent_rig_begin_inline(rig, i, &request, ones, 16);
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, calls[i]);
    }
    agent_rig_settle(rig);
    again = agent_rig_begin_inline(rig, 0, &request, ones, 16);
    agent_rig_end_well(rig, again);
    assert_int_equal(again->result.payload_bytes, 16);
    assert_memory_equal(again->result.payload->data, twos, 16);
}

int
main(void)
{
#define WITH_TWO(name) cmocka_unit_test_setup_teardown(name, agent_rig_setup_2, agent_rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_TWO(test_async_op__is_answered_when_it_has_its_place),
        WITH_TWO(test_async_op__that_is_refused_at_once_fails_its_call_and_counts),
        WITH_TWO(test_async_op__takes_no_inline_tensor),
        WITH_TWO(test_async_op__that_fails_leaves_its_error_in_the_result),
        WITH_TWO(test_wait__ends_when_all_works_have),
        WITH_TWO(test_test__says_how_works_stand_without_waiting),
        WITH_TWO(test_wait__whose_time_is_up_names_what_still_runs),
        WITH_TWO(test_wait__refuses_what_is_no_work_of_this_process),
        WITH_TWO(test_wait__finds_the_works_that_finished_last),
        WITH_TWO(test_wait__keeps_its_works_from_being_forgotten),
        WITH_TWO(test_wait__may_be_given_up),
        WITH_TWO(test_wait__for_a_receive_tells_who_sent_and_what_came_along),
        WITH_TWO(test_sync__waits_for_the_ops_that_came_before_it),
        WITH_TWO(test_sync__of_a_group_waits_for_that_one),
        WITH_TWO(test_sync__tells_how_many_failed_and_why_the_first_one_did),
        WITH_TWO(test_sync__whose_time_is_up_names_what_still_runs),
        WITH_TWO(test_sync__of_a_group_that_is_deleted_ends_with_its_ops),
        WITH_TWO(test_sync__may_be_given_up),
        WITH_TWO(test_token__gives_a_second_call_the_answer_of_the_first),
        WITH_TWO(test_token__of_an_op_that_runs_tells_to_come_later),
        WITH_TWO(test_token__of_an_op_that_failed_runs_it_again),
        WITH_TWO(test_token__is_forgotten_after_the_window),
        WITH_TWO(test_token__keeps_a_result_that_nobody_has_heard_of_yet),
        WITH_TWO(test_token__gives_way_to_newer_ones_above_the_limit_of_memory),
        WITH_TWO(test_token__belongs_to_one_kind_of_op_in_one_group),
        WITH_TWO(test_token__belongs_to_one_caller),
        WITH_TWO(test_token__repeats_work_ids_and_inline_results),
    };

    return cmocka_run_group_tests_name("agent_op_works", tests, NULL, NULL);
}
