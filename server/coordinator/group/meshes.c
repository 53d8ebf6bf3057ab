/* The calls about meshes: create, get, list, delete, the groups of a dimension, slices. */
#include "server/coordinator/group/meshes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

static void
describe_mesh(const coord_mesh *mesh, int64_t asker, tutti_coordinator_mesh *ret_mesh)
{
    *ret_mesh = (tutti_coordinator_mesh){.id = mesh->id,
                                         .name = mesh->name,
                                         .dim_count = mesh->dim_count,
                                         .shape = mesh->shape,
                                         .dims = mesh->dim_names,
                                         .ranks = mesh->all->ranks,
                                         .count = mesh->all->count};
    ret_mesh->inside = asker >= 0 && asker <= UINT32_MAX &&
                       coord_mesh_coordinate(mesh, (uint32_t)asker, ret_mesh->coordinate);
}

/* ------------------------------------------------------------------------------ create */

static bool
same_content(const coord_mesh *left, const coord_mesh *right)
{
    return left->dim_count == right->dim_count && left->all->count == right->all->count &&
           memcmp(left->shape, right->shape, sizeof(left->shape)) == 0 &&
           memcmp(left->dims, right->dims, sizeof(left->dims)) == 0 &&
           memcmp(left->all->ranks, right->all->ranks, left->all->count * sizeof(uint32_t)) == 0;
}

static tutti_code
fail_taken(const coord_mesh *mesh, tutti_error *err)
{
    char buffer[256];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    uint32_t dim;

    for (dim = 0; dim < mesh->dim_count; dim++) {
        tutti_text_add(&text, "%s%s %" PRIu32, dim == 0 ? "" : ", ", mesh->dims[dim],
                       mesh->shape[dim]);
    }
    tutti_text_add(&text, ", ranks ");
    tutti_text_add_ranks(&text, mesh->all->ranks, mesh->all->count, 16);
    return TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "NAME_TAKEN",
                          "mesh %s exists already, with another content: %s", mesh->name, buffer);
}

/* Put a mesh in its job, or find that it is there. [in, moved] mesh */
static tutti_code
settle_mesh(coord_mesh *mesh, coord_mesh **ret_mesh, bool *ret_created, tutti_error *err)
{
    coord_job *job = mesh->job;
    coord_mesh *there = coord_mesh_from(tutti_map_find(&job->meshes, mesh->node.key));
    tutti_code code = TUTTI_OK;

    *ret_created = there == NULL;
    if (there == NULL) {
        code = coord_group_check_limits(job, mesh->all->count, err);
    } else if (!same_content(there, mesh)) {
        code = fail_taken(there, err);
    }
    if (code == TUTTI_OK && there == NULL) {
        mesh->id = ++job->group_ids;
        coord_mesh_place(mesh);
        mesh->job->owner->hooks->record_mesh(mesh);
        *ret_mesh = mesh;
    } else {
        coord_mesh_destroy(mesh);
        *ret_mesh = there;
    }
    return code;
}

tutti_code
tutti_coordinator_mesh_create(tutti_coordinator *self,
                              const tutti_coordinator_mesh_request *request,
                              tutti_coordinator_mesh *ret_mesh, bool *ret_created, tutti_error *err)
{
    coord_agent *agent = NULL;
    coord_mesh *mesh = NULL;

    TUTTI_TRY(coord_member_check(self, &request->member, &agent, err));
    TUTTI_TRY(coord_mesh_make(agent->job, request, &mesh, err));
    mesh->maker = request->ephemeral ? agent->incarnation : 0;
    TUTTI_TRY(settle_mesh(mesh, &mesh, ret_created, err));
    describe_mesh(mesh, agent->rank, ret_mesh);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ get, list */

static tutti_code
find_mesh(tutti_coordinator *self, const char *job, const char *name, coord_mesh **ret_mesh,
          tutti_error *err)
{
    coord_job *found = NULL;

    TUTTI_TRY(coord_job_find(self, job, &found, err));

    return coord_mesh_find(found, name, ret_mesh, err);
}

tutti_code
tutti_coordinator_mesh_get(tutti_coordinator *self, const char *job, const char *name,
                           tutti_coordinator_asker asker, tutti_coordinator_mesh *ret_mesh,
                           tutti_error *err)
{
    coord_mesh *mesh = NULL;

    TUTTI_TRY(find_mesh(self, job, name, &mesh, err));

    describe_mesh(mesh, asker, ret_mesh);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_mesh_next(tutti_coordinator *self, const char *job, const char *after,
                            tutti_coordinator_mesh *ret_mesh, bool *ret_found, tutti_error *err)
{
    const tutti_bytes name = tutti_bytes_of(after);
    coord_job *found = NULL;
    tutti_map_node *node;

    TUTTI_TRY(coord_job_find(self, job, &found, err));
    node = tutti_map_from(&found->meshes, name);
    if (node != NULL && tutti_bytes_equal(node->key, name)) {
        node = tutti_map_next(node);
    }
    *ret_found = node != NULL;
    if (node != NULL) {
        describe_mesh(coord_mesh_from(node), COORD_NOBODY, ret_mesh);
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_mesh_delete(tutti_coordinator *self, const tutti_coordinator_member *member,
                              const char *name, bool allow_missing, bool *ret_deleted,
                              tutti_error *err)
{
    coord_agent *agent = NULL;
    coord_mesh *mesh = NULL;
    uint32_t position;
    tutti_code code;

    TUTTI_TRY(coord_member_check(self, member, &agent, err));
    code = coord_mesh_find(agent->job, name, &mesh, err);
    *ret_deleted = code == TUTTI_OK;
    if (code == TUTTI_NOT_FOUND && allow_missing) {
        return TUTTI_OK;
    }
    if (code == TUTTI_OK && !coord_group_position(mesh->all, agent->rank, &position)) {
        code = TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in mesh %s", agent->rank, mesh->name);
    }
    if (code == TUTTI_OK) {
        mesh->job->owner->hooks->unrecord_mesh(mesh);
        coord_mesh_remove(mesh);
    }
    return code;
}

void
coord_meshes_lose(const coord_agent *agent)
{
    tutti_map_node *node = tutti_map_first(&agent->job->meshes);

    while (node != NULL) {
        coord_mesh *mesh = coord_mesh_from(node);

        node = tutti_map_next(node);
        if (mesh->maker == agent->incarnation) {
            mesh->job->owner->hooks->unrecord_mesh(mesh);
            coord_mesh_remove(mesh);
        }
    }
}

/* ------------------------------------------------------------------------------ groups */

static tutti_code
pick_dim(const coord_mesh *mesh, const tutti_coordinator_mesh_dim *dim, uint32_t *ret_dim,
         tutti_error *err)
{
    const int64_t count = mesh->dim_count;
    const int64_t number = dim->number + (dim->number < 0 ? count : 0);

    if (!dim->given && count > 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "mesh %s has %" PRIu32 " dimensions: say which one", mesh->name,
                              mesh->dim_count);
    }
    if (dim->given && dim->name != NULL) {
        return coord_mesh_find_dim(mesh, dim->name, strlen(dim->name), ret_dim, err);
    }
    if (dim->given && (number < 0 || number >= count)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "dimension %" PRId32 " of mesh %s, need %" PRId64 " to %" PRId64,
                              dim->number, mesh->name, -count, count - 1);
    }
    *ret_dim = dim->given ? (uint32_t)number : 0;
    return TUTTI_OK;
}

/*
 * The first rank of the i-th group along `dim`, in the order of PyTorch's DeviceMesh: as if
 * dimension `dim` and the last one had changed places and the rest were flattened.
 */
static uint32_t
anchor_of(const coord_mesh *mesh, uint32_t dim, uint32_t i)
{
    const uint32_t last = mesh->dim_count - 1;
    uint32_t anchor = 0;
    uint32_t d;

    for (d = last; d-- > 0;) {
        const uint32_t real = d == dim ? last : d;

        anchor += i % mesh->shape[real] * mesh->strides[real];
        i /= mesh->shape[real];
    }
    return anchor;
}

tutti_code
tutti_coordinator_mesh_list(tutti_coordinator *self, const char *job, const char *name,
                            const tutti_coordinator_mesh_dim *dim,
                            tutti_coordinator_mesh_groups *ret_groups, tutti_error *err)
{
    coord_mesh *mesh = NULL;
    tutti_coordinator_mesh_groups groups = {0};
    uint32_t number = 0;
    uint32_t i;
    tutti_code code = find_mesh(self, job, name, &mesh, err);

    if (code == TUTTI_OK) {
        code = pick_dim(mesh, dim, &number, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    groups.size = mesh->shape[number];
    groups.group_count = mesh->all->count / groups.size;
    groups.ranks = malloc(mesh->all->count * sizeof(uint32_t));
    if (groups.ranks == NULL) {
        return coord_fail_memory(err, "the groups of a mesh");
    }
    for (i = 0; i < groups.group_count; i++) {
        const coord_row row = {.mask = 1u << number, .anchor = anchor_of(mesh, number, i)};

        coord_row_fill(mesh, row, groups.ranks + (size_t)i * groups.size);
    }
    *ret_groups = groups;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ slice */

/* Which dimensions stay, and what they are called together. */
static tutti_code
keep_dims(const coord_mesh *mesh, const tutti_coordinator_slice_request *request,
          tutti_coordinator_slice *slice, uint32_t *ret_mask, tutti_error *err)
{
    tutti_text text = tutti_text_in(slice->group, sizeof(slice->group));
    tutti_code code = TUTTI_OK;
    uint32_t dim = 0;
    size_t i;

    if (request->dim_count == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "no dimension of mesh %s to keep, need at least one", mesh->name);
    }
    tutti_text_add(&text, TUTTI_MESH_PREFIX "%s/", mesh->name);
    for (i = 0; i < request->dim_count && code == TUTTI_OK; i++) {
        const char *name = request->dims[i];

        code = coord_mesh_find_dim(mesh, name, strlen(name), &dim, err);
        if (code == TUTTI_OK) {
            code = coord_mesh_add_dim(mesh, dim, ret_mask, err);
        }
        if (code == TUTTI_OK) {
            slice->dims[i] = mesh->dims[dim];
            slice->shape[i] = mesh->shape[dim];
            tutti_text_add(&text, "%s%s", i == 0 ? "" : "+", mesh->dims[dim]);
        }
    }
    slice->dim_count = (uint32_t)i;
    return code;
}

/* Where the rank is in its part. */
static void
find_mesh_place(const coord_mesh *mesh, uint32_t mask, const uint32_t *coordinate,
                tutti_coordinator_slice *slice)
{
    uint32_t kept = 0;
    uint32_t dim;

    for (dim = 0; dim < mesh->dim_count; dim++) {
        if ((mask >> dim & 1) != 0) {
            slice->coordinate[kept++] = coordinate[dim];
            slice->position = slice->position * mesh->shape[dim] + coordinate[dim];
        }
    }
}

static tutti_code
fill_slice(const coord_mesh *mesh, uint32_t rank, uint32_t mask, tutti_coordinator_slice *slice,
           tutti_error *err)
{
    uint32_t coordinate[COORD_DIMS_MAX];
    uint32_t position = 0;

    if (!coord_group_position(mesh->all, rank, &position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in mesh %s", rank, mesh->name);
    }
    slice->count = coord_row_size(mesh, mask);
    slice->ranks = malloc(slice->count * sizeof(uint32_t));
    if (slice->ranks == NULL) {
        return coord_fail_memory(err, "a part of a mesh");
    }
    coord_row_fill(mesh, coord_row_of(mesh, mask, position), slice->ranks);
    (void)coord_mesh_coordinate(mesh, rank, coordinate);
    find_mesh_place(mesh, mask, coordinate, slice);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_mesh_slice(tutti_coordinator *self,
                             const tutti_coordinator_slice_request *request,
                             tutti_coordinator_slice *ret_slice, tutti_error *err)
{
    coord_mesh *mesh = NULL;
    uint32_t mask = 0;
    tutti_code code = find_mesh(self, request->job, request->name, &mesh, err);

    *ret_slice = (tutti_coordinator_slice){0};
    if (code == TUTTI_OK) {
        code = keep_dims(mesh, request, ret_slice, &mask, err);
    }
    if (code == TUTTI_OK) {
        code = fill_slice(mesh, request->rank, mask, ret_slice, err);
    }
    if (code == TUTTI_OK) {
        ret_slice->group_dims = strrchr(ret_slice->group, '/') + 1;
    }
    return code;
}
