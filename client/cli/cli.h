/*
 * Private to client/cli: what a command is, and the words every command uses.
 *
 * A command is a row of the table in commands.c; from that row come its options, help, completion
 * and man page. Its function prints its result, for people or as one JSON document, and returns the
 * exit code. One thread, where nothing else is said.
 */
#ifndef TUTTI_CLIENT_CLI_CLI_H
#define TUTTI_CLIENT_CLI_CLI_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tutti/tutti.h"

enum {
    CLI_FINE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
};

#define CLI_OPTIONS_MAX 32
#define CLI_ANY_COUNT (-1)

typedef struct cli cli;

typedef struct cli_option {
    const char *name;  /* "rank"; NULL ends a table */
    char letter;       /* 'r', or 0 */
    const char *value; /* what it takes, in the help: "R"; NULL = a flag */
    const char *help;  /* one sentence, lower case, no full stop */
    const char *words; /* what a shell offers: "sum avg", or "FILE"; NULL = nothing */
} cli_option;

typedef struct cli_command {
    const char *name;          /* "cluster start" */
    const char *section;       /* under which heading the help lists it */
    const char *synopsis;      /* its arguments: "FILE... [options]" */
    const char *help;          /* one line, lower case, no full stop */
    const char *about;         /* paragraphs for its own page, or NULL */
    const char *example;       /* lines for its own page, each a command of a shell */
    const cli_option *options; /* NULL = none but the global ones */
    int argument_least;
    int argument_most; /* CLI_ANY_COUNT = no limit */
    bool program;      /* what follows the first argument belongs to that: tutti run */
    int (*run)(cli *self);
} cli_command;

/* All that a command line may say. */
typedef struct cli_syntax {
    const cli_command *commands; /* ends with name NULL */
    const cli_option *options;   /* that every command has; ends with name NULL */
} cli_syntax;

/* One run of the program. */
struct cli {
    const cli_syntax *syntax;
    const cli_command *command;              /* NULL until it is known */
    const char *values[2 * CLI_OPTIONS_MAX]; /* of its own options, then of the global ones */
    char **arguments;
    int argument_count;
    FILE *out;
    FILE *err;
    bool json;
    bool quiet;
    bool progress;         /* bars may be drawn */
    bool colour;           /* of `out` */
    bool local;            /* the cluster spoken to is one of this machine */
    uint32_t timeout_ms;   /* --timeout; 0 = not given */
    char coordinator[256]; /* the one that cli_connect_coordinator found */
};

#endif
