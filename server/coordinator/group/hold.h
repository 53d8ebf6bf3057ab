/*
 * Hold: what keeps an ephemeral group. Its agents, all of which were members when it was made; and, if it was made
 * with a lease of an agent, the leases of calls that made or found it. It is deleted when either are all gone.
 * Private to this folder, but for coord_groups_lose.
 */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_HOLD_H
#define TUTTI_SERVER_COORDINATOR_GROUP_HOLD_H

#include "server/coordinator/group/group.h"

/* What a call that makes or finds a group says of its end. Begun before the group is made, so that it cannot fail
 * behind that. */
typedef struct coord_hold {
    bool ephemeral;
    uint64_t lease;           /* 0 = none */
    const coord_agent *agent; /* set by begin */
    coord_holder *holder;     /* [owned] until the end; NULL = there is no lease */
} coord_hold;

/* TUTTI_RESOURCE_EXHAUSTED  no memory */
tutti_code coord_hold_begin(coord_hold *hold, const coord_agent *agent, tutti_error *err);

/*
 * [in] group    NULL = there is none: the call has failed
 * [in] created  the call that made it decides whether it is ephemeral, and goes with leases
 */
void coord_hold_end(coord_hold *hold, coord_group *group, bool created);

/* A rank is lost: ephemeral groups whose agents are all gone are deleted, and those without any lease now. */
void coord_groups_lose(const coord_agent *agent);

#endif
