/* Private to call*.c. */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_CALL_PRIVATE_H
#define TUTTI_SERVER_AGENT_FUNCTION_CALL_PRIVATE_H

#include "server/agent/agent.h"
#include "server/agent/function/call.h"

/* ------------------------------------------------------------------ call_args.c */

/* Claim what the call names, and make the entry of its result. The lock set is empty on failure. */
tutti_code agent_call_take(agent_function_call *call, agent_call_request *request,
                           tutti_error *err);

/* Its locks are granted: what the function sees, and which function it is. */
tutti_code agent_call_open_args(agent_function_call *call, tutti_error *err);

void agent_call_drop_args(agent_function_call *call);

/* A call that never came to be: who needs its result finds why. */
void agent_call_mark_name(tutti_agent *agent, const tutti_rpc_call *rpc, const char *name,
                          const tutti_error *why);

/* ------------------------------------------------------------------ call_result.c */

/* Control loop: what it returned goes to its entry, and to the answer. */
tutti_code agent_call_settle(agent_function_call *call, agent_call_result *ret_result,
                             tutti_error *err);

void agent_call_drop_result(agent_function_call *call);
void agent_call_drop_made(agent_function_call *call);

#endif
