/*
 * Groups: ordered lists of ranks. "world" stands for 0 .. world_size-1 and is there from the moment
 * a job is formed. Others are known by their name; by a tag with their ranks; or, having neither,
 * by the turn in which their members ask for them. Groups of meshes (meshes.h) are groups, too:
 * wherever a group is named, "mesh:NAME/DIM" is the one of whoever asks.
 *
 * See coordinator.h for threads and time. What is lent is good until the next call that may change
 * something.
 */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_GROUPS_H
#define TUTTI_SERVER_COORDINATOR_GROUP_GROUPS_H

#include "server/coordinator/member/members.h"

/* Who has aborted a group, and why. */
typedef struct tutti_coordinator_abort {
    const char *text; /* "group NAME was aborted by rank R: ..." */
    uint32_t rank;
    uint64_t epoch; /* of the group at that time */
} tutti_coordinator_abort;

typedef struct tutti_coordinator_group {
    uint64_t id; /* unique in the job, never used again */
    const char *name;
    const char *tag;       /* "" = none */
    const uint32_t *ranks; /* NULL = 0 .. count-1 */
    uint32_t count;
    uint64_t epoch;                       /* the newest at which a member joined */
    int64_t rank;                         /* of whoever asked; -1 = no member, or nobody asked */
    const tutti_coordinator_abort *abort; /* NULL = it was not aborted */
    uint32_t timeout_ms;                  /* of ops that have no time limit; 0 = none */
    uint64_t age_ms;                      /* 0 = not known */
    const char *owner;                    /* who made it, in words; "" = not known */
} tutti_coordinator_group;

/* Who asks, when it matters: -1 = nobody. */
typedef int64_t tutti_coordinator_asker;

typedef struct tutti_coordinator_group_request {
    tutti_coordinator_member member;
    const char *name;     /* NULL or "" = we name it */
    const char *tag;      /* NULL or "" = none */
    const char *parent;   /* whose group ranks `ranks` are; NULL or "" = world */
    uint64_t token;       /* 0 = none */
    const int32_t *ranks; /* in the order of group ranks */
    size_t count;
    bool ephemeral; /* goes with the last of the agents that are its members now */
    uint64_t
        lease; /* of the member's agent: goes also with the last lease of such a call; 0 = none */
    uint32_t timeout_ms; /* of the group, if this call makes it, ... */
    const char *caller;  /* ... and of whom it is: identity or address; NULL = unknown */
} tutti_coordinator_group_request;

/*
 * [out] ret_created  false = it was there already
 *
 * TUTTI_INVALID_ARGUMENT     EMPTY_GROUP, DUPLICATE_RANK, RANK_RANGE, BAD_NAME, RANK_NEEDED
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP, STALE_INCARNATION
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN
 * TUTTI_UNAVAILABLE          RANK_LOST: a rank of the list is gone, whether the group exists or not
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_MESH; NO_GROUP: the parent, or what this call is
 *                            for was deleted already
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT; no memory
 */
tutti_code tutti_coordinator_group_create(tutti_coordinator *self,
                                          const tutti_coordinator_group_request *request,
                                          tutti_coordinator_group *ret_group, bool *ret_created,
                                          tutti_error *err);

/*
 * [in] name  empty or NULL = "world"
 *
 * TUTTI_NOT_FOUND            NO_JOB, NO_GROUP, NO_MESH
 * TUTTI_INVALID_ARGUMENT     BAD_NAME, MESH_DIM, RANK_NEEDED
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: a mesh's group, and the rank is outside of the mesh
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT; no memory
 */
tutti_code tutti_coordinator_group_get(tutti_coordinator *self, const char *job, const char *name,
                                       tutti_coordinator_asker asker,
                                       tutti_coordinator_group *ret_group, tutti_error *err);

/*
 * The first group whose name comes after `after` ("" = the first of all). Not those of meshes.
 *
 * [out] ret_found  false = there is none
 *
 * TUTTI_NOT_FOUND  NO_JOB
 */
tutti_code tutti_coordinator_group_next(tutti_coordinator *self, const char *job, const char *after,
                                        tutti_coordinator_group *ret_group, bool *ret_found,
                                        tutti_error *err);

typedef struct tutti_coordinator_group_end {
    tutti_coordinator_member member;
    const char *name;
    uint64_t id;        /* only the group with this id; 0 = whichever it is */
    bool allow_missing; /* that there is none is fine */
} tutti_coordinator_group_end;

/*
 * Waiting Broadcast and AllGather calls on it end with TUTTI_NOT_FOUND, NO_GROUP.
 *
 * [out] ret_deleted  false = there was none
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP, STALE_INCARNATION, WORLD_GROUP, MESH_GROUP
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_GROUP
 */
tutti_code tutti_coordinator_group_delete(tutti_coordinator *self,
                                          const tutti_coordinator_group_end *request,
                                          bool *ret_deleted, tutti_error *err);

/*
 * A lease of a member's agent has ended: its groups that no other lease holds are deleted.
 *
 * [out] ret_deleted  whether any was
 *
 * TUTTI_FAILED_PRECONDITION  STALE_INCARNATION
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK
 */
tutti_code tutti_coordinator_group_release(tutti_coordinator *self,
                                           const tutti_coordinator_member *member, uint64_t lease,
                                           bool *ret_deleted, tutti_error *err);

typedef struct tutti_coordinator_abort_request {
    tutti_coordinator_member member;
    const char *name;     /* NULL or "" = world */
    uint64_t id;          /* only the group with this id; 0 = whichever it is */
    const char *reason;   /* NULL or "" = none given */
    const char *identity; /* of the caller; NULL or "" = unknown */
} tutti_coordinator_abort_request;

#define TUTTI_COORDINATOR_REASON_MAX 256

/*
 * The sessions of the job are told; calls that wait in the group's exchanges go on. The first abort
 * of a group counts; a later one changes nothing.
 *
 * [out] ret_abort  the one that counts; borrowed until the core is called again
 * [out] ret_new    it is this one
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP, STALE_INCARNATION
 * TUTTI_INVALID_ARGUMENT     REASON_LIMIT, BAD_NAME, MESH_DIM
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_GROUP, NO_MESH
 * TUTTI_RESOURCE_EXHAUSTED   NO_MEMORY
 */
tutti_code tutti_coordinator_group_abort(tutti_coordinator *self,
                                         const tutti_coordinator_abort_request *request,
                                         const tutti_coordinator_abort **ret_abort, bool *ret_new,
                                         tutti_error *err);

/* ------------------------------------------------------------------------------ shrink */

typedef struct tutti_coordinator_shrink_request {
    tutti_coordinator_member member;
    const char *name;     /* NULL or "" = world */
    uint64_t id;          /* only the group with this id; 0 = whichever it is */
    uint64_t deadline_ns; /* who has not called by then is left out */
} tutti_coordinator_shrink_request;

typedef struct tutti_coordinator_shrunk {
    tutti_coordinator_group group;
    const char
        *left_out; /* "rank 2 is lost: ...; rank 3 did not call within 500 ms"; "" = nobody */
} tutti_coordinator_shrunk;

/* A call that waits for the other survivors. Zero it and set on_answer. */
typedef struct tutti_coordinator_shrink tutti_coordinator_shrink;
struct tutti_coordinator_shrink {
    /* Once; one of the two is NULL. Borrowed until it returns. */
    void (*on_answer)(tutti_coordinator_shrink *call, const tutti_coordinator_shrunk *shrunk,
                      const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link;
    struct coord_shrink *round; /* NULL = not waiting */
    uint32_t rank;
    uint32_t position;
};

/*
 * Shrink a group to its ranks that are alive and call. It is answered when all that are alive have
 * called, or at the earliest deadline of a caller.
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP, STALE_INCARNATION, MESH_GROUP; WORLD_GROUP: the job is
 *                            elastic
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_GROUP
 * TUTTI_INVALID_ARGUMENT     BAD_NAME
 * TUTTI_UNAVAILABLE          DRAINING
 * TUTTI_RESOURCE_EXHAUSTED   WAITER_LIMIT; NO_MEMORY
 *
 * The answer, beside OK:
 *
 * TUTTI_FAILED_PRECONDITION  SHRUNK_WITHOUT: it was shrunk before, without this rank
 * TUTTI_NOT_FOUND            NO_GROUP: it, or what it was shrunk to, was deleted
 * TUTTI_UNAVAILABLE          RANK_LOST: this rank; DRAINING
 * TUTTI_ABORTED              SUPERSEDED: another call of this rank has come
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT; NO_MEMORY
 */
tutti_code tutti_coordinator_shrink_start(tutti_coordinator *self,
                                          const tutti_coordinator_shrink_request *request,
                                          tutti_coordinator_shrink *call, tutti_error *err);

/* The caller went away. Not waiting is fine. */
void tutti_coordinator_shrink_withdraw(tutti_coordinator_shrink *call);

/* ------------------------------------------------------------------------------ translation */

typedef struct tutti_coordinator_translation {
    const char *job;
    const char *from; /* NULL or "" = world, both */
    const char *to;
    tutti_coordinator_asker asker;
    const int32_t *ranks; /* -1 stays -1 */
    size_t count;         /* at most TUTTI_RANKS_MAX */
    bool members_only;    /* who is no member of `to` fails it */
} tutti_coordinator_translation;

/*
 * From group ranks of one group to those of another. [out] ret_ranks  as many; -1 = no member
 *
 * TUTTI_INVALID_ARGUMENT  RANK_RANGE, LOOKUP_LIMIT; RANK_NOT_IN_GROUP with members_only
 * and what tutti_coordinator_group_get says of either group
 */
tutti_code tutti_coordinator_translate(tutti_coordinator *self,
                                       const tutti_coordinator_translation *request,
                                       int32_t *ret_ranks, tutti_error *err);

/* ------------------------------------------------------------------------------ sub-groups */

typedef struct tutti_coordinator_list {
    const int32_t *ranks;
    size_t count;
} tutti_coordinator_list;

typedef enum tutti_coordinator_split_kind {
    TUTTI_COORDINATOR_SPLIT_NONE,
    TUTTI_COORDINATOR_SPLIT_SIZE,  /* blocks of `number` */
    TUTTI_COORDINATOR_SPLIT_COUNT, /* `number` blocks */
    TUTTI_COORDINATOR_SPLIT_LISTS,
} tutti_coordinator_split_kind;

typedef struct tutti_coordinator_split_request {
    tutti_coordinator_member member;
    const char *parent; /* NULL or "" = world */
    const char *name;   /* list i is called NAME/i; NULL or "" = as of one group */
    const char *tag;
    uint64_t token;
    tutti_coordinator_split_kind kind;
    int32_t number;
    const tutti_coordinator_list *lists; /* of group ranks of the parent */
    size_t list_count;
    bool equal;     /* sizes must be */
    bool ephemeral; /* and lease: as of one group */
    uint64_t lease;
    uint32_t timeout_ms; /* likewise */
    const char *caller;  /* likewise */
    bool validate_only;  /* make nothing */
} tutti_coordinator_split_request;

typedef struct tutti_coordinator_split {
    bool inside;    /* the caller is in a list: */
    uint32_t index; /* of that list */
    uint32_t rank;  /* in it */
    bool made;      /* `group` is set */
    bool created;
    tutti_coordinator_group group;
    uint32_t size;       /* of all lists; 0 = they differ */
    uint32_t list_count; /* and the lists, in ranks of the job: [owned], see _fini */
    uint32_t *ranks;     /* one after the other */
    uint32_t *ends;
} tutti_coordinator_split;

/*
 * Split a group; the caller gets the part it is in.
 *
 * [out, owned] ret_split  tutti_coordinator_split_fini it
 *
 * TUTTI_INVALID_ARGUMENT     GROUP_SIZE, OVERLAP, EMPTY_GROUP, DUPLICATE_RANK, RANK_RANGE, BAD_NAME
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the caller is not in the parent; STALE_INCARNATION
 * and what tutti_coordinator_group_create says
 */
tutti_code tutti_coordinator_group_split(tutti_coordinator *self,
                                         const tutti_coordinator_split_request *request,
                                         tutti_coordinator_split *ret_split, tutti_error *err);
void tutti_coordinator_split_fini(tutti_coordinator_split *split);

#endif
