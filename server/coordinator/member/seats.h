/* The seats of a job: who has which rank. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_SEATS_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_SEATS_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"

/*
 * Give a newcomer its seat, or a place among those that wait for one.
 *
 * TUTTI_INVALID_ARGUMENT    RANK_RANGE
 * TUTTI_ALREADY_EXISTS      ALREADY_JOINED
 * TUTTI_FAILED_PRECONDITION SHARED_GPU
 * TUTTI_RESOURCE_EXHAUSTED  WORLD_FULL; no memory
 */
tutti_code coord_seat_newcomer(coord_job *job, const tutti_coordinator_join_request *request,
                               coord_agent **ret_agent, tutti_error *err);

/* All are there, each with a call: give ranks to those that have none; epoch 1. */
void coord_seats_form(coord_job *job);

/* The first ranks that nobody asked for by number; returns how many, at most `most`. */
uint32_t coord_seats_missing(const coord_job *job, uint32_t *ret_ranks, uint32_t most);

/* An agent that waits gives its seat up and is freed. The job may be gone, too. */
void coord_seat_return(coord_agent *agent);

/* An agent that lives has said why it will leave soon: a new epoch, nothing else. */
void coord_seat_announce(coord_agent *agent, const char *reason);

/* An agent that lives is lost from now on, in a new epoch; it stays in its seat. */
void coord_seat_lose(coord_agent *agent, const char *reason);

/* Out of the store: alive, with heartbeat_timeout for its session, or lost. The seat is free. */
void coord_seat_restore(coord_agent *agent, uint32_t rank, tutti_coordinator_state state);

#endif
