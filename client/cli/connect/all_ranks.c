/* All agents at once. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"
#include "client/cli/util/state.h"

/* ------------------------------------------------------------------------------ opening */

/* The ranks of a group, in the world's arrays. */
static tutti_code
list_ranks(tutti_client *near, const char *group, cli_all_ranks *world, tutti_error *err)
{
    tutti_group_info info = {0};
    tutti_code code = TUTTI_OK;
    uint32_t i;

    if (group != NULL) {
        code = tutti_group_get(near, group, &info, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    world->count = group != NULL ? info.rank_count : tutti_whoami(near)->world_size;
    if (world->count > STATE_RANKS_MAX) {
        tutti_group_info_free(&info);
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED,
                        "%" PRIu32 " ranks, this command can call at most %d at a time: give "
                        "--rank, or call from a program",
                        world->count, STATE_RANKS_MAX);
    }
    world->ranks = calloc(world->count, sizeof(*world->ranks));
    world->clients = calloc(world->count, sizeof(*world->clients));
    if (world->ranks == NULL || world->clients == NULL) {
        abort();
    }
    for (i = 0; i < world->count; i++) {
        world->ranks[i] = group != NULL ? info.ranks[i] : i;
    }
    tutti_group_info_free(&info);
    return TUTTI_OK;
}

/*
 * One client for each rank, connected one after the other. The first agent is only asked who
 * there is.
 */
tutti_code
cli_all_ranks_open(cli *self, const char *group, cli_all_ranks *ret_all_ranks, tutti_error *err)
{
    cli_all_ranks world = {0};
    tutti_client *near = NULL;
    tutti_code code = cli_connect(self, NULL, &near, err);
    uint32_t i;

    if (code == TUTTI_OK) {
        code = list_ranks(near, group, &world, err);
        tutti_close(near);
    }
    for (i = 0; i < world.count && code == TUTTI_OK; i++) {
        char handle[32]; /* says whom we want */

        (void)snprintf(handle, sizeof(handle), "tensor:%" PRIu32 ".", world.ranks[i]);
        code = cli_connect(self, handle, &world.clients[i], err);
    }
    if (code != TUTTI_OK) {
        cli_all_ranks_close(&world);
        return code;
    }
    *ret_all_ranks = world;
    return TUTTI_OK;
}

void
cli_all_ranks_close(cli_all_ranks *world)
{
    uint32_t i;

    for (i = 0; i < world->count && world->clients != NULL; i++) {
        tutti_close(world->clients[i]);
    }
    free(world->clients);
    free(world->ranks);
    *world = (cli_all_ranks){0};
}

/* ------------------------------------------------------------------------------ running */

/* One rank's part. */
typedef struct part {
    pthread_t thread;
    const cli_all_ranks *world;
    cli_rank_fn fn;
    void *arg;
    uint32_t index;
    bool started;
    tutti_code code;
    tutti_error err;
} part;

static void *
run_part(void *arg)
{
    part *self = arg;

    self->code = self->fn(self->arg, self->index, self->world->clients[self->index], &self->err);
    return NULL;
}

/*
 * Every rank has a thread, as each call of a collective waits for the others. A rank without a
 * thread fails at once; the others then wait for their deadlines.
 */
static void
run_all_ranks(part *parts, const cli_all_ranks *world, cli_rank_fn fn, void *arg)
{
    uint32_t i;

    for (i = 0; i < world->count; i++) {
        parts[i] = (part){.world = world, .fn = fn, .arg = arg, .index = i};
        parts[i].started = pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0;
        if (!parts[i].started) {
            parts[i].code = cli_fail(&parts[i].err, TUTTI_RESOURCE_EXHAUSTED, "no thread");
        }
    }
    for (i = 0; i < world->count; i++) {
        if (parts[i].started) {
            (void)pthread_join(parts[i].thread, NULL);
        }
    }
}

/* The first error; the rank in front of it, unless all say the same. */
static tutti_code
first_error(const part *parts, const cli_all_ranks *world, tutti_error *err)
{
    const part *first = NULL;
    bool all = true;
    uint32_t i;

    for (i = 0; i < world->count; i++) {
        if (parts[i].code != TUTTI_OK && first == NULL) {
            first = &parts[i];
        }
    }
    if (first == NULL) {
        return TUTTI_OK;
    }
    for (i = 0; i < world->count; i++) {
        all = all && parts[i].code != TUTTI_OK && strcmp(parts[i].err.text, first->err.text) == 0;
    }
    *err = first->err;
    if (!all) {
        (void)snprintf(err->text, sizeof(err->text), "rank %" PRIu32 ": %.990s",
                       world->ranks[first->index], first->err.text);
    }
    return first->code;
}

tutti_code
cli_all_ranks_run(const cli_all_ranks *world, cli_rank_fn fn, void *arg, tutti_error *err)
{
    part *parts = calloc(world->count, sizeof(*parts));
    tutti_code code;

    if (parts == NULL) {
        abort();
    }
    run_all_ranks(parts, world, fn, arg);
    code = first_error(parts, world, err);
    free(parts);
    return code;
}
