/* Progress from the wire. For the wire files of this folder. */
#ifndef TUTTI_COORDINATOR_PROGRESS_WIRE_H
#define TUTTI_COORDINATOR_PROGRESS_WIRE_H

#include "server/coordinator/progress.h"
#include "tutti/v1/coordinator_service.pb-c.h"

/* What a heartbeat brings besides being one. */
void coord_take_progress(tutti_coordinator_session *session, const Tutti__V1__Heartbeat *wire);

#endif
