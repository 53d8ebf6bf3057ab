/*
 * Where a command goes. The order is: what is on the command line, then the environment, then the
 * local cluster "default". A local cluster speaks without TLS and tokens, whatever the user's
 * settings for other clusters say.
 */
#include "client/cli/connect/connect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/state.h"
#include "client/cli/util/values.h"

#define DEFAULT_CLUSTER "default"

/* Where to go. */
typedef struct place {
    char agent[STATE_PATH_MAX];
    char coordinator[STATE_PATH_MAX]; /* "" = what the agent says */
    state cluster;                    /* when it is a local one: rank_count > 0 */
} place;

static void
put_agent_text(char ret[STATE_PATH_MAX], const char *text)
{
    (void)snprintf(ret, STATE_PATH_MAX, "%s", text);
}

/* ------------------------------------------------------------------------------ finding */

static tutti_code
find_cluster(const char *name, place *ret, tutti_error *err)
{
    tutti_code code = state_init(&ret->cluster, name, err);

    if (code == TUTTI_OK) {
        code = state_read(&ret->cluster, err);
    }
    if (code == TUTTI_OK && (!ret->cluster.ready || ret->cluster.rank_count == 0)) {
        code = cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "the start of cluster %s did not end: tutti cluster stop --name %s, then "
                        "start it again",
                        name, name);
    }
    if (code == TUTTI_OK) {
        put_agent_text(ret->agent, ret->cluster.ranks[0].socket);
        put_agent_text(ret->coordinator, ret->cluster.coordinator.socket);
    }
    return code;
}

/* --agent wins over --cluster, and both over TUTTI_AGENT. */
static tutti_code
find_agent_place(cli *self, place *ret, tutti_error *err)
{
    const char *agent = cli_value(self, "agent");
    const char *cluster = cli_value(self, "cluster");
    const char *coordinator = cli_value(self, "coordinator");
    tutti_code code = TUTTI_OK;

    *ret = (place){.cluster.lock = -1};
    if (agent == NULL && cluster == NULL) {
        agent = getenv("TUTTI_AGENT");
    }
    if (agent != NULL) {
        put_agent_text(ret->agent, agent);
    } else {
        tutti_error inner;

        code = find_cluster(cluster != NULL ? cluster : DEFAULT_CLUSTER, ret, &inner);
        if (code == TUTTI_NOT_FOUND && cluster == NULL) {
            code = cli_fail(err, TUTTI_NOT_FOUND,
                            "no agent: say --agent ADDRESS, set TUTTI_AGENT, or start a cluster "
                            "here: tutti cluster start -n 2");
        } else if (code == TUTTI_NOT_FOUND) {
            code = cli_fail(err, code, "%.800s: tutti cluster start --name %.64s", inner.text,
                            cluster);
        } else if (code != TUTTI_OK && err != NULL) {
            *err = inner;
        }
    }
    if (coordinator != NULL) {
        put_agent_text(ret->coordinator, coordinator);
    }
    self->local = ret->cluster.rank_count > 0;
    return code;
}

/* ------------------------------------------------------------------------------ connecting */

void
cli_options_secure(const cli *self, tutti_client_options *options)
{
    options->tls_ca = cli_value(self, "tls-ca");
    options->tls_cert = cli_value(self, "tls-cert");
    options->tls_key = cli_value(self, "tls-key");
    options->tls_name = cli_value(self, "tls-name");
    options->token_file = cli_value(self, "token-file");
}

/* "" and not NULL: NULL would mean the variables of the environment. */
void
cli_options_local(tutti_client_options *options)
{
    options->tls_ca = "";
    options->tls_cert = "";
    options->tls_key = "";
    options->token_file = "";
}

static tutti_code
connect_to(const cli *self, const char *agent, const place *where, tutti_client **ret_client,
           tutti_error *err)
{
    tutti_client_options options;

    tutti_client_options_init(&options);
    options.agent = agent;
    options.coordinator = where->coordinator[0] != '\0' ? where->coordinator : NULL;
    options.job = cli_value(self, "job");
    options.timeout_ms = self->timeout_ms;
    cli_options_secure(self, &options);
    if (self->local) {
        cli_options_local(&options);
    }
    return tutti_connect_with(&options, ret_client, err);
}

/* The job's own word on where a rank is. Any agent's client will do. */
static tutti_code
look_up_agent(tutti_client *client, uint32_t rank, char ret_address[STATE_PATH_MAX],
              tutti_error *err)
{
    const uint32_t world_size = tutti_whoami(client)->world_size;
    tutti_rank_info info;
    tutti_code code;

    if (rank >= world_size) {
        return cli_fail(err, TUTTI_NOT_FOUND,
                        "there is no rank %" PRIu32 " in a world of %" PRIu32
                        ", need a rank below the world size",
                        rank, world_size);
    }
    code = tutti_ranks_get(client, &rank, 1, &info, err);
    if (code == TUTTI_OK && info.state != TUTTI_RANK_ALIVE) {
        code = cli_fail(err, TUTTI_UNAVAILABLE, "rank %" PRIu32 " is not there%s%s", rank,
                        info.reason[0] != '\0' ? ": " : "", info.reason);
    }
    if (code == TUTTI_OK) {
        put_agent_text(ret_address, info.address);
    }
    return code;
}

/* Who is meant, in front of why it cannot be reached. */
static tutti_code
connect_named(const cli *self, const char *agent, const place *where, uint32_t rank,
              tutti_client **ret_client, tutti_error *err)
{
    tutti_error inner;
    const tutti_code code = connect_to(self, agent, where, ret_client, &inner);

    if (code != TUTTI_OK && err != NULL) {
        *err = inner;
        (void)snprintf(err->text, sizeof(err->text), "rank %" PRIu32 ": %.990s", rank, inner.text);
    }
    return code;
}

/* A local cluster knows its sockets; elsewhere some agent knows whom to ask. */
static tutti_code
connect_rank(const cli *self, const place *where, uint32_t rank, tutti_client **ret_client,
             tutti_error *err)
{
    char address[STATE_PATH_MAX];
    tutti_client *near = NULL;
    tutti_code code;

    if (where->cluster.rank_count > 0) {
        if (rank >= where->cluster.rank_count) {
            return cli_fail(err, TUTTI_NOT_FOUND,
                            "there is no rank %" PRIu32 " in a world of %" PRIu32
                            ", need a rank below the world size",
                            rank, where->cluster.rank_count);
        }
        return connect_named(self, where->cluster.ranks[rank].socket, where, rank, ret_client, err);
    }
    code = connect_to(self, where->agent, where, &near, err);
    if (code != TUTTI_OK || tutti_whoami(near)->rank == rank) {
        *ret_client = code == TUTTI_OK ? near : *ret_client;
        return code;
    }
    code = look_up_agent(near, rank, address, err);
    tutti_close(near);
    return code == TUTTI_OK ? connect_named(self, address, where, rank, ret_client, err) : code;
}

bool
cli_rank_option(cli *self, int64_t *ret_rank)
{
    *ret_rank = -1;
    return !cli_has_option(self, "rank") ||
           cli_number(self, "rank", 0, TUTTI_RANKS_MAX - 1, ret_rank);
}

/* A rank that is stated wins over the one in the handle; with neither it is the first agent. */
tutti_code
cli_connect(cli *self, const char *handle, tutti_client **ret_client, tutti_error *err)
{
    int64_t stated = -1;
    uint32_t rank = 0;
    place where;
    tutti_code code;

    if (!cli_rank_option(self, &stated)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "--rank: need the number of a rank");
    }
    code = find_agent_place(self, &where, err);
    if (code == TUTTI_OK && (stated >= 0 || (handle != NULL && cli_rank_of(handle, &rank)))) {
        code = connect_rank(self, &where, stated >= 0 ? (uint32_t)stated : rank, ret_client, err);
    } else if (code == TUTTI_OK) {
        code = connect_to(self, where.agent, &where, ret_client, err);
    }
    state_fini(&where.cluster);
    return code;
}

/*
 * Some commands need no agent. They must work when all agents hang, so none is asked if the
 * coordinator's address is known otherwise.
 */
tutti_code
cli_connect_coordinator(cli *self, tutti_client **ret_client, tutti_error *err)
{
    const bool agent_named = cli_value(self, "agent") != NULL;
    const char *stated = getenv("TUTTI_COORDINATOR");
    place where = {.cluster.lock = -1};
    tutti_code code = TUTTI_OK;

    if (cli_value(self, "coordinator") != NULL) {
        put_agent_text(where.coordinator, cli_value(self, "coordinator"));
    } else if (stated != NULL && !agent_named && cli_value(self, "cluster") == NULL) {
        put_agent_text(where.coordinator, stated);
    } else {
        code = find_agent_place(self, &where, err);
    }
    if (code == TUTTI_OK) {
        /* Nobody's agent, when the coordinator's address is known without one. */
        code = connect_to(self, where.coordinator[0] != '\0' ? "" : where.agent, &where, ret_client,
                          err);
    }
    if (code == TUTTI_OK) {
        const tutti_agent_info *agent = tutti_whoami(*ret_client);

        put_agent_text(self->coordinator, agent != NULL ? agent->coordinator : where.coordinator);
    }
    state_fini(&where.cluster);
    return code;
}
