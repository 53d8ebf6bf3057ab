/* The GPUs of a job's agents: no two agents have the same, unless both allow it. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_GPUS_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_GPUS_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"

typedef struct coord_gpus coord_gpus;

/*
 * SHARED_GPU: another agent has one of the newcomer's GPUs, which it does not allow.
 *
 * [in]  replaced  the agent that goes when the newcomer is seated: its GPUs are free; or NULL
 */
tutti_code coord_check_gpus(const coord_job *job, const tutti_coordinator_join_request *request,
                            const coord_agent *replaced, tutti_error *err);

/* Put the GPUs of a new agent into its job's map, and take them out. */
tutti_code coord_gpus_keep(coord_agent *agent, tutti_error *err);
void coord_gpus_forget(coord_agent *agent);

#endif
