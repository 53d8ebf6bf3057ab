/*
 * Ops are matched by order: one that a rank has called alone, and that failed, is still to be
 * called by the others. They are told why it failed when they do. Without this, everything that
 * follows `tutti barrier --rank 0 --timeout 1s` would wait for ever, one op apart.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/collective/collective.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/progress.h"

#define STEP_TIMEOUT_MS 2000
#define BEHIND_MAX 1000

/* Where each rank stands in the world's ops. */
typedef struct standing {
    tutti_agent_stats *ranks;
    uint64_t most;
} standing;

/* Each rank's own count of the world's ops. */
static tutti_code
look_resync(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    return tutti_agent_stat(client, &((standing *)arg)->ranks[index], err);
}

/*
 * Calls empty barriers for the ops that this rank has missed. Each ends at once with the error
 * that the op had.
 */
static tutti_code
step_resync(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const standing *self = arg;
    const uint64_t until = cli_now_ms() + STEP_TIMEOUT_MS;
    uint64_t at = self->ranks[index].world_sequence;
    tutti_op op;

    (void)err;
    tutti_op_init(&op);
    op.timeout_ms = STEP_TIMEOUT_MS;
    for (; at < self->most && cli_now_ms() < until; at++) {
        op.sequence = at + 1; /* that op, though this client came behind its end */
        (void)tutti_barrier(client, &op, NULL, NULL); /* the words of a failure that is known */
    }
    return TUTTI_OK; /* the op that comes now says what is still wrong */
}

/* Nothing runs, and somebody is ahead: what made the difference has failed. */
static bool
is_apart(standing *self, uint32_t count)
{
    uint64_t least = UINT64_MAX;
    uint32_t i;

    for (i = 0; i < count; i++) {
        const tutti_agent_stats *one = &self->ranks[i];

        if (one->op_running_count > 0) {
            return false;
        }
        self->most = one->world_sequence > self->most ? one->world_sequence : self->most;
        least = one->world_sequence < least ? one->world_sequence : least;
    }
    return self->most > least && self->most - least <= BEHIND_MAX;
}

tutti_code
collective_catch_up(const cli_all_ranks *world, const char *group, tutti_error *err)
{
    standing self = {0};
    tutti_code code;

    if (group != NULL && strcmp(group, "world") != 0) {
        return TUTTI_OK; /* agents tell where they stand in the world alone */
    }
    self.ranks = calloc(world->count, sizeof(*self.ranks));
    if (self.ranks == NULL) {
        abort();
    }
    code = cli_all_ranks_run(world, look_resync, &self, err);
    if (code == TUTTI_OK && is_apart(&self, world->count)) {
        code = cli_all_ranks_run(world, step_resync, &self, err);
    }
    free(self.ranks);
    return code;
}
