/* Private to client/cli: what a mistyped word may have meant. */
#ifndef TUTTI_CLIENT_CLI_PARSE_SUGGEST_H
#define TUTTI_CLIENT_CLI_PARSE_SUGGEST_H

#include "client/cli/cli.h"

/* The command, or its first word, that is closest to what was typed. False: none is close. */
#define CLI_NAME_SIZE 64
bool cli_suggest(const cli_syntax *syntax, const char *typed, char ret[CLI_NAME_SIZE]);

/* What to write in place of an option that another launcher has; NULL: nothing is known. */
const char *cli_suggest_option(const cli_command *command, const char *word);

/* How many letters have to be added, removed, changed or swapped with a neighbour. */
size_t cli_distance(const char *left, const char *right);

#endif
