/*
 * Goal: calls that go by an open stream are to the caller what calls of their own are: the same
 * results and errors, in time, whatever becomes of the stream.
 * Method: a fake agent that serves streams of commands by the methods that take calls, counts both,
 * and spoils them on demand.
 */
#include "client_bytes.h"

#define BEFORE 2 /* calls of a client that go by themselves */

static int
begin(void **state)
{
    client_rig *self = calloc(1, sizeof(*self));
    tutti_error err;

    assert_non_null(self);
    self->agent.script.spec = (tutti_spec){TUTTI_DTYPE_FP32, 2, {2, 3}};
    self->agent.script.commands_max = 256;
    fake_agent_start(&self->agent, NULL);
    assert_ok(tutti_connect(fake_agent_address(&self->agent), &self->client, &err));
    *state = self;
    return 0;
}

static void
call(client_rig *rig, unsigned times)
{
    tutti_error err;

    for (; times > 0; times--) {
        assert_ok(tutti_barrier(rig->client, NULL, NULL, &err));
    }
}

static void
assert_counts(const client_rig *rig, unsigned ops, unsigned commands, unsigned streams)
{
    assert_int_equal(atomic_load(&rig->agent.op_count), ops);
    assert_int_equal(atomic_load(&rig->agent.command_count), commands);
    assert_int_equal(atomic_load(&rig->agent.run_count), streams);
}

static void
test_shuttle__carries_all_calls_but_the_first(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_op_result result;
    tutti_error err;

    call(rig, BEFORE);
    assert_counts(rig, BEFORE, 0, 0);
    tutti_op_init(&op);
    op.input = "grad";
    op.output = "sum";
    assert_ok(tutti_all_reduce(rig->client, &op, &result, &err));
    assert_string_equal(rig->agent.op_input, "grad");
    assert_string_equal(result.output.text, "tensor:0.0000000000000001.1");
    assert_int_equal(result.sequence, 42);
    op.peer = 1;
    assert_ok(tutti_recv(rig->client, &op, &result, &err));
    assert_int_equal(result.source_global, 3);
    call(rig, 10);
    assert_counts(rig, BEFORE + 12, 12, 1);
}

static void
test_shuttle__says_goodbye(void **state)
{
    client_rig *rig = *state;
    tutti_error err;

    call(rig, BEFORE + 1);
    tutti_close(rig->client);
    fake_agent_settle(&rig->agent);
    assert_int_equal(atomic_load(&rig->agent.run_cancelled), 0);
    assert_ok(tutti_connect(fake_agent_address(&rig->agent), &rig->client, &err));
}

static void
test_shuttle__passes_the_agents_error_whole_and_goes_on(void **state)
{
    client_rig *rig = *state;
    tutti_error *error = &rig->agent.script.error;
    tutti_op op;
    tutti_op_result result = {.sequence = 99};
    tutti_error err;

    (void)TUTTI_FAIL_FOR(error, TUTTI_FAILED_PRECONDITION, "OP_MISMATCH", "rank 3 differs");
    tutti_error_set_op(error, "world", 41, 3);
    error->scope = TUTTI_SCOPE_GROUP;
    call(rig, BEFORE);
    rig->agent.script.fail_method = "AllReduce";
    tutti_op_init(&op);
    op.input = "x";
    assert_fails(tutti_all_reduce(rig->client, &op, &result, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "OP_MISMATCH");
    assert_string_equal(err.text, "rank 3 differs");
    assert_string_equal(err.group, "world");
    assert_int_equal(err.sequence, 41);
    assert_int_equal(err.rank, 3);
    assert_int_equal(err.scope, TUTTI_SCOPE_GROUP);
    assert_int_equal(result.sequence, 99); /* untouched */
    assert_fails(tutti_all_reduce(rig->client, &op, NULL, NULL), TUTTI_FAILED_PRECONDITION);
    call(rig, 1);
    assert_counts(rig, BEFORE + 3, 3, 1);
}

/* A terminal shall not do what an agent wants. */
static void
test_shuttle__cleans_an_errors_text(void **state)
{
    client_rig *rig = *state;
    tutti_error err;

    call(rig, BEFORE);
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_ABORTED, "\x1b[2J", "a\x1b[2J\nb");
    rig->agent.script.fail_method = "Barrier";
    assert_fails(tutti_barrier(rig->client, NULL, NULL, &err), TUTTI_ABORTED);
    assert_string_equal(err.text, "a [2J b");
    assert_string_equal(err.reason, " [2J");
}

static void
test_shuttle__brings_bytes_both_ways_and_leaves_large_ones(void **state)
{
    static const size_t small[] = {0, 1, 65536};
    client_rig *rig = *state;
    unsigned char *bytes = make_bytes(65537);
    unsigned char *result = calloc(1, 65537);
    tutti_error err;
    tutti_spec spec;
    size_t i;

    assert_non_null(result);
    call(rig, BEFORE);
    for (i = 0; i < COUNT_OF(small); i++) {
        spec = bytes_spec(rig, small[i]);
        assert_ok(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, result, &err));
        assert_memory_equal(result, bytes, small[i]);
        assert_int_equal(atomic_load(&rig->agent.command_count), i + 1);
    }
    spec = bytes_spec(rig, 65537);
    assert_ok(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, result, &err));
    assert_memory_equal(result, bytes, 65537);
    assert_int_equal(atomic_load(&rig->agent.command_count), COUNT_OF(small));
    free(result);
    free(bytes);
}

static void
test_shuttle__ends_in_time_when_the_agent_says_nothing(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_error err;

    call(rig, BEFORE + 1);
    rig->agent.script.park_method = "Barrier";
    tutti_op_init(&op);
    op.timeout_ms = 1;
    assert_fails(tutti_barrier(rig->client, &op, NULL, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(err.text, "/tutti.v1.CollectivesService/Barrier in time");
    assert_text_has(err.text, fake_agent_address(&rig->agent));
    fake_agent_settle(&rig->agent); /* it has heard that nobody waits */
    assert_int_equal(atomic_load(&rig->agent.run_cancelled), 1);
    rig->agent.script.park_method = NULL;
    call(rig, 1);
    assert_counts(rig, BEFORE + 3, 3, 2);
}

static void
test_shuttle__that_ended_while_it_was_idle_is_no_loss(void **state)
{
    client_rig *rig = *state;

    call(rig, BEFORE);
    rig->agent.script.run = FAKE_RUN_END_AFTER;
    call(rig, 1);
    fake_agent_settle(&rig->agent);
    call(rig, 1);
    fake_agent_settle(&rig->agent);
    rig->agent.script.run = FAKE_RUN_WELL;
    call(rig, 2);
    assert_int_equal(atomic_load(&rig->agent.op_count), BEFORE + 4);
    /* Whose end was not heard yet has taken nothing: such a call went by itself. */
    assert_in_range(atomic_load(&rig->agent.run_count), 2, 3);
}

/* Nothing that was asked is left undone when a stream ends well: what has no answer was not taken.
 */
static void
test_shuttle__that_ends_well_without_an_answer_has_taken_nothing(void **state)
{
    client_rig *rig = *state;

    call(rig, BEFORE);
    rig->agent.script.run = FAKE_RUN_END_BEFORE;
    rig->agent.script.error = (tutti_error){.code = TUTTI_OK};
    call(rig, 4);
    assert_counts(rig, BEFORE + 4, 2, 2); /* every second one by itself */
}

/* What the call did nobody knows: its error is the stream's, and the next one has a new stream. */
static void
test_shuttle__that_breaks_under_a_call_says_why(void **state)
{
    client_rig *rig = *state;
    tutti_error err;

    call(rig, BEFORE);
    rig->agent.script.run = FAKE_RUN_END_BEFORE;
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_UNAVAILABLE, "STOPPING", "rank 1 stops");
    call(rig, 1);
    assert_fails(tutti_barrier(rig->client, NULL, NULL, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "STOPPING");
    rig->agent.script.run = FAKE_RUN_WELL;
    call(rig, 1);
    assert_counts(rig, BEFORE + 2, 2, 2);
}

static void
test_shuttle__that_is_refused_leaves_calls_to_go_by_themselves(void **state)
{
    static const tutti_code codes[] = {TUTTI_UNIMPLEMENTED, TUTTI_PERMISSION_DENIED,
                                       TUTTI_RESOURCE_EXHAUSTED};
    client_rig *rig = *state;
    tutti_error err;
    unsigned i;

    rig->agent.script.run = FAKE_RUN_REFUSE;
    for (i = 0; i < COUNT_OF(codes); i++) {
        rig->agent.script.error = (tutti_error){.code = codes[i]};
        call(rig, BEFORE + 3); /* it asks once */
        assert_counts(rig, (i + 1) * (BEFORE + 3), 0, i + 1);
        tutti_close(rig->client);
        assert_ok(tutti_connect(fake_agent_address(&rig->agent), &rig->client, &err));
    }
}

/* The next call may have another token: it tries a stream again. */
static void
test_shuttle__that_is_refused_for_its_token_is_tried_again(void **state)
{
    client_rig *rig = *state;

    rig->agent.script.run = FAKE_RUN_REFUSE;
    rig->agent.script.error = (tutti_error){.code = TUTTI_UNAUTHENTICATED};
    call(rig, BEFORE + 3);
    assert_counts(rig, BEFORE + 3, 0, 3);
    rig->agent.script.run = FAKE_RUN_WELL;
    call(rig, 5);
    assert_counts(rig, BEFORE + 3 + 5, 5, 4);
}

/* A token that is good no more is sent again with a call of its own, which reads its file. */
static void
test_shuttle__whose_token_is_old_is_replaced(void **state)
{
    client_rig *rig = *state;

    call(rig, BEFORE);
    rig->agent.script.run = FAKE_RUN_ERROR;
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_UNAUTHENTICATED, "BAD_TOKEN", "it is old");
    call(rig, 1);
    rig->agent.script.run = FAKE_RUN_WELL;
    call(rig, 1);
    assert_int_equal(atomic_load(&rig->agent.run_count), 2);
}

static void
test_shuttle__does_not_believe_answers_to_other_calls(void **state)
{
    static const fake_run lies[] = {FAKE_RUN_OTHER_ID, FAKE_RUN_NOTHING, FAKE_RUN_OTHER_CALL};
    client_rig *rig = *state;
    tutti_error err;
    unsigned i;

    call(rig, BEFORE);
    for (i = 0; i < COUNT_OF(lies); i++) {
        rig->agent.script.run = lies[i];
        assert_fails(tutti_barrier(rig->client, NULL, NULL, &err), TUTTI_DATA_LOSS);
        rig->agent.script.run = FAKE_RUN_WELL;
        call(rig, 1);
        assert_int_equal(atomic_load(&rig->agent.run_count), i + 2);
    }
}

static void *
call_often(void *arg)
{
    client_rig *rig = arg;
    tutti_error err;
    unsigned failed = 0;
    unsigned i;

    for (i = 0; i < 30; i++) {
        failed += tutti_barrier(rig->client, NULL, NULL, &err) == TUTTI_OK ? 0 : 1;
    }
    return (void *)(uintptr_t)failed;
}

static void
test_shuttle__is_one_of_sixteen_at_most(void **state)
{
    client_rig *rig = *state;
    pthread_t threads[24];
    void *failed;
    size_t i;

    for (i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, rig), 0);
    }
    for (i = 0; i < COUNT_OF(threads); i++) {
        (void)pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(atomic_load(&rig->agent.op_count), COUNT_OF(threads) * 30);
    assert_in_range(atomic_load(&rig->agent.run_most), 1, 16);
    assert_in_range(atomic_load(&rig->agent.command_count), 30, COUNT_OF(threads) * 30);
}

#define shuttle_test(name) cmocka_unit_test_setup_teardown(name, begin, client_rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        shuttle_test(test_shuttle__carries_all_calls_but_the_first),
        shuttle_test(test_shuttle__says_goodbye),
        shuttle_test(test_shuttle__passes_the_agents_error_whole_and_goes_on),
        shuttle_test(test_shuttle__cleans_an_errors_text),
        shuttle_test(test_shuttle__brings_bytes_both_ways_and_leaves_large_ones),
        shuttle_test(test_shuttle__ends_in_time_when_the_agent_says_nothing),
        shuttle_test(test_shuttle__that_ended_while_it_was_idle_is_no_loss),
        shuttle_test(test_shuttle__that_ends_well_without_an_answer_has_taken_nothing),
        shuttle_test(test_shuttle__that_breaks_under_a_call_says_why),
        shuttle_test(test_shuttle__that_is_refused_leaves_calls_to_go_by_themselves),
        shuttle_test(test_shuttle__that_is_refused_for_its_token_is_tried_again),
        shuttle_test(test_shuttle__whose_token_is_old_is_replaced),
        shuttle_test(test_shuttle__does_not_believe_answers_to_other_calls),
        shuttle_test(test_shuttle__is_one_of_sixteen_at_most),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
