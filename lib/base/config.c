#include "base/config.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"

#define CONFIG_FILE_BYTES_MAX (1u << 20)
#define ENV_NAME_MAX 80

typedef enum origin {
    ORIGIN_DEFAULT,
    ORIGIN_FILE,
    ORIGIN_ENVIRONMENT,
    ORIGIN_FLAG,
} origin;

static const char *const origin_names[] = {"default", "file", "environment", "flag"};

typedef struct value {
    const tutti_option *option;
    void *member;
    char *text; /* owned */
    origin from;
} value;

struct tutti_config {
    value *values;
    size_t count;
};

static value *
find_value(tutti_config *config, const char *name, size_t size)
{
    size_t i;

    for (i = 0; i < config->count; i++) {
        const char *own = config->values[i].option->name;

        if (strlen(own) == size && strncmp(own, name, size) == 0) {
            return &config->values[i];
        }
    }
    return NULL;
}

/* Replace the text of a value; what it says is checked once, when all sources have spoken. */
static tutti_code
set_text(value *one, const char *text, origin from, tutti_error *err)
{
    char *copy = strdup(text);

    if (copy == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for option --%s",
                          one->option->name);
    }
    free(one->text);
    one->text = copy;
    one->from = from;
    return TUTTI_OK;
}

static tutti_code
parse_number(const tutti_option *option, const char *text, uint64_t *ret, tutti_error *err)
{
    switch (option->kind) {
    case TUTTI_OPTION_BYTES:
        return tutti_parse_bytes(text, ret, err);
    case TUTTI_OPTION_NS:
        return tutti_parse_ns(text, ret, err);
    default:
        return tutti_parse_uint(text, UINT64_MAX, ret, err);
    }
}

static tutti_code
apply_number(const value *one, tutti_error *err)
{
    const tutti_option *option = one->option;
    const uint64_t most = option->most == 0 ? UINT64_MAX : option->most;
    uint64_t number = 0;
    tutti_code code = parse_number(option, one->text, &number, err);

    if (code == TUTTI_OK && (number < option->least || number > most)) {
        code = TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "%s, need %" PRIu64 " to %" PRIu64,
                          one->text, option->least, most);
    }
    if (code == TUTTI_OK) {
        memcpy(one->member, &number, sizeof(number));
    }
    return code;
}

static tutti_code
apply(const value *one, tutti_error *err)
{
    tutti_error inner;
    tutti_code code = TUTTI_OK;
    bool flag = false;

    switch (one->option->kind) {
    case TUTTI_OPTION_TEXT:
        memcpy(one->member, &one->text, sizeof(one->text));
        break;
    case TUTTI_OPTION_BOOL:
        code = tutti_parse_bool(one->text, &flag, &inner);
        memcpy(one->member, &flag, sizeof(flag));
        break;
    default:
        code = apply_number(one, &inner);
        break;
    }
    if (code != TUTTI_OK) {
        return TUTTI_FAIL(err, code, "option --%s (from %s): %s", one->option->name,
                          origin_names[one->from], inner.text);
    }
    return TUTTI_OK;
}

static tutti_code
collect(tutti_config *config, const tutti_option_set *sets, size_t set_count, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t s;
    size_t i;

    for (s = 0; s < set_count && code == TUTTI_OK; s++) {
        for (i = 0; i < sets[s].count && code == TUTTI_OK; i++) {
            value *one = &config->values[config->count++];

            one->option = &sets[s].options[i];
            one->member = (char *)sets[s].target + one->option->offset;
            code = set_text(one, one->option->fallback, ORIGIN_DEFAULT, err);
        }
    }
    return code;
}

static char *
trim(char *text)
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

static tutti_code
read_line(tutti_config *config, const char *path, unsigned number, char *line, tutti_error *err)
{
    char *equals = strchr(line, '=');
    char *key;
    value *one;

    line = trim(line);
    if (line[0] == '\0' || line[0] == '#') {
        return TUTTI_OK;
    }
    if (equals == NULL) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "%s:%u: \"%s\", need name = value", path,
                          number, line);
    }
    *equals = '\0';
    key = trim(line);
    one = find_value(config, key, strlen(key));
    if (one == NULL) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "%s:%u: there is no option \"%s\"", path,
                          number, key);
    }
    return set_text(one, trim(equals + 1), ORIGIN_FILE, err);
}

static tutti_code
read_file(tutti_config *config, const char *path, tutti_error *err)
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
        code = read_line(config, path, ++number, line, err);
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

static tutti_code
read_environment(tutti_config *config, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < config->count && code == TUTTI_OK; i++) {
        const char *text = find_env(config->values[i].option);

        if (text != NULL) {
            code = set_text(&config->values[i], text, ORIGIN_ENVIRONMENT, err);
        }
    }
    return code;
}

static bool
is_wish(const char *flag, tutti_config_wish *ret_wish)
{
    if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0) {
        *ret_wish = TUTTI_CONFIG_HELP;
    } else if (strcmp(flag, "--version") == 0) {
        *ret_wish = TUTTI_CONFIG_VERSION;
    } else if (strcmp(flag, "--print-config") == 0) {
        *ret_wish = TUTTI_CONFIG_PRINT;
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
    value *one;
    bool negated = false;

    if (strncmp(flag, "--", 2) != 0) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "argument \"%s\": only --options are known",
                          flag);
    }
    equals = strchr(name, '=');
    one = find_value(config, name, equals == NULL ? strlen(name) : (size_t)(equals - name));
    if (one == NULL && equals == NULL && strncmp(name, "no-", 3) == 0) {
        one = find_value(config, name + 3, strlen(name + 3));
        negated = one != NULL && one->option->kind == TUTTI_OPTION_BOOL;
        one = negated ? one : NULL;
    }
    if (one == NULL) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "there is no option %s; see --help", flag);
    }
    if (equals != NULL) {
        return set_text(one, equals + 1, ORIGIN_FLAG, err);
    }
    if (one->option->kind == TUTTI_OPTION_BOOL) {
        return set_text(one, negated ? "false" : "true", ORIGIN_FLAG, err);
    }
    if (*at >= argc) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "option %s needs a value", flag);
    }
    return set_text(one, argv[(*at)++], ORIGIN_FLAG, err);
}

static const char *
find_config_path(int argc, char *const *argv)
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

static tutti_code
read_flags(tutti_config *config, int argc, char *const *argv, tutti_config_wish *ret_wish,
           tutti_error *err)
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

static tutti_code
read_sources(tutti_config *config, int argc, char *const *argv, tutti_config_wish *ret_wish,
             tutti_error *err)
{
    const char *path = find_config_path(argc, argv);
    tutti_code code = TUTTI_OK;
    size_t i;

    if (path != NULL && path[0] != '\0') {
        code = read_file(config, path, err);
    }
    if (code == TUTTI_OK) {
        code = read_environment(config, err);
    }
    if (code == TUTTI_OK) {
        code = read_flags(config, argc, argv, ret_wish, err);
    }
    for (i = 0; i < config->count && code == TUTTI_OK; i++) {
        code = apply(&config->values[i], err);
    }
    return code;
}

tutti_code
tutti_config_load(const tutti_option_set *sets, size_t set_count, int argc, char *const *argv,
                  tutti_config **ret_config, tutti_config_wish *ret_wish, tutti_error *err)
{
    tutti_config *self = calloc(1, sizeof(*self));
    tutti_config_wish wish = TUTTI_CONFIG_RUN;
    size_t total = 0;
    tutti_code code;
    size_t s;

    for (s = 0; s < set_count; s++) {
        total += sets[s].count;
    }
    if (self != NULL) {
        self->values = calloc(total, sizeof(*self->values));
    }
    if (self == NULL || self->values == NULL) {
        tutti_config_free(self);
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %zu options", total);
    }
    code = collect(self, sets, set_count, err);
    if (code == TUTTI_OK) {
        code = read_sources(self, argc, argv, &wish, err);
    }
    if (code != TUTTI_OK) {
        tutti_config_free(self);
        return code;
    }
    *ret_config = self;
    *ret_wish = wish;
    return TUTTI_OK;
}

void
tutti_config_free(tutti_config *config)
{
    size_t i;

    if (config == NULL) {
        return;
    }
    for (i = 0; i < config->count; i++) {
        free(config->values[i].text);
    }
    free(config->values);
    free(config);
}

void
tutti_config_print(const tutti_config *config, FILE *file)
{
    size_t i;

    for (i = 0; i < config->count; i++) {
        const value *one = &config->values[i];

        (void)fprintf(file, "%s = %s  # %s\n", one->option->name, one->text,
                      origin_names[one->from]);
    }
}

bool
tutti_config_given(const tutti_config *config, const char *name)
{
    const value *one = find_value((tutti_config *)(uintptr_t)config, name, strlen(name));

    assert(one != NULL);
    return one->from != ORIGIN_DEFAULT;
}
