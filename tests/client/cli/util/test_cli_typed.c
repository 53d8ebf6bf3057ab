/*
 * Goal: values of functions are what people mean by the words they type, and are shown in words that
 * would be typed for them. Method: tables of words.
 */
#include "client/cli/util/typed.h"
#include "support/testing.h"

#include <stdlib.h>

static void
assert_shown(const char *word, const char *expected)
{
    char *shown = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&shown, &size);
    cli_typed typed;
    tutti_error err;

    assert_ok(cli_typed_parse(word, &typed, &err));
    cli_typed_print(out, &typed.value);
    (void)fclose(out);
    assert_string_equal(shown, expected);
    free(shown);
    cli_typed_free(&typed);
}

static void
test_parse__finds_the_kind_of_a_word(void **state)
{
    static const struct {
        const char *word;
        tutti_value_kind kind;
    } words[] = {
        {"null", TUTTI_VALUE_NULL},
        {"-3", TUTTI_VALUE_INT},
        {"9223372036854775807", TUTTI_VALUE_INT},
        {"0.5", TUTTI_VALUE_FLOAT},
        {"1e3", TUTTI_VALUE_FLOAT},
        {"float:3", TUTTI_VALUE_FLOAT},
        {"float:nan", TUTTI_VALUE_FLOAT},
        {"nan", TUTTI_VALUE_TEXT},
        {"inf", TUTTI_VALUE_TEXT},
        {"0x10", TUTTI_VALUE_TEXT},
        {"-", TUTTI_VALUE_TEXT},
        {"", TUTTI_VALUE_TEXT},
        {"mean", TUTTI_VALUE_TEXT},
        {"text:3", TUTTI_VALUE_TEXT},
        {"[2,3]", TUTTI_VALUE_SHAPE},
        {"[]", TUTTI_VALUE_SHAPE},
        {"hex:00ff", TUTTI_VALUE_BYTES},
        {"hex:", TUTTI_VALUE_BYTES},
        {"dtype:bfloat16", TUTTI_VALUE_DTYPE},
        {"device:cuda:0", TUTTI_VALUE_DEVICE},
        {"function:demo.scale", TUTTI_VALUE_FUNCTION},
        {"name:weights", TUTTI_VALUE_NAME},
        {"tensor:weights", TUTTI_VALUE_TENSOR},
        {"texts:3", TUTTI_VALUE_TEXT},
    };
    cli_typed typed;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(words); i++) {
        assert_ok(cli_typed_parse(words[i].word, &typed, &err));
        if (typed.value.kind != words[i].kind) {
            fail_msg("\"%s\" is a %s", words[i].word, tutti_value_kind_name(typed.value.kind));
        }
        cli_typed_free(&typed);
    }
}

static void
test_parse__keeps_handles_whole(void **state)
{
    cli_typed typed;
    tutti_error err;

    (void)state;
    assert_ok(cli_typed_parse("tensor:3.8f3a9c12e4b07d55.17", &typed, &err));
    assert_string_equal(typed.value.u.text, "tensor:3.8f3a9c12e4b07d55.17");
    assert_ok(cli_typed_parse("tensor:weights", &typed, &err));
    assert_string_equal(typed.value.u.text, "weights");
}

static void
test_parse__refuses_what_is_no_value(void **state)
{
    static const char *const words[] = {"[2",
                                        "[2,]x",
                                        "[a]",
                                        "[2;3]",
                                        "hex:0",
                                        "hex:zz",
                                        "dtype:FP99",
                                        "int:0.5",
                                        "int:9223372036854775808",
                                        "float:x",
                                        "shape:2x3",
                                        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                                        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                                        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"};
    cli_typed typed;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(words); i++) {
        if (cli_typed_parse(words[i], &typed, &err) != TUTTI_INVALID_ARGUMENT) {
            fail_msg("\"%s\" is taken for a value", words[i]);
        }
    }
}

static void
test_print__is_what_would_be_typed(void **state)
{
    (void)state;
    assert_shown("-3", "-3");
    assert_shown("0.5", "0.5");
    assert_shown("[2,3]", "[2,3]");
    assert_shown("[]", "[]");
    assert_shown("hex:00Ff", "hex:00ff");
    assert_shown("dtype:float32", "dtype:FP32");
    assert_shown("device:cuda:1", "device:cuda:1");
    assert_shown("null", "null");
    assert_shown("text:a\033\"b", "\"a\\x1b\\\"b\"");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__finds_the_kind_of_a_word),
        cmocka_unit_test(test_parse__keeps_handles_whole),
        cmocka_unit_test(test_parse__refuses_what_is_no_value),
        cmocka_unit_test(test_print__is_what_would_be_typed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
