/*
 * Private to server/agent: this rank's seat in its job, and what the coordinator says. Control
 * loop.
 */
#ifndef TUTTI_SERVER_AGENT_MEMBER_MEMBER_H
#define TUTTI_SERVER_AGENT_MEMBER_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/agent/agent.h"

/*
 * Allocate; start then joins in the background, as `on_joined` and agent_joined say. close frees
 * it, when it is idle.
 */
tutti_code agent_member_open(tutti_agent *agent, tutti_error *err);
void agent_member_start(tutti_agent *agent);
/*
 * Tell the coordinator that the agent is about to leave; hooks->announced follows in any case, once
 * for each call. Said again to a coordinator that accepts a session later.
 */
void agent_member_announce(tutti_agent *agent);
/*
 * Give the seat back, once; on_left when that is done or was not possible, perhaps before this
 * returns. The agent is AGENT_LEAVING from now on.
 */
void agent_member_leave(tutti_agent *agent, void (*on_left)(tutti_agent *agent));
bool agent_member_idle(const tutti_agent *agent); /* no stream to the coordinator is open */
void agent_member_close(tutti_agent *agent);
/*
 * News of the coordinator, as coordinator_pb.c has read them. Strings and lists are borrowed for
 * the call. agent_rank_joined returns true when the rank has to be looked up (agent_wire_lookup).
 */
void agent_joined(tutti_agent *agent, uint32_t rank, uint32_t world_size, uint64_t epoch,
                  uint64_t job_id, uint32_t heartbeat_ms, uint32_t timeout_ms);
void agent_join_waits(tutti_agent *agent, uint32_t joined, uint32_t world_size,
                      const uint32_t *missing, size_t missing_count);
void agent_rank_lost(tutti_agent *agent, uint32_t rank, uint64_t incarnation, uint64_t epoch,
                     const char *reason, bool left);
void agent_rank_leaving(tutti_agent *agent, uint32_t rank, uint64_t epoch, const char *reason);
bool agent_rank_joined(tutti_agent *agent, uint32_t rank, uint64_t epoch);

/* heartbeat_pb.c: with the progress of groups on which something has changed */
void agent_wire_heartbeat(tutti_agent *agent, tutti_rpc_flow *flow, uint64_t number);
void agent_beat_now(tutti_agent *agent); /* member.c */

/* coordinator_pb.c: calls to the coordinator, answered on the control loop */
tutti_code agent_wire_join(tutti_agent *agent, const tutti_rpc_flow_ops *ops, tutti_rpc_flow **ret,
                           tutti_error *err);
void agent_wire_join_message(tutti_agent *agent, tutti_rpc_message *message);
tutti_code agent_wire_session(tutti_agent *agent, const tutti_rpc_flow_ops *ops,
                              tutti_rpc_flow **ret, tutti_error *err);
/* True once the coordinator has accepted the session. */
bool agent_wire_session_message(tutti_agent *agent, tutti_rpc_message *message);
bool agent_wire_is_final(tutti_code code); /* another attempt cannot change that answer */
/* announce: only say so, for now. */
tutti_code agent_wire_leave(tutti_agent *agent, bool announce, tutti_rpc_reply_fn on_reply,
                            tutti_error *err);
void agent_wire_leave_answer(tutti_agent *agent, tutti_rpc_message *message); /* to announce */
/* Tell the engine where ranks are; asked again until the coordinator has answered. Then groups with
 * these ranks begin `epoch`; 0 = they do not, as the engine itself has asked. [in] ranks  copied */
void agent_wire_lookup(tutti_agent *agent, const uint32_t *ranks, size_t count, uint64_t epoch);

#endif
