/* Survey: the ranks of a job as the coordinator sees them, and a question to each that is alive. */
#ifndef TUTTI_CLIENT_CLI_CONNECT_SURVEY_H
#define TUTTI_CLIENT_CLI_CONNECT_SURVEY_H

#include "client/cli/cli.h"

#define CLI_SURVEY_MAX 1024 /* ranks; more are not asked */

typedef struct cli_survey {
    tutti_job_info job;
    tutti_rank_info *infos; /* by rank */
    uint32_t count;
} cli_survey;

tutti_code cli_survey_open(cli *self, cli_survey *ret_survey, tutti_error *err);
void cli_survey_close(cli_survey *survey); /* zeroed is fine */

/* One rank's answer, on any thread; `client` NULL = it could not be reached, because of `err`. */
typedef void (*cli_survey_fn)(void *arg, uint32_t rank, tutti_client *client,
                              const tutti_error *err);

/* Ask all that are alive, many at once, and wait. */
void cli_survey_ask(const cli *self, const cli_survey *survey, cli_survey_fn fn, void *arg);

#endif
