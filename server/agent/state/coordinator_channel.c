/*
 * The channel to the coordinator: what the agent shows there, and which certificate it expects.
 * Also the two small functions of agent.h for programs that guard the server.
 */
#include "server/agent/state/coordinator_channel.h"

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/agent.h"
#include "server/agent/state/state.h"

/* gRPC's own waits come on top of those of the session (member.c), which tries again by itself. */
#define BACKOFF_MAX_NS (400 * TUTTI_NS_PER_MS)

/* One certificate is enough for both ends: without one for the coordinator, the server's is shown.
 */
static void
show_certificate(const tutti_agent *agent, tutti_rpc_channel_options *channel)
{
    const tutti_agent_options *own = agent->options;
    const bool shared = own->tls_cert[0] == '\0' && own->tls_key[0] == '\0';

    channel->tls_cert = shared ? agent->server_options->tls_cert : own->tls_cert;
    channel->tls_key = shared ? agent->server_options->tls_key : own->tls_key;
}

tutti_code
agent_open_channel(tutti_agent *agent, tutti_error *err)
{
    const tutti_agent_options *own = agent->options;
    tutti_rpc_channel_options channel = {.tls_ca = own->tls_ca,
                                         .tls_name = own->tls_name,
                                         .tls_cert = own->tls_cert,
                                         .tls_key = own->tls_key,
                                         .token_file = own->token_file,
                                         .backoff_max_ns = BACKOFF_MAX_NS,
                                         .follow = true};

    if (own->tls_ca[0] != '\0') {
        show_certificate(agent, &channel);
    }
    return tutti_rpc_channel_open(own->coordinator, &channel, &agent->coordinator, err);
}

/* --coordinator-name is another server's: an agent's certificate has to name its address. */
tutti_code
agent_open_peer_channel(const tutti_agent *agent, const char *address, const char *token,
                        tutti_rpc_channel **ret_channel, tutti_error *err)
{
    const char *ca = agent->options->tls_ca[0] != '\0' ? agent->options->tls_ca
                                                       : agent->server_options->tls_client_ca;
    tutti_rpc_channel_options channel = {.token = token};

    if (agent->server_options->tls_cert[0] != '\0' && ca[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_AUTHORITY",
                              "this agent serves with TLS and does not know who signs the "
                              "certificates of the others: give it --coordinator-ca");
    }
    if (agent->server_options->tls_cert[0] != '\0') {
        channel.tls_ca = ca;
        show_certificate(agent, &channel);
    }
    return tutti_rpc_channel_open(address, &channel, ret_channel, err);
}

tutti_rpc_server *
tutti_agent_server(tutti_agent *agent)
{
    return agent->server;
}

void
tutti_agent_on_joined(tutti_agent *agent, void (*on_joined)(void *arg, uint32_t rank), void *arg)
{
    agent->on_joined = on_joined;
    agent->on_joined_arg = arg;
}
