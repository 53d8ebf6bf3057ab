/*
 * Meshes: ranks in an array of named dimensions. Along a dimension lie groups, which exist as soon
 * as somebody names them: "mesh:NAME/DIM" (groups.h), of several dimensions "mesh:NAME/DIM+DIM".
 *
 * See coordinator.h for threads and time. What is lent is good until the next call that may change
 * something.
 */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_MESHES_H
#define TUTTI_SERVER_COORDINATOR_GROUP_MESHES_H

#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/members.h"

#define TUTTI_COORDINATOR_MESH_DIMS_MAX 16
#define TUTTI_COORDINATOR_MESH_NAME_MAX 64 /* bytes */
#define TUTTI_COORDINATOR_MESH_DIM_MAX 32  /* bytes of a dimension's name */

typedef struct tutti_coordinator_mesh {
    uint64_t id; /* unique in the job among groups and meshes */
    const char *name;
    uint32_t dim_count;
    const uint32_t *shape;
    const char *const *dims; /* their names */
    const uint32_t *ranks;   /* row-major */
    uint32_t count;
    bool inside; /* whoever asked is in it, at */
    uint32_t coordinate[TUTTI_COORDINATOR_MESH_DIMS_MAX];
} tutti_coordinator_mesh;

typedef struct tutti_coordinator_mesh_request {
    tutti_coordinator_member member;
    const char *name; /* NULL or "" = named after its content */
    const int32_t *shape;
    size_t dim_count;
    const int32_t *ranks; /* row-major */
    size_t rank_count;    /* 0 = ranks 0, 1, 2, ... */
    const char *const *dims;
    size_t name_count; /* 0 = "0", "1", ... */
    bool ephemeral;    /* it goes with the member */
} tutti_coordinator_mesh_request;

/*
 * The same name with the same content is the same mesh.
 *
 * TUTTI_INVALID_ARGUMENT     MESH_SHAPE, MESH_DIM, DUPLICATE_RANK, RANK_RANGE, BAD_NAME
 * TUTTI_FAILED_PRECONDITION  STALE_INCARNATION
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT; no memory
 */
tutti_code tutti_coordinator_mesh_create(tutti_coordinator *self,
                                         const tutti_coordinator_mesh_request *request,
                                         tutti_coordinator_mesh *ret_mesh, bool *ret_created,
                                         tutti_error *err);

/* TUTTI_NOT_FOUND NO_JOB, NO_MESH; TUTTI_INVALID_ARGUMENT BAD_NAME */
tutti_code tutti_coordinator_mesh_get(tutti_coordinator *self, const char *job, const char *name,
                                      tutti_coordinator_asker asker,
                                      tutti_coordinator_mesh *ret_mesh, tutti_error *err);

/* As tutti_coordinator_group_next. */
tutti_code tutti_coordinator_mesh_next(tutti_coordinator *self, const char *job, const char *after,
                                       tutti_coordinator_mesh *ret_mesh, bool *ret_found,
                                       tutti_error *err);

/*
 * And all its groups.
 *
 * [in]  allow_missing  that there is none is fine
 * [out] ret_deleted    false = there was none
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the caller is not in the mesh; STALE_INCARNATION
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_MESH
 */
tutti_code tutti_coordinator_mesh_delete(tutti_coordinator *self,
                                         const tutti_coordinator_member *member, const char *name,
                                         bool allow_missing, bool *ret_deleted, tutti_error *err);

/* A dimension, by name or by number. */
typedef struct tutti_coordinator_mesh_dim {
    bool given;       /* else it must be the only one */
    const char *name; /* NULL = by number */
    int32_t number;   /* negative counts from the end */
} tutti_coordinator_mesh_dim;

/* Ranks of the job, `size` of them in each group. [owned] ranks: free it */
typedef struct tutti_coordinator_mesh_groups {
    uint32_t *ranks;
    uint32_t size;
    uint32_t group_count;
} tutti_coordinator_mesh_groups;

/*
 * All groups of a dimension, in the order of swapdims(-1, dim).reshape(-1, size).
 *
 * TUTTI_INVALID_ARGUMENT  MESH_DIM, BAD_NAME
 * TUTTI_NOT_FOUND         NO_JOB, NO_MESH
 */
tutti_code tutti_coordinator_mesh_list(tutti_coordinator *self, const char *job, const char *name,
                                       const tutti_coordinator_mesh_dim *dim,
                                       tutti_coordinator_mesh_groups *ret_groups, tutti_error *err);

typedef struct tutti_coordinator_slice_request {
    const char *job;
    const char *name;
    uint32_t rank;
    const char *const *dims; /* to keep, in the order of the mesh */
    size_t dim_count;
} tutti_coordinator_slice_request;

/* [owned] ranks: free it */
typedef struct tutti_coordinator_slice {
    uint32_t *ranks; /* row-major */
    uint32_t count;
    uint32_t dim_count;
    uint32_t shape[TUTTI_COORDINATOR_MESH_DIMS_MAX];
    const char *dims[TUTTI_COORDINATOR_MESH_DIMS_MAX];
    uint32_t coordinate[TUTTI_COORDINATOR_MESH_DIMS_MAX];
    uint32_t position;      /* of the rank, flattened */
    char group[1024];       /* its name as a group */
    const char *group_dims; /* in that: "dp+tp" */
} tutti_coordinator_slice;

/*
 * The part of a mesh that a rank is in, along some dimensions.
 *
 * TUTTI_INVALID_ARGUMENT     MESH_DIM, BAD_NAME
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the rank is not in the mesh
 * TUTTI_NOT_FOUND            NO_JOB, NO_MESH
 */
tutti_code tutti_coordinator_mesh_slice(tutti_coordinator *self,
                                        const tutti_coordinator_slice_request *request,
                                        tutti_coordinator_slice *ret_slice, tutti_error *err);

#endif
