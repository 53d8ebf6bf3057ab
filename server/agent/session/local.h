/*
 * The leader's own worker: its calls are nested in the controller's stream (rpc/nested.h) instead of
 * going to this agent through a socket. They begin one after the other, on the loops of their
 * services; answers come from any thread and are taken on the control loop.
 *
 * All functions are called on the control loop.
 */
#ifndef TUTTI_SERVER_AGENT_SESSION_LOCAL_H
#define TUTTI_SERVER_AGENT_SESSION_LOCAL_H

#include "server/agent/session/session.h"

/* [in] lease  under which the calls make tensors. TUTTI_RESOURCE_EXHAUSTED */
tutti_code agent_local_new(agent_worker *worker, uint64_t lease, agent_local **ret_local,
                           tutti_error *err);

/* A RunRequest; agent_worker_answered follows. [in, moved] packed */
void agent_local_put(agent_local *local, tutti_rpc_packed *packed);

/* What has not begun never does, the rest is told that its caller is gone. No answer is taken. */
void agent_local_cancel(agent_local *local);

/* Does nothing of it run? NULL is fine. */
bool agent_local_is_idle(agent_local *local);

/* It is idle. NULL is fine. */
void agent_local_free(agent_local *local);

#endif
