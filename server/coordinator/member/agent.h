/* An agent of a job. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_AGENT_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_AGENT_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"

/* TUTTI_INVALID_ARGUMENT BAD_AGENT: a text is too long or not printable; a list is too long */
tutti_code coord_agent_check(const tutti_coordinator_agent *info, tutti_error *err);

/* An agent in no seat, in the job's map. TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code coord_agent_new(coord_job *job, uint64_t incarnation,
                           const tutti_coordinator_agent *info, coord_agent **ret_agent,
                           tutti_error *err);

/* Out of all lists and its seat, and freed. It has no calls and no session. NULL is fine. */
void coord_agent_free(coord_agent *agent);

coord_agent *coord_agent_find(const coord_job *job, uint64_t incarnation);

#endif
