/*
 * The channel to the coordinator, and those to other agents.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_COORDINATOR_CHANNEL_H
#define TUTTI_SERVER_AGENT_STATE_COORDINATOR_CHANNEL_H

#include "server/agent/agent.h"

/*
 * Open agent->coordinator. Nothing is sent yet: an address where nobody is shows with the first
 * call. Codes of tutti_rpc_channel_open.
 */
tutti_code agent_open_channel(tutti_agent *agent, tutti_error *err);

/*
 * A channel to another agent of the job, as secure as this agent's own server: TLS if that has a
 * certificate. Shows the certificate that the coordinator is shown, and the token of whoever it is for.
 *
 * [in] token  NULL = none
 *
 * TUTTI_FAILED_PRECONDITION  NO_AUTHORITY: TLS, and nothing says who signs the agents' certificates
 * otherwise as tutti_rpc_channel_open
 */
tutti_code agent_open_peer_channel(const tutti_agent *agent, const char *address, const char *token,
                                   tutti_rpc_channel **ret_channel, tutti_error *err);

#endif
