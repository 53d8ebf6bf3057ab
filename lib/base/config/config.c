/*
 * The options of a program: their values from four sources, and the check of all of them.
 *
 * Each source only replaces texts. Parsing comes once at the end, so a wrong value in the file
 * does no harm when a flag replaces it, and each error can name the source that won.
 */
#include "base/config/config.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/config_private.h"
#include "base/error/fail.h"
#include "base/error/text.h"

static const char *const origin_names[] = {"default", "file", "environment", "flag"};

config_value *
tutti_config_find_value(tutti_config *config, const char *name, size_t size)
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

tutti_code
tutti_config_set_value(config_value *one, const char *text, config_origin from, tutti_error *err)
{
    char *copy = strdup(text);

    if (copy == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for option --%s", one->option->name);
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

/*
 * Members are written with memcpy: the table knows only their offset, and this needs no pointer
 * of another type.
 */
static tutti_code
apply_number(const config_value *one, tutti_error *err)
{
    const tutti_option *option = one->option;
    const uint64_t most = option->most == 0 ? UINT64_MAX : option->most;
    uint64_t number = 0;

    TUTTI_TRY(parse_number(option, one->text, &number, err));

    if (number < option->least || number > most) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "%s, need %" PRIu64 " to %" PRIu64, one->text, option->least, most);
    }
    memcpy(one->member, &number, sizeof(number));
    return TUTTI_OK;
}

/*
 * A text is not copied: the member points into the configuration and is valid as long as that is.
 */
static tutti_code
apply_option(const config_value *one, tutti_error *err)
{
    tutti_error inner;
    tutti_code code = TUTTI_OK;
    bool flag = false;

    if (tutti_option_is_text(one->option->kind)) {
        memcpy(one->member, &one->text, sizeof(one->text));
    } else if (one->option->kind == TUTTI_OPTION_BOOL) {
        code = tutti_parse_bool(one->text, &flag, &inner);
        memcpy(one->member, &flag, sizeof(flag));
    } else {
        code = apply_number(one, &inner);
    }
    if (code != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, code, inner.reason, "option --%s (from %s): %s",
                              one->option->name, origin_names[one->from], inner.text);
    }
    return TUTTI_OK;
}

/* All options get their default first, as one more source, so a value is never missing. */
static tutti_code
collect_option(tutti_config *config, const tutti_option_set *sets, size_t set_count,
               tutti_error *err)
{
    size_t s;
    size_t i;

    for (s = 0; s < set_count; s++) {
        for (i = 0; i < sets[s].count; i++) {
            config_value *one = &config->values[config->count++];

            one->option = &sets[s].options[i];
            one->member = (char *)sets[s].target + one->option->offset;
            TUTTI_TRY(tutti_config_set_value(one, one->option->fallback, CONFIG_FROM_DEFAULT, err));
        }
    }
    return TUTTI_OK;
}

/*
 * The order is the one that people expect: a flag wins over the environment, that over the file.
 */
static tutti_code
read_sources(tutti_config *config, int argc, char *const *argv, tutti_config_wish *ret_wish,
             tutti_error *err)
{
    const char *path = tutti_config_find_path(argc, argv);
    size_t i;

    if (path != NULL && path[0] != '\0') {
        TUTTI_TRY(tutti_config_read_file(config, path, err));
    }
    TUTTI_TRY(tutti_config_read_environment(config, err));
    TUTTI_TRY(tutti_config_read_flags(config, argc, argv, ret_wish, err));
    for (i = 0; i < config->count; i++) {
        TUTTI_TRY(apply_option(&config->values[i], err));
    }
    return TUTTI_OK;
}

/*
 * On failure nothing is left behind, but members may have been written already; the caller does
 * not use them then.
 */
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
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu options", total);
    }
    code = collect_option(self, sets, set_count, err);
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

/*
 * The origin has a line of its own, as a value may contain '#' and so nothing behind a value is a
 * comment. A default is a comment as a whole: read back it is still a default, not a value given.
 */
void
tutti_config_print(const tutti_config *config, FILE *file)
{
    size_t i;

    for (i = 0; i < config->count; i++) {
        const config_value *one = &config->values[i];

        if (one->from == CONFIG_FROM_DEFAULT) {
            (void)fprintf(file, "# default:\n# %s = %s\n", one->option->name, one->text);
        } else {
            (void)fprintf(file, "# %s:\n%s = %s\n", origin_names[one->from], one->option->name,
                          one->text);
        }
    }
}

bool
tutti_config_given(const tutti_config *config, const char *name)
{
    const config_value *one =
        tutti_config_find_value((tutti_config *)(uintptr_t)config, name, strlen(name));

    assert(one != NULL);
    return one->from != CONFIG_FROM_DEFAULT;
}
