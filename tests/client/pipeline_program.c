/*
 * Goal: a pipeline does what the calls of their own would, and tells of each by its id; infer and
 * sync say what agents say.
 * Method: two ranks against real agents, run by tests/system/test_pipeline.py:
 * `tutti run -n 2 -- pipeline_program`. Both ranks run the same tests in the same order.
 */
#include "support/testing.h"

#include <unistd.h>

#include "tutti/tutti.h"

#define COUNT 1000

typedef struct rig {
    tutti_client *client;
    tutti_pipeline *pipeline;
    uint32_t rank;
} rig;

static const tutti_spec pair = {TUTTI_DTYPE_FP32, 1, {2}};

static int
set_up(void **state)
{
    static rig self;
    tutti_error err;

    self = (rig){0};
    assert_ok(tutti_connect(NULL, &self.client, &err));
    self.rank = tutti_whoami(self.client)->rank;
    assert_int_equal(tutti_whoami(self.client)->world_size, 2);
    assert_ok(tutti_barrier(self.client, NULL, NULL, &err));
    assert_ok(tutti_pipeline_open(self.client, NULL, &self.pipeline, &err));
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_agent_stats stats;
    tutti_error err;

    (void)tutti_pipeline_close(self->pipeline, NULL);
    assert_ok(tutti_agent_stat(self->client, &stats, &err));
    assert_int_equal(stats.tensor_count, 0);
    tutti_close(self->client);
    return 0;
}

static void
take_well(rig *self, uint64_t id, tutti_pipeline_result *ret)
{
    tutti_error err;

    assert_ok(tutti_pipeline_take(self->pipeline, id, ret, &err));
    if (ret->error.code != TUTTI_OK) {
        fail_msg("call %d: %s", (int)id, ret->error.text);
    }
    assert_int_equal(ret->id, id);
}

static void
test_pipeline__of_calls_that_build_on_each_other(void **state)
{
    rig *self = *state;
    const float given[2] = {1.0F + (float)self->rank, 5.0F};
    float got[2] = {0};
    uint64_t ids[5];
    tutti_pipeline_result result;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.input = "x";
    op.output = "x";
    assert_ok(tutti_pipeline_put(self->pipeline, &pair, given, "x", NULL, &ids[0], &err));
    assert_ok(tutti_pipeline_submit(self->pipeline, TUTTI_OP_ALL_REDUCE, &op, &ids[1], &err));
    assert_ok(tutti_pipeline_get(self->pipeline, "x", got, sizeof(got), &ids[2], &err));
    assert_ok(tutti_pipeline_sync(self->pipeline, NULL, 0, &ids[3], &err));
    assert_ok(tutti_pipeline_delete(self->pipeline, "x", &ids[4], &err));
    assert_int_equal(ids[4], 5);
    assert_int_equal(tutti_pipeline_count(self->pipeline), 5);
    take_well(self, ids[4], &result); /* in another order than they were submitted */
    take_well(self, ids[2], &result);
    assert_true(got[0] == 3.0F && got[1] == 10.0F);
    take_well(self, ids[1], &result);
    assert_true(result.op.sequence > 0 && result.op.output.known);
    take_well(self, ids[0], &result);
    take_well(self, ids[3], &result);
    assert_fails(tutti_pipeline_take(self->pipeline, ids[3], &result, &err), TUTTI_NOT_FOUND);
    assert_fails(tutti_pipeline_next(self->pipeline, &result, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NOTHING_SUBMITTED");
    assert_ok(tutti_pipeline_close(self->pipeline, &err));
    self->pipeline = NULL;
}

static void
test_pipeline__of_ops_on_memory_of_the_callers(void **state)
{
    static float results[COUNT][2];
    rig *self = *state;
    tutti_pipeline_result result;
    tutti_error err;
    int i;

    for (i = 0; i < COUNT; i++) {
        const float given[2] = {(float)i, (float)self->rank};
        const tutti_pipeline_data data = {pair, given, results[i], sizeof(results[i])};

        assert_ok(tutti_pipeline_submit_data(self->pipeline, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL,
                                             &err));
    }
    assert_int_equal(tutti_pipeline_count(self->pipeline), COUNT);
    for (i = 0; i < COUNT; i++) {
        assert_ok(tutti_pipeline_next(self->pipeline, &result, &err));
        assert_int_equal(result.error.code, TUTTI_OK);
    }
    for (i = 0; i < COUNT; i++) {
        assert_true(results[i][0] == 2.0F * (float)i && results[i][1] == 1.0F);
    }
}

static void
test_pipeline__gives_and_takes_on_either_side(void **state)
{
    rig *self = *state;
    const float given[2] = {7, 8};
    float got[2] = {0};
    tutti_pipeline_data data = {.spec = pair};
    tutti_pipeline_result result;
    uint64_t id = 0;
    tutti_error err;

    if (self->rank == 0) {
        data.data = given;
    } else {
        data.result = got;
        data.result_bytes = sizeof(got);
    }
    assert_ok(
        tutti_pipeline_submit_data(self->pipeline, TUTTI_OP_BROADCAST, NULL, &data, &id, &err));
    take_well(self, id, &result);
    assert_true(self->rank == 0 || (got[0] == 7.0F && got[1] == 8.0F));
    if (self->rank == 1) { /* too little room: told, and nothing written */
        data.result_bytes = 4;
        got[0] = 0;
    }
    assert_ok(
        tutti_pipeline_submit_data(self->pipeline, TUTTI_OP_BROADCAST, NULL, &data, &id, &err));
    assert_ok(tutti_pipeline_next(self->pipeline, &result, &err));
    assert_string_equal(result.error.reason, "OUT_SHAPE"); /* on every rank */
    assert_true(self->rank == 0 || got[0] == 0.0F);
}

static void
test_pipeline__goes_on_behind_a_call_that_fails(void **state)
{
    rig *self = *state;
    tutti_pipeline_result result;
    uint64_t id = 0;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.input = "nobody";
    assert_ok(tutti_pipeline_submit(self->pipeline, TUTTI_OP_ALL_REDUCE, &op, &id, &err));
    assert_ok(tutti_pipeline_submit_data(self->pipeline, TUTTI_OP_BARRIER, NULL, NULL, NULL, &err));
    assert_ok(tutti_pipeline_take(self->pipeline, id, &result, &err));
    assert_int_equal(result.error.code, TUTTI_NOT_FOUND);
    assert_string_equal(result.error.reason, "NO_TENSOR");
    assert_string_equal(result.error.group, "world");
    take_well(self, id + 1, &result);
    assert_fails(tutti_pipeline_submit(self->pipeline, (tutti_op_kind)99, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    op.size = 0;
    assert_fails(tutti_pipeline_submit(self->pipeline, TUTTI_OP_BARRIER, &op, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_int_equal(tutti_pipeline_count(self->pipeline), 0);
}

static void
test_pipeline__that_stops_on_error_skips_the_rest(void **state)
{
    rig *self = *state;
    tutti_pipeline_options options;
    tutti_pipeline *pipeline = NULL;
    tutti_pipeline_result result;
    tutti_error err;

    tutti_pipeline_options_init(&options);
    options.stop_on_error = true;
    options.in_flight_max = 1;
    assert_ok(tutti_pipeline_open(self->client, &options, &pipeline, &err));
    assert_ok(tutti_pipeline_delete(pipeline, "nobody", NULL, &err));
    assert_ok(tutti_pipeline_put(pipeline, &pair, "12345678", "x", NULL, NULL, &err));
    assert_ok(tutti_pipeline_next(pipeline, &result, &err));
    assert_string_equal(result.error.reason, "NO_TENSOR");
    assert_ok(tutti_pipeline_next(pipeline, &result, &err));
    assert_string_equal(result.error.reason, "SKIPPED");
    assert_ok(tutti_pipeline_close(pipeline, &err));
}

static void
test_pipeline__moves_more_than_the_limits_hold(void **state)
{
    rig *self = *state;
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {3 << 20}};
    unsigned char *data = calloc(1, 3 << 20);
    unsigned char *result = calloc(1, 3 << 20);
    uint64_t last = 0;
    tutti_pipeline_result done;
    tutti_error err;
    int i;

    assert_true(data != NULL && result != NULL);
    for (i = 0; i < 40; i++) { /* 120 MiB each way, and nobody takes results */
        data[0] = (unsigned char)i;
        assert_ok(tutti_pipeline_put(self->pipeline, &spec, data, i == 0 ? "big" : NULL,
                                     i == 0 ? NULL : "big", NULL, &err));
        assert_ok(tutti_pipeline_get(self->pipeline, "big", result, 3 << 20, &last, &err));
    }
    assert_ok(tutti_pipeline_delete(self->pipeline, "big", NULL, &err));
    take_well(self, last, &done);
    assert_int_equal(result[0], 39);
    free(data);
    free(result);
}

static void
test_pipeline__that_is_given_up_says_so(void **state)
{
    rig *self = *state;
    tutti_pipeline_result result;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.tag = 77; /* that nobody sends: there is no answer before it is given up */
    assert_ok(tutti_pipeline_submit(self->pipeline, TUTTI_OP_RECV, &op, NULL, &err));
    tutti_pipeline_cancel(self->pipeline);
    while (tutti_pipeline_next(self->pipeline, &result, &err) == TUTTI_OK) {
    }
    assert_int_equal(err.code, TUTTI_CANCELLED);
    assert_fails(tutti_pipeline_delete(self->pipeline, "nobody", NULL, &err), TUTTI_CANCELLED);
    assert_fails(tutti_pipeline_close(self->pipeline, &err), TUTTI_CANCELLED);
    self->pipeline = NULL;
}

static void
test_infer__tells_what_an_op_would_make(void **state)
{
    rig *self = *state;
    const tutti_spec input = {TUTTI_DTYPE_INT32, 2, {6, 4}};
    tutti_infer_place place = {.group_size = 3, .group_rank = 2};
    tutti_spec result;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.axis = -1;
    assert_ok(tutti_infer(self->client, TUTTI_OP_ALL_GATHER, &op, &input, &place, &result, &err));
    assert_true(result.dtype == TUTTI_DTYPE_INT32 && result.dim_count == 2);
    assert_true(result.dims[0] == 6 && result.dims[1] == 12);
    assert_ok(tutti_infer(self->client, TUTTI_OP_GATHER, NULL, &input, &place, &result, &err));
    assert_int_equal(result.dtype, TUTTI_DTYPE_NONE);
    assert_ok(
        tutti_infer(self->client, TUTTI_OP_REDUCE_SCATTER, NULL, &input, NULL, &result, &err));
    assert_int_equal(result.dims[0], 3);
    assert_fails(tutti_infer(self->client, TUTTI_OP_BARRIER, NULL, &input, NULL, &result, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "NO_OP");
    op.input = "nobody";
    assert_fails(tutti_infer(self->client, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, &result, &err),
                 TUTTI_NOT_FOUND);
}

static void
test_all_to_all__in_parts_of_any_length(void **state)
{
    rig *self = *state;
    const int64_t sends[2][2] = {{1, 2}, {3, 0}};
    const int64_t takes[2][2] = {{1, 3}, {2, 0}};
    const float given[3] = {10.0F * (float)self->rank, 10.0F * (float)self->rank + 1,
                            10.0F * (float)self->rank + 2};
    const tutti_spec three = {TUTTI_DTYPE_FP32, 1, {3}};
    float got[4] = {0};
    tutti_op_result result;
    tutti_handle handle;
    tutti_error err;
    tutti_op op;

    assert_ok(tutti_tensor_put(self->client, &three, given, NULL, NULL, &handle, &err));
    tutti_op_init(&op);
    op.input = handle.text;
    op.input_splits = sends[self->rank];
    op.input_split_count = 2;
    op.output_splits = takes[self->rank];
    op.output_split_count = 2;
    assert_ok(tutti_all_to_all(self->client, &op, &result, &err));
    assert_int_equal(result.output.spec.dims[0], self->rank == 0 ? 4 : 2);
    assert_ok(tutti_tensor_read(self->client, result.output.text, got, self->rank == 0 ? 16 : 8,
                                NULL, &err));
    assert_true(self->rank == 0 ? got[0] == 0.0F && got[1] == 10.0F && got[3] == 12.0F
                                : got[0] == 1.0F && got[1] == 2.0F);
    assert_ok(tutti_tensor_delete(self->client, handle.text, &err));
    assert_ok(tutti_tensor_delete(self->client, result.output.text, &err));
}

static void
test_sync__waits_for_async_ops_and_tells_of_failures(void **state)
{
    rig *self = *state;
    tutti_sync_result result;
    tutti_handle handle;
    tutti_error err;
    tutti_op op;

    assert_ok(tutti_tensor_create(self->client, &pair, NULL, &handle, &err));
    tutti_op_init(&op);
    op.input = handle.text;
    op.output = handle.text;
    op.async = true;
    assert_ok(tutti_all_reduce(self->client, &op, NULL, &err));
    assert_ok(tutti_sync(self->client, NULL, 0, &result, &err));
    assert_int_equal(result.failed_count, 0);
    op.reduce = self->rank == 0 ? TUTTI_REDUCE_MAX : TUTTI_REDUCE_MIN;
    assert_ok(tutti_all_reduce(self->client, &op, NULL, &err));
    if (tutti_sync(self->client, "world", 10000, NULL, &err) != TUTTI_OK) { /* else it was quick */
        assert_string_equal(err.reason, "OP_MISMATCH");
    }
    assert_ok(tutti_tensor_delete(self->client, handle.text, &err));
}

static void
test_barrier__that_is_monitored_has_a_reason_of_its_own(void **state)
{
    rig *self = *state;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.monitored = true;
    op.timeout_ms = 300;
    if (self->rank == 0) {
        assert_fails(tutti_barrier(self->client, &op, NULL, &err), TUTTI_DEADLINE_EXCEEDED);
        assert_string_equal(err.reason, "MISSING_RANKS");
        return;
    }
    (void)usleep(600000);
    assert_fails(tutti_barrier(self->client, &op, NULL, &err), TUTTI_DEADLINE_EXCEEDED);
}

int
main(void)
{
#define PAIR(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PAIR(test_pipeline__of_calls_that_build_on_each_other),
        PAIR(test_pipeline__of_ops_on_memory_of_the_callers),
        PAIR(test_pipeline__gives_and_takes_on_either_side),
        PAIR(test_pipeline__goes_on_behind_a_call_that_fails),
        PAIR(test_pipeline__that_stops_on_error_skips_the_rest),
        PAIR(test_pipeline__moves_more_than_the_limits_hold),
        PAIR(test_pipeline__that_is_given_up_says_so),
        PAIR(test_infer__tells_what_an_op_would_make),
        PAIR(test_all_to_all__in_parts_of_any_length),
        PAIR(test_sync__waits_for_async_ops_and_tells_of_failures),
        PAIR(test_barrier__that_is_monitored_has_a_reason_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
