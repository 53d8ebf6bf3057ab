#include "client/cli/connect/survey.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"

#define ASK_AT_ONCE 32
#define ASK_TIMEOUT_MS 3000

/* ------------------------------------------------------------------------------ opening */

static tutti_code
look_up(cli_survey *survey, tutti_client *client, tutti_error *err)
{
    uint32_t ranks[CLI_SURVEY_MAX];
    uint32_t i;

    survey->count =
        survey->job.world_size < CLI_SURVEY_MAX ? survey->job.world_size : CLI_SURVEY_MAX;
    survey->infos = calloc(survey->count, sizeof(*survey->infos));
    if (survey->infos == NULL) {
        abort();
    }
    for (i = 0; i < survey->count; i++) {
        ranks[i] = i;
    }
    return tutti_ranks_get(client, ranks, survey->count, survey->infos, err);
}

tutti_code
cli_survey_open(cli *self, cli_survey *ret_survey, tutti_error *err)
{
    cli_survey survey = {.count = 0};
    tutti_client *client = NULL;
    tutti_code code = cli_connect_coordinator(self, &client, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = tutti_job_get(client, &survey.job, err);
    if (code == TUTTI_OK) {
        code = look_up(&survey, client, err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        cli_survey_close(&survey);
        return code;
    }
    *ret_survey = survey;
    return TUTTI_OK;
}

void
cli_survey_close(cli_survey *survey)
{
    free(survey->infos);
    *survey = (cli_survey){.count = 0};
}

/* ------------------------------------------------------------------------------ asking */

typedef struct round {
    const cli *self;
    const cli_survey *survey;
    cli_survey_fn fn;
    void *arg;
    pthread_mutex_t lock; /* guards next */
    uint32_t next;
} round_of;

static void
ask(const round_of *round, uint32_t rank)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = round->survey->infos[rank].address;
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

static void *
run_asking(void *arg)
{
    round_of *round = arg;

    for (;;) {
        uint32_t rank;

        (void)pthread_mutex_lock(&round->lock);
        rank = round->next++;
        (void)pthread_mutex_unlock(&round->lock);
        if (rank >= round->survey->count) {
            return NULL;
        }
        if (round->survey->infos[rank].state == TUTTI_RANK_ALIVE) {
            ask(round, rank);
        }
    }
}

void
cli_survey_ask(const cli *self, const cli_survey *survey, cli_survey_fn fn, void *arg)
{
    round_of round = {.self = self, .survey = survey, .fn = fn, .arg = arg};
    pthread_t threads[ASK_AT_ONCE];
    uint32_t count = 0;

    (void)pthread_mutex_init(&round.lock, NULL);
    while (count < ASK_AT_ONCE && count < survey->count &&
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
