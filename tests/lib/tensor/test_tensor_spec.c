/*
 * Goal: what passes a spec check can be counted without overflow, and what does not is told why.
 * Method: a table of shapes at and over every edge.
 */
#include "support/testing.h"

#include "tensor/spec.h"

#define BIG ((int64_t)1 << 62)

static const struct {
    tutti_spec spec;
    uint64_t count;
    uint64_t bytes;
} good[] = {
    {{TUTTI_DTYPE_FP32, 0, {0}}, 1, 4},
    {{TUTTI_DTYPE_FP32, 1, {0}}, 0, 0},
    {{TUTTI_DTYPE_FP32, 2, {2, 3}}, 6, 24},
    {{TUTTI_DTYPE_COMPLEX128, 3, {2, 3, 4}}, 24, 384},
    {{TUTTI_DTYPE_FP8_E5M2, 2, {7, 0}}, 0, 0},
    {{TUTTI_DTYPE_BOOL, 16, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}}, 2, 2},
    {{TUTTI_DTYPE_INT8, 1, {INT64_MAX}}, INT64_MAX, INT64_MAX},
    {{TUTTI_DTYPE_FP64, 1, {BIG / 8 * 2 - 1}}, BIG / 8 * 2 - 1, INT64_MAX - 7},
    {{TUTTI_DTYPE_UINT8, 3, {BIG, 0, 1}}, 0, 0},
};

static const struct {
    tutti_spec spec;
    const char *reason;
    const char *words;
} bad[] = {
    {{TUTTI_DTYPE_NONE, 0, {0}}, "BAD_DTYPE", "dtype 0"},
    {{(tutti_dtype)18, 0, {0}}, "BAD_DTYPE", "dtype 18"},
    {{(tutti_dtype)-1, 0, {0}}, "BAD_DTYPE", "dtype -1"},
    {{TUTTI_DTYPE_FP32, 17, {1}}, "BAD_SHAPE", "17 dimensions, at most 16"},
    {{TUTTI_DTYPE_FP32, UINT32_MAX, {1}}, "BAD_SHAPE", "4294967295 dimensions"},
    {{TUTTI_DTYPE_FP32, 2, {2, -1}}, "BAD_SHAPE", "FP32[2, -1] has a negative dimension"},
    {{TUTTI_DTYPE_FP32, 2, {0, INT64_MIN}}, "BAD_SHAPE", "has a negative dimension"},
    {{TUTTI_DTYPE_INT16, 1, {BIG}}, "BAD_SHAPE", "more than 2^63 - 1 bytes"},
    {{TUTTI_DTYPE_FP64, 1, {BIG / 8 * 2}}, "BAD_SHAPE", "more than 2^63 - 1 bytes"},
    {{TUTTI_DTYPE_BOOL, 2, {BIG, 2}}, "BAD_SHAPE", "more than 2^63 - 1 bytes"},
    {{TUTTI_DTYPE_BOOL, 3, {BIG, BIG, BIG}}, "BAD_SHAPE", "more than 2^63 - 1 bytes"},
    {{TUTTI_DTYPE_BOOL, 3, {BIG, 0, BIG}}, "BAD_SHAPE", "more than 2^63 - 1 bytes"},
    {{TUTTI_DTYPE_BOOL, 3, {BIG, BIG, 0}}, "BAD_SHAPE", "more than 2^63 - 1 bytes"},
};

static void
test_spec__that_can_exist_is_counted(void **state)
{
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(good); i++) {
        uint64_t count = 99;
        uint64_t bytes = 99;

        assert_ok(tutti_spec_check(&good[i].spec, &count, &bytes, &err));
        assert_int_equal(count, good[i].count);
        assert_int_equal(bytes, good[i].bytes);
        assert_int_equal(tutti_spec_count(&good[i].spec), good[i].count);
        assert_int_equal(tutti_spec_bytes(&good[i].spec), good[i].bytes);
        assert_ok(tutti_spec_check(&good[i].spec, NULL, NULL, &err));
    }
}

static void
test_spec__that_cannot_exist_is_told_why(void **state)
{
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        uint64_t count = 99;
        uint64_t bytes = 99;

        assert_fails(tutti_spec_check(&bad[i].spec, &count, &bytes, &err), TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, bad[i].reason);
        assert_text_has(err.text, bad[i].words);
        assert_int_equal(count, 99);
        assert_int_equal(bytes, 99);
        assert_fails(tutti_spec_check(&bad[i].spec, NULL, NULL, NULL), TUTTI_INVALID_ARGUMENT);
    }
}

static void
test_spec_check__of_the_longest_shape_keeps_its_words(void **state)
{
    tutti_spec spec = {TUTTI_DTYPE_COMPLEX128, TUTTI_DIMS_MAX, {0}};
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < TUTTI_DIMS_MAX; i++) {
        spec.dims[i] = INT64_MIN;
    }
    assert_fails(tutti_spec_check(&spec, NULL, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "-9223372036854775808] has a negative dimension, need 0 or more");
}

static void
test_spec_equal__wants_dtype_dimensions_and_their_order(void **state)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {2, 3}};
    const tutti_spec same = {TUTTI_DTYPE_FP32, 2, {2, 3, 77}};
    const tutti_spec other_dtype = {TUTTI_DTYPE_INT32, 2, {2, 3}};
    const tutti_spec other_order = {TUTTI_DTYPE_FP32, 2, {3, 2}};
    const tutti_spec longer = {TUTTI_DTYPE_FP32, 3, {2, 3, 1}};

    (void)state;
    assert_true(tutti_spec_equal(&spec, &same));
    assert_false(tutti_spec_equal(&spec, &other_dtype));
    assert_true(tutti_spec_same_shape(&spec, &other_dtype));
    assert_false(tutti_spec_equal(&spec, &other_order));
    assert_false(tutti_spec_same_shape(&spec, &other_order));
    assert_false(tutti_spec_same_shape(&spec, &longer));
}

static void
test_spec_describe__reads_as_dtype_and_shape(void **state)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {2, 3}};
    const tutti_spec scalar = {TUTTI_DTYPE_BF16, 0, {0}};
    char buffer[64];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    (void)state;
    tutti_spec_describe(&spec, &text);
    tutti_spec_describe(&scalar, &text);
    assert_string_equal(buffer, "FP32[2, 3]BF16[]");
}

static void
test_spec_axis__counts_from_either_end(void **state)
{
    static const struct {
        uint32_t dim_count;
        int32_t axis;
        bool insert;
        uint32_t wanted;
    } cases[] = {
        {3, 0, false, 0}, {3, 2, false, 2}, {3, -1, false, 2}, {3, -3, false, 0}, {3, 3, true, 3},
        {3, -1, true, 3}, {3, -4, true, 0}, {0, 0, true, 0},   {0, -1, true, 0},
    };
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const tutti_spec spec = {TUTTI_DTYPE_FP32, cases[i].dim_count, {1, 1, 1}};
        uint32_t axis = 99;

        assert_ok(tutti_spec_axis(&spec, cases[i].axis, cases[i].insert, &axis, &err));
        assert_int_equal(axis, cases[i].wanted);
    }
}

static void
test_spec_axis__outside_is_refused_with_what_is_allowed(void **state)
{
    static const struct {
        uint32_t dim_count;
        int32_t axis;
        bool insert;
        const char *words;
    } cases[] = {
        {3, 3, false, "axis 3 of a tensor of 3 dimensions, need -3 to 2"},
        {3, -4, false, "axis -4 of a tensor of 3 dimensions, need -3 to 2"},
        {3, 4, true, "axis 4 of a tensor of 3 dimensions, need -4 to 3"},
        {1, INT32_MIN, false, "need -1 to 0"},
        {1, INT32_MAX, false, "need -1 to 0"},
        {0, 0, false, "axis 0 of a scalar, which has none"},
        {0, 1, true, "need -1 to 0"},
    };
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const tutti_spec spec = {TUTTI_DTYPE_FP32, cases[i].dim_count, {1, 1, 1}};
        uint32_t axis = 99;

        assert_fails(tutti_spec_axis(&spec, cases[i].axis, cases[i].insert, &axis, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_AXIS");
        assert_text_has(err.text, cases[i].words);
        assert_int_equal(axis, 99);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec__that_can_exist_is_counted),
        cmocka_unit_test(test_spec__that_cannot_exist_is_told_why),
        cmocka_unit_test(test_spec_check__of_the_longest_shape_keeps_its_words),
        cmocka_unit_test(test_spec_equal__wants_dtype_dimensions_and_their_order),
        cmocka_unit_test(test_spec_describe__reads_as_dtype_and_shape),
        cmocka_unit_test(test_spec_axis__counts_from_either_end),
        cmocka_unit_test(test_spec_axis__outside_is_refused_with_what_is_allowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
