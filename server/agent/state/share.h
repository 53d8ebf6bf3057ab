/* Shares: tensors that clients of this machine have mapped. Private to server/agent. */
#ifndef TUTTI_SERVER_AGENT_STATE_SHARE_H
#define TUTTI_SERVER_AGENT_STATE_SHARE_H

#include "coll/shm/shm.h"
#include "server/agent/agent.h"
#include "server/agent/tensor/table.h"
#include "share/share.h"

/*
 * Open the socket from which clients get descriptors. If that fails the log says so, agent->share
 * is NULL, and Share is refused.
 */
void agent_share_open(tutti_agent *agent);
void agent_share_close(tutti_agent *agent); /* before the table goes */

/* Agents of this machine work in such tensors, too: for the options of the data plane. */
void agent_share_expose(tutti_agent *agent, tutti_transport_shm_options *options);

/* What a client shows at the agent's socket to get a descriptor of a tensor's memory. */
typedef struct agent_shared {
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    const char *socket; /* borrowed for the agent's life */
} agent_shared;

/*
 * [in] lock  exclusive and granted; the tensor may be replaced by one with the same bytes. Any
 * thread.
 *
 * TUTTI_FAILED_PRECONDITION  CANNOT_SHARE TUTTI_RESOURCE_EXHAUSTED   SHARE_LIMIT, MEMORY_LIMIT
 *
 */
tutti_code agent_share_tensor(tutti_agent *agent, const tutti_lock *lock, bool writable,
                              agent_shared *ret_shared, tutti_error *err);

/*
 * Is the caller on this machine, by its own word? "" = it does not say.
 *
 * TUTTI_FAILED_PRECONDITION  OTHER_HOST
 */
tutti_code agent_share_check_host(const tutti_agent *agent, const char *host_id, tutti_error *err);

#endif
