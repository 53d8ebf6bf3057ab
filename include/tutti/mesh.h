/*
 * Meshes: ranks in an array of named dimensions, each rank at most once, as DeviceMesh of PyTorch
 * and Mesh of JAX. The coordinator keeps them.
 *
 *     const uint32_t shape[] = {2, 4};
 *     const char *const dims[] = {"dp", "tp"};
 *     tutti_op op;
 *
 *     code = tutti_mesh_create(client, "m", shape, dims, 2, NULL, 0, NULL, &err);
 *     tutti_op_init(&op);
 *     op.group = "mesh:m/tp";           // the ranks beside this one along tp: 0-3 or 4-7
 *     code = tutti_all_reduce(client, &op, NULL, &err);
 *
 * Along a dimension lie groups: the ranks whose other coordinates are equal, in the order of that
 * dimension. In the mesh m above, rank 6 has the coordinate [1, 2]: "mesh:m/dp" is 2, 6 for it,
 * "mesh:m/tp" is 4, 5, 6, 7, and "mesh:m/dp+tp" is all eight, flattened. These names serve wherever
 * a group is named; dimensions stand in the order of the mesh. A group of a mesh comes into being
 * when it is first named, and goes with its mesh.
 *
 * Creating a mesh is no collective: any rank may do it, in the mesh or not, and any number of them.
 *
 * Threads, times and outputs are those of tutti/group.h, and so are the statuses of all functions
 * that take a client (STALE_INCARNATION, NO_JOB, NO_COORDINATOR ...), with TUTTI_NOT_FOUND NO_MESH:
 * there is no mesh of that name, and TUTTI_INVALID_ARGUMENT BAD_NAME: it is no name of a mesh.
 *
 * Caveats
 *
 * - A group's name has at most 127 bytes, and the name of a flattened dimension 63 here. How it
 *   looks: "mesh:NAME/DIM+DIM" of long names is refused with BAD_NAME, or tutti_mesh_slice gives a
 *   name that is cut. What to do: give meshes and dimensions short names.
 * - "mesh:NAME/DIM" is another group for each rank. How it looks: a client without an agent gets
 *   RANK_NEEDED. What to do: use tutti_mesh_groups, and groups of one's own.
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

/* Dimensions of a mesh: 1 to this. */
#define TUTTI_MESH_DIMS_MAX 16

/*
 * Bytes of a dimension's name in tutti_mesh_info. Names that are given to tutti_mesh_create have at
 * most 32; "dp+tp" of several flattened ones may be longer, and is cut here.
 */
#define TUTTI_MESH_DIM_NAME_MAX 63

/* A mesh, or a part of one, as it was when the coordinator answered. */
typedef struct tutti_mesh_info {
    /* Unique in the job among groups and meshes, never used again; 0 = a part of a mesh. */
    uint64_t id;
    /* The mesh's name; of a part, that of its ranks as a group: "mesh:m/dp+tp". */
    char name[TUTTI_NAME_MAX + 1];
    /* Number of dimensions: 1 to TUTTI_MESH_DIMS_MAX. */
    uint32_t dim_count;
    /* Ranks along each of the dim_count dimensions, 1 or more; the others are 0. */
    uint32_t shape[TUTTI_MESH_DIMS_MAX];
    /* Name of each of the dim_count dimensions; "0", "1", ... when it was made without. */
    char dims[TUTTI_MESH_DIMS_MAX][TUTTI_MESH_DIM_NAME_MAX + 1];
    /* The product of the shape. */
    uint32_t rank_count;
    /* [owned] Ranks of the job, row-major: the last dimension runs fastest. tutti_mesh_info_free */
    uint32_t *ranks;
    /*
     * The rank that was asked about is in the mesh: this client's, or the one of tutti_mesh_slice.
     * False for a client without an agent, and in tutti_mesh_list.
     */
    bool inside;
    /* Where that rank is along each dimension, from 0; zeros if not inside. */
    uint32_t coordinate[TUTTI_MESH_DIMS_MAX];
} tutti_mesh_info;

/*
 * Frees the ranks; the struct is the caller's, its other fields stay. The mesh itself stays. Any
 * thread.
 *
 * [in] info  NULL is fine
 */
TUTTI_API void tutti_mesh_info_free(tutti_mesh_info *info);

/*
 * Make a mesh, or find the one of the same name and content.
 *
 * [in]         name       1 to 64 bytes in the letters of a group's name; NULL = named after its
 *                         content, so that the same mesh again is the same one
 * [in]         shape      `dim_count` numbers, 1 or more; their product is at most the world size
 * [in]         dims       as many names, all different: 1 to 32 of letters, digits and . _ - ; not
 *                         a number. NULL = "0", "1", ...
 * [in]         dim_count  1 to TUTTI_MESH_DIMS_MAX
 * [in]         ranks      of the job, each once, row-major, as many as the shape has places; NULL =
 *                         0, 1, 2, ...
 * [in]         count      of ranks; not looked at if ranks is NULL
 * [out, owned] ret_info   tutti_mesh_info_free it; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT     MESH_SHAPE: no dimension, more than 16, one of 0, more places than the
 *                            world has ranks, or another number of ranks than of places
 *                            MESH_DIM: names that are not different, or none that may be given
 *                            DUPLICATE_RANK: a rank twice; RANK_RANGE: not below the world size;
 *                            BAD_NAME
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN: the name stands for another mesh
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: the client was connected without an agent
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT: a mesh counts as a group: delete some
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_mesh_create(tutti_client *client, const char *name,
                                       const uint32_t *shape, const char *const *dims,
                                       uint32_t dim_count, const uint32_t *ranks, size_t count,
                                       tutti_mesh_info *ret_info, tutti_error *err);

/*
 * A mesh by its name, with the coordinate of this client's rank. The client need not be in it, nor
 * have an agent.
 *
 * [in]         name      not NULL
 * [out, owned] ret_info  not NULL; tutti_mesh_info_free it
 *
 * The statuses of all functions here: NO_MESH.
 */
TUTTI_API tutti_code tutti_mesh_get(tutti_client *client, const char *name,
                                    tutti_mesh_info *ret_info, tutti_error *err);

/*
 * Delete a mesh and its groups. Ops that an agent has begun before it hears of that run as before.
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: this client's rank is not in the mesh; NO_AGENT
 * and the statuses of all functions here: NO_MESH
 */
TUTTI_API tutti_code tutti_mesh_delete(tutti_client *client, const char *name, tutti_error *err);

/*
 * All meshes of the job, in the order of their names. It asks for page after page: what is made or
 * deleted meanwhile may be there or not.
 *
 * [out, owned] ret_infos  tutti_mesh_info_free each, then tutti_free the array; without coordinates
 * [out]        ret_count  of ret_infos
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_mesh_list(tutti_client *client, tutti_mesh_info **ret_infos,
                                     size_t *ret_count, tutti_error *err);

/*
 * All groups along a dimension, in ranks of the job: in the order of PyTorch's
 * swapdims(-1, dim).reshape(-1, size). The client need not be in the mesh, nor have an agent.
 *
 * [in]         dim        its name, not several; NULL = the only one
 * [out, owned] ret_lists  not NULL; one list for each group, each in the order of the dimension;
 *                         tutti_rank_lists_free it
 *
 * TUTTI_INVALID_ARGUMENT  MESH_DIM: no such dimension, or NULL and there are several
 * and the statuses of all functions here: NO_MESH
 */
TUTTI_API tutti_code tutti_mesh_groups(tutti_client *client, const char *name, const char *dim,
                                       tutti_rank_lists *ret_lists, tutti_error *err);

/*
 * The part of a mesh that a rank is in, along some dimensions: the ranks whose coordinates along
 * the other dimensions are those of that rank. No group is made; ret_info->name makes it when an op
 * names it.
 *
 * [in]         rank       of the job; any negative number = this client's
 * [in]         dims       the names of those to keep, in the order of the mesh
 * [in]         dim_count  of dims: 1 or more
 * [in]         flatten    make it one dimension, named "dp+tp"
 * [out, owned] ret_info   not NULL; its coordinate is that of `rank` in the part;
 *                         tutti_mesh_info_free it
 *
 * TUTTI_INVALID_ARGUMENT     MESH_DIM: none named, no such dimension, or not in the order of the
 * mesh TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: the rank is not in the mesh; NO_AGENT: the rank is
 *                            negative, and the client has no agent
 * and the statuses of all functions here: NO_MESH
 */
TUTTI_API tutti_code tutti_mesh_slice(tutti_client *client, const char *name, int64_t rank,
                                      const char *const *dims, uint32_t dim_count, bool flatten,
                                      tutti_mesh_info *ret_info, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
