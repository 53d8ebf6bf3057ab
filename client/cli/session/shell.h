/*
 * Private to client/cli/session: lines of `tutti session`, and what they come to.
 *
 * A line is "NAME = COMMAND WORD... KEY=VALUE...". NAME is a variable: a register of the session
 * that has a word instead of a number. Every command is a row of the table in shell_commands.c; its
 * help and completion come from there.
 */
#ifndef TUTTI_CLIENT_CLI_SESSION_SHELL_H
#define TUTTI_CLIENT_CLI_SESSION_SHELL_H

#include <limits.h>

#include "client/cli/cli.h"
#include "tutti/session.h"

#define SHELL_WORDS_MAX 80 /* of one line */
#define SHELL_NAME_MAX 63  /* letters of a variable */
#define SHELL_LINE_MAX 65536

/* ------------------------------------------------------------------ shell_line.c */

typedef struct shell_word {
    char *text;
    bool quoted; /* it is a text, whatever it looks like */
} shell_word;

/* A line in its parts, which point into `memory`. */
typedef struct shell_line {
    char *memory;     /* [owned] */
    const char *name; /* of the variable that gets the result; NULL = none */
    const char *command;
    shell_word words[SHELL_WORDS_MAX];
    size_t word_count;
} shell_line;

/*
 * The next line of a text: up to a semicolon or the end of the text, quotes and brackets heeded.
 *
 * [out] ret_rest  behind it
 * [out] ret_line  shell_line_free it; without a command where there are spaces and comments alone
 *
 * TUTTI_INVALID_ARGUMENT  a quote or bracket that is not closed, too many words, no name
 */
tutti_code shell_line_parse(const char *text, const char **ret_rest, shell_line *ret_line,
                            tutti_error *err);
void shell_line_free(shell_line *line); /* zeroed is fine */

/* Letters, digits and _, no digit first. */
bool shell_is_name(const char *text);

/* ------------------------------------------------------------------ shell.c */

/* A register that has a name. */
typedef struct shell_variable {
    char name[SHELL_NAME_MAX + 1];
    uint32_t reg;
} shell_variable;

/* A command that was not waited for, because others have to come behind it. */
typedef struct shell_pending {
    uint64_t ticket;
    uint64_t number; /* of its line */
    char command[32];
} shell_pending;

typedef struct shell {
    cli *tool;
    tutti_client *client;
    tutti_session *session;
    shell_variable *variables; /* [owned] in the order in which they were named */
    size_t variable_count;
    shell_pending *pending; /* [owned] */
    size_t pending_count;
    char ticket[PATH_MAX]; /* where the ticket of the session is kept; "" = it does not linger */
    uint32_t linger_ms;
    uint64_t number; /* of the line */
    bool renamed;    /* variables are not those of the ticket any more */
    bool script;     /* nobody types */
    bool failed;     /* one of the lines has */
    bool over;       /* quit */
} shell;

/* Run all lines of a text, up to the first that fails; shell->number counts them. */
tutti_code shell_run(shell *self, const char *text);

/* Wait for what was left behind, and tell what has failed. */
void shell_settle(shell *self);
void shell_fini(shell *self); /* all but the session and the client */

const shell_variable *shell_find(const shell *self, const char *name);

/* ------------------------------------------------------------------ shell_commands.c */

typedef struct shell_call shell_call;

typedef struct shell_command {
    const char *name;
    const char *synopsis; /* "NAME [dst=NAME] [in_group]" */
    const char *help;     /* a line, lower case, no full stop */
    const char *keys;     /* what may be given as KEY=VALUE, with a space behind each */
    size_t least;         /* words */
    size_t most;
    char gives; /* '!' it needs a variable for its result, '?' it may have one, ' ' it has none */
    tutti_code (*run)(shell_call *call, tutti_error *err);
} shell_command;

extern const shell_command shell_commands[]; /* ends with name NULL */

const shell_command *shell_find_command(const char *name);

/* One line that runs. */
struct shell_call {
    shell *shell;
    const shell_command *command;
    const char *words[SHELL_WORDS_MAX]; /* without KEY=VALUE */
    bool quoted[SHELL_WORDS_MAX];
    size_t word_count;
    const char *keys[SHELL_WORDS_MAX]; /* "dst=y", or "in_group" */
    size_t key_count;
    uint32_t into; /* the register of its variable; 0 = none */
};

/* Of KEY=VALUE; NULL = it was not given, "" = the key alone. */
const char *shell_key(const shell_call *call, const char *key);

/* Help for people, of all commands or of one. */
void shell_help(const shell *self, const shell_command *command);

/* ------------------------------------------------------------------ shell_print.c */

/* Of a command that has ended well. Values are printed where it has some. */
void shell_print_result(const shell_call *call, const tutti_session_result *result);

/* A line failed; `result` NULL = before it was sent. */
void shell_print_failed(shell *self, uint64_t number, const char *command, const tutti_error *err,
                        const tutti_session_result *result);

/* Elements of a tensor, at most 16 of them, as one line. [out] ret  `size` bytes */
void shell_format_elements(const tutti_spec *spec, const void *data, char *ret, size_t size);

/* An object on a line of its own. [in, moved] object */
void shell_print_json(const shell *self, json_t *object);

#endif
