/* What did they mean? */
#include "client/cli/parse/suggest.h"

#include <stddef.h>
#include <string.h>

#include "client/cli/cli.h"

#define WORD_MAX 64

static size_t
get_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * How many letters have to be added, removed, changed or swapped with their neighbour. Words are
 * cut at 64 letters.
 */
size_t
cli_distance(const char *left, const char *right)
{
    const size_t left_size = get_least(strlen(left), WORD_MAX);
    const size_t right_size = get_least(strlen(right), WORD_MAX);
    size_t cost[WORD_MAX + 1][WORD_MAX + 1];
    size_t i;
    size_t k;

    for (i = 0; i <= left_size; i++) {
        for (k = 0; k <= right_size; k++) {
            if (i == 0 || k == 0) {
                cost[i][k] = i + k;
                continue;
            }
            cost[i][k] = get_least(cost[i - 1][k], cost[i][k - 1]) + 1;
            cost[i][k] =
                get_least(cost[i][k], cost[i - 1][k - 1] + (left[i - 1] == right[k - 1] ? 0 : 1));
            if (i > 1 && k > 1 && left[i - 1] == right[k - 2] && left[i - 2] == right[k - 1]) {
                cost[i][k] = get_least(cost[i][k], cost[i - 2][k - 2] + 1);
            }
        }
    }
    return cost[left_size][right_size];
}

/* A candidate: the name, or its first word. */
static void
consider_suggestion(const char *typed, const char *name, size_t size, size_t *best,
                    char ret[CLI_NAME_SIZE])
{
    char candidate[CLI_NAME_SIZE];
    size_t distance;

    (void)snprintf(candidate, sizeof(candidate), "%.*s", (int)size, name);
    distance = cli_distance(typed, candidate);
    if (distance < *best) {
        *best = distance;
        (void)snprintf(ret, CLI_NAME_SIZE, "%s", candidate);
    }
}

/*
 * The longer the word, the more slips are allowed. Without a limit every word would be like some
 * command.
 */
bool
cli_suggest(const cli_syntax *syntax, const char *typed, char ret[CLI_NAME_SIZE])
{
    const size_t allowed = strlen(typed) < 5 ? 1 : strlen(typed) < 8 ? 2 : 3;
    size_t best = allowed + 1;
    const cli_command *command;

    for (command = syntax->commands; command->name != NULL; command++) {
        consider_suggestion(typed, command->name, strlen(command->name), &best, ret);
        consider_suggestion(typed, command->name, strcspn(command->name, " "), &best, ret);
    }
    return best <= allowed;
}

/* ------------------------------------------------------------------------------ torchrun */

static const struct {
    const char *name;
    const char *instead;
} torchrun_options[] = {
    {"nproc-per-node", "-n N starts N programs"},
    {"standalone", "leave it out: a private cluster is what this starts without --cluster"},
    {"max-restarts", "leave it out: a program that fails ends the run"},
    {"tee", "leave it out: all lines come through with [rank] in front, see --no-prefix"},
    {"redirects", "leave it out, and write > FILE: lines have [rank] in front"},
    {"log-dir", "leave it out, and write > FILE: lines have [rank] in front"},
    {"rdzv-backend", "leave it out: the coordinator does this"},
    {"rdzv-endpoint", "--coordinator HOST:PORT, with --nnodes; node 0 starts one if none is there"},
    {"rdzv-id", "--job NAME, with --nnodes; --cluster names a cluster of this host"},
    {"master-addr", "--coordinator HOST:PORT, with --nnodes; programs get MASTER_ADDR"},
    {"master-port", "--coordinator HOST:PORT, with --nnodes; programs get MASTER_PORT, a free one"},
    {"local-addr", "leave it out: --listen says where the agents listen"},
};

/* Is this word, without dashes in front, the option? torchrun takes - and _, and =VALUE. */
static bool
is_option(const char *word, const char *name)
{
    while (*name != '\0' && (*word == *name || (*word == '_' && *name == '-'))) {
        word++;
        name++;
    }
    return *name == '\0' && (*word == '\0' || *word == '=');
}

/*
 * Only `tutti run` gets the options of torchrun, and an unknown one is answered by what to do
 * here instead.
 */
const char *
cli_suggest_option(const cli_command *command, const char *word)
{
    size_t i;

    if (command == NULL || strcmp(command->name, "run") != 0 || strncmp(word, "--", 2) != 0) {
        return NULL;
    }
    for (i = 0; i < sizeof(torchrun_options) / sizeof(torchrun_options[0]); i++) {
        if (is_option(word + 2, torchrun_options[i].name)) {
            return torchrun_options[i].instead;
        }
    }
    return NULL;
}
