/*
 * What the process of --python finds in its environment: the agent's own, and in front of it the key
 * that it shows, and the files by which a client of this agent gets in: those of TLS and a token. The
 * agent's variables of these names are its options as a server, so they must not get through.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_PYTHON_ENVIRONMENT_H
#define TUTTI_SERVER_AGENT_FUNCTION_PYTHON_ENVIRONMENT_H

#include "server/agent/agent.h"

/*
 * [in] key      TUTTI_HOST_KEY's value
 * [in] address  of the agent, that the process gets: TLS is for one that is no Unix socket
 *
 * [out, owned] The list, which ends with NULL; agent_python_environment_free it. NULL: no memory.
 */
char **agent_python_environment(const tutti_agent *agent, const char *key, const char *address);
void agent_python_environment_free(char **environment); /* NULL is fine */

#endif
