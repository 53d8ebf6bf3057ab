/* Group: as the files of this folder see it. Private to this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_GROUP_H
#define TUTTI_SERVER_COORDINATOR_GROUP_GROUP_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/job.h"

#define COORD_NOBODY (-1) /* who asks, when nobody is said to */

struct coord_group {
    tutti_map_node node; /* in the job's groups, or in the mesh's rows */
    coord_job *job;
    uint64_t id;
    char name[TUTTI_NAME_MAX + 1];
    uint32_t count;
    uint32_t *ranks;     /* NULL = world: 0 .. count-1, when it is not elastic */
    uint32_t *order;     /* positions in the order of their ranks; NULL = world */
    uint64_t epoch;      /* the newest at which a member joined, ... */
    uint64_t seen_epoch; /* ... looked for when this was the job's last_joined_epoch */
    tutti_map channels;  /* (key) of its meetings */
    tutti_link talking;  /* in the job's list when it has channels */
    coord_event event;   /* of its deletion */
    coord_mesh *mesh;    /* of which it is a row; NULL = of none */
    unsigned char key[8];
    coord_roster
        *roster;      /* of those that share tag and ranks; NULL = it has neither tag nor turn */
    tutti_link mates; /* in the roster, in order of their turns */
    uint64_t turn;    /* it is what a member's call of this number is for; 0 = it has a tag */
};

/* A group in no map, without ranks; NULL = no memory. [in] name: checked */
coord_group *coord_group_new(coord_job *job, const char *name, uint32_t count);

/* Of a group in no map. */
void coord_group_destroy(coord_group *group);

bool coord_group_is_world(const coord_group *group);

/* Into the job's map, with a new id. */
void coord_group_add(coord_group *group);

/* Out of the job's map; its meetings fail. */
void coord_group_remove(coord_group *group);

/* NULL for NULL. */
coord_group *coord_group_from(tutti_map_node *node);

/* "world", when the job begins: nobody finds it until the job is formed. No memory: NO_MEMORY */
tutti_code coord_group_add_world(coord_job *job, tutti_error *err);

/* It was deleted: its members hear of it, and it lives on as its event. */
void coord_group_publish_deleted(coord_group *group);

/* Free the group of such an event: core/hooks.h. */
void coord_group_drop_deleted(coord_event *event);

/* Out of the job if it is still there, and freed. */
void coord_group_free(coord_group *group);

void coord_groups_fini(coord_job *job);

/*
 * [in] name   empty or NULL = "world"; of a mesh's group: it is made when it is not there
 * [in] asker  the rank that asks, or COORD_NOBODY
 *
 * TUTTI_NOT_FOUND            NO_GROUP, NO_MESH
 * TUTTI_INVALID_ARGUMENT     BAD_NAME, MESH_DIM, RANK_NEEDED
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the rank is not in the mesh
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT; no memory
 */
tutti_code coord_group_find(coord_job *job, const char *name, int64_t asker,
                            coord_group **ret_group, tutti_error *err);

/* As callers see it. Borrows from the group. */
void coord_group_describe(coord_group *group, tutti_coordinator_group *ret_group);

/*
 * May a group of so many members come into being?
 *
 * TUTTI_RESOURCE_EXHAUSTED  GROUP_LIMIT
 */
tutti_code coord_group_check_limits(const coord_job *job, size_t count, tutti_error *err);

/*
 * Give a group that is in no map its ranks, which are distinct.
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_group_fill(coord_group *group, const uint32_t *ranks, tutti_error *err);

/* TUTTI_UNAVAILABLE  RANK_LOST: a member is gone */
tutti_code coord_group_check_alive(const coord_group *group, tutti_error *err);

/* ------------------------------------------------------------------------------ claim.c */

/* What a member wants, in ranks of the job. */
typedef struct coord_claim {
    const coord_agent *agent; /* a member */
    const char *name;         /* "" = we name it */
    const char *tag;          /* "" = none */
    uint64_t token;           /* 0 = none */
    const uint32_t *ranks;    /* distinct, in the world */
    uint32_t count;
} coord_claim;

/*
 * Find or make the group.
 *
 * TUTTI_INVALID_ARGUMENT    BAD_NAME
 * TUTTI_ALREADY_EXISTS      NAME_TAKEN
 * TUTTI_UNAVAILABLE         RANK_LOST
 * TUTTI_NOT_FOUND           NO_GROUP: what this call is for was deleted; the call has counted
 * TUTTI_RESOURCE_EXHAUSTED  GROUP_LIMIT; no memory
 */
tutti_code coord_group_claim(const coord_claim *claim, coord_group **ret_group, bool *ret_created,
                             tutti_error *err);

/* ------------------------------------------------------------------------------ registry.c */

/*
 * The groups of one tag and one list of ranks. With a tag there is one at most. Without, they are
 * told apart by turns: the k-th call of each member is for the group of turn k. It stays while it
 * has groups, or members that have not had as many turns as others.
 */
typedef struct coord_turns {
    uint64_t incarnation; /* of the process that counts: another one begins anew */
    uint64_t count;
    uint64_t token; /* of its last call */
} coord_turns;

struct coord_roster {
    tutti_map_node node; /* in the job's */
    coord_job *job;
    uint64_t number; /* unique in the job; 0 = it has a tag */
    uint32_t count;
    uint64_t turn_count;    /* the newest */
    uint64_t recorded_turn; /* as the store has it */
    tutti_link groups;
    coord_turns *turns; /* by position; NULL = it has a tag */
    size_t key_size;
    unsigned char key[];
};

/* NULL = no memory. [out] ret_roster  NULL when there is none and it was not to be made */
tutti_code coord_roster_of(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count,
                           bool make, coord_roster **ret_roster, tutti_error *err);

/* Its tag; "" = none. */
const char *coord_roster_tag(const coord_roster *roster);

/* The newest group of a turn, or of the tag (0); NULL = it was deleted or never there. */
coord_group *coord_roster_find(const coord_roster *roster, uint64_t turn);

void coord_roster_add(coord_roster *roster, coord_group *group, uint64_t turn);

/* The group is gone: out of its roster, which may go too. A group without roster is fine. */
void coord_roster_leave(coord_group *group);

/* Gone when nobody needs it any more. */
void coord_roster_settle(coord_roster *roster);

void coord_rosters_fini(coord_job *job);

/* ------------------------------------------------------------------------------ rank_list.c */

/* Lists of ranks of the job, one after the other. [owned] both arrays */
typedef struct coord_layout {
    uint32_t *ranks;
    uint32_t *ends; /* of list i: behind its last rank */
    uint32_t list_count;
} coord_layout;

void coord_layout_fini(coord_layout *layout);

/*
 * Check lists of group ranks of `parent`, and say them in ranks of the job.
 *
 * [in] what  who lists them, for errors: "group tp"; with several lists their numbers are added
 *
 * TUTTI_INVALID_ARGUMENT    EMPTY_GROUP, RANK_RANGE, DUPLICATE_RANK, OVERLAP
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_layout_take(const coord_group *parent, const char *what,
                             const tutti_coordinator_list *lists, size_t count,
                             coord_layout *ret_layout, tutti_error *err);

/* Consecutive blocks; `size` divides. TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code coord_layout_blocks(const coord_group *parent, uint32_t size, coord_layout *ret_layout,
                               tutti_error *err);

/* Where a rank is; false = in no list. */
bool coord_layout_find(const coord_layout *layout, uint32_t rank, uint32_t *ret_list,
                       uint32_t *ret_position);

/* The ranks of each list; 0 = they differ. */
uint32_t coord_layout_size(const coord_layout *layout);

/* The rank's place in the group; false = it is no member. */
bool coord_group_position(const coord_group *group, uint32_t rank, uint32_t *ret_position);

/* The rank at a place below count. */
uint32_t coord_group_rank(const coord_group *group, uint32_t position);

/* The first member that is not alive; NULL = all are. */
const coord_agent *coord_group_find_lost(const coord_group *group);

/* ------------------------------------------------------------------------------ world.c */

/* Members have changed: "world" becomes those who are alive, as another group, when they are
 * enough. Of other jobs it stays. */
void coord_world_refresh(coord_job *job);

/* Out of the store: with the id it had. */
void coord_world_restore(coord_job *job, uint64_t world_id);

#endif
