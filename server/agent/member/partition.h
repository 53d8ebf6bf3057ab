/* Which ops may begin: none while the coordinator is silent. Control loop. */
#ifndef TUTTI_SERVER_AGENT_MEMBER_PARTITION_H
#define TUTTI_SERVER_AGENT_MEMBER_PARTITION_H

#include "server/agent/agent.h"

/* May a caller's op begin? As agent_check_open, and TUTTI_UNAVAILABLE, CUT_OFF */
tutti_code agent_check_begin(const tutti_agent *agent, tutti_error *err);

/*
 * For how long this process has not run (it was stopped, or its machine suspended) until less than
 * five seconds ago; 0 = not so long that the coordinator may have given it up. Any thread, while the
 * agent has its member.
 */
uint64_t agent_stood_still_ns(const tutti_agent *agent);

#endif
