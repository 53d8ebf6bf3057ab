/* What sessions and watches are told. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_EVENTS_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_EVENTS_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"

void coord_events_init(coord_job *job);
void coord_events_fini(coord_job *job);

/* The newest event from now on; wakes the sessions. */
void coord_event_publish(coord_job *job, coord_event *event);

/* Not among the events is fine. */
void coord_event_remove(coord_job *job, coord_event *event);

/* The first event behind `number`; NULL = there is none. */
coord_event *coord_event_after(const coord_job *job, uint64_t number);

/* As sessions are told it. Borrowed until the event changes. */
void coord_event_describe(const coord_event *event, tutti_coordinator_event *ret_event);

#endif
