/* Help, from the tables. */
#include "client/cli/parse/help.h"

#include <string.h>
#include <sys/ioctl.h>

#include "client/cli/cli.h"

#define COLUMN 26
#define USAGE_COLUMN (sizeof("usage: tutti ") - 1)
#define WIDTH_LEAST 40
#define WIDTH_DEFAULT 80
#define WIDTH_MOST 120 /* longer lines are hard to read */

/* Of the terminal. A line leaves the last column free: some terminals begin a new line there. */
static size_t
find_width(FILE *file)
{
    struct winsize size = {0};
    const int descriptor = fileno(file);

    if (descriptor < 0 || ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return WIDTH_DEFAULT - 1;
    }
    return (size_t)(size.ws_col < WIDTH_LEAST  ? WIDTH_LEAST
                    : size.ws_col > WIDTH_MOST ? WIDTH_MOST
                                               : size.ws_col) -
           1;
}

/* Paragraphs that begin at a column of the line, and go on at another one. */
static void
print_wrapped(const char *text, size_t at, size_t column, FILE *file)
{
    const size_t width = find_width(file);
    size_t used = at;
    bool first = true;

    while (*text != '\0') {
        const size_t size = strcspn(text, " \n");

        if (!first && used + 1 + size > width) {
            (void)fprintf(file, "\n%*s", (int)column, "");
            used = column;
            first = true;
        }
        (void)fprintf(file, "%s%.*s", first ? "" : " ", (int)size, text);
        used += size + (first ? 0 : 1);
        first = false;
        text += size;
        if (*text == '\n') {
            (void)fprintf(file, "\n%*s", (int)column, "");
            used = column;
            first = true;
        }
        text += *text == '\0' ? 0 : 1;
    }
    (void)fputc('\n', file);
}

/* A word, and behind it what it means. */
static void
print_row(const char *word, const char *help, FILE *file)
{
    const size_t size = strlen(word);

    (void)fprintf(file, "  %-*s ", COLUMN, word);
    print_wrapped(help, 3 + (size > COLUMN ? size : COLUMN), 3 + COLUMN, file);
}

static void
print_option(const cli_option *option, FILE *file)
{
    char words[128];
    int used =
        snprintf(words, sizeof(words), option->letter != 0 ? "-%c, " : "    ", option->letter);

    (void)snprintf(words + used, sizeof(words) - (size_t)used, "--%s%s%s", option->name,
                   option->value == NULL ? "" : " ", option->value == NULL ? "" : option->value);
    print_row(words, option->help, file);
}

static void
print_options(const char *title, const cli_option *options, FILE *file)
{
    (void)fprintf(file, "\n%s:\n", title);
    for (; options->name != NULL; options++) {
        print_option(options, file);
    }
}

static void
print_commands(const cli_syntax *syntax, const char *section, FILE *file)
{
    const cli_command *command;

    (void)fprintf(file, "\n%s:\n", section);
    for (command = syntax->commands; command->name != NULL; command++) {
        if (strcmp(command->section, section) == 0) {
            print_row(command->name, command->help, file);
        }
    }
}

void
cli_help_all(const cli *self, FILE *file)
{
    const char *section = "";
    const cli_command *command;

    (void)fprintf(file, "usage: tutti COMMAND [arguments] [options]\n\n"
                        "Collectives on tensors in agents.\n\n"
                        "most used:\n");
    print_row("tutti cluster start -n 4", "a coordinator and four agents, for this user", file);
    print_row("tutti run -n 4 -- PROGRAM", "a program on each of four ranks", file);
    print_row("tutti status", "jobs, ranks, and what they did last", file);
    print_row("tutti doctor", "what is wrong, and what to do", file);
    print_row("tutti put x.npy --rank 0", "a tensor in an agent; get reads it", file);
    print_row("tutti all-reduce x*.npy", "an op on files, or on tensors by their names", file);
    print_row("tutti bench all_reduce", "time and bandwidth", file);
    print_row("tutti stall", "which ops wait for which ranks", file);
    for (command = self->syntax->commands; command->name != NULL; command++) {
        if (strcmp(command->section, section) != 0) {
            section = command->section;
            print_commands(self->syntax, section, file);
        }
    }
    print_options("options of all commands", self->syntax->options, file);
    (void)fprintf(file, "\nmore about one command: tutti COMMAND --help\n");
}

/* The options of all commands are told once, by `tutti --help`. */
void
cli_help_command(const cli_command *command, FILE *file)
{
    char usage[512];

    (void)snprintf(usage, sizeof(usage), "%s%s%s", command->name,
                   command->synopsis[0] == '\0' ? "" : " ", command->synopsis);
    (void)fputs("usage: tutti ", file);
    print_wrapped(usage, USAGE_COLUMN, USAGE_COLUMN, file);
    (void)fputc('\n', file);
    print_wrapped(command->help, 0, 0, file);
    if (command->about != NULL) {
        (void)fputc('\n', file);
        print_wrapped(command->about, 0, 0, file);
    }
    if (command->options != NULL) {
        print_options("options", command->options, file);
    }
    (void)fputc('\n', file);
    print_wrapped("options of all commands (--agent, --timeout, --json ...): tutti --help", 0, 0,
                  file);
    (void)fprintf(file, "\nexamples:\n%s\n", command->example);
}

bool
cli_help_prefix(const cli *self, const char *word, FILE *file)
{
    const size_t size = strlen(word);
    const cli_command *command;
    bool found = false;

    for (command = self->syntax->commands; command->name != NULL; command++) {
        if (strncmp(command->name, word, size) != 0 || command->name[size] != ' ') {
            continue;
        }
        if (!found) {
            (void)fprintf(file, "usage: tutti %s COMMAND [arguments] [options]\n\ncommands:\n",
                          word);
            found = true;
        }
        print_row(command->name, command->help, file);
    }
    if (found) {
        (void)fprintf(file, "\nmore about one command: tutti %s COMMAND --help\n", word);
    }
    return found;
}
