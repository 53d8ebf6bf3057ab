/* Progress from the wire. For the *_pb.c files of this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_SERVICE_PROGRESS_PB_H
#define TUTTI_SERVER_COORDINATOR_SERVICE_PROGRESS_PB_H

#include "server/coordinator/member/members.h"
#include "tutti/v1/coordinator_service.pb-c.h"

/* What a heartbeat brings besides being one. */
void coord_take_progress(tutti_coordinator_session *session, const Tutti__V1__Heartbeat *wire);

#endif
