/* Completion for shells, from the tables. */
#include "client/cli/main/complete.h"

#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/main/commands.h"
#include "client/cli/parse/suggest.h"

#define WORDS_MAX 3 /* of a command's name: "store lease grant" */

/* Bytes of the first `words` words of its name; 0 = it has fewer. */
static size_t
prefix_size(const cli_command *command, int words)
{
    const char *at = command->name;

    while (words-- > 1) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return 0;
        }
        at++;
    }
    return (size_t)(at - command->name) + strcspn(at, " ");
}

/* Is it the first of those that share so many words? Those are in one place of the table. */
static bool
is_first(const cli_command *command, int words)
{
    const size_t size = prefix_size(command, words);

    return size > 0 && (command == cli_commands || prefix_size(command - 1, words) != size ||
                        strncmp((command - 1)->name, command->name, size) != 0);
}

/* The words that may come behind those `words` words of `first`; all first words for 0. */
static void
print_next_words(const cli_command *first, int words, FILE *file)
{
    const size_t size = words == 0 ? 0 : prefix_size(first, words) + 1;
    const cli_command *command;

    for (command = first; command->name != NULL; command++) {
        if (strncmp(command->name, first->name, size) == 0 && is_first(command, words + 1)) {
            (void)fprintf(file, "%.*s ", (int)(prefix_size(command, words + 1) - size),
                          command->name + size);
        }
    }
}

/* Each beginning of a command's name that words are missing of: "store", "store lease". */
static void
print_beginnings(int words,
                 void (*print)(const cli_command *first, int words, const char *name, FILE *file),
                 FILE *file)
{
    const cli_command *command;
    char name[64];

    for (command = cli_commands; command->name != NULL; command++) {
        if (is_first(command, words) && prefix_size(command, words + 1) > 0) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)prefix_size(command, words),
                           command->name);
            print(command, words, name, file);
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

/* Of which kind the words of an option are when `tutti completion KIND` knows them: "groups". NULL:
 * they are no names. */
static const char *
names_of(const cli_option *option)
{
    return option->words != NULL && option->words[0] == '@' ? option->words + 1 : NULL;
}

/*
 * The same of a command's arguments. It follows from the synopsis, so a new command gets
 * completion without more work.
 */
static const char *
names_of_arguments(const cli_command *command)
{
    const bool of_group =
        strncmp(command->name, "group ", 6) == 0 && (strncmp(command->synopsis, "NAME", 4) == 0 ||
                                                     strncmp(command->synopsis, "[GROUP]", 7) == 0);

    if (strncmp(command->synopsis, "OP ", 3) == 0) {
        return "ops";
    }
    if (of_group && strcmp(command->name, "group create") != 0) {
        return "groups";
    }
    return strstr(command->synopsis, "HANDLE") != NULL ? "tensors" : NULL;
}

/* ------------------------------------------------------------------------------ bash */

/*
 * One case of the shell's `case`: the command, and the option before the word that is completed.
 */
static void
print_bash_value(const char *command, const cli_option *option, FILE *file)
{
    if (option->words == NULL || strcmp(option->words, "FILE") == 0) {
        return;
    }
    (void)fprintf(file, "        %s' --%s'", command, option->name);
    if (option->letter != 0) {
        (void)fprintf(file, "|%s' -%c'", command, option->letter);
    }
    (void)fputs(") ", file);
    if (names_of(option) != NULL) {
        (void)fprintf(file, "_tutti_names %s", names_of(option));
    } else {
        (void)fprintf(file, "COMPREPLY=($(compgen -W '%s' -- \"$cur\"))", option->words);
    }
    (void)fputs("; return ;;\n", file);
}

static void
print_bash_beginning(const cli_command *first, int words, const char *name, FILE *file)
{
    (void)first;
    (void)words;
    (void)fprintf(file, "            '%s') command=\"%s $word\" ;;\n", name, name);
}

static void
print_bash_next(const cli_command *first, int words, const char *name, FILE *file)
{
    (void)fprintf(file, "        '%s') COMPREPLY=($(compgen -W '", name);
    print_next_words(first, words, file);
    (void)fputs("' -- \"$cur\")); return ;;\n", file);
}

/* What an option of some command takes: the same everywhere, so the first that says it will do. */
static void
print_bash_values(FILE *file)
{
    const cli_command *command;
    const cli_option *option;

    for (command = cli_commands; command->name != NULL; command++) {
        for (option = command->options; option != NULL && option->name != NULL; option++) {
            char name[CLI_NAME_SIZE];

            (void)snprintf(name, sizeof(name), "'%s'", command->name);
            print_bash_value(name, option, file);
        }
    }
    for (option = cli_global_options; option->name != NULL; option++) {
        print_bash_value("*", option, file);
    }
}

/* Where no names do, files; ops are no files. Servers list their options themselves. */
static void
print_bash_end(FILE *file)
{
    (void)fputs(
        "    esac\n"
        "    case $command in bench|explain|infer|'group '*) return ;; esac\n"
        "    COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
        "}\n"
        "_tutti_server()\n{\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
        "    case $cur in\n"
        "        -*) COMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" --help 2>/dev/null |\n"
        "                sed -n 's/^  \\(--[a-z0-9-]*\\).*/\\1/p') --version\" -- \"$cur\")) ;;\n"
        "        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
        "    esac\n}\n"
        "complete -o filenames -F _tutti tutti\n"
        "complete -o filenames -F _tutti_server tutti-agent tutti-coordinator\n",
        file);
}

/*
 * The script first finds the command among the words. It remembers --agent and --cluster on its
 * way, as names are to be those of that place. Then it completes a value, a command, an option,
 * or a name, whatever comes first.
 */
static void
print_bash(FILE *file)
{
    const cli_command *command;
    int words;

    (void)fputs("# bash completion for tutti; made by: tutti completion bash\n"
                "_tutti_names()\n{\n"
                "    COMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" \"${where[@]}\" completion "
                "\"$1\" -t 2s 2>/dev/null)\" -- \"$cur\"))\n}\n"
                "_tutti()\n{\n"
                "    local cur prev command options word last where=()\n"
                "    cur=${COMP_WORDS[COMP_CWORD]}\n"
                "    prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    command=\n    options='",
                file);
    print_option_names(cli_global_options, file);
    (void)fputs(
        "'\n    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
        "        case $last in\n"
        "            -a|--agent|-c|--cluster) where=(\"$last\" \"$word\"); last=; continue ;;\n"
        "        esac\n"
        "        last=$word\n"
        "        case $word in -*) continue ;; esac\n"
        "        case $command in\n"
        "            '') command=$word ;;\n",
        file);
    for (words = 1; words < WORDS_MAX; words++) {
        print_beginnings(words, print_bash_beginning, file);
    }
    (void)fputs("        esac\n    done\n    case \"$command $prev\" in\n", file);
    print_bash_values(file);
    (void)fputs("    esac\n    case $command in\n        '') COMPREPLY=($(compgen -W '", file);
    print_next_words(cli_commands, 0, file);
    (void)fputs("' -- \"$cur\")); return ;;\n", file);
    for (words = 1; words < WORDS_MAX; words++) {
        print_beginnings(words, print_bash_next, file);
    }
    for (command = cli_commands; command->name != NULL; command++) {
        (void)fprintf(file, "        '%s') options=\"", command->name);
        print_option_names(command->options, file);
        (void)fputs("$options\" ;;\n", file);
    }
    (void)fputs("    esac\n    case $cur in\n"
                "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return ;;\n"
                "    esac\n    case $command in\n",
                file);
    for (command = cli_commands; command->name != NULL; command++) {
        if (names_of_arguments(command) != NULL) {
            (void)fprintf(file, "        '%s') _tutti_names %s ;;\n", command->name,
                          names_of_arguments(command));
        }
    }
    print_bash_end(file);
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
        } else if (options->value != NULL && names_of(options) != NULL) {
            (void)fprintf(file, ":%s:{compadd -- $(tutti completion %s -t 2s 2>/dev/null)}",
                          options->value, names_of(options));
        } else if (options->value != NULL) {
            (void)fprintf(file, ":%s:(%s)", options->value, options->words);
        }
        (void)fputc('\'', file);
    }
}

static void
print_zsh_next(const cli_command *first, int words, const char *name, FILE *file)
{
    (void)fprintf(file, "    '%s')\n        if (( CURRENT == %d )); then\n            compadd -- ",
                  name, words + 2);
    print_next_words(first, words, file);
    (void)fprintf(file,
                  "\n            return\n        fi\n"
                  "        command=\"$command ${words[%d]}\"\n        ;;\n",
                  words + 2);
}

/* zsh has its own helper for options, so this only finds the command. */
static void
print_zsh(FILE *file)
{
    const cli_command *command;
    int words;

    (void)fputs("#compdef tutti tutti-agent tutti-coordinator\n# made by: tutti completion "
                "zsh\n_tutti()\n{\n"
                "    local command=${words[2]}\n"
                "    if (( CURRENT == 2 )); then\n        compadd -- ",
                file);
    print_next_words(cli_commands, 0, file);
    (void)fputs("\n        return\n    fi\n    case $command in\n", file);
    for (words = 1; words < WORDS_MAX; words++) {
        print_beginnings(words, print_zsh_next, file);
        (void)fputs("    esac\n    case $command in\n", file);
    }
    for (command = cli_commands; command->name != NULL; command++) {
        (void)fprintf(file, "    '%s')\n        _arguments -s", command->name);
        print_zsh_options(command->options, file);
        print_zsh_options(cli_global_options, file);
        if (names_of_arguments(command) != NULL) {
            (void)fprintf(file,
                          " \\\n            '*:name:{compadd -- $(tutti completion %s -t 2s "
                          "2>/dev/null); _files}'\n        ;;\n",
                          names_of_arguments(command));
        } else {
            (void)fputs(" \\\n            '*:file:_files'\n        ;;\n", file);
        }
    }
    (void)fputs("    esac\n}\n"
                "_tutti_server()\n{\n"
                "    if [[ $words[CURRENT] == -* ]]; then\n"
                "        compadd -- $($words[1] --help 2>/dev/null |\n"
                "            sed -n 's/^  \\(--[a-z0-9-]*\\).*/\\1/p') --version\n"
                "    else\n        _files\n    fi\n}\n"
                "case $service in\n"
                "tutti-*) _tutti_server ;;\n"
                "*) _tutti \"$@\" ;;\n"
                "esac\n",
                file);
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
        if (names_of(options) != NULL) {
            (void)fprintf(file, " -a '(tutti completion %s -t 2s 2>/dev/null)'", names_of(options));
        } else if (options->words != NULL && strcmp(options->words, "FILE") != 0) {
            (void)fprintf(file, " -a '%s'", options->words);
        }
        (void)fputs(" -d ", file);
        print_fish_text(options->help, file);
        (void)fputc('\n', file);
    }
}

/*
 * fish wants each thing as a line with a condition, under which it is offered: a word when those before
 * it are there and no more, an option when all words of the command are there.
 */
static void
print_fish_command(const cli_command *command, FILE *file)
{
    char condition[256] = " -n __fish_use_subcommand";
    size_t from = 0;
    size_t used = 0;
    int words;

    for (words = 1; prefix_size(command, words) > 0; words++) {
        const size_t size = prefix_size(command, words);
        const bool last = command->name[size] == '\0';

        if (last || is_first(command, words)) {
            (void)fprintf(file, "complete -c tutti%s%s -a %.*s", condition,
                          words > 1 || !last ? " -f" : "", (int)(size - from),
                          command->name + from);
            if (last) {
                (void)fputs(" -d ", file);
                print_fish_text(command->help, file);
            }
            (void)fputc('\n', file);
        }
        used += (size_t)snprintf(
            condition + used, sizeof(condition) - used, "%s__fish_seen_subcommand_from %.*s",
            words == 1 ? " -n '" : "; and ", (int)(size - from), command->name + from);
        (void)snprintf(condition + used, sizeof(condition) - used,
                       last ? "'" : "; and test (count (commandline -opc)) -eq %d'", words + 1);
        from = size + 1;
    }
    if (names_of_arguments(command) != NULL) {
        (void)fprintf(file, "complete -c tutti%s -a '(tutti completion %s -t 2s 2>/dev/null)'\n",
                      condition, names_of_arguments(command));
    }
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
    (void)fputs("for server in tutti-agent tutti-coordinator\n"
                "    complete -c $server -n 'string match -q -- \"-*\" (commandline -ct)' "
                "-a \"($server --help 2>/dev/null | string match -rg '^  (--[a-z0-9-]+)')\"\n"
                "end\n",
                file);
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
