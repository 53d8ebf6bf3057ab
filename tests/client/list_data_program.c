/*
 * Goal: lists of memory of the caller's are one op, blocking and by a queue, as tutti/op_data.h says.
 * Method: two ranks against real agents, run by tests/system/test_queue.py:
 * `tutti run -n 2 -- list_data_program`. Both ranks run the same tests in the same order.
 */
#include "support/testing.h"

#include "tutti/tutti.h"

#define LARGE (1024 * 1024) /* floats: 4 MiB, more than a message has */

typedef struct rig {
    tutti_client *client;
    tutti_queue *queue;
    uint32_t rank;
} rig;

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
    assert_ok(tutti_queue_open(self.client, NULL, &self.queue, &err));
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_agent_stats stats;
    tutti_error err;

    assert_ok(tutti_queue_close(self->queue, &err));
    tutti_close(self->client); /* the tensors of its arena go with it */
    assert_ok(tutti_connect(NULL, &self->client, &err));
    assert_ok(tutti_agent_stat(self->client, &stats, &err));
    assert_int_equal(stats.tensor_count, 0);
    tutti_close(self->client);
    return 0;
}

static tutti_queue_completion
take_next(tutti_queue *queue)
{
    tutti_queue_completion done;
    tutti_error err;

    assert_ok(tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, &err));
    return done;
}

static tutti_queue_completion
take_good(tutti_queue *queue)
{
    const tutti_queue_completion done = take_next(queue);

    if (done.error.code != TUTTI_OK) {
        fail_msg("op %d: %s", (int)done.id, done.error.text);
    }
    return done;
}

/* By the queue, or blocking. */
static void
run_list(rig *self, tutti_op_kind kind, const tutti_op *op, const tutti_op_data *arrays,
         size_t count, bool by_queue)
{
    tutti_queue_completion done;
    tutti_error err;

    if (!by_queue) {
        assert_ok(tutti_list_data(self->client, kind, op, arrays, count, &err));
        return;
    }
    assert_ok(tutti_queue_submit_list(self->queue, kind, op, arrays, count, self, NULL, &err));
    done = take_good(self->queue);
    assert_ptr_equal(done.user, self);
    assert_int_equal(done.more.output_count, 0);
}

static tutti_op_data
array_of(tutti_dtype dtype, int64_t count, const void *given, void *result, uint64_t result_bytes)
{
    return (tutti_op_data){
        .spec = {dtype, 1, {count}}, .data = given, .result = result, .result_bytes = result_bytes};
}

/* `large` floats, and three numbers of another type and an odd size, in one op. */
static void
reduce_list(rig *self, int64_t large, bool by_queue)
{
    static float given[LARGE];
    static float sum[LARGE];
    const int8_t bytes[3] = {1, 2, (int8_t)self->rank};
    int8_t got[3] = {0};
    const tutti_op_data arrays[2] = {
        array_of(TUTTI_DTYPE_INT8, 3, bytes, got, sizeof(got)),
        array_of(TUTTI_DTYPE_FP32, large, given, sum, (uint64_t)large * sizeof(float)),
    };
    int64_t i;

    for (i = 0; i < large; i++) {
        given[i] = (float)(i % 100 + (int)self->rank);
    }
    run_list(self, TUTTI_OP_ALL_REDUCE, NULL, arrays, 2, by_queue);
    assert_true(got[0] == 2 && got[1] == 4 && got[2] == 1);
    for (i = 0; i < large; i++) {
        assert_true(sum[i] == (float)(2 * (i % 100) + 1));
    }
}

/* Results of another size than the inputs. */
static void
gather_list(rig *self, int64_t large, bool by_queue)
{
    static float given[LARGE];
    static float all[2 * LARGE];
    const int32_t one[1] = {(int32_t)self->rank + 5};
    int32_t both[2] = {0};
    const tutti_op_data arrays[2] = {
        array_of(TUTTI_DTYPE_FP32, large, given, all, 2 * (uint64_t)large * sizeof(float)),
        array_of(TUTTI_DTYPE_INT32, 1, one, both, sizeof(both)),
    };

    given[0] = (float)self->rank + 1;
    given[large - 1] = (float)self->rank + 3;
    run_list(self, TUTTI_OP_ALL_GATHER, NULL, arrays, 2, by_queue);
    assert_true(both[0] == 5 && both[1] == 6);
    assert_true(all[0] == 1 && all[large] == 2);
    assert_true(all[large - 1] == 3 && all[2 * large - 1] == 4);
}

/* Rank 0 gives, rank 1 takes. */
static void
broadcast_list(rig *self, int64_t large, bool by_queue)
{
    static float floats[LARGE];
    int16_t shorts[2] = {0, 0};
    tutti_op_data arrays[2];

    if (self->rank == 0) {
        shorts[1] = 77;
        floats[large - 1] = 4;
        arrays[0] = array_of(TUTTI_DTYPE_INT16, 2, shorts, NULL, 0);
        arrays[1] = array_of(TUTTI_DTYPE_FP32, large, floats, NULL, 0);
    } else {
        floats[large - 1] = 0;
        arrays[0] = array_of(TUTTI_DTYPE_INT16, 2, NULL, shorts, sizeof(shorts));
        arrays[1] =
            array_of(TUTTI_DTYPE_FP32, large, NULL, floats, (uint64_t)large * sizeof(float));
    }
    run_list(self, TUTTI_OP_BROADCAST, NULL, arrays, 2, by_queue);
    assert_true(shorts[1] == 77 && floats[large - 1] == 4);
}

/* The shape of a large one is part of a range's text, however many dimensions it has. */
static void
test_list__takes_shapes_of_many_dimensions(void **state)
{
    static float given[2][LARGE];
    static float sum[2][LARGE];
    const tutti_spec whole = {TUTTI_DTYPE_COMPLEX64,
                              TUTTI_DIMS_MAX,
                              {1, 1, 1, 1, 1, 16, 1, 16, 1, 16, 1, 16, 1, 8, 1, 1}};
    tutti_op_data arrays[2];
    int i;

    for (i = 0; i < 2; i++) {
        given[i][LARGE - 1] = (float)i + 1;
        arrays[i] = (tutti_op_data){
            .spec = whole, .data = given[i], .result = sum[i], .result_bytes = sizeof(sum[i])};
    }
    for (i = 0; i < 2; i++) {
        memset(sum, 0, sizeof(sum));
        run_list(*state, TUTTI_OP_ALL_REDUCE, NULL, arrays, 2, i == 1);
        assert_true(sum[0][LARGE - 1] == 2 && sum[1][LARGE - 1] == 4);
    }
}

static void
test_list__runs_in_one_op(void **state)
{
    static const int64_t counts[2] = {2, LARGE};
    int i;

    for (i = 0; i < 4; i++) {
        reduce_list(*state, counts[i / 2], i % 2 == 1);
        gather_list(*state, counts[i / 2], i % 2 == 1);
        broadcast_list(*state, counts[i / 2], i % 2 == 1);
    }
}

/* One rank has room for what the root does not give: both are told so, and nothing has moved. */
static void
test_list__of_other_sizes_is_refused_on_all_ranks(void **state)
{
    rig *self = *state;
    int32_t numbers[3] = {1, 2, 3};
    const bool root = self->rank == 0;
    const tutti_op_data arrays[2] = {
        array_of(TUTTI_DTYPE_INT32, root ? 1 : 2, root ? numbers : NULL, root ? NULL : numbers, 8),
        array_of(TUTTI_DTYPE_INT32, root ? 2 : 1, root ? numbers : NULL, root ? NULL : numbers, 4),
    };
    tutti_queue_completion done;
    tutti_error err;

    assert_fails(tutti_list_data(self->client, TUTTI_OP_BROADCAST, NULL, arrays, 2, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "OUT_SHAPE");
    assert_text_has(err.text, "rank 1");
    assert_ok(tutti_queue_submit_list(self->queue, TUTTI_OP_BROADCAST, NULL, arrays, 2, NULL, NULL,
                                      &err));
    done = take_next(self->queue);
    assert_string_equal(done.error.reason, "OUT_SHAPE");
    assert_true(numbers[0] == 1 && numbers[1] == 2); /* nothing was written */
}

static void
refuse_list(rig *self, tutti_op_kind kind, const tutti_op_data *arrays, size_t count,
            const char *reason)
{
    tutti_error err;

    assert_fails(tutti_queue_submit_list(self->queue, kind, NULL, arrays, count, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, reason);
    assert_fails(tutti_list_data(self->client, kind, NULL, arrays, count, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, reason);
}

/* Both ranks call in vain: neither waits, and the group goes on. */
static void
test_list__that_is_none_is_refused(void **state)
{
    static tutti_op_data many[1025];
    rig *self = *state;
    int32_t numbers[2] = {1, 2};
    tutti_op_data arrays[2] = {
        array_of(TUTTI_DTYPE_INT32, 2, numbers, numbers, 8),
        array_of(TUTTI_DTYPE_INT32, 2, NULL, numbers, 8),
    };
    tutti_error err;

    refuse_list(self, TUTTI_OP_ALL_REDUCE, arrays, 2, "BAD_LIST");
    refuse_list(self, TUTTI_OP_ALL_REDUCE, arrays, 0, "EMPTY_LIST");
    refuse_list(self, TUTTI_OP_ALL_REDUCE, many, 1025, "LIST_SIZE");
    refuse_list(self, TUTTI_OP_ALL_TO_ALL, arrays, 1, "NO_OP");
    arrays[0].result_bytes = 7;
    refuse_list(self, TUTTI_OP_ALL_REDUCE, arrays, 1, "SIZE_MISMATCH");
    arrays[0].spec.dims[0] = -1;
    refuse_list(self, TUTTI_OP_ALL_REDUCE, arrays, 1, "BAD_SHAPE");
    assert_ok(tutti_barrier(self->client, NULL, NULL, &err));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_list__runs_in_one_op, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_list__takes_shapes_of_many_dimensions, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_list__of_other_sizes_is_refused_on_all_ranks, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_list__that_is_none_is_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
