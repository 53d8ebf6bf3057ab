/* The three places from which options come: a file, the environment, and the arguments. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/config_private.h"
#include "base/error/fail.h"
#include "base/os/file.h"

#define CONFIG_FILE_BYTES_MAX (1u << 20)
#define ENV_NAME_MAX 80

static char *
trim_config(char *text)
{
    size_t size;

    while (isspace((unsigned char)*text)) {
        text++;
    }
    size = strlen(text);
    while (size > 0 && isspace((unsigned char)text[size - 1])) {
        text[--size] = '\0';
    }
    return text;
}

/*
 * An unknown name is an error and is not passed over: it is nearly always a name that was
 * misspelt. '#' starts a comment only at the start of a line, since values may contain it.
 */
static tutti_code
read_config_line(tutti_config *config, const char *path, unsigned number, char *line,
                 tutti_error *err)
{
    char *equals = strchr(line, '=');
    char *key;
    config_value *one;

    line = trim_config(line);
    if (line[0] == '\0' || line[0] == '#') {
        return TUTTI_OK;
    }
    if (equals == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "%s:%u: \"%s\", need name = value", path, number, line);
    }
    *equals = '\0';
    key = trim_config(line);
    one = tutti_config_find_value(config, key, strlen(key));
    if (one == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "%s:%u: there is no option \"%s\"", path, number, key);
    }
    return tutti_config_set_value(one, trim_config(equals + 1), CONFIG_FROM_FILE, err);
}

tutti_code
tutti_config_read_file(tutti_config *config, const char *path, tutti_error *err)
{
    char *text = NULL;
    char *rest = NULL;
    char *line;
    unsigned number = 0;
    tutti_code code = tutti_file_read(path, CONFIG_FILE_BYTES_MAX, &text, NULL, err);

    if (code != TUTTI_OK) {
        return code;
    }
    rest = text;
    while (code == TUTTI_OK && (line = strsep(&rest, "\n")) != NULL) {
        code = read_config_line(config, path, ++number, line, err);
    }
    free(text);
    return code;
}

/* TUTTI_MEMORY_LIMIT for "memory-limit". */
static void
env_name(const char *name, char *ret)
{
    size_t i;

    memcpy(ret, "TUTTI_", 6);
    for (i = 0; name[i] != '\0' && i + 7 < ENV_NAME_MAX; i++) {
        ret[i + 6] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
    }
    ret[i + 6] = '\0';
}

/*
 * Our own variable comes first, then those that other programs have made usual (`also` of the
 * option), in their order.
 */
static const char *
find_env(const tutti_option *option)
{
    char name[ENV_NAME_MAX];
    const char *found;
    const char *at = option->also == NULL ? "" : option->also;

    env_name(option->name, name);
    found = getenv(name);
    while (found == NULL && *at != '\0') {
        const size_t size = strcspn(at, " ");

        (void)snprintf(name, sizeof(name), "%.*s", (int)size, at);
        found = getenv(name);
        at += size + strspn(at + size, " ");
    }
    return found;
}

tutti_code
tutti_config_read_environment(tutti_config *config, tutti_error *err)
{
    size_t i;

    for (i = 0; i < config->count; i++) {
        const char *text = find_env(config->values[i].option);

        if (text != NULL) {
            TUTTI_TRY(
                tutti_config_set_value(&config->values[i], text, CONFIG_FROM_ENVIRONMENT, err));
        }
    }
    return TUTTI_OK;
}

/*
 * The last wish wins. The other arguments are read all the same, so --print-config shows what
 * they do.
 */
static bool
is_wish(const char *flag, tutti_config_wish *ret_wish)
{
    if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0) {
        *ret_wish = TUTTI_CONFIG_HELP;
    } else if (strcmp(flag, "--version") == 0) {
        *ret_wish = TUTTI_CONFIG_VERSION;
    } else if (strcmp(flag, "--print-config") == 0) {
        *ret_wish = TUTTI_CONFIG_PRINT;
    } else if (strcmp(flag, "--man") == 0) {
        *ret_wish = TUTTI_CONFIG_MAN;
    } else {
        return false;
    }
    return true;
}

/* One flag at argv[*at]; *at moves behind it and its value. */
static tutti_code
read_flag(tutti_config *config, int argc, char *const *argv, int *at, tutti_error *err)
{
    const char *flag = argv[(*at)++];
    const char *name = flag + 2;
    const char *equals;
    config_value *one;
    bool negated = false;

    if (strncmp(flag, "--", 2) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "argument \"%s\": only --options are known", flag);
    }
    equals = strchr(name, '=');
    one = tutti_config_find_value(config, name,
                                  equals == NULL ? strlen(name) : (size_t)(equals - name));
    if (one == NULL && equals == NULL && strncmp(name, "no-", 3) == 0) {
        one = tutti_config_find_value(config, name + 3, strlen(name + 3));
        negated = one != NULL && one->option->kind == TUTTI_OPTION_BOOL;
        one = negated ? one : NULL;
    }
    if (one == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "there is no option %s; see --help", flag);
    }
    if (equals != NULL) {
        return tutti_config_set_value(one, equals + 1, CONFIG_FROM_FLAG, err);
    }
    if (one->option->kind == TUTTI_OPTION_BOOL) {
        return tutti_config_set_value(one, negated ? "false" : "true", CONFIG_FROM_FLAG, err);
    }
    if (*at >= argc) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION", "option %s needs a value",
                              flag);
    }
    return tutti_config_set_value(one, argv[(*at)++], CONFIG_FROM_FLAG, err);
}

/*
 * The file has to be read before the flags, as they win over it, so its name is looked for on its
 * own first.
 */
const char *
tutti_config_find_path(int argc, char *const *argv)
{
    const char *path = getenv("TUTTI_CONFIG");
    int i;

    for (i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) {
            path = argv[i] + 9;
        } else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) {
            path = argv[i + 1];
        }
    }
    return path;
}

tutti_code
tutti_config_read_flags(tutti_config *config, int argc, char *const *argv,
                        tutti_config_wish *ret_wish, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    int at = 1;

    while (code == TUTTI_OK && at < argc) {
        if (is_wish(argv[at], ret_wish) || strncmp(argv[at], "--config=", 9) == 0) {
            at++;
        } else if (strcmp(argv[at], "--config") == 0) {
            at += 2;
        } else {
            code = read_flag(config, argc, argv, &at, err);
        }
    }
    return code;
}
