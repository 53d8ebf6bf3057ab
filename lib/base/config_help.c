#include "base/config.h"

#include <stdio.h>
#include <string.h>

static const char *
kind_word(tutti_option_kind kind)
{
    switch (kind) {
    case TUTTI_OPTION_UINT:
        return " N";
    case TUTTI_OPTION_BYTES:
        return " SIZE";
    case TUTTI_OPTION_NS:
        return " TIME";
    case TUTTI_OPTION_BOOL:
        return "";
    case TUTTI_OPTION_TEXT:
    default:
        return " TEXT";
    }
}

static void
help_option(const tutti_option *option, FILE *file)
{
    char flag[64];

    (void)snprintf(flag, sizeof(flag), "--%s%s", option->name, kind_word(option->kind));
    (void)fprintf(file, "  %-28s %s", flag, option->help);
    if (option->fallback[0] != '\0' && option->kind != TUTTI_OPTION_BOOL) {
        (void)fprintf(file, " (default %s)", option->fallback);
    }
    if (option->also != NULL) {
        (void)fprintf(file, "; also %s", option->also);
    }
    (void)fputc('\n', file);
}

void
tutti_config_help(const tutti_option_set *sets, size_t set_count, const char *name,
                  const char *what, FILE *file)
{
    size_t s;
    size_t i;

    (void)fprintf(file, "usage: %s [options]\n\n%s\n", name, what);
    for (s = 0; s < set_count; s++) {
        (void)fprintf(file, "\n%s:\n", sets[s].title);
        for (i = 0; i < sets[s].count; i++) {
            help_option(&sets[s].options[i], file);
        }
    }
    (void)fprintf(file,
                  "\nalways there:\n"
                  "  %-28s lines of `name = value`; also TUTTI_CONFIG\n"
                  "  %-28s show every option, its value and where it came from\n"
                  "  --help, --version\n\n"
                  "Each option is also an environment variable: --%s is TUTTI_",
                  "--config FILE", "--print-config", sets[0].options[0].name);
    for (i = 0; sets[0].options[0].name[i] != '\0'; i++) {
        const char letter = sets[0].options[0].name[i];

        (void)fputc(letter == '-'                    ? '_'
                    : letter >= 'a' && letter <= 'z' ? letter - 32
                                                     : letter,
                    file);
    }
    (void)fputs(".\n", file);
}
