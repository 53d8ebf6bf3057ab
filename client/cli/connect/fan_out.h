/* Fan out: the ranks of a job as the coordinator sees them, and a question to each that is alive.
 */
#ifndef TUTTI_CLIENT_CLI_CONNECT_FAN_OUT_H
#define TUTTI_CLIENT_CLI_CONNECT_FAN_OUT_H

#include "client/cli/cli.h"

#define CLI_FAN_OUT_MAX 1024 /* ranks; more are not asked */

typedef struct cli_fan_out {
    tutti_job_info job;
    tutti_rank_info *infos; /* by rank */
    uint32_t count;
} cli_fan_out;

tutti_code cli_fan_out_open(cli *self, cli_fan_out *ret_fan_out, tutti_error *err);
void cli_fan_out_close(cli_fan_out *fan_out); /* zeroed is fine */

/* One rank's answer, on any thread; `client` NULL = it could not be reached, because of `err`. */
typedef void (*cli_fan_out_fn)(void *arg, uint32_t rank, tutti_client *client,
                               const tutti_error *err);

/* Ask all that are alive, many at once, and wait. */
void cli_fan_out_call(const cli *self, const cli_fan_out *fan_out, cli_fan_out_fn fn, void *arg);

#endif
