/* Builtins: functions that every agent has. */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_BUILTINS_H
#define TUTTI_SERVER_AGENT_FUNCTION_BUILTINS_H

#include "server/agent/function/registry.h"

tutti_code agent_builtins_add(agent_registry *registry, tutti_error *err);

#endif
