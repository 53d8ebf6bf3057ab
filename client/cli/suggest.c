/* What did they mean? */
#include <string.h>

#include "client/cli/cli.h"

#define WORD_MAX 64

static size_t
least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t
cli_distance(const char *left, const char *right)
{
    const size_t left_size = least(strlen(left), WORD_MAX);
    const size_t right_size = least(strlen(right), WORD_MAX);
    size_t cost[WORD_MAX + 1][WORD_MAX + 1];
    size_t i;
    size_t k;

    for (i = 0; i <= left_size; i++) {
        for (k = 0; k <= right_size; k++) {
            if (i == 0 || k == 0) {
                cost[i][k] = i + k;
                continue;
            }
            cost[i][k] = least(cost[i - 1][k], cost[i][k - 1]) + 1;
            cost[i][k] =
                least(cost[i][k], cost[i - 1][k - 1] + (left[i - 1] == right[k - 1] ? 0 : 1));
            if (i > 1 && k > 1 && left[i - 1] == right[k - 2] && left[i - 2] == right[k - 1]) {
                cost[i][k] = least(cost[i][k], cost[i - 2][k - 2] + 1);
            }
        }
    }
    return cost[left_size][right_size];
}

/* A candidate: the name, or its first word. */
static void
consider(const char *typed, const char *name, size_t size, size_t *best, char ret[CLI_NAME_SIZE])
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

bool
cli_suggest(const char *typed, char ret[CLI_NAME_SIZE])
{
    const size_t allowed = strlen(typed) < 4 ? 1 : strlen(typed) < 8 ? 2 : 3;
    size_t best = allowed + 1;
    const cli_command *command;

    for (command = cli_commands; command->name != NULL; command++) {
        consider(typed, command->name, strlen(command->name), &best, ret);
        consider(typed, command->name, strcspn(command->name, " "), &best, ret);
    }
    return best <= allowed;
}
