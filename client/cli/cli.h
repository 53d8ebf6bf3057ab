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

#include "tutti/client.h"

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
    const char *example;       /* lines for its own page, or NULL */
    const cli_option *options; /* NULL = none but the global ones */
    int argument_least;
    int argument_most; /* CLI_ANY_COUNT = no limit */
    bool program;      /* what follows the first argument belongs to that: tutti run */
    int (*run)(cli *self);
} cli_command;

/* The one table, ends with name NULL; and the options every command has. */
extern const cli_command cli_commands[];
extern const cli_option cli_global_options[];

/* One run of the program. */
struct cli {
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

/* ------------------------------------------------------------------ parse.c */

/*
 * Find the command and its options. *ret_exit is what to exit with when there is nothing to run:
 * help or version was asked for, or the words make no sense (which is said).
 */
bool cli_parse(cli *self, int argc, char **argv, int *ret_exit);

/* The command named by the first words, and how many they are; NULL = none. */
const cli_command *cli_find_command(char *const *words, int count, int *ret_used);

/* Is it an option of this command's own? */
bool cli_has_option(const cli *self, const char *name);

/* What was given to an option of this command, or a global one. NULL = not given. */
const char *cli_value(const cli *self, const char *option);
bool cli_flag(const cli *self, const char *option);

/*
 * The same as a number, size, or list; `ret` is untouched when the option was not given. False: it
 * makes no sense, which has been said; exit with CLI_USAGE.
 */
bool cli_number(cli *self, const char *option, int64_t least, int64_t most, int64_t *ret);

/* Say what is wrong with the words; returns CLI_USAGE. */
int cli_usage(const cli *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ------------------------------------------------------------------ values.c */

/* Parse what people type: "10s", "250ms", "10" (seconds, as sleep(1) has it); "64MiB"; "0-3,7".
 * False: no such value. */
bool cli_parse_ms(const char *text, uint32_t *ret_ms);
bool cli_parse_size(const char *text, uint64_t *ret_bytes);
bool cli_parse_number(const char *text, int64_t least, int64_t most, int64_t *ret_number);

/* [out, owned] ret_ranks  free it */
bool cli_parse_ranks(const char *text, uint32_t **ret_ranks, size_t *ret_count);

/* The rank in "tensor:3.8f..." and "work:3.8f..."; false when it is none of these. */
bool cli_rank_of(const char *handle, uint32_t *ret_rank);

/* Write "64 MiB", "1.5 GiB"; "[2, 3]"; into a buffer of CLI_WORD_SIZE. Return it. */
#define CLI_WORD_SIZE 512
const char *cli_format_size(uint64_t bytes, char *ret);
const char *cli_format_shape(const tutti_spec *spec, char *ret);

/* "out.%d.npy" becomes "out.3.npy"; a path without %d stays. False: it is too long. */
#define CLI_RANK_MARK "%d"
bool cli_name_file(const char *path, uint32_t rank, char ret[PATH_MAX]);

/* ------------------------------------------------------------------ suggest.c */

/* The command, or its first word, that is closest to what was typed. False: none is close. */
#define CLI_NAME_SIZE 64
bool cli_suggest(const char *typed, char ret[CLI_NAME_SIZE]);

/* What to write in place of an option that another launcher has; NULL: nothing is known. */
const char *cli_suggest_option(const cli_command *command, const char *word);

/* How many letters have to be added, removed, changed or swapped with a neighbour. */
size_t cli_distance(const char *left, const char *right);

/* ------------------------------------------------------------------ advice.c */

/* What to do about it, with this command's options; NULL: nothing more than its text says. */
const char *cli_advice(const tutti_error *err);

/* ------------------------------------------------------------------ help.c, man.c, complete.c */

void cli_help_all(const cli *self, FILE *file);
void cli_help_command(const cli *self, const cli_command *command, FILE *file);

/* The commands that begin with a word, "cluster"; false when there are none. */
bool cli_help_prefix(const char *word, FILE *file);

/* Write tutti.1 and a page for each command into a folder. */
tutti_code cli_man_write(const char *folder, tutti_error *err);
void cli_man_page(const cli_command *command, FILE *file); /* NULL = tutti.1 */

/* "bash", "zsh" or "fish". False: no such shell. */
/* complete_names.c: those of a kind that there are, "tensors", one a line. CLI_USAGE: no kind. */
int cli_complete_names(cli *self, const char *kind);

bool cli_complete_write(const char *shell, FILE *file);

/* ------------------------------------------------------------------ output.c */

/* An error in words; `code` is returned. As base's TUTTI_FAIL does for the library. */
tutti_code cli_fail(tutti_error *err, tutti_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tutti_code cli_fail_errno(tutti_error *err, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Say what went wrong, "tutti: put x.npy: text"; `what` NULL = the command. Returns CLI_FAILED. */
int cli_failed(const cli *self, const char *what, const tutti_error *err);

/* Print a document when --json was given, and return true. [in, moved] document */
bool cli_print_json(const cli *self, json_t *document);

/* A tensor that a command made: with --quiet its handle alone. Not with --json. */
void cli_say_tensor(const cli *self, const tutti_handle *handle);

/* A line for people; not with --quiet. */
void cli_say(const cli *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Codes for a terminal, "" elsewhere. */
typedef enum cli_style {
    CLI_PLAIN,
    CLI_BOLD,
    CLI_GREEN,
    CLI_YELLOW,
    CLI_RED,
} cli_style;
const char *cli_style_begin(const cli *self, cli_style style);
const char *cli_style_end(const cli *self);

/* json_pack's dtype, shape and bytes of a tensor, put into `object` as "dtype", "shape", "bytes".
 */
void cli_json_spec(json_t *object, const tutti_spec *spec);
json_t *cli_json_error(const tutti_error *err);

/* ------------------------------------------------------------------ table.c */

/* Rows of text in columns as wide as what is in them. */
typedef struct cli_table cli_table;

/* `headings`: as many as columns, separated by '|'; those that begin with '>' stand right. */
cli_table *cli_table_new(const char *headings);

/* One cell, in reading order. Copied. */
void cli_table_add(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_table_add_styled(cli_table *table, cli_style style, const char *text);
void cli_table_print(const cli *self, const cli_table *table);
void cli_table_free(cli_table *table); /* NULL is fine */

/* ------------------------------------------------------------------ progress.c */

/* A bar on standard error, when that is a terminal and the thing takes long. Any thread. */
typedef struct cli_bar cli_bar;

/* `what` is borrowed. Never NULL: when nothing is to be drawn, nothing is. */
cli_bar *cli_bar_new(const cli *self, const char *what, uint64_t total_bytes);
void cli_bar_free(cli_bar *bar);

/* One transfer of those that the bar counts together; as `arg` of cli_bar_moved. */
typedef struct cli_bar_part {
    cli_bar *bar;
    uint64_t done_bytes;
} cli_bar_part;

bool cli_bar_moved(void *part, uint64_t done_bytes, uint64_t total_bytes); /* tutti_progress_fn */

/* The monotonic clock. */
uint64_t cli_now_ms(void);

/* A line that is written over: "2 of 4 agents have joined". */
void cli_status_line(const cli *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cli_status_clear(const cli *self);

/* ------------------------------------------------------------------ commands */

int cli_cluster_start(cli *self);
int cli_cluster_stop(cli *self);
int cli_cluster_status(cli *self);
int cli_cluster_list(cli *self);
int cli_cluster_restart(cli *self);
int cli_logs(cli *self);
int cli_run(cli *self);
int cli_status(cli *self);
int cli_stall(cli *self);
int cli_watch(cli *self);
int cli_explain(cli *self);
int cli_tune(cli *self);
int cli_trace(cli *self);
int cli_doctor(cli *self);
int cli_put(cli *self);
int cli_get(cli *self);
int cli_list(cli *self);
int cli_stat(cli *self);
int cli_copy(cli *self);
int cli_delete(cli *self);
int cli_all_reduce(cli *self);
int cli_reduce(cli *self);
int cli_reduce_scatter(cli *self);
int cli_broadcast(cli *self);
int cli_all_gather(cli *self);
int cli_gather(cli *self);
int cli_scatter(cli *self);
int cli_all_to_all(cli *self);
int cli_permute(cli *self);
int cli_barrier(cli *self);
int cli_send(cli *self);
int cli_recv(cli *self);
int cli_wait(cli *self);
int cli_sync(cli *self);
int cli_infer(cli *self);
int cli_batch(cli *self);
int cli_bench(cli *self);
int cli_tracer_create(cli *self);
int cli_tracer_attach(cli *self);
int cli_tracer_clear(cli *self);
int cli_tracer_delete(cli *self);
int cli_tracer_list(cli *self);
int cli_backward(cli *self);
int cli_group_create(cli *self);
int cli_group_get(cli *self);
int cli_group_list(cli *self);
int cli_group_delete(cli *self);
int cli_group_split(cli *self);
int cli_group_translate(cli *self);
int cli_mesh_create(cli *self);
int cli_mesh_get(cli *self);
int cli_mesh_list(cli *self);
int cli_mesh_groups(cli *self);
int cli_mesh_slice(cli *self);
int cli_mesh_delete(cli *self);
int cli_store_get(cli *self);
int cli_store_set(cli *self);
int cli_store_cas(cli *self);
int cli_store_add(cli *self);
int cli_store_delete(cli *self);
int cli_store_list(cli *self);
int cli_store_wait(cli *self);
int cli_store_watch(cli *self);
int cli_store_append(cli *self);
int cli_store_multi_get(cli *self);
int cli_store_multi_set(cli *self);
int cli_store_take(cli *self);
int cli_store_push(cli *self);
int cli_store_pop(cli *self);
int cli_store_len(cli *self);
int cli_store_check(cli *self);
int cli_store_count(cli *self);
int cli_store_meet(cli *self);
int cli_init(cli *self);
int cli_certs_make(cli *self);
int cli_certs_show(cli *self);
int cli_token_make(cli *self);
int cli_token_show(cli *self);
int cli_token_key(cli *self);
int cli_health(cli *self);
int cli_version(cli *self);
int cli_help(cli *self);
int cli_completion(cli *self);
int cli_man(cli *self);

#endif
