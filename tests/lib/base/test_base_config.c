/*
 * Goal: an option's value comes from where it should, and a bad one is refused with its origin.
 * Method: one small table, set by every source.
 */
#include "support/testing.h"

#include <unistd.h>

#include "base/config/config.h"

typedef struct options {
    const char *name;
    uint64_t bytes;
    uint64_t wait_ns;
    uint64_t count;
    bool loud;
} options;

static const tutti_option table[] = {
    {"name", TUTTI_OPTION_TEXT, offsetof(options, name), "nobody", 0, 0, "FIRST_NAME SECOND_NAME",
     "who it is"},
    {"byte-limit", TUTTI_OPTION_BYTES, offsetof(options, bytes), "1MiB", 1024, 1 << 30, NULL,
     "how much"},
    {"wait", TUTTI_OPTION_NS, offsetof(options, wait_ns), "5s", 0, 0, NULL, "how long"},
    {"count", TUTTI_OPTION_UINT, offsetof(options, count), "3", 1, 10, NULL, "how many"},
    {"loud", TUTTI_OPTION_BOOL, offsetof(options, loud), "false", 0, 0, NULL, "say more"},
};

static options got;
static tutti_config *config;
static tutti_config_wish wish;

static tutti_code
load(int argc, const char *const *argv, tutti_error *err)
{
    const tutti_option_set set = {"test", table, COUNT_OF(table), &got};

    return tutti_config_load(&set, 1, argc, (char *const *)(uintptr_t)argv, &config, &wish, err);
}

static int
clear(void **state)
{
    (void)state;
    tutti_config_free(config);
    config = NULL;
    (void)unsetenv("TUTTI_NAME");
    (void)unsetenv("TUTTI_COUNT");
    (void)unsetenv("SECOND_NAME");
    (void)unsetenv("TUTTI_CONFIG");
    return 0;
}

static void
test_config__has_defaults(void **state)
{
    const char *argv[] = {"program"};
    tutti_error err;

    (void)state;
    assert_ok(load(1, argv, &err));
    assert_string_equal(got.name, "nobody");
    assert_int_equal(got.bytes, 1 << 20);
    assert_int_equal(got.wait_ns, 5000000000);
    assert_int_equal(got.count, 3);
    assert_false(got.loud);
    assert_false(tutti_config_given(config, "name"));
    assert_int_equal(wish, TUTTI_CONFIG_RUN);
}

static void
test_config__a_flag_wins_over_environment_over_file(void **state)
{
    char path[] = "/tmp/tutti-config-XXXXXX";
    const int descriptor = mkstemp(path);
    static const char file[] = "# comment\n\nname = file\ncount=4\nwait = 1s\n";
    const char *argv[] = {"program", "--name", "flag", "--config", path, "--loud"};
    tutti_error err;

    (void)state;
    assert_int_equal(write(descriptor, file, sizeof(file) - 1), sizeof(file) - 1);
    (void)close(descriptor);
    (void)setenv("TUTTI_NAME", "environment", 1);
    (void)setenv("TUTTI_COUNT", "5", 1);
    assert_ok(load(6, argv, &err));
    (void)unlink(path);
    assert_string_equal(got.name, "flag");
    assert_int_equal(got.count, 5);
    assert_int_equal(got.wait_ns, 1000000000);
    assert_true(got.loud);
    assert_true(tutti_config_given(config, "count"));
}

static void
test_config__reads_other_peoples_environment_names(void **state)
{
    const char *argv[] = {"program", "--no-loud", "--byte-limit=2KiB", "--print-config"};
    tutti_error err;

    (void)state;
    (void)setenv("SECOND_NAME", "launcher", 1);
    assert_ok(load(4, argv, &err));
    assert_string_equal(got.name, "launcher");
    assert_int_equal(got.bytes, 2048);
    assert_int_equal(wish, TUTTI_CONFIG_PRINT);
}

static void
test_config__refuses_with_option_origin_and_limit(void **state)
{
    const char *unknown[] = {"program", "--nmae", "x"};
    const char *range[] = {"program", "--count", "11"};
    const char *unit[] = {"program", "--wait=5"};
    const char *missing[] = {"program", "--count"};
    const char *stray[] = {"program", "word"};
    tutti_error err;

    (void)state;
    assert_fails(load(3, unknown, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "--nmae");
    assert_fails(load(3, range, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "option --count (from flag): 11, need 1 to 10");
    assert_fails(load(2, unit, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_OPTION");
    assert_fails(load(2, missing, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "needs a value");
    assert_fails(load(2, stray, &err), TUTTI_INVALID_ARGUMENT);
    (void)setenv("TUTTI_COUNT", "many", 1);
    assert_fails(load(1, stray, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "from environment");
    assert_null(config);
}

static void
test_config__prints_value_and_origin_and_helps(void **state)
{
    const tutti_option_set set = {"test", table, COUNT_OF(table), &got};
    const tutti_program_words words = {"program", "Does things.", "  program --count 3"};
    const char *argv[] = {"program", "--count=7"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    tutti_error err;

    (void)state;
    assert_ok(load(2, argv, &err));
    tutti_config_print(config, file);
    tutti_config_help(&set, 1, &words, file);
    (void)fclose(file);
    assert_text_has(text, "# flag:\ncount = 7\n");
    assert_text_has(text, "# default:\n# name = nobody\n");
    assert_text_has(text, "--byte-limit SIZE");
    assert_text_has(text, "--name is TUTTI_NAME");
    assert_text_has(text, "examples:\n  program --count 3\n");
    free(text);
}

static void
test_config__reads_back_what_it_prints(void **state)
{
    char path[] = "/tmp/tutti-config-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    const char *first[] = {"program", "--name", "a # b", "--wait=3s", "--loud"};
    const char *second[] = {"program", "--config", path};
    tutti_error err;

    (void)state;
    assert_ok(load(5, first, &err));
    tutti_config_print(config, file);
    (void)fclose(file);
    tutti_config_free(config);
    config = NULL;
    memset(&got, 0, sizeof(got));
    assert_ok(load(3, second, &err));
    (void)unlink(path);
    assert_string_equal(got.name, "a # b");
    assert_int_equal(got.wait_ns, 3000000000);
    assert_int_equal(got.count, 3);
    assert_true(got.loud);
    assert_true(tutti_config_given(config, "wait"));
    assert_false(tutti_config_given(config, "count"));
}

static void
test_config__help_is_wrapped_and_tells_defaults_of_flags(void **state)
{
    static const tutti_option wide[] = {
        {"loud", TUTTI_OPTION_BOOL, offsetof(options, loud), "true", 0, 0, NULL,
         "say more than others do, in words that are long enough to need several lines of help"}};
    const tutti_option_set set = {"test", wide, COUNT_OF(wide), &got};
    const tutti_program_words words = {"program", "Does things.", "  program"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    const char *line;

    (void)state;
    tutti_config_help(&set, 1, &words, file);
    (void)fclose(file);
    assert_text_has(text, "--no-loud)");
    for (line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 80);
    }
    free(text);
}

static void
test_config__writes_a_manual_page(void **state)
{
    const tutti_option_set set = {"test", table, COUNT_OF(table), &got};
    const tutti_program_words words = {"pro-gram", "Does things.", "  pro-gram --count 3"};
    const char *argv[] = {"program", "--man"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    tutti_error err;

    (void)state;
    assert_ok(load(2, argv, &err));
    assert_int_equal(wish, TUTTI_CONFIG_MAN);
    tutti_config_man(&set, 1, &words, file);
    (void)fclose(file);
    assert_text_has(text, ".TH pro\\-gram 8");
    assert_text_has(text, "\\fB\\-\\-byte\\-limit\\fR \\fISIZE\\fR\nhow much (default 1MiB).\n");
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_config__has_defaults, clear),
        cmocka_unit_test_teardown(test_config__a_flag_wins_over_environment_over_file, clear),
        cmocka_unit_test_teardown(test_config__reads_other_peoples_environment_names, clear),
        cmocka_unit_test_teardown(test_config__refuses_with_option_origin_and_limit, clear),
        cmocka_unit_test_teardown(test_config__prints_value_and_origin_and_helps, clear),
        cmocka_unit_test_teardown(test_config__reads_back_what_it_prints, clear),
        cmocka_unit_test(test_config__help_is_wrapped_and_tells_defaults_of_flags),
        cmocka_unit_test_teardown(test_config__writes_a_manual_page, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
