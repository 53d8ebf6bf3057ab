/*
 * Config: one static table per room, from which come the flag, the environment name, the key in
 * the file, the check, the help and --print-config.
 *
 * An option named "memory-limit" is --memory-limit 1GiB, TUTTI_MEMORY_LIMIT=1GiB and
 * `memory-limit = 1GiB` in the file that --config names. A flag wins over the environment, that
 * over the file, that over the default. One thread, at start.
 */
#ifndef TUTTI_BASE_CONFIG_CONFIG_H
#define TUTTI_BASE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tutti/error.h"

typedef enum tutti_option_kind {
    /* const char *, "" when unset; owned by the tutti_config. They differ in what the help calls
     * their value. */
    TUTTI_OPTION_TEXT,
    TUTTI_OPTION_NAME,
    TUTTI_OPTION_WORD, /* one of a few; the help says which */
    TUTTI_OPTION_LIST, /* separated by commas */
    TUTTI_OPTION_ADDRESS,
    TUTTI_OPTION_FILE,
    TUTTI_OPTION_FOLDER,

    TUTTI_OPTION_UINT,  /* uint64_t */
    TUTTI_OPTION_BYTES, /* uint64_t bytes: "64MiB" */
    TUTTI_OPTION_NS,    /* uint64_t nanoseconds: "250ms" */
    TUTTI_OPTION_BOOL,  /* bool; as a flag alone it means true */
} tutti_option_kind;

static inline bool
tutti_option_is_text(tutti_option_kind kind)
{
    return kind <= TUTTI_OPTION_FOLDER;
}

typedef struct tutti_option {
    const char *name;
    tutti_option_kind kind;
    size_t offset;        /* of the member in the room's options struct */
    const char *fallback; /* the default, as text */
    uint64_t least;       /* for numbers */
    uint64_t most;        /* for numbers; 0 = no limit */
    const char *also;     /* other environment names, "RANK PET_RANK", first found wins; or NULL */
    const char *help;     /* one sentence, lower case, no full stop */
} tutti_option;

/* A room's table and the struct it fills. */
typedef struct tutti_option_set {
    const char *title; /* in the help: "data plane" */
    const tutti_option *options;
    size_t count;
    void *target; /* [borrowed] written by tutti_config_load */
} tutti_option_set;

typedef struct tutti_config tutti_config;

typedef enum tutti_config_wish {
    TUTTI_CONFIG_RUN,
    TUTTI_CONFIG_HELP,    /* --help */
    TUTTI_CONFIG_VERSION, /* --version */
    TUTTI_CONFIG_PRINT,   /* --print-config */
    TUTTI_CONFIG_MAN,     /* --man */
} tutti_config_wish;

/*
 * Read everything and fill the targets.
 *
 * [in]          sets        borrowed for the life of the config
 * [in]          argv        argv[0] is skipped
 * [out, owned]  ret_config  holds the texts that the targets point to; free it last
 * [out]         ret_wish    what the command line asked for
 *
 * TUTTI_INVALID_ARGUMENT    unknown option, or a value that is not of its form or range: the text
 *                           names the option, where the value came from and what is wanted
 * TUTTI_NOT_FOUND, ...      the file could not be read
 */
tutti_code tutti_config_load(const tutti_option_set *sets, size_t set_count, int argc,
                             char *const *argv, tutti_config **ret_config,
                             tutti_config_wish *ret_wish, tutti_error *err);

void tutti_config_free(tutti_config *config); /* NULL is fine */

/*
 * Every option with its value, below a comment that says where the value came from, as lines that
 * --config reads. Defaults are comments as a whole, so a program that reads the lines back has the
 * same values from the same sources, but all given ones from the file.
 */
void tutti_config_print(const tutti_config *config, FILE *file);

/* What a program says of itself. */
typedef struct tutti_program_words {
    const char *name;
    const char *what;    /* a sentence */
    const char *example; /* a command on each line, with two spaces in front */
} tutti_program_words;

/* "usage: NAME [options]", what it is, the tables and the example, in lines of at most 80. */
void tutti_config_help(const tutti_option_set *sets, size_t set_count,
                       const tutti_program_words *words, FILE *file);

/* The same as a manual page, of section 8. */
void tutti_config_man(const tutti_option_set *sets, size_t set_count,
                      const tutti_program_words *words, FILE *file);

/* Was the option given anywhere, or is it the default? */
bool tutti_config_given(const tutti_config *config, const char *name);

#endif
