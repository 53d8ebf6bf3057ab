/* Groups by their tag, or by their ranks and turn. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_REGISTRY_H
#define TUTTI_SERVER_COORDINATOR_GROUP_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/list.h"
#include "base/data/map.h"
#include "server/coordinator/core/types.h"

/*
 * How many turns a member has had. A registry holds the groups of one tag and one list of ranks.
 * With a tag there is one group at most. Without, they are told apart by turns: the k-th call of
 * each member is for the group of turn k. The registry stays while it has groups, or members that
 * have not had as many turns as others.
 */
typedef struct coord_turns {
    uint64_t incarnation; /* of the process that counts: another one begins anew */
    uint64_t count;
    uint64_t token; /* of its last call */
} coord_turns;

struct coord_group_registry {
    tutti_map_node node; /* in the job's */
    coord_job *job;
    uint64_t number; /* unique in the job; 0 = it has a tag */
    uint32_t count;
    uint64_t turn_count;    /* the newest */
    uint64_t recorded_turn; /* as the store has it */
    tutti_list_node groups;
    coord_turns *turns; /* by position; NULL = it has a tag */
    size_t key_size;
    unsigned char key[];
};

/* NULL = no memory. [out] ret_registry  NULL when there is none and it was not to be made */
tutti_code coord_group_registry_of(coord_job *job, const char *tag, const uint32_t *ranks,
                                   uint32_t count, bool make, coord_group_registry **ret_registry,
                                   tutti_error *err);

/* Its tag; "" = none. */
const char *coord_group_registry_tag(const coord_group_registry *registry);

/* The newest group of a turn, or of the tag (0); NULL = it was deleted or never there. */
coord_group *coord_group_registry_find(const coord_group_registry *registry, uint64_t turn);

void coord_group_registry_add(coord_group_registry *registry, coord_group *group, uint64_t turn);

/* The group is gone: out of its group registry, which may go too. A group without group registry is
 * fine. */
void coord_group_registry_leave(coord_group *group);

/*
 * After a change: free the registry if it has no groups and all members have had the same number
 * of turns.
 */
void coord_group_registry_settle(coord_group_registry *registry);

void coord_rosters_fini(coord_job *job);

#endif
