/* Private to lib/coll: the life of a group. The engine's thread. */
#ifndef TUTTI_COLL_ENGINE_GROUP_H
#define TUTTI_COLL_ENGINE_GROUP_H

#include <stdbool.h>

#include "coll/coll.h"
#include "coll/state/group.h"

void tutti_coll_group_unref(tutti_coll_group *group);
void tutti_coll_group_fail_all(tutti_coll_group *group, const tutti_error *err, bool tell);
/* It is over: nobody finds it any more, and it is freed with the last op that uses it. */
void tutti_coll_group_drop(tutti_coll_group *group);
void tutti_coll_group_next(tutti_coll_group *group); /* an op ended: may a barrier go on? */
/* ... and was it the last of a deleted group? Then the group ends after the caller, not in it. */
void tutti_coll_group_end_if_closing(tutti_coll_group *group);

/* Is a member lost? The event of events.h. */
void coll_group_look(tutti_coll_group *group);

#endif
