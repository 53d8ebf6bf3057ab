/*
 * Goal: words become a command with options, or a sentence that says what is wrong with them.
 * Method: cli_parse on tables of command lines, its output in memory; and the tables of commands
 * themselves.
 */
#include "client/cli/main/commands.h"
#include "client/cli/main/complete.h"
#include "client/cli/parse/parse.h"
#include "client/cli/parse/suggest.h"
#include "support/testing.h"

#include <ctype.h>

#include "client/cli/cli.h"

#define WORDS_MAX 16

/* One command line, and what came of it. */
typedef struct line {
    cli self;
    char *words[WORDS_MAX];
    char text[256];
    char *out;
    char *err;
    size_t out_size;
    size_t err_size;
    int exit_code;
    bool parsed;
} line;

static void
parse_words(line *one, char **words, int count)
{
    one->self.syntax = &cli_all_syntax;
    one->self.out = open_memstream(&one->out, &one->out_size);
    one->self.err = open_memstream(&one->err, &one->err_size);
    assert_non_null(one->self.out);
    assert_non_null(one->self.err);
    one->parsed = cli_parse(&one->self, count, words, &one->exit_code);
    (void)fflush(one->self.out);
    (void)fflush(one->self.err);
}

/* Words are separated by single spaces. */
static void
parse(line *one, const char *text)
{
    int count = 0;
    char *at;

    *one = (line){.exit_code = -1};
    (void)snprintf(one->text, sizeof(one->text), "tutti %s", text);
    for (at = strtok(one->text, " "); at != NULL; at = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX - 1);
        one->words[count++] = at;
    }
    parse_words(one, one->words, count);
}

static void
end(line *one)
{
    (void)fclose(one->self.out);
    (void)fclose(one->self.err);
    free(one->out);
    free(one->err);
}

static void
test_parse__finds_command_options_and_arguments(void **state)
{
    line one;
    int64_t rank = 0;

    (void)state;
    parse(&one, "put x.npy --rank 3 --name=w -j");
    assert_true(one.parsed);
    assert_string_equal(one.self.command->name, "put");
    assert_int_equal(one.self.argument_count, 1);
    assert_string_equal(one.self.arguments[0], "x.npy");
    assert_string_equal(cli_value(&one.self, "name"), "w");
    assert_null(cli_value(&one.self, "into"));
    assert_true(cli_number(&one.self, "rank", 0, 9, &rank));
    assert_int_equal(rank, 3);
    assert_true(one.self.json);
    assert_int_equal(one.err_size, 0);
    end(&one);
}

static void
test_parse__takes_options_of_all_commands_in_front_too(void **state)
{
    line one;

    (void)state;
    parse(&one, "--json -t 250ms --agent a:1 cluster stop -q");
    assert_true(one.parsed);
    assert_string_equal(one.self.command->name, "cluster stop");
    assert_true(one.self.json && one.self.quiet);
    assert_int_equal(one.self.timeout_ms, 250);
    assert_string_equal(cli_value(&one.self, "agent"), "a:1");
    end(&one);
}

static void
test_parse__leaves_a_programs_options_to_it(void **state)
{
    line one;

    (void)state;
    parse(&one, "run -n 4 prog --count 9 -x");
    assert_true(one.parsed);
    assert_int_equal(one.self.argument_count, 4);
    assert_string_equal(one.self.arguments[0], "prog");
    assert_string_equal(cli_value(&one.self, "count"), "4");
    end(&one);
    parse(&one, "cluster start -- --op-timeout 10s");
    assert_true(one.parsed);
    assert_int_equal(one.self.argument_count, 2);
    assert_string_equal(one.self.arguments[0], "--op-timeout");
    end(&one);
}

static void
test_parse__says_what_is_wrong_with_the_words(void **state)
{
    static const char *const cases[][2] = {
        {"staus", "no command \"staus\", did you mean \"status\"?"},
        {"clutser", "did you mean \"cluster\"?"},
        {"cluster strat", "did you mean \"cluster start\"?"},
        {"cluster", "  cluster start "},
        {"xyzzy", "no command \"xyzzy\"\ntry: tutti --help"},
        {"put --nmae w x", "put: no option --nmae"},
        {"put -x", "put: no option -x"},
        {"put x --name", "put: option --name needs a value"},
        {"put x -t", "put: option -t needs a value"},
        {"list --json=3", "option --json=3 takes no value"},
        {"list --timeout 10d", "--timeout \"10d\": write 250ms, 10s, 5m"},
        {"functions --rank x", "functions: --rank \"x\": need a whole number from 0 to 65535"},
        {"explain all_reduce --rank -1", "explain: --rank \"-1\": need a whole number from 0"},
        {"put", "too few arguments: tutti put FILE.npy"},
        {"put x y", "unexpected argument \"y\""},
        {"--agent", "option --agent needs a value"},
        {"", "usage: tutti COMMAND"},
    };
    line one;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        parse(&one, cases[i][0]);
        assert_false(one.parsed);
        assert_int_equal(one.exit_code, CLI_USAGE);
        assert_text_has(one.err, cases[i][1]);
        assert_int_equal(one.out_size, 0);
        end(&one);
    }
}

static void
test_number__says_which_numbers_it_wants(void **state)
{
    line one;
    int64_t factor = -5;

    (void)state;
    parse(&one, "bench all_reduce --factor x");
    assert_true(one.parsed);
    assert_false(cli_number(&one.self, "factor", 0, 9, &factor));
    assert_int_equal(factor, -5);
    (void)fflush(one.self.err);
    assert_text_has(one.err, "--factor \"x\": need a whole number from 0 to 9");
    end(&one);
}

static void
test_help__is_an_answer_and_no_failure(void **state)
{
    static const char *const cases[][2] = {{"--help", "all-reduce"},
                                           {"put --help", "usage: tutti put FILE.npy"},
                                           {"put -h", "--dtype DTYPE"},
                                           {"cluster start --help", "--memory-limit SIZE"},
                                           {"--version", "tutti 0."}};
    line one;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        parse(&one, cases[i][0]);
        assert_false(one.parsed);
        assert_int_equal(one.exit_code, CLI_FINE);
        assert_text_has(one.out, cases[i][1]);
        assert_int_equal(one.err_size, 0);
        end(&one);
    }
}

/* Names and letters: one meaning each, those of all commands included. */
static void
check_options(const cli_option *options)
{
    int count = 0;
    const cli_option *one;
    const cli_option *other;

    for (one = options; one->name != NULL; one++) {
        count++;
        for (other = one + 1; other->name != NULL; other++) {
            assert_string_not_equal(one->name, other->name);
            assert_true(one->letter == 0 || one->letter != other->letter);
        }
        for (other = cli_global_options; other->name != NULL && options != cli_global_options;
             other++) {
            assert_string_not_equal(one->name, other->name);
            assert_true(one->letter == 0 || one->letter != other->letter);
        }
    }
    assert_true(count <= CLI_OPTIONS_MAX);
}

static void
test_commands__fit_together(void **state)
{
    const cli_command *command;
    int used = 0;

    (void)state;
    check_options(cli_global_options);
    for (command = cli_commands; command->name != NULL; command++) {
        char copy[CLI_NAME_SIZE];
        char *words[3] = {copy, NULL, NULL};
        int count = 1;

        assert_true(strlen(command->name) < sizeof(copy));
        (void)snprintf(copy, sizeof(copy), "%s", command->name);
        while (count < 3 && (words[count] = strchr(words[count - 1], ' ')) != NULL) {
            *words[count++]++ = '\0';
        }
        assert_ptr_equal(cli_find_command(&cli_all_syntax, words, count, &used), command);
        assert_int_equal(used, count);
        assert_non_null(command->run);
        if (command->options != NULL) {
            check_options(command->options);
        }
    }
}

/* One command of a shell: its words, and how often a `tutti` was that of the example. */
typedef struct shell {
    char room[512];
    char *words[32];
    size_t used;
    int count;
    bool in_word;
    const cli_command *wanted;
    int *found;
} shell;

static void
end_word(shell *self)
{
    if (self->in_word) {
        self->room[self->used++] = '\0';
        self->in_word = false;
    }
}

static void
add_letter(shell *self, char letter)
{
    assert_true(self->used + 2 < sizeof(self->room) && self->count < 31);
    if (!self->in_word) {
        self->words[self->count++] = self->room + self->used;
        self->in_word = true;
    }
    self->room[self->used++] = letter;
}

static const char *run_shell(const char *at, const cli_command *wanted, int *found);

/* What a shell would run: only commands that there are, with options and arguments that they take. */
static void
end_command(shell *self)
{
    const int skipped = self->count > 0 && strcmp(self->words[0], "do") == 0 ? 1 : 0;
    line one = {.exit_code = -1};
    int i;

    end_word(self);
    if (self->count > skipped && strcmp(self->words[skipped], "tutti") == 0) {
        parse_words(&one, self->words + skipped, self->count - skipped);
        if (!one.parsed) {
            fail_msg("example of %s: %s", self->wanted->name, one.err);
        }
        *self->found += one.self.command == self->wanted ? 1 : 0;
        end(&one);
    }
    for (i = 0; i + 1 < self->count; i++) {
        if (strcmp(self->words[i], "-c") == 0) { /* sh -c '...' */
            assert_int_equal(*run_shell(self->words[i + 1], self->wanted, self->found), '\0');
        }
    }
    self->count = 0;
    self->used = 0;
}

/* Returns where it ends: at a ')' or the end of the text. */
static const char *
run_shell(const char *at, const cli_command *wanted, int *found)
{
    shell self = {.wanted = wanted, .found = found};
    char quote = '\0';

    for (; *at != '\0' && (quote != '\0' || *at != ')'); at++) {
        if (quote != '\0' || *at == '\'' || *at == '"') {
            if (quote != '\0' && *at != quote) {
                add_letter(&self, *at);
            } else {
                quote = quote == '\0' ? *at : '\0';
            }
        } else if (*at == '\\' && at[1] == '\n') {
            at++;
        } else if ((*at == '$' || *at == '<') && at[1] == '(') {
            at = run_shell(at + 2, wanted, found);
            assert_int_equal(*at, ')');
            add_letter(&self, '1'); /* what it prints */
        } else if (*at == '$' && isalpha((unsigned char)at[1])) {
            add_letter(&self, '1');
            at += strspn(at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        } else if (*at == ' ') {
            end_word(&self);
        } else if (strchr("\n|&;", *at) != NULL) {
            end_command(&self);
        } else {
            add_letter(&self, *at);
        }
    }
    assert_int_equal(quote, '\0');
    end_command(&self);
    return at;
}

static void
test_commands__have_examples_that_are_commands(void **state)
{
    const cli_command *command;

    (void)state;
    for (command = cli_commands; command->name != NULL; command++) {
        int found = 0;

        if (command->example == NULL) {
            fail_msg("%s has no example", command->name);
        }
        assert_int_equal(*run_shell(command->example, command, &found), '\0');
        if (found == 0) {
            fail_msg("no example of %s calls it", command->name);
        }
    }
}

static void
check_lines(const char *text)
{
    for (; *text != '\0'; text += strcspn(text, "\n") + 1) {
        if (strcspn(text, "\n") > 80) {
            fail_msg("more than 80 columns: %.*s", (int)strcspn(text, "\n"), text);
        }
        assert_int_not_equal(text[strcspn(text, "\n")], '\0');
    }
}

static void
test_help__fits_into_80_columns(void **state)
{
    const cli_command *command;
    char words[CLI_NAME_SIZE + 16];
    line one;

    (void)state;
    parse(&one, "--help");
    check_lines(one.out);
    end(&one);
    for (command = cli_commands; command->name != NULL; command++) {
        (void)snprintf(words, sizeof(words), "%s --help", command->name);
        parse(&one, words);
        assert_int_equal(one.exit_code, CLI_FINE);
        check_lines(one.out);
        assert_text_has(
            one.out, "\noptions of all commands (--agent, --timeout, --json ...): tutti --help\n");
        assert_null(strstr(one.out, "--tls-ca FILE"));
        end(&one);
    }
}

static void
test_completion_and_man__know_every_command(void **state)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    const cli_command *command;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(shells); i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *file = open_memstream(&text, &size);

        assert_true(cli_complete_write(shells[i], file));
        (void)fclose(file);
        for (command = cli_commands; command->name != NULL; command++) {
            const char *space = strrchr(command->name, ' ');

            assert_text_has(text, space == NULL ? command->name : space + 1);
        }
        free(text);
    }
    assert_false(cli_complete_write("tcsh", stderr));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__finds_command_options_and_arguments),
        cmocka_unit_test(test_parse__takes_options_of_all_commands_in_front_too),
        cmocka_unit_test(test_parse__leaves_a_programs_options_to_it),
        cmocka_unit_test(test_parse__says_what_is_wrong_with_the_words),
        cmocka_unit_test(test_number__says_which_numbers_it_wants),
        cmocka_unit_test(test_help__is_an_answer_and_no_failure),
        cmocka_unit_test(test_commands__fit_together),
        cmocka_unit_test(test_commands__have_examples_that_are_commands),
        cmocka_unit_test(test_help__fits_into_80_columns),
        cmocka_unit_test(test_completion_and_man__know_every_command),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
