/* Groups, asked of the coordinator. Control loop. */
#ifndef TUTTI_SERVER_AGENT_OP_GROUP_LOOKUP_H
#define TUTTI_SERVER_AGENT_OP_GROUP_LOOKUP_H

#include <stdint.h>

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/*
 * Ask until the coordinator has answered, or no op in line has time left; then agent_group_known or
 * agent_group_unknown is called, perhaps before this returns. The group may be gone by the time of
 * the answer: it is looked for by name.
 */
void agent_wire_get_group(agent_group *group);

/* A lease has ended: the groups that were made under it are let go. Tells until the coordinator has heard. */
void agent_wire_release_groups(tutti_agent *agent, uint64_t lease);

#endif
