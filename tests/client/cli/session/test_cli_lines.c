/*
 * Goal: a line of a session falls into its name, command and words as people mean it. Method: lines
 * and what they fall into; tests/system/test_cli_session.py runs them.
 */
#include "client/cli/session/shell.h"
#include "support/testing.h"

static const char *
parse(const char *text, shell_line *ret)
{
    const char *rest = NULL;
    tutti_error err;

    assert_ok(shell_line_parse(text, &rest, ret, &err));
    return rest;
}

static void
assert_refused(const char *text, const char *words)
{
    const char *rest = NULL;
    shell_line line;
    tutti_error err;

    assert_fails(shell_line_parse(text, &rest, &line, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, words);
    shell_line_free(&line);
}

static void
test_line__has_a_name_a_command_and_words(void **state)
{
    static const char *const same[] = {"x = copy y dst=z", "x=copy y dst=z", "x= copy y dst=z",
                                       "  x  =  copy\ty  dst=z  # done", "x = copy y dst=z\r\n"};
    shell_line line;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(same); i++) {
        (void)parse(same[i], &line);
        assert_string_equal(line.name, "x");
        assert_string_equal(line.command, "copy");
        assert_int_equal(line.word_count, 2);
        assert_string_equal(line.words[0].text, "y");
        assert_string_equal(line.words[1].text, "dst=z");
        shell_line_free(&line);
    }
}

static void
test_line__ends_at_a_semicolon(void **state)
{
    shell_line line;
    const char *rest;

    (void)state;
    rest = parse("drop x; set 'a;b' ;", &line);
    assert_null(line.name);
    assert_string_equal(line.command, "drop");
    shell_line_free(&line);
    rest = parse(rest, &line);
    assert_string_equal(line.command, "set");
    assert_string_equal(line.words[0].text, "a;b");
    assert_true(line.words[0].quoted);
    assert_string_equal(rest, "");
    shell_line_free(&line);
    assert_string_equal(parse(" # nothing; at all", &line), "");
    assert_null(line.command);
    shell_line_free(&line);
}

static void
test_line__heeds_quotes_and_brackets(void **state)
{
    shell_line line;

    (void)state;
    (void)parse("call f \"a \\\"b\\\"\" 'c\\d' FP32[2, 3] [ 4 ] \"\" a'b c'd", &line);
    assert_int_equal(line.word_count, 7);
    assert_string_equal(line.words[1].text, "a \"b\"");
    assert_string_equal(line.words[2].text, "c\\d");
    assert_string_equal(line.words[3].text, "FP32[2,3]");
    assert_false(line.words[3].quoted);
    assert_string_equal(line.words[4].text, "[4]");
    assert_string_equal(line.words[5].text, "");
    assert_true(line.words[5].quoted);
    assert_string_equal(line.words[6].text, "ab cd");
    shell_line_free(&line);
}

static void
test_line__that_makes_no_sense_is_refused(void **state)
{
    char many[SHELL_WORDS_MAX * 2 + 8];
    size_t i;

    (void)state;
    assert_refused("x = set \"a", "is not closed");
    assert_refused("x = set \"a\\", "is not closed");
    assert_refused("x = empty FP32[2; y", "a bracket is not closed");
    assert_refused("9 = set 1", "is no name");
    assert_refused("x-y = set 1", "is no name");
    assert_refused("x =", "no command behind");
    assert_refused("x=", "no command behind");
    for (i = 0; i < SHELL_WORDS_MAX + 1; i++) {
        memcpy(many + 2 * i, "a ", 2);
    }
    many[2 * i] = '\0';
    assert_refused(many, "more than 80 words");
}

static void
test_commands__have_names_that_are_found(void **state)
{
    const shell_command *command;

    (void)state;
    for (command = shell_commands; command->name != NULL; command++) {
        assert_ptr_equal(shell_find_command(command->name), command);
        assert_true(command->least <= command->most);
    }
    assert_ptr_equal(shell_find_command("exit"), shell_find_command("quit"));
    assert_null(shell_find_command("all-reduce"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line__has_a_name_a_command_and_words),
        cmocka_unit_test(test_line__ends_at_a_semicolon),
        cmocka_unit_test(test_line__heeds_quotes_and_brackets),
        cmocka_unit_test(test_line__that_makes_no_sense_is_refused),
        cmocka_unit_test(test_commands__have_names_that_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
