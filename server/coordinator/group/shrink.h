/* Shrinking of groups: what other files of the coordinator tell it. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_SHRINK_H
#define TUTTI_SERVER_COORDINATOR_GROUP_SHRINK_H

#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"

typedef struct coord_shrink coord_shrink;

/* A rank is lost: it is not waited for any more. */
void coord_shrinks_lose(const coord_agent *agent);

/*
 * What an agent tells of a group of its job: its program has ended, and nobody has called its ops
 * since; or that is over. No shrink waits for such a rank. Other groups, and a session that is not
 * open, are fine.
 */
void coord_session_tell_orphan(const tutti_coordinator_session *session, const char *group,
                               uint64_t id, bool orphan);

/* The group goes: calls that wait end with NO_GROUP. None is fine. */
void coord_group_end_shrink(coord_group *group);

#endif
