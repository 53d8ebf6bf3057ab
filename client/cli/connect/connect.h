/*
 * Which agents a command speaks to: --agent, else the cluster --cluster names, else $TUTTI_AGENT,
 * else the local cluster "default". --rank takes another agent of the same job.
 */
#ifndef TUTTI_CLIENT_CLI_CONNECT_CONNECT_H
#define TUTTI_CLIENT_CLI_CONNECT_CONNECT_H

#include "client/cli/cli.h"

/*
 * One agent: of --rank, else the one whose rank is in `handle` (NULL = none), else the one that is
 * nearest.
 *
 * [out, owned] ret_client  tutti_close it
 *
 * TUTTI_NOT_FOUND       nothing says where an agent is; the job has no such rank
 * TUTTI_UNAVAILABLE     the rank is lost, or nobody answers
 */
tutti_code cli_connect(cli *self, const char *handle, tutti_client **ret_client, tutti_error *err);

/* The coordinator alone: --coordinator, or as an agent is found; no agent is asked when that can be
 * helped. */
tutti_code cli_connect_coordinator(cli *self, tutti_client **ret_client, tutti_error *err);

/* What --tls-ca and the like say, on options that are initialised. */
void cli_options_secure(const cli *self, tutti_client_options *options);

/* Local clusters speak without TLS and tokens, whatever the user's own settings are. */
void cli_options_local(tutti_client_options *options);

/* All agents of a group, in the order of group ranks. */
typedef struct cli_all_ranks {
    tutti_client **clients;
    uint32_t *ranks;
    uint32_t count;
} cli_all_ranks;

/* [in] group  NULL = all ranks of the job */
tutti_code cli_all_ranks_open(cli *self, const char *group, cli_all_ranks *ret_all_ranks,
                              tutti_error *err);
void cli_all_ranks_close(cli_all_ranks *world); /* zeroed is fine */

/* What each rank does, on a thread of its own. */
typedef tutti_code (*cli_rank_fn)(void *arg, uint32_t index, tutti_client *client,
                                  tutti_error *err);

/* Do it on all at once, and wait. The first error, with the rank in front when it is not
 * everyone's.
 */
tutti_code cli_all_ranks_run(const cli_all_ranks *world, cli_rank_fn fn, void *arg,
                             tutti_error *err);

/* --rank, or -1, also for commands without it. False: it makes no sense, which was said. */
bool cli_rank_option(cli *self, int64_t *ret_rank);

#endif
