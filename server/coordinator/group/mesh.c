/*
 * Meshes: memory, the job's map, and coordinates. A mesh owns the group of all its ranks (`all`,
 * which nobody can name) and its rows; rows exist once somebody has named them. Positions are
 * row-major: position = sum of coordinate x stride.
 */
#include "server/coordinator/group/mesh.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"

coord_mesh *
coord_mesh_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, coord_mesh, node);
}

void
coord_mesh_destroy(coord_mesh *mesh)
{
    if (mesh != NULL && mesh->all != NULL) {
        coord_group_destroy(mesh->all);
    }
    free(mesh);
}

void
coord_mesh_place(coord_mesh *mesh)
{
    (void)tutti_map_add(&mesh->job->meshes, &mesh->node);
    mesh->job->member_count += mesh->all->count;
}

/*
 * Remove all rows. Rows of the same dimensions lie together in the map (the key begins with the
 * mask) and have one name, so one event tells of all of them: the first row of a mask becomes
 * that event, the others are freed.
 */
static void
remove_rows(coord_mesh *mesh)
{
    uint64_t told = 0;
    tutti_map_node *node;

    while ((node = tutti_map_first(&mesh->rows)) != NULL) {
        coord_group *row = coord_group_from(node);
        const uint64_t mask = ((uint64_t)row->key[2] << 8) | row->key[3];

        row->job->owner->hooks->group_deleted(row);
        tutti_map_remove(&mesh->rows, node);
        mesh->job->row_count--;
        mesh->job->member_count -= row->count;
        row->mesh = NULL;
        if (mask != told) {
            coord_group_publish_deleted(row);
        } else {
            coord_group_destroy(row);
        }
        told = mask;
    }
}

void
coord_mesh_remove(coord_mesh *mesh)
{
    remove_rows(mesh);
    tutti_map_remove(&mesh->job->meshes, &mesh->node);
    mesh->job->member_count -= mesh->all->count;
    coord_mesh_destroy(mesh);
}

void
coord_meshes_fini(coord_job *job)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&job->meshes)) != NULL) {
        coord_mesh_remove(coord_mesh_from(node));
    }
}

/* Names of meshes that leaders make for sessions begin so. */
#define SESSIONS "session/"

tutti_code
coord_mesh_find(coord_job *job, const char *name, coord_mesh **ret_mesh, tutti_error *err)
{
    const char *wanted = name == NULL ? "" : name;
    coord_mesh *mesh;

    TUTTI_TRY(tutti_check_name(wanted, "mesh", err));
    mesh = coord_mesh_from(tutti_map_find(&job->meshes, tutti_bytes_of(wanted)));
    if (mesh == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_MESH", "there is no mesh %s in job %s%s",
                              wanted, job->name,
                              strncmp(wanted, SESSIONS, strlen(SESSIONS)) == 0
                                  ? ": the session has ended, or its leader was lost"
                                  : "");
    }
    *ret_mesh = mesh;
    return TUTTI_OK;
}

bool
coord_mesh_coordinate(const coord_mesh *mesh, uint32_t rank,
                      uint32_t ret_coordinate[COORD_DIMS_MAX])
{
    uint32_t position;
    uint32_t dim;

    if (!coord_group_position(mesh->all, rank, &position)) {
        return false;
    }
    for (dim = 0; dim < mesh->dim_count; dim++) {
        ret_coordinate[dim] = position / mesh->strides[dim] % mesh->shape[dim];
    }
    return true;
}
