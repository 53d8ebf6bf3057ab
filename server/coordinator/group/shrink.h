/* Shrinking of groups: what other files of the coordinator tell it. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_SHRINK_H
#define TUTTI_SERVER_COORDINATOR_GROUP_SHRINK_H

#include "server/coordinator/core/types.h"

typedef struct coord_shrink coord_shrink;

/* A rank is lost: it is not waited for any more. */
void coord_shrinks_lose(const coord_agent *agent);

/* The group goes: calls that wait end with NO_GROUP. None is fine. */
void coord_group_end_shrink(coord_group *group);

#endif
