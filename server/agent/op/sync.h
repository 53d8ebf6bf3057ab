/*
 * Calls that wait for all ops.
 */
#ifndef TUTTI_SERVER_AGENT_OP_SYNC_H
#define TUTTI_SERVER_AGENT_OP_SYNC_H

#include <stdint.h>

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

/* How the ops ended that a Sync waited for. */
typedef struct agent_sync_result {
    uint64_t waited;
    uint64_t failed;
    tutti_error err; /* the first one, when some failed */
} agent_sync_result;

/* Writes the answer of a Sync: by the wire file. */
typedef void (*agent_sync_fn)(tutti_rpc_call *call, const agent_sync_result *result);
/*
 * Answer the call when all ops that live now and came before it have ended, well or not; with
 * TIMEOUT and the names of up to 8 missing ops when `timeout_ms` (0 = --op-timeout) or the call's
 * own deadline has passed; with STOPPING when the agent drains. Ops of Backwards belong to group
 * "".
 *
 * [in] group  "" = the ops of all groups; a group that nobody has named has no ops, which is
 * success
 */
void agent_sync(tutti_agent *agent, tutti_rpc_call *call, const char *group, uint32_t timeout_ms,
                agent_sync_fn answer);
/* An op has ended; it is still in the agent's ops. Called for each op but those of Backwards. */
void agent_sync_op_ended(tutti_agent *agent, const agent_op *op);
/* End all Syncs with STOPPING. */
void agent_sync_drain(tutti_agent *agent);

#endif
