/*
 * Goal: ops that cut, join or have a root say what the caller said; on the caller's memory each
 * rank gives and gets what its role is, and no tensor stays behind. Method: a fake agent of rank 0
 * that records requests and answers as if two ranks gave the same.
 */
#include "client_bytes.h"

static void
test_parts__say_reduce_op_root_and_form(void **state)
{
    static const int64_t shape[] = {3, 4};
    client_rig *rig = *state;
    const fake_agent *agent = &rig->agent;
    tutti_op op;
    tutti_op_result result;
    tutti_error err;

    tutti_op_init(&op);
    op.input = "x";
    op.output = "y";
    op.reduce = TUTTI_REDUCE_PREMUL_SUM;
    op.factor = 0.25;
    op.axis = -1;
    op.form = TUTTI_FORM_FLAT;
    op.out_shape = shape;
    op.out_shape_count = 2;
    assert_ok(tutti_reduce_scatter(rig->client, &op, &result, &err));
    assert_string_equal(agent->op_input, "x");
    assert_string_equal(agent->op_output, "y");
    assert_int_equal(agent->op_reduce, TUTTI_REDUCE_PREMUL_SUM);
    assert_true(agent->op_factor == 0.25);
    assert_int_equal(agent->op_axis, -1);
    assert_int_equal(agent->op_form, TUTTI_FORM_FLAT);
    assert_true(agent->op_dim_count == 2 && agent->op_dims[0] == 3 && agent->op_dims[1] == 4);
    assert_string_equal(result.output.text, "tensor:0.0000000000000001.1");
    assert_int_equal(result.sequence, 42);
    op.form = TUTTI_FORM_STACK;
    op.out_shape = NULL;
    op.out_shape_count = 0;
    op.global = true;
    assert_ok(tutti_gather(rig->client, &op, &result, &err));
    assert_true(agent->op_root_global && agent->op_root == 0);
    assert_int_equal(agent->op_form, TUTTI_FORM_STACK);
    assert_int_equal(agent->op_dim_count, 0);
    assert_ok(tutti_scatter(rig->client, &op, &result, &err));
    assert_true(agent->op_root_global && agent->op_root == 0);
    assert_false(agent->op_inline_result);
}

static void
test_parts__of_other_ranks_have_no_result(void **state)
{
    client_rig *rig = *state;
    tutti_op op;
    tutti_op_result result;
    tutti_error err;

    tutti_op_init(&op);
    op.input = "x";
    assert_ok(tutti_reduce_to_root(rig->client, &op, &result, &err));
    assert_string_equal(result.output.text, "tensor:0.0000000000000001.1");
    op.root = 1;
    assert_ok(tutti_reduce_to_root(rig->client, &op, &result, &err));
    assert_string_equal(result.output.text, "");
    assert_int_equal(rig->agent.op_reduce, TUTTI_REDUCE_SUM);
    assert_ok(tutti_gather(rig->client, &op, &result, &err));
    assert_string_equal(result.output.text, "");
    assert_true(!rig->agent.op_root_global && rig->agent.op_root == 1);
}

static void
test_parts__from_rank_to_rank_say_axes_and_destinations(void **state)
{
    static const int32_t to[] = {1, 2, 3, 0};
    client_rig *rig = *state;
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    op.input = "x";
    op.split_axis = -2;
    op.concat_axis = 1;
    op.src_dst = to;
    op.src_dst_count = 4;
    op.async = true;
    assert_ok(tutti_all_to_all(rig->client, &op, NULL, &err));
    assert_true(rig->agent.op_async);
    assert_int_equal(rig->agent.op_axis, -2);
    assert_int_equal(rig->agent.op_concat_axis, 1);
    assert_ok(tutti_permute(rig->client, &op, NULL, &err));
    assert_int_equal(rig->agent.op_to_count, 4);
    assert_memory_equal(rig->agent.op_to, to, sizeof(to));
}

/* ------------------------------------------------------------------------------ on memory */

/* One rank's call of any of the ops, and what it is to give. */
typedef struct data_call {
    const char *method;
    int32_t root;
    size_t result_halves; /* bytes of the result, in halves of what is given; 0 = none */
} data_call;

static tutti_code
call_data(client_rig *rig, const data_call *call, const tutti_spec *spec, const void *data,
          void *result, tutti_error *err)
{
    const uint64_t bytes = (uint64_t)spec->dims[0] * call->result_halves / 2;
    tutti_op op;

    tutti_op_init(&op);
    op.root = call->root;
    if (strcmp(call->method, "Reduce") == 0) {
        return tutti_reduce_to_root_data(rig->client, &op, spec, data, result, err);
    }
    if (strcmp(call->method, "ReduceScatter") == 0) {
        return tutti_reduce_scatter_data(rig->client, &op, spec, data, result, bytes, err);
    }
    if (strcmp(call->method, "Gather") == 0) {
        return tutti_gather_data(rig->client, &op, spec, data, result, bytes, err);
    }
    if (strcmp(call->method, "Scatter") == 0) {
        return tutti_scatter_data(rig->client, &op, spec, data, result, bytes, err);
    }
    if (strcmp(call->method, "AllToAll") == 0) {
        return tutti_all_to_all_data(rig->client, &op, spec, data, result, err);
    }
    return tutti_permute_data(rig->client, &op, spec, data, result, err);
}

static const data_call givers[] = {
    {"Reduce", 0, 2}, {"Reduce", 1, 0},  {"ReduceScatter", 0, 1}, {"Gather", 0, 4},
    {"Gather", 1, 0}, {"Scatter", 0, 1}, {"AllToAll", 0, 2},      {"Permute", 0, 2},
};

/* The result is what the fake makes of what it was given, and no byte more. */
static void
assert_result(const unsigned char *result, const unsigned char *bytes, size_t size,
              const data_call *call)
{
    const size_t got = size * call->result_halves / 2;
    size_t i;

    for (i = 0; i < got; i++) {
        if (result[i] != bytes[i % size]) {
            fail_msg("%s: byte %zu is %u, not %u", call->method, i, result[i], bytes[i % size]);
        }
    }
    assert_int_equal(result[got], 0);
}

static void
test_data__that_is_small_travels_with_the_call(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, 1000);
    unsigned char *bytes = make_bytes(1000);
    unsigned char result[2001];
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(givers); i++) {
        memset(result, 0, sizeof(result));
        assert_ok(call_data(rig, &givers[i], &spec, bytes, result, &err));
        assert_true(rig->agent.op_inline);
        assert_string_equal(rig->agent.op_output, "");
        assert_result(result, bytes, 1000, &givers[i]);
    }
    assert_int_equal(atomic_load(&rig->agent.op_count), COUNT_OF(givers));
    assert_int_equal(atomic_load(&rig->agent.made_count), 0);
    free(bytes);
}

static void
test_data__that_is_large_becomes_tensors_that_go(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, LARGE);
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *result = NULL;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(givers); i++) {
        const data_call *call = &givers[i];
        const unsigned made = atomic_load(&rig->agent.made_count);
        const unsigned read = atomic_load(&rig->agent.download_count);
        const bool two = call->result_halves == 1 || call->result_halves == 4;

        result = calloc(1, 2 * LARGE + 1);
        assert_non_null(result);
        rig->agent.script.spec.dims[0] = (int64_t)(LARGE * call->result_halves / 2);
        assert_ok(call_data(rig, call, &spec, bytes, result, &err));
        assert_false(rig->agent.op_inline);
        assert_string_equal(rig->agent.op_input, rig->agent.made[made]);
        assert_string_equal(rig->agent.op_output, rig->agent.made[made + (two ? 1 : 0)]);
        assert_int_equal(atomic_load(&rig->agent.made_count) - made, two ? 2 : 1);
        assert_int_equal(atomic_load(&rig->agent.download_count) - read +
                             atomic_load(&rig->agent.get_count),
                         call->result_halves == 0 ? 0 : 1);
        assert_result(result, bytes, LARGE, call);
        atomic_store(&rig->agent.get_count, 0);
        free(result);
    }
    assert_clean(rig);
    free(bytes);
}

static void
test_data__leaves_nothing_behind_when_the_op_fails(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = bytes_spec(rig, LARGE);
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *result = calloc(1, 2 * LARGE + 1);
    tutti_error err;
    size_t i;

    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_UNAVAILABLE, "RANK_LOST",
                         "rank 3 is lost");
    for (i = 0; i < COUNT_OF(givers); i++) {
        rig->agent.script.fail_method = givers[i].method;
        assert_fails(call_data(rig, &givers[i], &spec, bytes, result, &err), TUTTI_UNAVAILABLE);
        assert_string_equal(err.reason, "RANK_LOST");
    }
    rig->agent.script.fail_method =
        "Create"; /* of the result: the others hear of it all the same */
    assert_fails(call_data(rig, &givers[2], &spec, bytes, result, &err), TUTTI_UNAVAILABLE);
    assert_int_equal(atomic_load(&rig->agent.op_count), COUNT_OF(givers) + 1);
    assert_clean(rig);
    free(result);
    free(bytes);
}

static void
test_scatter_data__of_a_receiver_gives_nothing(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = {.dtype = TUTTI_DTYPE_UINT8}; /* the dtype is enough */
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *result = calloc(1, LARGE + 1);
    tutti_op op;
    tutti_error err;

    tutti_op_init(&op);
    op.root = 1;
    (void)bytes_spec(rig, 100);
    rig->agent.bytes = malloc(LARGE);
    assert_non_null(rig->agent.bytes);
    memcpy(rig->agent.bytes, bytes, LARGE);
    rig->agent.size = 100;
    assert_ok(tutti_scatter_data(rig->client, &op, &spec, NULL, result, 100, &err));
    assert_true(!rig->agent.op_inline && rig->agent.op_inline_result);
    assert_memory_equal(result, bytes, 100);
    assert_fails(tutti_scatter_data(rig->client, &op, &spec, NULL, result, 99, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    (void)bytes_spec(rig, LARGE);
    rig->agent.size = LARGE;
    assert_ok(tutti_scatter_data(rig->client, &op, &spec, NULL, result, LARGE, &err));
    assert_string_equal(rig->agent.op_input, "");
    assert_string_equal(rig->agent.op_output, rig->agent.made[0]);
    assert_memory_equal(result, bytes, LARGE);
    assert_clean(rig);
    free(result);
    free(bytes);
}

static void
test_data__needs_room_for_whole_elements(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {8}};
    float data[8] = {0};
    float result[8] = {0};
    tutti_error err;

    assert_fails(tutti_reduce_scatter_data(rig->client, NULL, &spec, data, result, 15, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SIZE_MISMATCH");
    assert_text_has(err.text, "15 bytes");
    assert_int_equal(atomic_load(&rig->agent.op_count), 1); /* in vain, for the others */
    rig->agent.script.spec.dtype = TUTTI_DTYPE_INT32;
    assert_fails(tutti_permute_data(rig->client, NULL, &spec, data, result, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "DTYPE_MISMATCH");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(test_parts__say_reduce_op_root_and_form),
        client_test(test_parts__of_other_ranks_have_no_result),
        client_test(test_parts__from_rank_to_rank_say_axes_and_destinations),
        client_test(test_data__that_is_small_travels_with_the_call),
        client_test(test_data__that_is_large_becomes_tensors_that_go),
        client_test(test_data__leaves_nothing_behind_when_the_op_fails),
        client_test(test_scatter_data__of_a_receiver_gives_nothing),
        client_test(test_data__needs_room_for_whole_elements),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
