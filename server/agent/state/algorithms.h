/* Private to server/agent: which algorithms are taken. */
#ifndef TUTTI_SERVER_AGENT_STATE_ALGORITHMS_H
#define TUTTI_SERVER_AGENT_STATE_ALGORITHMS_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* Make agent->selector of --tune-table and --algorithm, before the engine starts. BAD_TABLE,
 * BAD_ALGORITHM */
tutti_code agent_algorithms_open(tutti_agent *agent, tutti_error *err);
/* Another choice for ops whose agreement begins from now on. Control loop. Codes as above, and
 * CHOICE_LIMIT: too many choices were put in this agent's life.
 * [in] table, forced  "" = as in the options, if both are; else nothing forced */
tutti_code agent_algorithms_set(tutti_agent *agent, const char *table, const char *forced,
                                tutti_error *err);

#endif
