/* Private to client: questions to the coordinator about the job. */
#ifndef TUTTI_CLIENT_CONN_COORDINATOR_H
#define TUTTI_CLIENT_CONN_COORDINATOR_H

#include "client/conn/call.h"
#include "tutti/job.h"

/* A call of the coordinator, within the client's time. */
client_call client_ask_coordinator(const tutti_client *client, const tutti_rpc_stub *stub);

/* coordinator_pb.c: a job as the coordinator tells it. [in] item  its message */
void client_read_job(const void *item, tutti_job_info *ret);

/* Does the server that is the client's agent lead, as a coordinator? As tutti_leader_check. */
tutti_code client_wire_leads(tutti_client *client, uint64_t deadline_ns,
                             tutti_leader_info *ret_info, tutti_error *err);

/* On how many hosts the ranks of a job are, of up to 1024; a rank that is away counts as one. */
tutti_code client_wire_host_count(tutti_client *client, uint32_t world_size, uint64_t deadline_ns,
                                  uint32_t *ret_count, tutti_error *err);

/* How the first 1024 ranks of a job stand. [out] ret_states  1024 of them */
tutti_code client_wire_rank_states(tutti_client *client, uint64_t deadline_ns,
                                   tutti_rank_state *ret_states, size_t *ret_count,
                                   tutti_error *err);

#endif
