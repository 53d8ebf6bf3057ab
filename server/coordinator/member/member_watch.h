/* Clients that follow who comes and goes. */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_MEMBER_WATCH_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_MEMBER_WATCH_H

#include "server/coordinator/core/types.h"

void coord_member_watches_init(coord_job *job);
void coord_member_watches_fini(coord_job *job); /* they are told that the job has ended */
void coord_member_watches_wake(coord_job *job);

#endif
