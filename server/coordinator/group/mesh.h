/* Mesh: as the files of this folder see it. Private to this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_GROUP_MESH_H
#define TUTTI_SERVER_COORDINATOR_GROUP_MESH_H

#include "base/data/map.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/group/meshes.h"

#define COORD_DIMS_MAX TUTTI_COORDINATOR_MESH_DIMS_MAX

struct coord_mesh {
    tutti_map_node node; /* in the job's meshes */
    coord_job *job;
    uint64_t id;
    char name[TUTTI_COORDINATOR_MESH_NAME_MAX + 1];
    uint32_t dim_count;
    uint32_t shape[COORD_DIMS_MAX];
    uint32_t strides[COORD_DIMS_MAX];
    char dims[COORD_DIMS_MAX][TUTTI_COORDINATOR_MESH_DIM_MAX + 1];
    const char *dim_names[COORD_DIMS_MAX]; /* point into `dims` */
    coord_group *all;                      /* its ranks, as a group that nobody can name */
    tutti_map rows;                        /* groups, by dimensions and place */
    uint64_t maker; /* the incarnation of the agent that it goes with; 0 = it stays */
};

/* NULL for NULL. */
coord_mesh *coord_mesh_from(tutti_map_node *node);

/* Of a mesh in no map; its rows must be gone. NULL is fine. */
void coord_mesh_destroy(coord_mesh *mesh);

/* Into the job, which has none of its name. */
void coord_mesh_place(coord_mesh *mesh);

/* Out of the job; sessions hear of groups that were named. */
void coord_mesh_remove(coord_mesh *mesh);
void coord_meshes_fini(coord_job *job);

/* An agent is gone: its ephemeral meshes are deleted. */
void coord_meshes_lose(const coord_agent *agent);

/* TUTTI_NOT_FOUND NO_MESH */
tutti_code coord_mesh_find(coord_job *job, const char *name, coord_mesh **ret_mesh,
                           tutti_error *err);

/* Where a rank is; false = not in the mesh. */
bool coord_mesh_coordinate(const coord_mesh *mesh, uint32_t rank,
                           uint32_t ret_coordinate[COORD_DIMS_MAX]);

/* ------------------------------------------------------------------------------ mesh_make.c */

/*
 * A mesh in no map, from what somebody wrote.
 *
 * TUTTI_INVALID_ARGUMENT    MESH_SHAPE, MESH_DIM, DUPLICATE_RANK, RANK_RANGE, BAD_NAME
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_mesh_make(coord_job *job, const tutti_coordinator_mesh_request *request,
                           coord_mesh **ret_mesh, tutti_error *err);

/* ------------------------------------------------------------------------------ mesh_rows.c */

/* Some of the dimensions: bit d = dimension d. Which group along them: the position of its first
 * rank, whose coordinates along them are 0. */
typedef struct coord_row {
    uint32_t mask;
    uint32_t anchor;
} coord_row;

/* The group of these dimensions that a position is in. */
coord_row coord_row_of(const coord_mesh *mesh, uint32_t mask, uint32_t position);

uint32_t coord_row_size(const coord_mesh *mesh, uint32_t mask);

/* Its ranks, row-major over its dimensions. [out] ret_ranks  coord_row_size of them */
void coord_row_fill(const coord_mesh *mesh, coord_row row, uint32_t *ret_ranks);

/* TUTTI_INVALID_ARGUMENT  MESH_DIM: no dimension is called so. [in] size  of `name`, in bytes */
tutti_code coord_mesh_find_dim(const coord_mesh *mesh, const char *name, size_t size,
                               uint32_t *ret_dim, tutti_error *err);

/* TUTTI_INVALID_ARGUMENT  MESH_DIM: a dimension that does not come after those of `mask` */
tutti_code coord_mesh_add_dim(const coord_mesh *mesh, uint32_t dim, uint32_t *mask,
                              tutti_error *err);

/*
 * The group of "mesh:NAME/DIM+DIM" that the asker is in, made when it is not there.
 *
 * TUTTI_NOT_FOUND            NO_MESH
 * TUTTI_INVALID_ARGUMENT     MESH_DIM, RANK_NEEDED
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT; no memory
 */
tutti_code coord_mesh_find_group(coord_job *job, const char *name, int64_t asker,
                                 coord_group **ret_group, tutti_error *err);

/* One of an earlier process, with the id that it had. [in] row: of this mesh; codes: no memory */
tutti_code coord_row_restore(coord_mesh *mesh, coord_row row, const char *name, uint64_t id,
                             tutti_error *err);

#endif
