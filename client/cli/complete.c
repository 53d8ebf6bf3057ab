/* Completion for shells, from the tables. */
#include <string.h>

#include "client/cli/cli.h"

/* The first word of a command, or the second; false when it has none. */
static bool
word_of(const cli_command *command, int number, char ret[64])
{
    const char *space = strchr(command->name, ' ');

    if (number == 1 && space == NULL) {
        return false;
    }
    if (number == 1) {
        (void)snprintf(ret, 64, "%s", space + 1);
    } else {
        (void)snprintf(ret, 64, "%.*s", (int)strcspn(command->name, " "), command->name);
    }
    return true;
}

static bool
shares_first_word(const cli_command *left, const cli_command *right)
{
    const size_t size = strcspn(left->name, " ");

    return strcspn(right->name, " ") == size && strncmp(left->name, right->name, size) == 0;
}

/* Is it the first of those with this first word? */
static bool
is_first(const cli_command *command)
{
    return command == cli_commands || !shares_first_word(command - 1, command);
}

static void
print_first_words(FILE *file)
{
    const cli_command *command;
    char word[64];

    for (command = cli_commands; command->name != NULL; command++) {
        if (is_first(command) && word_of(command, 0, word)) {
            (void)fprintf(file, "%s ", word);
        }
    }
}

static void
print_second_words(const cli_command *first, FILE *file)
{
    const cli_command *command;
    char word[64];

    for (command = first; command->name != NULL && shares_first_word(first, command); command++) {
        if (word_of(command, 1, word)) {
            (void)fprintf(file, "%s ", word);
        }
    }
}

static void
print_option_names(const cli_option *options, FILE *file)
{
    for (; options != NULL && options->name != NULL; options++) {
        (void)fprintf(file, "--%s ", options->name);
    }
}

/* ------------------------------------------------------------------------------ bash */

/* What an option of some command takes: the same everywhere, so the first that says it will do. */
static void
print_bash_values(FILE *file)
{
    const cli_command *command;
    const cli_option *option;

    for (command = cli_commands; command->name != NULL; command++) {
        for (option = command->options; option != NULL && option->name != NULL; option++) {
            if (option->words != NULL && strcmp(option->words, "FILE") != 0) {
                (void)fprintf(file,
                              "        '%s --%s') COMPREPLY=($(compgen -W '%s' -- \"$cur\")); "
                              "return ;;\n",
                              command->name, option->name, option->words);
            }
        }
    }
}

static void
print_bash(FILE *file)
{
    const cli_command *command;
    char word[64];

    (void)fputs("# bash completion for tutti; made by: tutti completion bash\n"
                "_tutti()\n{\n"
                "    local cur prev command options word\n"
                "    cur=${COMP_WORDS[COMP_CWORD]}\n"
                "    prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    command=\n    options='",
                file);
    print_option_names(cli_global_options, file);
    (void)fputs("'\n    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
                "        case $word in -*) continue ;; esac\n"
                "        case $command in\n"
                "            '') command=$word ;;\n",
                file);
    for (command = cli_commands; command->name != NULL; command++) {
        if (is_first(command) && strchr(command->name, ' ') != NULL && word_of(command, 0, word)) {
            (void)fprintf(file, "            %s) command=\"%s $word\" ;;\n", word, word);
        }
    }
    (void)fputs("        esac\n    done\n    case \"$command $prev\" in\n", file);
    print_bash_values(file);
    (void)fputs("    esac\n    case $command in\n        '') COMPREPLY=($(compgen -W '", file);
    print_first_words(file);
    (void)fputs("' -- \"$cur\")); return ;;\n", file);
    for (command = cli_commands; command->name != NULL; command++) {
        if (is_first(command) && strchr(command->name, ' ') != NULL && word_of(command, 0, word)) {
            (void)fprintf(file, "        %s) COMPREPLY=($(compgen -W '", word);
            print_second_words(command, file);
            (void)fputs("' -- \"$cur\")); return ;;\n", file);
        }
    }
    for (command = cli_commands; command->name != NULL; command++) {
        (void)fprintf(file, "        '%s') options=\"", command->name);
        print_option_names(command->options, file);
        (void)fputs("$options\" ;;\n", file);
    }
    (void)fputs("    esac\n    case $cur in\n"
                "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
                "        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                "    esac\n}\ncomplete -o filenames -F _tutti tutti\n",
                file);
}

/* ------------------------------------------------------------------------------ zsh */

/* Inside single quotes and brackets of _arguments. */
static void
print_zsh_text(const char *text, FILE *file)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)fputs("'\\''", file);
        } else if (strchr("[]:\\", *text) != NULL) {
            (void)fprintf(file, "\\%c", *text);
        } else {
            (void)fputc(*text, file);
        }
    }
}

static void
print_zsh_options(const cli_option *options, FILE *file)
{
    for (; options != NULL && options->name != NULL; options++) {
        (void)fprintf(file, " \\\n            '--%s[", options->name);
        print_zsh_text(options->help, file);
        (void)fputc(']', file);
        if (options->value != NULL && options->words == NULL) {
            (void)fprintf(file, ":%s: ", options->value);
        } else if (options->value != NULL && strcmp(options->words, "FILE") == 0) {
            (void)fprintf(file, ":%s:_files", options->value);
        } else if (options->value != NULL) {
            (void)fprintf(file, ":%s:(%s)", options->value, options->words);
        }
        (void)fputc('\'', file);
    }
}

static void
print_zsh(FILE *file)
{
    const cli_command *command;
    char word[64];

    (void)fputs("#compdef tutti\n# made by: tutti completion zsh\n_tutti()\n{\n"
                "    local command=${words[2]}\n"
                "    if (( CURRENT == 2 )); then\n        compadd -- ",
                file);
    print_first_words(file);
    (void)fputs("\n        return\n    fi\n    case $command in\n", file);
    for (command = cli_commands; command->name != NULL; command++) {
        if (is_first(command) && strchr(command->name, ' ') != NULL && word_of(command, 0, word)) {
            (void)fprintf(file,
                          "    %s)\n        if (( CURRENT == 3 )); then\n"
                          "            compadd -- ",
                          word);
            print_second_words(command, file);
            (void)fputs("\n            return\n        fi\n"
                        "        command=\"$command ${words[3]}\"\n        ;;\n",
                        file);
        }
    }
    (void)fputs("    esac\n    case $command in\n", file);
    for (command = cli_commands; command->name != NULL; command++) {
        (void)fprintf(file, "    '%s')\n        _arguments -s", command->name);
        print_zsh_options(command->options, file);
        print_zsh_options(cli_global_options, file);
        (void)fputs(" \\\n            '*:file:_files'\n        ;;\n", file);
    }
    (void)fputs("    esac\n}\n_tutti \"$@\"\n", file);
}

/* ------------------------------------------------------------------------------ fish */

static void
print_fish_text(const char *text, FILE *file)
{
    (void)fputc('\'', file);
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\') {
            (void)fputc('\\', file);
        }
        (void)fputc(*text, file);
    }
    (void)fputc('\'', file);
}

static void
print_fish_options(const char *condition, const cli_option *options, FILE *file)
{
    for (; options != NULL && options->name != NULL; options++) {
        (void)fprintf(file, "complete -c tutti%s -l %s", condition, options->name);
        if (options->letter != 0) {
            (void)fprintf(file, " -s %c", options->letter);
        }
        if (options->value != NULL) {
            (void)fputs(options->words != NULL && strcmp(options->words, "FILE") == 0 ? " -r"
                                                                                      : " -x",
                        file);
        }
        if (options->words != NULL && strcmp(options->words, "FILE") != 0) {
            (void)fprintf(file, " -a '%s'", options->words);
        }
        (void)fputs(" -d ", file);
        print_fish_text(options->help, file);
        (void)fputc('\n', file);
    }
}

static void
print_fish_command(const cli_command *command, FILE *file)
{
    char first[64];
    char second[64];
    char condition[256];

    (void)word_of(command, 0, first);
    if (!word_of(command, 1, second)) {
        (void)fprintf(file, "complete -c tutti -n __fish_use_subcommand -a %s -d ", first);
        print_fish_text(command->help, file);
        (void)snprintf(condition, sizeof(condition), " -n '__fish_seen_subcommand_from %s'", first);
    } else {
        if (is_first(command)) {
            (void)fprintf(file, "complete -c tutti -n __fish_use_subcommand -f -a %s\n", first);
        }
        (void)fprintf(file,
                      "complete -c tutti -n '__fish_seen_subcommand_from %s; and test (count "
                      "(commandline -opc)) -eq 2' -f -a %s -d ",
                      first, second);
        print_fish_text(command->help, file);
        (void)snprintf(condition, sizeof(condition),
                       " -n '__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s'",
                       first, second);
    }
    (void)fputc('\n', file);
    print_fish_options(condition, command->options, file);
}

static void
print_fish(FILE *file)
{
    const cli_command *command;

    (void)fputs("# fish completion for tutti; made by: tutti completion fish\n", file);
    print_fish_options("", cli_global_options, file);
    for (command = cli_commands; command->name != NULL; command++) {
        print_fish_command(command, file);
    }
}

bool
cli_complete_write(const char *shell, FILE *file)
{
    if (strcmp(shell, "bash") == 0) {
        print_bash(file);
    } else if (strcmp(shell, "zsh") == 0) {
        print_zsh(file);
    } else if (strcmp(shell, "fish") == 0) {
        print_fish(file);
    } else {
        return false;
    }
    return true;
}
