/*
 * Meshes: ranks in an array of named dimensions, kept at the coordinator.
 *
 *     const uint32_t shape[] = {2, 4};
 *     const char *const dims[] = {"dp", "tp"};
 *
 *     tutti_mesh_create(client, "m", shape, dims, 2, NULL, NULL, &err);
 *     op.group = "mesh:m/tp"; // the ranks beside this one along tp: 0-3 or 4-7
 *
 * "mesh:NAME/DIM" serves wherever a group is named, "mesh:NAME/DIM+DIM" is the group along several
 * dimensions, flattened. Threads, errors and outputs are those of tutti/client.h.
 */
#ifndef TUTTI_MESH_H
#define TUTTI_MESH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/group.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MESH_DIMS_MAX 16
#define TUTTI_MESH_DIM_NAME_MAX 63 /* bytes, of several flattened ones too; longer ones are cut */

typedef struct tutti_mesh_info {
    uint64_t id; /* 0 = of a part of a mesh */
    char name[TUTTI_NAME_MAX + 1];
    uint32_t dim_count;
    uint32_t shape[TUTTI_MESH_DIMS_MAX];
    char dims[TUTTI_MESH_DIMS_MAX][TUTTI_MESH_DIM_NAME_MAX + 1]; /* their names */
    uint32_t rank_count;
    uint32_t *ranks; /* of the job, row-major; [owned] freed by tutti_mesh_info_free */
    bool inside;     /* this client's rank is in it, at */
    uint32_t coordinate[TUTTI_MESH_DIMS_MAX];
} tutti_mesh_info;

TUTTI_API void tutti_mesh_info_free(tutti_mesh_info *info); /* what it points to */

/*
 * Make a mesh, or find the one of the same name and content. Any rank may call it.
 *
 * [in] name      1 to 64 bytes; NULL = named after its content
 * [in] shape     `dim_count` numbers
 * [in] dims      as many names; NULL = "0", "1", ...
 * [in] ranks     as many as the shape has places, row-major; NULL = 0, 1, 2, ...
 * [in] count     of ranks; 0 for NULL
 * [out, owned] ret_info  NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT  MESH_SHAPE, MESH_DIM, DUPLICATE_RANK, RANK_RANGE, BAD_NAME
 * TUTTI_ALREADY_EXISTS    NAME_TAKEN: the name stands for another mesh
 */
TUTTI_API tutti_code tutti_mesh_create(tutti_client *client, const char *name,
                                       const uint32_t *shape, const char *const *dims,
                                       uint32_t dim_count, const uint32_t *ranks, size_t count,
                                       tutti_mesh_info *ret_info, tutti_error *err);

/* TUTTI_NOT_FOUND  NO_MESH */
TUTTI_API tutti_code tutti_mesh_get(tutti_client *client, const char *name,
                                    tutti_mesh_info *ret_info, tutti_error *err);

/* And its groups. TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: this rank is not in the mesh */
TUTTI_API tutti_code tutti_mesh_delete(tutti_client *client, const char *name, tutti_error *err);

/* [out, owned] ret_infos  free each with tutti_mesh_info_free, then the array with tutti_free */
TUTTI_API tutti_code tutti_mesh_list(tutti_client *client, tutti_mesh_info **ret_infos,
                                     size_t *ret_count, tutti_error *err);

/*
 * All groups of a dimension, in the order of swapdims(-1, dim).reshape(-1, size).
 *
 * [in] dim  its name; NULL = the only one
 *
 * TUTTI_INVALID_ARGUMENT  MESH_DIM
 */
TUTTI_API tutti_code tutti_mesh_groups(tutti_client *client, const char *name, const char *dim,
                                       tutti_rank_lists *ret_lists, tutti_error *err);

/*
 * The part of a mesh that a rank is in, along some dimensions.
 *
 * [in] rank     -1 = this client's
 * [in] dims     to keep, in the order of the mesh
 * [in] flatten  make it one dimension
 * [out, owned] ret_info  its name is that of its ranks as a group: "mesh:m/dp+tp"
 *
 * TUTTI_INVALID_ARGUMENT     MESH_DIM: none, unknown, or out of order
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the rank is not in the mesh; NO_AGENT
 */
TUTTI_API tutti_code tutti_mesh_slice(tutti_client *client, const char *name, int64_t rank,
                                      const char *const *dims, uint32_t dim_count, bool flatten,
                                      tutti_mesh_info *ret_info, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
