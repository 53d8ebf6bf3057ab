/*
 * Modules: files with functions (plug-ins), loaded into the agent. Those of --plugin when the agent
 * starts; those of --module-path when a client asks for one by its file's name. A file that is no
 * plug-in is given to loaders, which plug-ins have added. None is ever unloaded.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_MODULE_H
#define TUTTI_SERVER_AGENT_FUNCTION_MODULE_H

#include "rpc/server.h"
#include "server/agent/agent.h"
#include "server/agent/function/registry.h"
#include "server/agent/state/types.h"

#define AGENT_MODULE_NAME_MAX 100

typedef struct agent_module {
    tutti_map_node by_name;
    char name[AGENT_MODULE_NAME_MAX + 1];       /* of the file, without ".so" */
    char source[AGENT_FUNCTION_SOURCE_MAX + 1]; /* of its functions */
} agent_module;

/*
 * Load all files of --plugin; their functions have the names that they gave. Before the loops
 * start. Codes of agent_functions_open.
 */
tutti_code agent_plugins_load(tutti_agent *agent, tutti_error *err);

/* How a LoadModule ended: `module` is NULL, and err says why; else borrowed. Control loop. */
typedef void (*agent_module_fn)(tutti_agent *agent, tutti_rpc_call *rpc, agent_module *module,
                                const tutti_error *err);

/*
 * Load one of --module-path, on a thread of the pool. Control loop.
 *
 * [in] path, device  copied; device "" = the first of --device
 */
void agent_module_load(tutti_agent *agent, tutti_rpc_call *rpc, const char *path,
                       const char *device, agent_module_fn answer);

void agent_modules_free(tutti_agent *agent);

#endif
