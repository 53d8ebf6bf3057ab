/* Private to client/cli: the commands about what is going on in a job. Each returns the exit code.
 */
#ifndef TUTTI_CLIENT_CLI_DIAGNOSE_COMMANDS_H
#define TUTTI_CLIENT_CLI_DIAGNOSE_COMMANDS_H

#include "client/cli/cli.h"

int cli_status(cli *self);

int cli_stall(cli *self);

int cli_watch(cli *self);

int cli_top(cli *self);

int cli_explain(cli *self);

int cli_trace(cli *self);

int cli_doctor(cli *self);

int cli_capabilities(cli *self);
int cli_jobs(cli *self);

/* Their options. */
extern const cli_option cli_explain_options[];
extern const cli_option cli_tune_options[];
extern const cli_option cli_stall_options[];
extern const cli_option cli_watch_options[];
extern const cli_option cli_top_options[];
extern const cli_option cli_trace_options[];
extern const cli_option cli_doctor_options[];
extern const cli_option cli_health_options[];

#endif
