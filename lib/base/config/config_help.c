/* What programs say of their options: --help, and manual pages. */
#include "base/config/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 31 /* where descriptions begin */
#define HELP_WIDTH 80

static const char *
kind_word(tutti_option_kind kind)
{
    static const char *const words[] = {
        [TUTTI_OPTION_TEXT] = " TEXT",
        [TUTTI_OPTION_NAME] = " NAME",
        [TUTTI_OPTION_WORD] = " WORD",
        [TUTTI_OPTION_LIST] = " LIST",
        [TUTTI_OPTION_ADDRESS] = " ADDRESS",
        [TUTTI_OPTION_FILE] = " FILE",
        [TUTTI_OPTION_FOLDER] = " FOLDER",
        [TUTTI_OPTION_UINT] = " N",
        [TUTTI_OPTION_BYTES] = " SIZE",
        [TUTTI_OPTION_NS] = " TIME",
        [TUTTI_OPTION_BOOL] = "",
    };

    return words[kind];
}

/* Is it a flag that is on when nothing is said? */
static bool
is_on(const tutti_option *option)
{
    return option->kind == TUTTI_OPTION_BOOL && strcmp(option->fallback, "true") == 0;
}

/* The sentence with the default and the other names. [out, owned] free it; NULL = no memory */
static char *
describe_option(const tutti_option *option)
{
    const bool has_default = option->fallback[0] != '\0' && option->kind != TUTTI_OPTION_BOOL;
    char *text = NULL;
    const int size =
        asprintf(&text, "%s%s%s%s%s%s%s%s%s", option->help, has_default ? " (default " : "",
                 has_default ? option->fallback : "", has_default ? ")" : "",
                 is_on(option) ? " (on; off with --no-" : "", is_on(option) ? option->name : "",
                 is_on(option) ? ")" : "", option->also != NULL ? "; also " : "",
                 option->also != NULL ? option->also : "");

    return size < 0 ? NULL : text;
}

/* Words of a text from this column on, in lines that begin there. */
static void
print_wrapped(const char *text, size_t column, FILE *file)
{
    size_t at = column;

    while (*text != '\0') {
        const size_t size = strcspn(text, " ");

        if (at > column && at + 1 + size > HELP_WIDTH) {
            (void)fprintf(file, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            (void)fputc(' ', file);
            at++;
        }
        (void)fprintf(file, "%.*s", (int)size, text);
        at += size;
        text += size + (text[size] == ' ' ? 1 : 0);
    }
    (void)fputc('\n', file);
}

/* Where a flag is too long for its column, the description begins on a line of its own. */
static void
help_option(const tutti_option *option, FILE *file)
{
    char *text = describe_option(option);
    char flag[64];

    (void)snprintf(flag, sizeof(flag), "--%s%s", option->name, kind_word(option->kind));
    (void)fprintf(file, "  %-28s", flag);
    if (strlen(flag) >= HELP_COLUMN - 2) {
        (void)fprintf(file, "\n%*s", HELP_COLUMN, "");
    } else {
        (void)fputc(' ', file);
    }
    print_wrapped(text != NULL ? text : option->help, HELP_COLUMN, file);
    free(text);
}

/* "memory-limit" as "MEMORY_LIMIT". */
static void
print_variable(const char *name, FILE *file)
{
    for (; *name != '\0'; name++) {
        (void)fputc(*name == '-' ? '_' : toupper((unsigned char)*name), file);
    }
}

void
tutti_config_help(const tutti_option_set *sets, size_t set_count, const tutti_program_words *words,
                  FILE *file)
{
    size_t s;
    size_t i;

    (void)fprintf(file, "usage: %s [options]\n\n%s\n", words->name, words->what);
    for (s = 0; s < set_count; s++) {
        (void)fprintf(file, "\n%s:\n", sets[s].title);
        for (i = 0; i < sets[s].count; i++) {
            help_option(&sets[s].options[i], file);
        }
    }
    (void)fprintf(file,
                  "\nalways there:\n"
                  "  %-28s lines of `name = value`; also TUTTI_CONFIG\n"
                  "  %-28s show every option, its value and its origin\n"
                  "  %-28s write the manual page\n"
                  "  --help, --version\n\nexamples:\n%s\n\n"
                  "Each option is also an environment variable: --%s is TUTTI_",
                  "--config FILE", "--print-config", "--man", words->example,
                  sets[0].options[0].name);
    print_variable(sets[0].options[0].name, file);
    (void)fputs(".\n", file);
}

/* ------------------------------------------------------------------------------ manual pages */

/* roff takes backslashes, and dots and quotes at the beginning of a line, for its own; and it makes
 * typography of '-'. */
static void
print_roff(const char *text, FILE *file)
{
    bool begins = true;

    for (; *text != '\0'; text++) {
        if (begins && (*text == '.' || *text == '\'')) {
            (void)fputs("\\&", file);
        }
        if (*text == '\\') {
            (void)fputs("\\e", file);
        } else if (*text == '-') {
            (void)fputs("\\-", file);
        } else {
            (void)fputc(*text, file);
        }
        begins = *text == '\n';
    }
}

static void
man_option(const tutti_option *option, FILE *file)
{
    char *text = describe_option(option);
    const char *kind = kind_word(option->kind);

    (void)fputs(".TP\n\\fB\\-\\-", file);
    print_roff(option->name, file);
    (void)fprintf(file, "\\fR%s%s%s\n", kind[0] != '\0' ? " \\fI" : "",
                  kind[0] != '\0' ? kind + 1 : "", kind[0] != '\0' ? "\\fR" : "");
    print_roff(text != NULL ? text : option->help, file);
    (void)fputs(".\n", file);
    free(text);
}

void
tutti_config_man(const tutti_option_set *sets, size_t set_count, const tutti_program_words *words,
                 FILE *file)
{
    size_t s;
    size_t i;

    (void)fputs(".TH ", file);
    print_roff(words->name, file);
    (void)fputs(" 8 \"\" \"Tutti\" \"Tutti\"\n.SH NAME\n", file);
    print_roff(words->name, file);
    (void)fputs(" \\- server of remote tensor collectives\n.SH SYNOPSIS\n.B ", file);
    print_roff(words->name, file);
    (void)fputs("\n[options]\n.SH DESCRIPTION\n", file);
    print_roff(words->what, file);
    (void)fputs("\n.SH OPTIONS\n", file);
    for (s = 0; s < set_count; s++) {
        (void)fprintf(file, ".SS %s\n", sets[s].title);
        for (i = 0; i < sets[s].count; i++) {
            man_option(&sets[s].options[i], file);
        }
    }
    (void)fputs(".SS always there\n"
                ".TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nLines of `name = value`.\n"
                ".TP\n\\fB\\-\\-print\\-config\\fR\nShow every option, its value and its origin.\n"
                ".TP\n\\fB\\-\\-man\\fR\nWrite this page.\n"
                ".TP\n\\fB\\-\\-help\\fR, \\fB\\-\\-version\\fR\nSay what there is, and exit.\n"
                ".SH EXAMPLES\n.nf\n",
                file);
    print_roff(words->example, file);
    (void)fputs("\n.fi\n.SH ENVIRONMENT\nEach option is also an environment variable: \\-\\-",
                file);
    print_roff(sets[0].options[0].name, file);
    (void)fputs(" is TUTTI_", file);
    print_variable(sets[0].options[0].name, file);
    (void)fputs(". An option wins over its variable, that over the file.\n"
                ".SH SEE ALSO\n.BR tutti (1),\n.BR tutti\\-agent (8),\n"
                ".BR tutti\\-coordinator (8)\n",
                file);
}
