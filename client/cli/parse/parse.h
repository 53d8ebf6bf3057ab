/* Private to client/cli: the words of a command line, checked against the table of commands. */
#ifndef TUTTI_CLIENT_CLI_PARSE_PARSE_H
#define TUTTI_CLIENT_CLI_PARSE_PARSE_H

#include "client/cli/cli.h"

/*
 * Find the command and its options. *ret_exit is what to exit with when there is nothing to run:
 * help or version was asked for, or the words make no sense (which is said).
 */
bool cli_parse(cli *self, int argc, char **argv, int *ret_exit);

/* The command named by the first words, and how many they are; NULL = none. */
const cli_command *cli_find_command(const cli_syntax *syntax, char *const *words, int count,
                                    int *ret_used);

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

#endif
