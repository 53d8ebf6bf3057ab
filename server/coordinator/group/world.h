/* The group "world" of an elastic job. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_WORLD_H
#define TUTTI_SERVER_COORDINATOR_GROUP_WORLD_H

#include <stdint.h>

#include "server/coordinator/core/types.h"

/* Members have changed: "world" becomes those who are alive, as another group, when they are
 * enough. Of other jobs it stays. */
void coord_world_refresh(coord_job *job);

/* Out of the store: with the id it had. */
void coord_world_restore(coord_job *job, uint64_t world_id);

#endif
