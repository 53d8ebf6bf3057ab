/*
 * Goal: values go to functions and come back as they were, whatever their kind; what an agent tells
 * of functions is read. Method: the fake agent, whose functions return their first argument.
 */
#include "client_rig.h"

#include "tutti/function.h"

static tutti_value
echo(client_rig *rig, const tutti_value *value)
{
    tutti_call_result result = {.elapsed_us = 77};
    tutti_error err;

    assert_ok(tutti_call(rig->client, "echo", value, 1, NULL, &result, &err));
    assert_int_equal(result.elapsed_us, 12);
    return result.value;
}

static void
test_call__gives_plain_values_back(void **state)
{
    const int64_t dims[] = {4, -1, INT64_MAX};
    const tutti_value values[] = {tutti_value_null(),           tutti_value_int(INT64_MIN),
                                  tutti_value_float(-0.25),     tutti_value_text("h\xc3\xa4"),
                                  tutti_value_data("a\0b", 3),  tutti_value_dtype(TUTTI_DTYPE_BF16),
                                  tutti_value_device("cuda:1"), tutti_value_dims(dims, 3),
                                  tutti_value_dims(NULL, 0)};
    client_rig *rig = *state;
    tutti_value back[COUNT_OF(values)];
    size_t i;

    for (i = 0; i < COUNT_OF(values); i++) {
        back[i] = echo(rig, &values[i]);
        assert_int_equal(back[i].kind, values[i].kind);
    }
    assert_int_equal(back[1].u.integer, INT64_MIN);
    assert_true(back[2].u.real == -0.25);
    assert_string_equal(back[3].u.text, "h\xc3\xa4");
    assert_int_equal(back[4].u.bytes.size, 3);
    assert_memory_equal(back[4].u.bytes.data, "a\0b", 3);
    assert_int_equal(back[5].u.dtype, TUTTI_DTYPE_BF16);
    assert_string_equal(back[6].u.text, "cuda:1");
    assert_int_equal(back[7].u.shape.count, 3);
    assert_memory_equal(back[7].u.shape.dims, dims, sizeof(dims));
    assert_int_equal(back[8].u.shape.count, 0);
    for (i = 0; i < COUNT_OF(values); i++) {
        tutti_value_free(&back[i]);
        assert_int_equal(back[i].kind, TUTTI_VALUE_NULL);
    }
}

static void
test_call__gives_names_back(void **state)
{
    const tutti_value values[] = {tutti_value_tensor("weights"), tutti_value_named("reg:7/1"),
                                  tutti_value_function("demo.scale")};
    client_rig *rig = *state;
    tutti_value back;
    size_t i;

    for (i = 0; i < COUNT_OF(values); i++) {
        back = echo(rig, &values[i]);
        assert_int_equal(back.kind, values[i].kind);
        assert_string_equal(back.u.text, values[i].u.text);
        assert_int_equal(back.spec.dtype, TUTTI_DTYPE_NONE);
        tutti_value_free(&back);
    }
}

static void
test_call__passes_options_and_fails_as_the_function_says(void **state)
{
    client_rig *rig = *state;
    tutti_call_options options;
    tutti_call_result result = {0};
    tutti_error err;

    tutti_call_options_init(&options);
    options.result = "mean";
    options.timeout_ms = 5000;
    assert_ok(tutti_call(rig->client, "demo.scale", NULL, 0, &options, &result, &err));
    assert_string_equal(rig->agent.called, "demo.scale>mean");
    assert_int_equal(result.value.kind, TUTTI_VALUE_NULL);
    assert_ok(tutti_call(rig->client, "demo.scale", NULL, 0, &options, NULL, &err));
    rig->agent.script.fail_method = "Call";
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_ABORTED, "FUNCTION_FAILED", "no weights");
    assert_fails(tutti_call(rig->client, "demo.scale", NULL, 0, NULL, &result, &err),
                 TUTTI_ABORTED);
    assert_string_equal(err.text, "no weights");
}

static void
test_call__refuses_what_cannot_be_passed(void **state)
{
    static const tutti_value many[TUTTI_ARGUMENTS_MAX + 1];
    client_rig *rig = *state;
    const tutti_value bad[] = {tutti_value_register(3),
                               tutti_value_text(NULL),
                               tutti_value_dims(NULL, TUTTI_VALUE_DIMS_MAX + 1),
                               {.kind = (tutti_value_kind)99}};
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(tutti_call(rig->client, "f", &bad[i], 1, NULL, NULL, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_VALUE");
        assert_text_has(err.text, "argument 1");
    }
    assert_fails(tutti_call(rig->client, "f", many, TUTTI_ARGUMENTS_MAX + 1, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "ARGUMENT_LIMIT");
    assert_string_equal(rig->agent.called, "");
}

static void
test_names__hold_values_and_tensors(void **state)
{
    client_rig *rig = *state;
    const tutti_value seven = tutti_value_int(7);
    tutti_value value;
    tutti_error err;

    assert_ok(tutti_value_set(rig->client, "count", &seven, &err));
    assert_string_equal(rig->agent.called, "count=2");
    assert_ok(tutti_value_get(rig->client, "word", &value, &err));
    assert_int_equal(value.kind, TUTTI_VALUE_TEXT);
    assert_string_equal(value.u.text, "word");
    tutti_value_free(&value);
    assert_ok(tutti_value_get(rig->client, "tensor", &value, &err));
    assert_int_equal(value.kind, TUTTI_VALUE_TENSOR);
    assert_int_equal(value.spec.dtype, TUTTI_DTYPE_FP32);
    assert_int_equal(value.spec.dim_count, 2);
    tutti_value_free(&value);
    rig->agent.script.mischief = FAKE_WRONG_SPEC;
    assert_fails(tutti_value_get(rig->client, "tensor", &value, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "BAD_ANSWER");
}

static void
test_functions__are_listed_found_and_loaded(void **state)
{
    client_rig *rig = *state;
    tutti_function_info *infos = NULL;
    tutti_function_info info;
    size_t count = 0;
    tutti_error err;

    assert_ok(tutti_function_list(rig->client, &infos, &count, &err));
    assert_int_equal(count, 2);
    assert_string_equal(infos[0].name, "demo.scale");
    assert_string_equal(infos[0].source, "plugin demo.so");
    assert_string_equal(infos[1].signature, "tensor, float -> tensor");
    assert_int_equal(infos[1].calls, 1);
    tutti_free(infos);
    assert_ok(tutti_function_get(rig->client, "demo.scale", NULL, &info, &err));
    assert_string_equal(info.name, "demo.scale");
    assert_ok(tutti_function_load(rig->client, "mlp.so", NULL, NULL, &infos, &count, &err));
    assert_int_equal(count, 2);
    tutti_free(infos);
    assert_ok(tutti_function_import(rig->client, "demo", &infos, &count, &err));
    assert_int_equal(count, 0);
    tutti_free(infos);
    assert_ok(tutti_function_import(rig->client, "demo", NULL, NULL, &err));
}

static void
test_kinds__have_names(void **state)
{
    (void)state;
    assert_string_equal(tutti_value_kind_name(TUTTI_VALUE_NULL), "null");
    assert_string_equal(tutti_value_kind_name(TUTTI_VALUE_REGISTER), "register");
    assert_string_equal(tutti_value_kind_name((tutti_value_kind)12), "kind_<?>");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(test_call__gives_plain_values_back),
        client_test(test_call__gives_names_back),
        client_test(test_call__passes_options_and_fails_as_the_function_says),
        client_test(test_call__refuses_what_cannot_be_passed),
        client_test(test_names__hold_values_and_tensors),
        client_test(test_functions__are_listed_found_and_loaded),
        client_test(test_kinds__have_names),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
