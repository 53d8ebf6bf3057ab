/*
 * Goal: an init address is refused with words or understood, whatever is in it and in the
 * environment. Method: the input's first line is the address, the next ones the variables.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/init_url.h"

#define LINES 5

static char *lines[LINES]; /* the address, RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *
lookup(const char *name)
{
    return strcmp(name, "RANK") == 0          ? lines[1]
           : strcmp(name, "WORLD_SIZE") == 0  ? lines[2]
           : strcmp(name, "MASTER_ADDR") == 0 ? lines[3]
                                              : lines[4];
}

static void
check(const tutti_init_url *url)
{
    tutti_address address;
    const bool in_file = url->kind == TUTTI_INIT_FILE;

    if (url->rank >= url->world_size || in_file != (url->path[0] == '/') ||
        in_file != (url->address[0] == '\0')) {
        abort();
    }
    if (!in_file && tutti_address_parse(url->address, &address, NULL) != TUTTI_OK) {
        abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char *rest = text;
    tutti_init_url url;
    tutti_error err;
    size_t i;

    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    for (i = 0; i < LINES; i++) {
        lines[i] = strsep(&rest, "\n");
    }
    if (tutti_init_url_parse(lines[0], lookup, &url, &err) == TUTTI_OK) {
        check(&url);
    } else if (err.text[0] == '\0' || strcmp(err.reason, "BAD_URL") != 0) {
        abort();
    }
    free(text);
    return 0;
}
