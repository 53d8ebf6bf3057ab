/*
 * Groups, asked of the coordinator.
 */
#ifndef TUTTI_SERVER_AGENT_OP_GROUP_LOOKUP_H
#define TUTTI_SERVER_AGENT_OP_GROUP_LOOKUP_H

#include "server/agent/state/types.h"

/* Until it has answered: agent_group_known, agent_group_unknown. */
void agent_wire_get_group(agent_group *group);

#endif
