#include "server/agent/function/host.h"

#include "base/error/fail.h"

void
agent_host_begin(agent_function_call *call)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "HOST_LOST", "the host of %s is gone",
                         call->function_name);
    agent_call_failed(call, &err);
}

void
agent_host_cancel(agent_function_call *call)
{
    (void)call;
}

void
agent_hosts_drain(tutti_agent *agent)
{
    (void)agent;
}
