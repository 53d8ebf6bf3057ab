/*
 * Goal: an op says what the caller said and ends with what the agent answered; the variants on the
 * caller's memory leave no tensor behind, however they end.
 * Method: a fake agent that records requests and fails on demand.
 */
#include "client_bytes.h"

static void
test_op__without_a_timeout_has_no_deadline(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    assert_ok(tutti_barrier(rig->client, &op, NULL, &err));
    assert_int_equal(rig->agent.call_left_ms, 0);
    assert_int_equal(rig->agent.op_timeout_ms, 0);
    assert_string_equal(rig->agent.op_group, "");
    assert_ok(tutti_barrier(rig->client, NULL, NULL, &err));
}

static void
test_op__leaves_the_agent_two_seconds_to_say_why(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    op.timeout_ms = 10000;
    op.group = "tp/0";
    op.sequence = 7;
    assert_ok(tutti_barrier(rig->client, &op, NULL, &err));
    assert_int_equal(rig->agent.op_timeout_ms, 10000);
    assert_in_range(rig->agent.call_left_ms, 10001, 12400);
    assert_string_equal(rig->agent.op_group, "tp/0");
    assert_int_equal(rig->agent.op_sequence, 7);
}

static void
test_op__of_an_agent_that_says_nothing_ends_after_its_grace(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_error err;

    rig->agent.script.park_method = "Barrier";
    tutti_op_init(&op);
    op.timeout_ms = 1;
    assert_fails(tutti_barrier(rig->client, &op, NULL, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(err.text, "Barrier");
}

static void
test_op__passes_the_agents_error_whole(void **state)
{
    client_rig *rig = *state;
    tutti_error *error = &rig->agent.script.error;
    tutti_op op;
    tutti_op_result result = {.sequence = 99};
    tutti_error err;

    (void)TUTTI_FAIL_FOR(error, TUTTI_FAILED_PRECONDITION, "OP_MISMATCH",
                         "rank 3 called all_reduce(sum, FP16[1024]), ranks 0-2 FP32[1024]");
    tutti_error_set_op(error, "world", 41, 3);
    error->scope = TUTTI_SCOPE_GROUP;
    rig->agent.script.fail_method = "AllReduce";
    tutti_op_init(&op);
    op.input = "x";
    assert_fails(tutti_all_reduce(rig->client, &op, &result, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "OP_MISMATCH");
    assert_string_equal(err.text, error->text);
    assert_string_equal(err.group, "world");
    assert_int_equal(err.sequence, 41);
    assert_int_equal(err.rank, 3);
    assert_int_equal(err.scope, TUTTI_SCOPE_GROUP);
    assert_int_equal(result.sequence, 99); /* untouched */
    assert_fails(tutti_all_reduce(rig->client, &op, NULL, NULL), TUTTI_FAILED_PRECONDITION);
}

static void
test_op__tells_result_work_and_sequence(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_op_result result;
    tutti_error err;

    tutti_op_init(&op);
    op.input = "grad";
    op.output = "sum";
    op.async = true;
    assert_ok(tutti_all_reduce(rig->client, &op, &result, &err));
    assert_string_equal(rig->agent.op_input, "grad");
    assert_string_equal(rig->agent.op_output, "sum");
    assert_true(rig->agent.op_async);
    assert_int_equal(result.sequence, 42);
    assert_int_equal(result.elapsed_us, 17);
    assert_string_equal(result.work, "work:0.0000000000000001.5");
    assert_string_equal(result.output.text, "tensor:0.0000000000000001.1");
    assert_in_range(rig->agent.call_left_ms, 1, 31000);
}

static void
test_op__names_root_and_peer_as_asked(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_op_result result;
    tutti_error err;

    tutti_op_init(&op);
    op.root = 2;
    assert_ok(tutti_broadcast(rig->client, &op, &result, &err));
    assert_true(!rig->agent.op_root_global && rig->agent.op_root == 2);
    assert_false(rig->agent.op_inline_result);
    op.global = true;
    assert_ok(tutti_broadcast(rig->client, &op, &result, &err));
    assert_true(rig->agent.op_root_global && rig->agent.op_root == 2);
    op.peer = 3;
    op.input = "x";
    assert_ok(tutti_send(rig->client, &op, &result, &err));
    assert_true(rig->agent.op_root_global && rig->agent.op_root == 3);
    op.global = false;
    assert_ok(tutti_recv(rig->client, &op, &result, &err));
    assert_true(rig->agent.op_has_peer && rig->agent.op_root == 3);
    assert_int_equal(result.source, 1);
    assert_int_equal(result.source_global, 3);
    tutti_op_init(&op);
    assert_ok(tutti_recv(rig->client, &op, &result, &err));
    assert_false(rig->agent.op_has_peer);
}

static void
test_op__that_was_not_initialised_is_refused(void **state)
{
    client_rig *rig = *state;
    const tutti_op op = {0};
    tutti_error err;

    assert_fails(tutti_barrier(rig->client, &op, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(atomic_load(&rig->agent.op_count), 0);
}

static void
test_op__with_a_bad_answer_is_data_loss(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    op.input = "x";
    rig->agent.script.mischief = FAKE_LONG_HANDLE;
    assert_fails(tutti_all_reduce(rig->client, &op, NULL, &err), TUTTI_DATA_LOSS);
    rig->agent.script.mischief = FAKE_WRONG_SPEC;
    assert_fails(tutti_broadcast(rig->client, &op, NULL, &err), TUTTI_DATA_LOSS);
}

/* ------------------------------------------------------------------------------ works */

static void
test_wait__tells_how_each_work_ended(void **state)
{
    static const char *const works[] = {"work:0.0000000000000001.5", "work:0.0000000000000001.6"};
    client_rig *rig = *state;
    tutti_work_status statuses[2];
    tutti_error err;

    assert_ok(tutti_wait(rig->client, works, 2, 0, statuses, &err));
    assert_int_equal(rig->agent.call_left_ms, 0);
    assert_string_equal(statuses[0].work, works[0]);
    assert_true(statuses[0].done && statuses[0].error.code == TUTTI_OK);
    assert_string_equal(statuses[0].output.text, "tensor:0.0000000000000001.1");
    assert_int_equal(statuses[1].error.code, TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(statuses[1].error.reason, "TIMEOUT");
    assert_string_equal(statuses[1].error.text, "rank 2 did not come");
    assert_int_equal(statuses[1].error.sequence, 43);
    assert_ok(tutti_wait(rig->client, works, 1, 500, NULL, &err));
    assert_int_equal(rig->agent.op_timeout_ms, 500);
    assert_in_range(rig->agent.call_left_ms, 501, 2600);
}

static void
test_wait__writes_nothing_when_one_status_cannot_be_read(void **state)
{
    static const char *const works[] = {"work:0.0000000000000001.5", "work:0.0000000000000001.6"};
    client_rig *rig = *state;
    tutti_work_status statuses[2] = {{.work = "untouched"}};
    tutti_error err;

    rig->agent.script.mischief = FAKE_LONG_HANDLE; /* of the second */
    assert_fails(tutti_wait(rig->client, works, 2, 0, statuses, &err), TUTTI_DATA_LOSS);
    assert_string_equal(statuses[0].work, "untouched");
}

static void
test_wait__without_statuses_returns_the_first_failure(void **state)
{
    static const char *const works[] = {"work:0.0000000000000001.5", "work:0.0000000000000001.6",
                                        "work:0.0000000000000001.7"};
    client_rig *rig = *state;
    tutti_error err;

    assert_fails(tutti_wait(rig->client, works, 2, 0, NULL, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(err.text, "rank 2 did not come");
    assert_int_equal(err.rank, 2);
    assert_fails(tutti_wait(rig->client, works, 3, 0, NULL, &err), TUTTI_DATA_LOSS);
    assert_fails(tutti_wait(rig->client, works, 0, 0, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "WORK_COUNT");
    assert_fails(tutti_wait(rig->client, works, 1025, 0, NULL, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_cancel__tells_how_the_works_stand(void **state)
{
    static const char *const works[] = {"work:0.0000000000000001.5", "work:0.0000000000000001.6"};
    client_rig *rig = *state;
    tutti_work_status statuses[2];
    tutti_error err;

    assert_ok(tutti_cancel(rig->client, works, 2, statuses, &err));
    assert_string_equal(statuses[1].work, works[1]);
    assert_true(statuses[0].done && !statuses[1].done);
    assert_ok(tutti_cancel(rig->client, works, 1, NULL, &err));
    assert_fails(tutti_cancel(rig->client, works, 0, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "WORK_COUNT");
}

/* ------------------------------------------------------------------------------ on memory */

static void
test_all_reduce_data__of_small_data_is_one_call(void **state)
{
    static const size_t sizes[] = {0, 1, 65537, 3 * MIB};
    client_rig *rig = *state;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(sizes); i++) {
        const tutti_spec spec = bytes_spec(rig, sizes[i]);
        unsigned char *bytes = make_bytes(sizes[i]);
        unsigned char *result = calloc(1, sizes[i] + 1);

        assert_non_null(result);
        assert_ok(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, result, &err));
        assert_memory_equal(result, bytes, sizes[i]);
        assert_true(rig->agent.op_inline);
        assert_ok(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, bytes, &err));
        assert_memory_equal(result, bytes, sizes[i]);
        free(result);
        free(bytes);
    }
    assert_int_equal(atomic_load(&rig->agent.made_count), 0);
    assert_int_equal(atomic_load(&rig->agent.delete_count), 0);
}

static void
test_all_reduce_data__of_large_data_is_one_tensor_that_goes(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, LARGE);
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *result = calloc(1, LARGE);
    tutti_error err;

    assert_ok(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, result, &err));
    assert_memory_equal(result, bytes, LARGE);
    assert_false(rig->agent.op_inline);
    assert_string_equal(rig->agent.op_input, rig->agent.made[0]);
    assert_string_equal(rig->agent.op_output, rig->agent.made[0]);
    assert_int_equal(atomic_load(&rig->agent.made_count), 1);
    assert_int_equal(atomic_load(&rig->agent.delete_count), 1);
    assert_clean(rig);
    free(result);
    free(bytes);
}

/* Fail at one step; nothing stays, and the group hears of the op in any case. */
static void
run_failing(client_rig *rig, const char *step, fake_mischief mischief, bool gather)
{
    const tutti_spec spec = bytes_spec(rig, LARGE);
    const unsigned ops = atomic_load(&rig->agent.op_count);
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *result = calloc(1, 2 * LARGE);
    tutti_error err;
    tutti_code code;

    rig->agent.script.fail_method = step;
    rig->agent.script.mischief = mischief;
    rig->agent.script.mischief_chunks = 1;
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
                         "failed at %s", step);
    code = gather ? tutti_all_gather_data(rig->client, NULL, &spec, bytes, result, 2 * LARGE, &err)
                  : tutti_all_reduce_data(rig->client, NULL, &spec, bytes, result, &err);
    assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_text_has(err.text, step);
    assert_int_equal(atomic_load(&rig->agent.op_count) - ops, 1);
    assert_clean(rig);
    free(result);
    free(bytes);
}

static void
test_data__leaves_nothing_behind_wherever_it_fails(void **state)
{
    client_rig *rig = *state;

    run_failing(rig, "the upload", FAKE_BREAK_OFF, false);
    run_failing(rig, "AllReduce", FAKE_WELL, false);
    run_failing(rig, "the upload", FAKE_BREAK_OFF, true);
    run_failing(rig, "Create", FAKE_WELL, true);
    run_failing(rig, "AllGather", FAKE_WELL, true);
}

static void
assert_called_in_vain(client_rig *rig, unsigned ops)
{
    assert_int_equal(atomic_load(&rig->agent.op_count), ops);
    assert_memory_equal(rig->agent.op_input, "tutti.tmp/", 10);
    assert_memory_equal(rig->agent.op_output, "tutti.tmp/", 10);
    rig->agent.op_input[0] = '\0';
    rig->agent.op_output[0] = '\0';
}

/* Else the other ranks wait for their deadlines. */
static void
test_data__calls_the_op_in_vain_when_its_arguments_are_bad(void **state)
{
    client_rig *rig = *state;
    const tutti_spec bad = {TUTTI_DTYPE_FP32, 1, {-1}};
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {4}};
    float data[8] = {0};
    tutti_op op;
    tutti_error err;

    assert_fails(tutti_all_reduce_data(rig->client, NULL, &bad, data, data, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_called_in_vain(rig, 1);
    assert_fails(tutti_all_gather_data(rig->client, NULL, &spec, data, data, 31, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    assert_called_in_vain(rig, 2);
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_UNAVAILABLE, "AWAY", "no coordinator");
    rig->agent.script.fail_method = "GetGroup";
    tutti_op_init(&op);
    op.group = "tp/0";
    assert_fails(tutti_broadcast_data(rig->client, &op, &spec, data, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "AWAY");
    assert_called_in_vain(rig, 3);
    assert_string_equal(rig->agent.op_group, "tp/0");
}

static void
test_object__calls_the_op_in_vain_when_it_cannot_be_put(void **state)
{
    client_rig *rig = *state;
    tutti_object object = {.data = NULL, .size = 0};
    tutti_object *objects = NULL;
    size_t count = 0;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
                         "no room");
    rig->agent.script.fail_method = "Put";
    assert_fails(tutti_object_broadcast(rig->client, NULL, &object, NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_called_in_vain(rig, 1);
    assert_fails(tutti_object_all_gather(rig->client, NULL, &object, &objects, &count, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_called_in_vain(rig, 2);
    assert_fails(tutti_object_send(rig->client, NULL, &object, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_int_equal(atomic_load(&rig->agent.op_count), 2);
    assert_fails(tutti_object_gather(rig->client, NULL, NULL, &objects, &count, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "NULL_ARGUMENT");
    assert_called_in_vain(rig, 3);
    assert_fails(tutti_object_send(rig->client, NULL, NULL, &err), TUTTI_INVALID_ARGUMENT);
    tutti_op_more_free(NULL);
}

/* The fake agent does not say how many commands it takes: so did agents before there were queues. */
static void
test_queue__of_an_old_agent_is_refused_with_the_way_out(void **state)
{
    client_rig *rig = *state;
    tutti_queue *queue = NULL;
    tutti_error err;

    assert_fails(tutti_queue_open(rig->client, NULL, &queue, &err), TUTTI_UNIMPLEMENTED);
    assert_string_equal(err.reason, "OLD_AGENT");
    assert_text_has(err.text, "tutti_pipeline_open");
    assert_null(queue);
}

static void
test_data__keeps_its_error_when_deleting_fails_too(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, LARGE);
    unsigned char *bytes = make_bytes(LARGE);
    tutti_error err;

    (void)TUTTI_FAIL(&rig->agent.script.error, TUTTI_INTERNAL, "could not delete");
    rig->agent.script.fail_method = "Delete";
    assert_ok(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, bytes, &err));
    rig->agent.script.mischief = FAKE_COUNT_LESS;
    assert_fails(tutti_all_reduce_data(rig->client, NULL, &spec, bytes, bytes, &err),
                 TUTTI_DATA_LOSS);
    free(bytes);
}

static void
test_broadcast_data__sends_on_the_root_alone(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, 100);
    unsigned char *bytes = make_bytes(100);
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    assert_ok(tutti_broadcast_data(rig->client, &op, &spec, bytes, &err)); /* we are rank 0 */
    assert_true(rig->agent.op_inline && !rig->agent.op_inline_result);
    op.root = 1;
    rig->agent.bytes = calloc(1, 100);
    rig->agent.size = 100;
    assert_ok(tutti_broadcast_data(rig->client, &op, &spec, bytes, &err));
    assert_true(!rig->agent.op_inline && rig->agent.op_inline_result);
    assert_int_equal(bytes[99], 0);
    rig->agent.size = 99;
    assert_fails(tutti_broadcast_data(rig->client, &op, &spec, bytes, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    rig->agent.size = 100;
    rig->agent.script.spec.dtype = TUTTI_DTYPE_BOOL;
    assert_fails(tutti_broadcast_data(rig->client, &op, &spec, bytes, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "DTYPE_MISMATCH");
    free(bytes);
}

/* The group's ranks are 3 and 1: group rank 1 is rank 1. */
static void
test_broadcast_data__asks_who_is_root_in_a_group(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, 100);
    unsigned char *bytes = make_bytes(100);
    tutti_client *other = NULL;
    tutti_op op;
    tutti_error err;

    rig->agent.script.rank = 1;
    assert_ok(tutti_connect(fake_agent_address(&rig->agent), &other, &err));
    tutti_op_init(&op);
    op.group = "tp/0";
    op.root = 1;
    assert_ok(tutti_broadcast_data(other, &op, &spec, bytes, &err));
    assert_true(rig->agent.op_inline);
    op.global = true;
    assert_ok(tutti_broadcast_data(other, &op, &spec, bytes, &err));
    assert_true(rig->agent.op_inline);
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_NOT_FOUND, "NO_GROUP", "no group tp/0");
    rig->agent.script.fail_method = "GetGroup";
    op.global = false;
    assert_fails(tutti_broadcast_data(other, &op, &spec, bytes, &err), TUTTI_NOT_FOUND);
    tutti_close(other);
    free(bytes);
}

/* Of the world the ranks 3 and 1 are there: group rank 0 is rank 3. */
static void
test_broadcast_data__asks_who_is_root_in_the_world_of_an_elastic_job(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, 100);
    unsigned char *bytes = make_bytes(100);
    tutti_client *other = NULL;
    tutti_op op;
    tutti_error err;

    rig->agent.script.rank = 3;
    rig->agent.script.elastic = true;
    assert_ok(tutti_connect(fake_agent_address(&rig->agent), &other, &err));
    tutti_op_init(&op);
    assert_ok(tutti_broadcast_data(other, &op, &spec, bytes, &err));
    assert_true(rig->agent.op_inline);
    op.group = "world";
    assert_ok(tutti_broadcast_data(other, &op, &spec, bytes, &err));
    assert_true(rig->agent.op_inline);
    tutti_close(other);
    free(bytes);
}

static void
test_broadcast_data__of_large_data_takes_one_tensor_on_each_side(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, LARGE);
    unsigned char *bytes = make_bytes(LARGE);
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    assert_ok(tutti_broadcast_data(rig->client, &op, &spec, bytes, &err));
    assert_string_equal(rig->agent.op_input, rig->agent.made[0]);
    assert_int_equal(atomic_load(&rig->agent.download_count), 0);
    op.root = 3;
    assert_ok(tutti_broadcast_data(rig->client, &op, &spec, bytes, &err));
    assert_string_equal(rig->agent.op_input, "");
    assert_string_equal(rig->agent.op_output, rig->agent.made[1]);
    assert_int_equal(atomic_load(&rig->agent.download_count), 1);
    assert_int_equal(atomic_load(&rig->agent.upload_count), 1);
    assert_clean(rig);
    free(bytes);
}

static void
test_all_gather_data__gives_every_ranks_bytes(void **state)
{
    client_rig *rig = *state;
    tutti_spec spec = bytes_spec(rig, 100);
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *result = calloc(1, 2 * LARGE);
    tutti_error err;

    assert_ok(tutti_all_gather_data(rig->client, NULL, &spec, bytes, result, 200, &err));
    assert_true(rig->agent.op_inline);
    assert_memory_equal(result, bytes, 100);
    assert_memory_equal(result + 100, bytes, 100);
    assert_fails(tutti_all_gather_data(rig->client, NULL, &spec, bytes, result, 300, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    assert_int_equal(atomic_load(&rig->agent.made_count), 0);
    spec = bytes_spec(rig, 2 * MIB); /* it fits into a message, the result does not */
    rig->agent.script.spec.dims[0] = 4 * MIB;
    assert_ok(tutti_all_gather_data(rig->client, NULL, &spec, bytes, result, 4 * MIB, &err));
    assert_false(rig->agent.op_inline);
    assert_memory_equal(result + 2 * MIB, bytes, 2 * MIB);
    assert_int_equal(atomic_load(&rig->agent.made_count), 2);
    assert_clean(rig);
    spec.dtype = TUTTI_DTYPE_FP32;
    assert_fails(tutti_all_gather_data(rig->client, NULL, &spec, bytes, result, 4 * MIB + 1, &err),
                 TUTTI_INVALID_ARGUMENT);
    free(result);
    free(bytes);
}

/* ------------------------------------------------------------------------------ threads */

typedef struct hammer {
    client_rig *rig;
    unsigned failed;
} hammer;

static void *
run_hammer(void *arg)
{
    hammer *self = arg;
    tutti_tensor_info info;
    unsigned i;

    for (i = 0; i < 100; i++) {
        if (tutti_barrier(self->rig->client, NULL, NULL, NULL) != TUTTI_OK ||
            tutti_tensor_stat(self->rig->client, "t", &info, NULL) != TUTTI_OK) {
            self->failed++;
        }
    }
    return NULL;
}

static void
test_client__serves_many_threads_at_once(void **state)
{
    hammer hammers[8];
    pthread_t threads[8];
    size_t i;

    for (i = 0; i < COUNT_OF(threads); i++) {
        hammers[i] = (hammer){.rig = *state};
        assert_int_equal(pthread_create(&threads[i], NULL, run_hammer, &hammers[i]), 0);
    }
    for (i = 0; i < COUNT_OF(threads); i++) {
        (void)pthread_join(threads[i], NULL);
        assert_int_equal(hammers[i].failed, 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(test_op__without_a_timeout_has_no_deadline),
        client_test(test_op__leaves_the_agent_two_seconds_to_say_why),
        client_test(test_op__of_an_agent_that_says_nothing_ends_after_its_grace),
        client_test(test_op__passes_the_agents_error_whole),
        client_test(test_op__tells_result_work_and_sequence),
        client_test(test_op__names_root_and_peer_as_asked),
        client_test(test_op__that_was_not_initialised_is_refused),
        client_test(test_op__with_a_bad_answer_is_data_loss),
        client_test(test_wait__tells_how_each_work_ended),
        client_test(test_wait__writes_nothing_when_one_status_cannot_be_read),
        client_test(test_wait__without_statuses_returns_the_first_failure),
        client_test(test_cancel__tells_how_the_works_stand),
        client_test(test_all_reduce_data__of_small_data_is_one_call),
        client_test(test_all_reduce_data__of_large_data_is_one_tensor_that_goes),
        client_test(test_data__leaves_nothing_behind_wherever_it_fails),
        client_test(test_data__calls_the_op_in_vain_when_its_arguments_are_bad),
        client_test(test_object__calls_the_op_in_vain_when_it_cannot_be_put),
        client_test(test_queue__of_an_old_agent_is_refused_with_the_way_out),
        client_test(test_data__keeps_its_error_when_deleting_fails_too),
        client_test(test_broadcast_data__sends_on_the_root_alone),
        client_test(test_broadcast_data__asks_who_is_root_in_a_group),
        client_test(test_broadcast_data__asks_who_is_root_in_the_world_of_an_elastic_job),
        client_test(test_broadcast_data__of_large_data_takes_one_tensor_on_each_side),
        client_test(test_all_gather_data__gives_every_ranks_bytes),
        client_test(test_client__serves_many_threads_at_once),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
