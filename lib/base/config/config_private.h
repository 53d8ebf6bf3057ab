/* Private to config*.c: the values, and where they come from. */
#ifndef TUTTI_BASE_CONFIG_CONFIG_PRIVATE_H
#define TUTTI_BASE_CONFIG_CONFIG_PRIVATE_H

#include "base/config/config.h"

typedef enum config_origin {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENVIRONMENT,
    CONFIG_FROM_FLAG,
} config_origin;

typedef struct config_value {
    const tutti_option *option;
    void *member;
    char *text; /* owned */
    config_origin from;
} config_value;

struct tutti_config {
    config_value *values;
    size_t count;
};

/* config.c */

/* NULL when there is no option of that name. */
config_value *tutti_config_find_value(tutti_config *config, const char *name, size_t size);

/* Replace the text of a value; what it says is checked once, when all sources have spoken. */
tutti_code tutti_config_set_value(config_value *one, const char *text, config_origin from,
                                  tutti_error *err);

/* config_read.c: the sources, each over the ones before it */

const char *tutti_config_find_path(int argc, char *const *argv); /* of the file; NULL = none */
tutti_code tutti_config_read_file(tutti_config *config, const char *path, tutti_error *err);
tutti_code tutti_config_read_environment(tutti_config *config, tutti_error *err);
tutti_code tutti_config_read_flags(tutti_config *config, int argc, char *const *argv,
                                   tutti_config_wish *ret_wish, tutti_error *err);

#endif
