/* The command line: the tables become getopt's, what it finds becomes values. */
#include "client/cli/parse/parse.h"

#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/parse/help.h"
#include "client/cli/parse/suggest.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

#define LONG_BASE 1000 /* getopt's values for options: the index in the tables */

/* Programs hear of it as of any error: in a document. */
static void
print_json_usage(const cli *self, const char *words)
{
    tutti_error err;

    if (self->json) {
        (void)cli_fail(&err, TUTTI_INVALID_ARGUMENT, "%s", words);
        (void)snprintf(err.reason, sizeof(err.reason), "USAGE");
        (void)cli_print_json(self, json_pack("{s:o}", "error", cli_json_error(&err)));
    }
}

int
cli_usage(const cli *self, const char *format, ...)
{
    char words[TUTTI_ERROR_TEXT_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    (void)fprintf(
        self->err, "tutti: %s%s%s\ntry: tutti %s%s--help\n",
        self->command == NULL ? "" : self->command->name, self->command == NULL ? "" : ": ", words,
        self->command == NULL ? "" : self->command->name, self->command == NULL ? "" : " ");
    print_json_usage(self, words);
    return CLI_USAGE;
}

/* ------------------------------------------------------------------------------ commands */

/* How many of the words a name has, when they begin with it; else 0. */
static int
match_arguments(const char *name, char *const *words, int count)
{
    int used = 0;

    while (*name != '\0') {
        const size_t size = strcspn(name, " ");

        if (used == count || strlen(words[used]) != size || strncmp(words[used], name, size) != 0) {
            return 0;
        }
        used++;
        name += size;
        name += *name == ' ' ? 1 : 0;
    }
    return used;
}

const cli_command *
cli_find_command(const cli_syntax *syntax, char *const *words, int count, int *ret_used)
{
    const cli_command *command;

    for (command = syntax->commands; command->name != NULL; command++) {
        const int used = match_arguments(command->name, words, count);

        if (used > 0) {
            *ret_used = used;
            return command;
        }
    }
    return NULL;
}

/* Is it the first word of commands that have two? */
static bool
begins_commands(const cli_syntax *syntax, const char *word)
{
    const size_t size = strlen(word);
    const cli_command *command;

    for (command = syntax->commands; command->name != NULL; command++) {
        if (strncmp(command->name, word, size) == 0 && command->name[size] == ' ') {
            return true;
        }
    }
    return false;
}

static bool
has_word(char *const *words, int count, const char *word, const char *letter)
{
    int i;

    for (i = 0; i < count && strcmp(words[i], "--") != 0; i++) {
        if (strcmp(words[i], word) == 0 || strcmp(words[i], letter) == 0) {
            return true;
        }
    }
    return false;
}

/* Not a command: the beginning of some, or a slip of the fingers. */
static int
fail_unknown(const cli *self, char *const *words, int count)
{
    const bool two = count > 1 && begins_commands(self->syntax, words[0]) && words[1][0] != '-';
    char closest[CLI_NAME_SIZE];
    char typed[160];

    if (!two && has_word(words + 1, count - 1, "--help", "-h") &&
        cli_help_prefix(self, words[0], self->out)) {
        return CLI_FINE;
    }
    if (!two && cli_help_prefix(self, words[0], self->err)) {
        print_json_usage(self, "a command is missing");
        return CLI_USAGE;
    }
    (void)snprintf(typed, sizeof(typed), "%.60s%s%.60s", words[0], two ? " " : "",
                   two ? words[1] : "");
    (void)fprintf(self->err, "tutti: no command \"%s\"", typed);
    if (cli_suggest(self->syntax, typed, closest) && strcmp(closest, words[0]) != 0) {
        (void)fprintf(self->err, ", did you mean \"%s\"?", closest);
    }
    (void)fputc('\n', self->err);
    if (!two || !cli_help_prefix(self, words[0], self->err)) {
        (void)fprintf(self->err, "try: tutti --help\n");
    }
    (void)snprintf(typed, sizeof(typed), "no command \"%.60s%s%.60s\"", words[0], two ? " " : "",
                   two ? words[1] : "");
    print_json_usage(self, typed);
    return CLI_USAGE;
}

/* ------------------------------------------------------------------------------ options */

/* Both tables in getopt's form. */
typedef struct getopt_tables {
    struct option longs[2 * CLI_OPTIONS_MAX + 1];
    char letters[4 * CLI_OPTIONS_MAX + 4];
    int letter_index[128]; /* of the option a letter stands for; -1 = none */
    int count;
} getopt_tables;

static void
add_option(getopt_tables *tables, const cli_option *option, int index)
{
    size_t used = strlen(tables->letters);

    tables->longs[tables->count++] =
        (struct option){.name = option->name,
                        .has_arg = option->value == NULL ? no_argument : required_argument,
                        .val = LONG_BASE + index};
    if (option->letter != 0) {
        tables->letters[used++] = option->letter;
        if (option->value != NULL) {
            tables->letters[used++] = ':';
        }
        tables->letters[used] = '\0';
        tables->letter_index[(unsigned char)option->letter] = index;
    }
}

static void
make_tables(const cli *self, bool stop_at_argument, getopt_tables *ret)
{
    const cli_option *option;
    int index;

    *ret = (getopt_tables){0};
    memset(ret->letter_index, 0xff, sizeof(ret->letter_index));
    (void)snprintf(ret->letters, sizeof(ret->letters), "%s:", stop_at_argument ? "+" : "");
    if (self->command != NULL && self->command->options != NULL) {
        for (option = self->command->options, index = 0; option->name != NULL; option++, index++) {
            assert(index < CLI_OPTIONS_MAX);
            add_option(ret, option, index);
        }
    }
    for (option = self->syntax->options, index = CLI_OPTIONS_MAX; option->name != NULL;
         option++, index++) {
        assert(index < 2 * CLI_OPTIONS_MAX);
        add_option(ret, option, index);
    }
}

/* getopt's words for what it did not like. `word` is the one it looked at. */
static int
fail_option(const cli *self, int found, const char *word)
{
    const char *instead;

    if (found == ':') {
        return cli_usage(self, "option %s needs a value", word);
    }
    if (optopt > 0 && optopt < LONG_BASE && word[1] != '-') {
        return cli_usage(self, "no option -%c", optopt);
    }
    if (optopt >= LONG_BASE) {
        return cli_usage(self, "option %s takes no value", word);
    }
    instead = cli_suggest_option(self->command, word);
    return instead != NULL ? cli_usage(self, "no option %s: %s", word, instead)
                           : cli_usage(self, "no option %s", word);
}

/* Take options; *ret_first is the index of the first word that is none. False: *ret_exit. */
static bool
take_arguments_options(cli *self, int argc, char **argv, bool stop_at_argument, int *ret_first,
                       int *ret_exit)
{
    getopt_tables tables;
    int found;

    make_tables(self, stop_at_argument, &tables);
    optind = 0; /* glibc: begin anew */
    opterr = 0;
    for (;;) {
        const int at = optind == 0 ? 1 : optind;

        found = getopt_long(argc, argv, tables.letters, tables.longs, NULL);
        if (found == -1) {
            *ret_first = optind;
            return true;
        }
        if (found == '?' || found == ':') {
            const int last = optind > at ? optind - 1 : at;

            *ret_exit = fail_option(self, found, argv[last]);
            return false;
        }
        if (found < LONG_BASE) {
            found = LONG_BASE + tables.letter_index[found];
        }
        self->values[found - LONG_BASE] = optarg != NULL ? optarg : "";
    }
}

static const char *
find_value(const cli *self, const cli_option *options, int base, const char *name, bool *ret_known)
{
    int i;

    for (i = 0; options != NULL && options[i].name != NULL; i++) {
        if (strcmp(options[i].name, name) == 0) {
            *ret_known = true;
            return self->values[base + i];
        }
    }
    return NULL;
}

bool
cli_has_option(const cli *self, const char *name)
{
    bool known = false;

    (void)find_value(self, self->command->options, 0, name, &known);
    return known;
}

const char *
cli_value(const cli *self, const char *option)
{
    bool known = false;
    const char *value = NULL;

    if (self->command != NULL) {
        value = find_value(self, self->command->options, 0, option, &known);
    }
    if (!known) {
        value = find_value(self, self->syntax->options, CLI_OPTIONS_MAX, option, &known);
    }
    assert(known); /* a command asks for options of its table */
    return value;
}

bool
cli_flag(const cli *self, const char *option)
{
    return cli_value(self, option) != NULL;
}

bool
cli_number(cli *self, const char *option, int64_t least, int64_t most, int64_t *ret)
{
    const char *value = cli_value(self, option);

    if (value == NULL || cli_parse_number(value, least, most, ret)) {
        return true;
    }
    if (least == INT64_MIN) {
        (void)cli_usage(self, "--%s \"%s\": need a whole number", option, value);
    } else if (most == INT64_MAX) {
        (void)cli_usage(self, "--%s \"%s\": need a whole number, at least %" PRId64, option, value,
                        least);
    } else {
        (void)cli_usage(self, "--%s \"%s\": need a whole number from %" PRId64 " to %" PRId64,
                        option, value, least, most);
    }
    return false;
}

/* ------------------------------------------------------------------------------ all of it */

static bool
take_globals(cli *self, int *ret_exit)
{
    const char *timeout = cli_value(self, "timeout");

    self->json = cli_flag(self, "json");
    self->quiet = cli_flag(self, "quiet");
    self->progress = !self->quiet && !cli_flag(self, "no-progress") && isatty(fileno(self->err));
    self->colour = getenv("NO_COLOR") == NULL && isatty(fileno(self->out));
    if (timeout != NULL && !cli_parse_ms(timeout, &self->timeout_ms)) {
        *ret_exit = cli_usage(self, "--timeout \"%s\": write 250ms, 10s, 5m ...", timeout);
        return false;
    }
    return true;
}

/* Before anything else is said: some commands look at it late. */
static bool
check_arguments_rank(cli *self, int *ret_exit)
{
    int64_t rank = 0;

    *ret_exit = CLI_USAGE;
    return !cli_has_option(self, "rank") || cli_number(self, "rank", 0, TUTTI_RANKS_MAX - 1, &rank);
}

/* An unset variable of a script makes an empty one: a name is always meant. */
static bool
check_arguments_names(const cli *self, int *ret_exit)
{
    static const char *const names[] = {"name", "into", "cluster", "group"};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool known = false;
        const char *value = find_value(self, self->command->options, 0, names[i], &known);

        if (value != NULL && value[0] == '\0') {
            *ret_exit = cli_usage(
                self, "--%s \"\": the name is empty; leave the option out for none", names[i]);
            return false;
        }
    }
    return true;
}

static bool
check_arguments(const cli *self, int *ret_exit)
{
    const cli_command *command = self->command;

    if (self->argument_count < command->argument_least) {
        *ret_exit =
            cli_usage(self, "too few arguments: tutti %s %s", command->name, command->synopsis);
        return false;
    }
    if (command->argument_most != CLI_ANY_COUNT && self->argument_count > command->argument_most) {
        *ret_exit =
            cli_usage(self, "unexpected argument \"%s\"", self->arguments[command->argument_most]);
        return false;
    }
    return true;
}

/* Help and version want no arguments, and no sense in them. */
static bool
wants_words(const cli *self, int *ret_exit)
{
    *ret_exit = CLI_FINE;
    if (cli_flag(self, "help")) {
        if (self->command == NULL) {
            cli_help_all(self, self->out);
        } else {
            cli_help_command(self->command, self->out);
        }
        return true;
    }
    if (cli_flag(self, "version")) {
        (void)fprintf(self->out, "tutti %s\n", tutti_version());
        return true;
    }
    return false;
}

bool
cli_parse(cli *self, int argc, char **argv, int *ret_exit)
{
    int first = 0;
    int used = 0;

    self->json = has_word(argv + 1, argc - 1, "--json", "-j"); /* also where the words are wrong */
    if (!take_arguments_options(self, argc, argv, true, &first, ret_exit)) {
        return false;
    }
    if (first < argc) {
        self->command = cli_find_command(self->syntax, argv + first, argc - first, &used);
        if (self->command == NULL) {
            *ret_exit = fail_unknown(self, argv + first, argc - first);
            return false;
        }
    } else if (!wants_words(self, ret_exit)) {
        cli_help_all(self, self->err);
        *ret_exit = CLI_USAGE;
        return false;
    } else {
        return false;
    }
    /* getopt skips the first word: let that be the command's last one. */
    argv += first + used - 1;
    argc -= first + used - 1;
    if (!take_arguments_options(self, argc, argv, self->command->program, &first, ret_exit) ||
        wants_words(self, ret_exit)) {
        return false;
    }
    self->arguments = argv + first;
    self->argument_count = argc - first;
    return take_globals(self, ret_exit) && check_arguments_rank(self, ret_exit) &&
           check_arguments_names(self, ret_exit) && check_arguments(self, ret_exit);
}
