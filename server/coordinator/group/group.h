/* Group: as the files of this folder see it. Private to this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_GROUP_H
#define TUTTI_SERVER_COORDINATOR_GROUP_GROUP_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/job.h"

#define COORD_OWNER_SIZE 96
#define COORD_NOBODY (-1) /* who asks, when nobody is said to */

/* A lease that keeps a group: hold.h. */
typedef struct coord_holder {
    tutti_list_node link;
    uint32_t rank;
    uint64_t incarnation;
    uint64_t lease;
} coord_holder;

/* A member whose program has ended, and nobody has called its ops since: shrink.c. */
typedef struct coord_orphan {
    tutti_list_node link;
    uint32_t rank;
    uint64_t incarnation;
} coord_orphan;

struct coord_group {
    tutti_map_node node; /* in the job's groups, or in the mesh's rows */
    coord_job *job;
    uint64_t id;
    char name[TUTTI_NAME_MAX + 1];
    uint32_t count;
    uint32_t *ranks;         /* NULL = world: 0 .. count-1, when it is not elastic */
    uint32_t *order;         /* positions in the order of their ranks; NULL = world */
    uint64_t epoch;          /* the newest at which a member joined, ... */
    uint64_t seen_epoch;     /* ... looked for when this was the job's last_joined_epoch */
    tutti_map channels;      /* (key) of its exchange rounds */
    tutti_list_node talking; /* in the job's list when it has channels */
    coord_event event;       /* of its deletion */
    coord_event abort_event; /* of its abort */
    uint64_t made_epoch;     /* of the job, of an ephemeral group; 0 = it is not */
    tutti_list_node holders; /* leases that keep it (hold.h); none = it was made without */
    tutti_list_node orphans; /* one of a rank, perhaps of an agent that is gone */
    uint32_t orphan_count;
    struct coord_shrink *shrink;   /* [owned] a round, or its result; NULL = none */
    tutti_coordinator_abort abort; /* text [owned]; NULL = it was not aborted */
    coord_mesh *mesh;              /* the mesh whose row it is; NULL = none */
    unsigned char key[8];
    coord_group_registry
        *registry; /* of those that share tag and ranks; NULL = it has neither tag nor turn */
    tutti_list_node mates; /* in the group registry, in order of their turns */
    uint64_t turn;         /* members' calls of this number are for it; 0 = it has a tag */
    uint32_t timeout_ms;   /* of its ops that have no time limit; 0 = none */
    uint64_t made_ns;      /* 0 = not known: it was read from the store, as is who made it */
    char owner[COORD_OWNER_SIZE];
};

/*
 * A group in no map, without ranks; NULL = no memory. [in] name: checked. coord_group_destroy it,
 * or add it
 */
coord_group *coord_group_new(coord_job *job, const char *name, uint32_t count);

/* Of a group in no map. */
void coord_group_destroy(coord_group *group);

bool coord_group_is_world(const coord_group *group);

/* Into the job's map, with a new id; its name must be free. The map owns it from then on. */
void coord_group_add(coord_group *group);

/* Out of the job's map; its exchange rounds fail. */
void coord_group_remove(coord_group *group);

/* NULL for NULL. */
coord_group *coord_group_from(tutti_map_node *node);

/* "world", when the job begins: nobody finds it until the job is formed. No memory: NO_MEMORY */
tutti_code coord_group_add_world(coord_job *job, tutti_error *err);

/* It was deleted: its members hear of it, and it lives on as its event. */
void coord_group_publish_deleted(coord_group *group);

/* NULL = it was not aborted, or (of "world") a member has come since. */
const tutti_coordinator_abort *coord_group_abort_of(coord_group *group);

/*
 * Abort it, unless it is. Only the reason and the identity of the request are looked at.
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code coord_group_abort(coord_group *group, uint32_t rank,
                             const tutti_coordinator_abort_request *request, tutti_error *err);

/* Forget its abort: it is another group from now on, or goes. */
void coord_group_forget_abort(coord_group *group);

/*
 * A group that stands for another one, of some of its members, ends as that one would: with their agents, and with the
 * leases by which they hold it. [in] group  not in the job's map yet
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_group_inherit_end(coord_group *group, const coord_group *from, tutti_error *err);

/* Delete it: its record, then the group, then the news of it. */
void coord_group_delete(coord_group *group);

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

/* The newest epoch at which one of its members joined. */
uint64_t coord_group_epoch(coord_group *group);

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

#endif
