/*
 * Who calls the ops of a group, and whether that program still lives. Control loop.
 */
#ifndef TUTTI_SERVER_AGENT_OP_CALLER_H
#define TUTTI_SERVER_AGENT_OP_CALLER_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/*
 * The client's program has ended without a word. Of each group whose last collective here it has
 * called, or whose last send or receive, the others may wait for the next one: they are told at once,
 * until somebody calls here again.
 */
void agent_caller_lose(tutti_agent *agent, uint64_t client, const char *program);

/* An op comes, before its number is looked at: somebody calls again. */
void agent_caller_come(agent_group *group);

/*
 * Numbers that the engine has given to no op of this agent count, too: of refusals in the name of nobody,
 * and those that a resync has skipped. Returns whether there were some.
 */
bool agent_caller_count(agent_group *group);

/* Its client is the group's caller from now on. */
void agent_caller_note(agent_group *group, const agent_op *op);

/* An op was given up by its caller. */
void agent_caller_note_given_up(const agent_op *op);

#endif
