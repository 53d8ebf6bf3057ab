/*
 * Goal: a value is a copy that stays as it was, and what is none is refused before it is kept or
 * travels. Method: values as functions return them, good and bad, at and beyond each limit.
 */
#include "server/agent/function/value.h"
#include "support/testing.h"

static agent_value *
keep(const tutti_any *any)
{
    agent_value *value = NULL;
    tutti_error err;

    assert_ok(agent_value_new(any, &value, &err));
    return value;
}

static void
refuse(const tutti_any *any, const char *words)
{
    agent_value *value = NULL;
    tutti_error err;

    assert_fails(agent_value_new(any, &value, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_VALUE");
    assert_text_has(err.text, words);
    assert_null(value);
}

static tutti_any
any_of(int32_t kind)
{
    tutti_any any = tutti_any_null();

    any.kind = kind;
    return any;
}

static void
test_value__is_a_copy(void **state)
{
    char text[] = "text";
    char bytes[] = {'a', '\0', 'b'};
    int64_t dims[] = {2, -1};
    tutti_span span = {bytes, sizeof(bytes)};
    tutti_dims shape = {dims, 2};
    tutti_any any = tutti_any_text(text);
    agent_value *value = keep(&any);

    (void)state;
    text[0] = 'n';
    assert_string_equal(value->any.u.text, "text");
    agent_value_unref(value);
    any = any_of(TUTTI_ANY_BYTES);
    any.u.bytes = &span;
    value = keep(&any);
    bytes[0] = 'x';
    assert_int_equal(value->any.u.bytes->size, 3);
    assert_memory_equal(value->any.u.bytes->data, "a\0b", 3);
    agent_value_unref(value);
    any = any_of(TUTTI_ANY_SHAPE);
    any.u.shape = &shape;
    value = keep(&any);
    dims[1] = 7;
    assert_int_equal(value->any.u.shape->data[1], -1);
    agent_value_unref(value);
}

static void
test_value__says_what_it_is(void **state)
{
    static const struct {
        int32_t kind;
        const char *noun;
    } rows[] = {
        {TUTTI_ANY_NULL, "null"},   {TUTTI_ANY_INT, "an int"},
        {TUTTI_ANY_BOOL, "an int"}, {TUTTI_ANY_FLOAT, "a float"},
        {TUTTI_ANY_TEXT, "a text"}, {AGENT_ANY_FUNCTION, "a function"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(rows); i++) {
        tutti_any any = any_of(rows[i].kind);
        agent_value *value;

        any.u.text =
            rows[i].kind == TUTTI_ANY_TEXT || rows[i].kind == AGENT_ANY_FUNCTION ? "f" : NULL;
        value = keep(&any);
        assert_string_equal(value->base.noun, rows[i].noun);
        agent_value_unref(value);
    }
}

static void
test_value__of_a_bool_is_an_int(void **state)
{
    tutti_any any = any_of(TUTTI_ANY_BOOL);
    agent_value *value;

    (void)state;
    any.u.integer = 5;
    value = keep(&any);
    assert_int_equal(value->any.kind, TUTTI_ANY_INT);
    assert_int_equal(value->any.u.integer, 1);
    agent_value_unref(value);
}

static void
test_value__refuses_what_cannot_be_kept(void **state)
{
    tutti_any any = any_of(TUTTI_ANY_TENSOR);

    (void)state;
    refuse(&any, "kind 7");
    any = any_of(TUTTI_ANY_POINTER);
    refuse(&any, "kind 4");
    any = any_of(-1);
    refuse(&any, "kind -1");
    any = any_of(TUTTI_ANY_TEXT);
    refuse(&any, "NULL");
    any = any_of(TUTTI_ANY_BYTES);
    refuse(&any, "NULL");
    any = any_of(TUTTI_ANY_SHAPE);
    refuse(&any, "NULL");
    any = any_of(TUTTI_ANY_DTYPE);
    any.u.dtype = (DLDataType){2, 24, 1};
    refuse(&any, "24 bits");
    any.u.dtype = (DLDataType){2, 32, 4};
    refuse(&any, "4 lanes");
    any = any_of(TUTTI_ANY_DEVICE);
    any.u.device = (DLDevice){99, 0};
    refuse(&any, "type 99");
}

static void
test_value__has_limits(void **state)
{
    static int64_t dims[AGENT_VALUE_DIMS_MAX + 1];
    const size_t size = AGENT_VALUE_BYTES_MAX + 1;
    char *text = malloc(size + 1);
    tutti_any any = tutti_any_text(text);
    tutti_span span = {text, size};
    tutti_dims shape = {dims, AGENT_VALUE_DIMS_MAX + 1};

    (void)state;
    assert_non_null(text);
    memset(text, 'x', size);
    text[size] = '\0';
    refuse(&any, "1048576");
    text[size - 1] = '\0';
    agent_value_unref(keep(&any));
    any = any_of(TUTTI_ANY_BYTES);
    any.u.bytes = &span;
    refuse(&any, "1048577");
    span.size--;
    agent_value_unref(keep(&any));
    any = any_of(TUTTI_ANY_SHAPE);
    any.u.shape = &shape;
    refuse(&any, "65");
    shape.size--;
    agent_value_unref(keep(&any));
    free(text);
}

static void
test_utf8__is_told_from_what_looks_like_it(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {"", true},
        {"plain", true},
        {"\xc3\xa4", true},          /* a with dots */
        {"\xe2\x82\xac", true},      /* the euro */
        {"\xf0\x9f\x98\x80", true},  /* a face */
        {"\xf4\x8f\xbf\xbf", true},  /* the last one */
        {"\xc3", false},             /* cut */
        {"\xe2\x82", false},         /* cut */
        {"\x80", false},             /* a middle alone */
        {"\xc0\xaf", false},         /* overlong */
        {"\xe0\x80\xaf", false},     /* overlong */
        {"\xed\xa0\x80", false},     /* half a pair */
        {"\xf4\x90\x80\x80", false}, /* beyond the last one */
        {"\xff", false},
        {"a\xc3(", false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(rows); i++) {
        if (agent_is_utf8(rows[i].text, strlen(rows[i].text)) != rows[i].good) {
            fail_msg("row %zu is taken for the other", i);
        }
    }
    assert_false(agent_is_utf8("a\0b", 3));
}

static void
test_dtypes__of_dlpack_are_ours_and_back(void **state)
{
    int dtype;

    (void)state;
    for (dtype = TUTTI_DTYPE_BOOL; dtype <= TUTTI_DTYPE_FP8_E5M2; dtype++) {
        assert_int_equal(tutti_dlpack_dtype(tutti_dlpack_of_dtype((tutti_dtype)dtype)), dtype);
    }
    assert_int_equal(tutti_dlpack_dtype(tutti_dlpack_of_dtype((tutti_dtype)999)), TUTTI_DTYPE_NONE);
}

static void
test_devices__have_names(void **state)
{
    static const char *const bad[] = {
        "", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda:99999999999"};
    char name[TUTTI_DEVICE_MAX + 1];
    DLDevice device;
    size_t i;

    (void)state;
    assert_true(tutti_dlpack_parse_device("cuda:3", &device));
    assert_int_equal(device.device_type, 2);
    tutti_dlpack_device_name(device, name);
    assert_string_equal(name, "cuda:3");
    assert_true(tutti_dlpack_parse_device("cpu", &device));
    tutti_dlpack_device_name(device, name);
    assert_string_equal(name, "cpu");
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_false(tutti_dlpack_parse_device(bad[i], &device));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value__is_a_copy),
        cmocka_unit_test(test_value__says_what_it_is),
        cmocka_unit_test(test_value__of_a_bool_is_an_int),
        cmocka_unit_test(test_value__refuses_what_cannot_be_kept),
        cmocka_unit_test(test_value__has_limits),
        cmocka_unit_test(test_utf8__is_told_from_what_looks_like_it),
        cmocka_unit_test(test_dtypes__of_dlpack_are_ours_and_back),
        cmocka_unit_test(test_devices__have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
