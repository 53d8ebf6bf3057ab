/*
 * The channel to the coordinator: what the agent shows there, and which certificate it expects.
 * Also the two small functions of agent.h for programs that guard the server.
 */
#include "server/agent/state/coordinator_channel.h"

#include "server/agent/agent.h"
#include "server/agent/state/state.h"

/* One certificate is enough for both ends: without one for the coordinator, the server's is shown.
 */
tutti_code
agent_open_channel(tutti_agent *agent, tutti_error *err)
{
    const tutti_agent_options *own = agent->options;
    const bool secure = own->tls_ca[0] != '\0';
    const bool shared = secure && own->tls_cert[0] == '\0' && own->tls_key[0] == '\0';
    const tutti_rpc_channel_options channel = {
        .tls_ca = own->tls_ca,
        .tls_name = own->tls_name,
        .tls_cert = shared ? agent->server_options->tls_cert : own->tls_cert,
        .tls_key = shared ? agent->server_options->tls_key : own->tls_key,
        .token_file = own->token_file};

    return tutti_rpc_channel_open(own->coordinator, &channel, &agent->coordinator, err);
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
