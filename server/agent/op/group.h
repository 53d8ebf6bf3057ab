/*
 * Groups: the coordinator is asked for them, and their ops wait in line.
 */
#ifndef TUTTI_SERVER_AGENT_OP_GROUP_H
#define TUTTI_SERVER_AGENT_OP_GROUP_H

#include <stdint.h>

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* The group of that name, made and asked for when it is not known yet. NULL: no memory. */
agent_group *agent_group_of(tutti_agent *agent, const char *name, tutti_error *err);
void agent_group_add(agent_group *group, agent_op *op);
void agent_group_dispatch(agent_group *group);
void agent_group_add_slot(agent_op *hold); /* a Backward takes its place in the queue */
void agent_group_unhold(agent_op *hold);   /* its place is over, and not in the queue any more */
void agent_groups_renew(tutti_agent *agent, uint32_t rank, uint64_t epoch);
void agent_group_deleted(tutti_agent *agent, const char *name);
void agent_groups_free(tutti_agent *agent);
/* The coordinator has answered: ranks, or why not. */
void agent_group_known(agent_group *group, uint64_t id, uint64_t epoch, const uint32_t *ranks,
                       uint32_t count);
void agent_group_unknown(agent_group *group, const tutti_error *err);
/* Until when do ops in line wait? 0: the time of all is up. Those whose time is up keep their place
 * meanwhile: the others may have counted them. */
uint64_t agent_group_waits_until(const agent_group *group);
/* After a time without the coordinator: are our groups still what they were? */
void agent_groups_check(tutti_agent *agent);

#endif
