/* Asking all agents of a job at once, 32 at a time. `tutti doctor` and `tutti trace` use it. */
#include "client/cli/connect/fan_out.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"

#define ASK_AT_ONCE 32
#define ASK_TIMEOUT_MS 3000

/* ------------------------------------------------------------------------------ opening */

static tutti_code
look_up_fan_out(cli_fan_out *fan_out, tutti_client *client, tutti_error *err)
{
    uint32_t ranks[CLI_FAN_OUT_MAX];
    uint32_t i;

    fan_out->count =
        fan_out->job.world_size < CLI_FAN_OUT_MAX ? fan_out->job.world_size : CLI_FAN_OUT_MAX;
    fan_out->infos = calloc(fan_out->count, sizeof(*fan_out->infos));
    if (fan_out->infos == NULL) {
        abort();
    }
    for (i = 0; i < fan_out->count; i++) {
        ranks[i] = i;
    }
    return tutti_ranks_get(client, ranks, fan_out->count, fan_out->infos, err);
}

tutti_code
cli_fan_out_open(cli *self, cli_fan_out *ret_fan_out, tutti_error *err)
{
    cli_fan_out fan_out = {.count = 0};
    tutti_client *client = NULL;
    tutti_code code = cli_connect_coordinator(self, &client, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = tutti_job_get(client, &fan_out.job, err);
    if (code == TUTTI_OK) {
        code = look_up_fan_out(&fan_out, client, err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        cli_fan_out_close(&fan_out);
        return code;
    }
    *ret_fan_out = fan_out;
    return TUTTI_OK;
}

void
cli_fan_out_close(cli_fan_out *fan_out)
{
    free(fan_out->infos);
    *fan_out = (cli_fan_out){.count = 0};
}

/* ------------------------------------------------------------------------------ asking */

typedef struct round {
    const cli *self;
    const cli_fan_out *fan_out;
    cli_fan_out_fn fn;
    void *arg;
    pthread_mutex_t lock; /* guards next */
    uint32_t next;
} round_of;

/*
 * The limit of three seconds is for each agent, so one that hangs costs the whole command not
 * more than that.
 */
static void
ask_fan_out(const round_of *round, uint32_t rank)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = round->fan_out->infos[rank].address;
    options.timeout_ms = round->self->timeout_ms != 0 ? round->self->timeout_ms : ASK_TIMEOUT_MS;
    cli_options_secure(round->self, &options);
    if (round->self->local) {
        cli_options_local(&options);
    }
    if (tutti_connect_with(&options, &client, &err) != TUTTI_OK) {
        client = NULL;
    }
    round->fn(round->arg, rank, client, client == NULL ? &err : NULL);
    tutti_close(client);
}

/*
 * One of the threads: it takes the next rank until there is none. Ranks that are not alive are
 * left out.
 */
static void *
run_asking(void *arg)
{
    round_of *round = arg;

    for (;;) {
        uint32_t rank;

        (void)pthread_mutex_lock(&round->lock);
        rank = round->next++;
        (void)pthread_mutex_unlock(&round->lock);
        if (rank >= round->fan_out->count) {
            return NULL;
        }
        if (round->fan_out->infos[rank].state == TUTTI_RANK_ALIVE) {
            ask_fan_out(round, rank);
        }
    }
}

void
cli_fan_out_call(const cli *self, const cli_fan_out *fan_out, cli_fan_out_fn fn, void *arg)
{
    round_of round = {.self = self, .fan_out = fan_out, .fn = fn, .arg = arg};
    pthread_t threads[ASK_AT_ONCE];
    uint32_t count = 0;

    (void)pthread_mutex_init(&round.lock, NULL);
    while (count < ASK_AT_ONCE && count < fan_out->count &&
           pthread_create(&threads[count], NULL, run_asking, &round) == 0) {
        count++;
    }
    if (count == 0) {
        (void)run_asking(&round);
    }
    while (count > 0) {
        (void)pthread_join(threads[--count], NULL);
    }
    (void)pthread_mutex_destroy(&round.lock);
}
