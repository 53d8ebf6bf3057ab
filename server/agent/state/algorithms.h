/* Private to server/agent: which algorithms are taken. */
#ifndef TUTTI_SERVER_AGENT_STATE_ALGORITHMS_H
#define TUTTI_SERVER_AGENT_STATE_ALGORITHMS_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* algorithms.c: of the options. BAD_TABLE, BAD_ALGORITHM */
tutti_code agent_algorithms_open(tutti_agent *agent, tutti_error *err);
/* Also CHOICE_LIMIT. [in] table  "" = that of the options */
tutti_code agent_algorithms_set(tutti_agent *agent, const char *table, const char *forced,
                                tutti_error *err);

#endif
