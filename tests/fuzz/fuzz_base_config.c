/*
 * Goal: a configuration file and a command line are refused with words or understood, whatever is
 * in them. Method: the input's first byte says how much of it is the file; the rest is the command
 * line, one argument a line.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config/config.h"

#define ARGUMENTS_MAX 16

typedef struct options {
    const char *name;
    uint64_t bytes;
    uint64_t wait_ns;
    uint64_t count;
    bool loud;
} options;

static const tutti_option table[] = {
    {"name", TUTTI_OPTION_TEXT, offsetof(options, name), "nobody", 0, 0, NULL, "who it is"},
    {"byte-limit", TUTTI_OPTION_BYTES, offsetof(options, bytes), "1MiB", 1024, 1 << 30, NULL,
     "how much"},
    {"wait", TUTTI_OPTION_NS, offsetof(options, wait_ns), "5s", 0, 0, NULL, "how long"},
    {"count", TUTTI_OPTION_UINT, offsetof(options, count), "3", 1, 10, NULL, "how many"},
    {"loud", TUTTI_OPTION_BOOL, offsetof(options, loud), "false", 0, 0, NULL, "say more"},
};

static int file = -1; /* in memory */
static FILE *nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    file = memfd_create("config", MFD_CLOEXEC);
    nowhere = fopen("/dev/null", "we");
    return file >= 0 && nowhere != NULL ? 0 : 1;
}

static void
write_file(const uint8_t *data, size_t size)
{
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size) {
        abort();
    }
}

/* The lines of `text`, which is cut into them, behind what argv has already. */
static int
split(char *text, char **argv, int argc)
{
    char *rest = text;
    char *line;

    while (argc < ARGUMENTS_MAX && (line = strsep(&rest, "\n")) != NULL) {
        argv[argc++] = line;
    }
    return argc;
}

static void
load(int argc, char **argv)
{
    options got = {0};
    const tutti_option_set set = {"fuzz", table, sizeof(table) / sizeof(table[0]), &got};
    tutti_config *config = NULL;
    tutti_config_wish wish = TUTTI_CONFIG_RUN;
    tutti_error err;

    if (tutti_config_load(&set, 1, argc, argv, &config, &wish, &err) == TUTTI_OK) {
        if (got.name == NULL || got.count < 1 || got.count > 10 || got.bytes < 1024) {
            abort();
        }
        tutti_config_print(config, nowhere);
    } else if (err.text[0] == '\0') {
        abort();
    }
    tutti_config_free(config);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    char *argv[ARGUMENTS_MAX + 1] = {(char *)(uintptr_t) "fuzz", path};
    size_t cut;
    char *text;

    if (size == 0) {
        return 0;
    }
    cut = 1 + (size - 1) * data[0] / 255;
    text = malloc(size - cut + 1);
    if (text == NULL) {
        return 0;
    }
    write_file(data + 1, cut - 1);
    (void)snprintf(path, sizeof(path), "--config=/proc/self/fd/%d", file);
    memcpy(text, data + cut, size - cut);
    text[size - cut] = '\0';
    load(size == cut ? 2 : split(text, argv, 2), argv);
    free(text);
    return 0;
}
