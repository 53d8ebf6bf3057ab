/*
 * Functions of an agent: which there are, the threads that run them, and the calls under way.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_FUNCTIONS_H
#define TUTTI_SERVER_AGENT_FUNCTION_FUNCTIONS_H

#include "server/agent/agent.h"
#include "server/agent/function/call.h"
#include "server/agent/function/pool.h"
#include "server/agent/function/registry.h"

#define AGENT_LOADERS_MAX 8

typedef struct agent_functions {
    tutti_agent *agent;
    agent_registry registry;
    agent_pool *pool;
    tutti_list_node calls; /* agent_function_call.link: all that are not over */
    uint32_t call_count;
    uint64_t last_number;
    tutti_map scopes;
    uint32_t depth;        /* of calls that end inside of each other */
    tutti_map modules;     /* module.h */
    tutti_list_node loads; /* module.h: files that are being loaded */
    uint32_t load_count;
    tutti_loader loaders[AGENT_LOADERS_MAX]; /* module.h: of plug-ins, for files that are none */
    size_t loader_count;
    tutti_list_node hosts; /* host.h */
    uint32_t host_count;
    tutti_list_node imports;     /* host.h: calls of ImportModule that wait */
    struct agent_python *python; /* python.h; NULL = none */
} agent_functions;

/*
 * Builtins, and the plug-ins of --plugin. Before the loops start.
 *
 * TUTTI_FAILED_PRECONDITION  BAD_MODULE, NO_MODULE, ...: a plug-in; the text has its file
 * TUTTI_INVALID_ARGUMENT     an option that is none: --functions, --python
 */
tutti_code agent_functions_open(tutti_agent *agent, tutti_error *err);

/* Calls that run or wait, and files that are being loaded. Control loop. */
uint32_t agent_functions_live(const tutti_agent *agent);

/* The agent serves: what it starts by itself (--python) may connect. Control loop. */
void agent_functions_start(tutti_agent *agent);

/* The agent drains: calls are ended by their own on_cancel, hosts by that of their streams. */
void agent_functions_drain(tutti_agent *agent);

/*
 * Both loops are stopped. Returns false if functions still run after a while: then everything that
 * they may use has to stay, and the process should end.
 */
bool agent_functions_close(tutti_agent *agent);

/* How many there are at this moment. Control loop. */
typedef struct agent_function_counts {
    uint64_t functions;
    uint64_t waiting; /* calls: for their tensors, or for their turn */
    uint64_t running; /* ... that a thread or a host has */
    uint64_t hosts;
} agent_function_counts;

void agent_functions_count(const tutti_agent *agent, agent_function_counts *ret);

/* For the log: what still runs. */
void agent_functions_describe(const tutti_agent *agent, tutti_text *text);

#endif
