/* Hosts: processes that offer functions through FunctionsService.Serve. Control loop. */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_HOST_H
#define TUTTI_SERVER_AGENT_FUNCTION_HOST_H

#include "server/agent/agent.h"
#include "server/agent/function/call.h"

void agent_host_begin(agent_function_call *call);
void agent_host_cancel(agent_function_call *call);
void agent_hosts_drain(tutti_agent *agent);

#endif
