/*
 * A mesh from a request: what may be written, and what the mesh is called. Everything is checked
 * before anything is placed in the job. Records of the store go the same way
 * (record/load_groups.c), so they are checked like a request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/meshes.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"

/* ------------------------------------------------------------------------------ shape */

/* The places of a shape; more than the world has ranks is enough to know. */
static tutti_code
check_shape(const coord_job *job, const tutti_coordinator_mesh_request *request,
            uint64_t *ret_count, tutti_error *err)
{
    size_t i;

    *ret_count = 1;
    if (request->dim_count == 0 || request->dim_count > COORD_DIMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE",
                              "mesh of %zu dimensions, need 1 to %d", request->dim_count,
                              COORD_DIMS_MAX);
    }
    for (i = 0; i < request->dim_count; i++) {
        if (request->shape[i] < 1) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE",
                                  "mesh with %" PRId32 " ranks along dimension %zu, need at least "
                                  "1",
                                  request->shape[i], i);
        }
        *ret_count *= (uint64_t)request->shape[i];
        if (*ret_count > job->world_size) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE",
                                  "mesh with at least %" PRIu64 " places in a world of %" PRIu32
                                  " ranks, need at most one place for each rank",
                                  *ret_count, job->world_size);
        }
    }
    return TUTTI_OK;
}

static tutti_code
check_rank_count(const tutti_coordinator_mesh_request *request, uint64_t places, tutti_error *err)
{
    if (request->rank_count != 0 && request->rank_count != places) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE",
                              "mesh of %zu ranks in a shape of %" PRIu64
                              " places, need as many ranks as places",
                              request->rank_count, places);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ names */

static tutti_code
check_dim_name(const tutti_coordinator_mesh_request *request, size_t dim, tutti_error *err)
{
    const char *name = request->dims[dim];
    size_t i;

    if (strlen(name) > TUTTI_COORDINATOR_MESH_DIM_MAX ||
        tutti_check_name(name, "dimension", NULL) != TUTTI_OK || strchr(name, '/') != NULL ||
        strspn(name, "0123456789") == strlen(name)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "dimension %zu is called \"%.64s\", need 1 to %d letters, digits, "
                              ". _ or -, and no number",
                              dim, name, TUTTI_COORDINATOR_MESH_DIM_MAX);
    }
    for (i = 0; i < dim; i++) {
        if (strcmp(request->dims[i], name) == 0) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                                  "dimensions %zu and %zu are both called %s", i, dim, name);
        }
    }
    return TUTTI_OK;
}

static tutti_code
check_mesh_names(const tutti_coordinator_mesh_request *request, tutti_error *err)
{
    size_t i;

    if (request->name != NULL && request->name[0] != '\0') {
        TUTTI_TRY(tutti_check_name(request->name, "mesh", err));
        if (strlen(request->name) > TUTTI_COORDINATOR_MESH_NAME_MAX) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                                  "mesh name of %zu bytes, need 1 to %d", strlen(request->name),
                                  TUTTI_COORDINATOR_MESH_NAME_MAX);
        }
    }
    if (request->name_count != 0 && request->name_count != request->dim_count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "%zu names for %zu dimensions, need one for each or none",
                              request->name_count, request->dim_count);
    }
    for (i = 0; i < request->name_count; i++) {
        TUTTI_TRY(check_dim_name(request, i, err));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the mesh */

static void
set_dims(coord_mesh *mesh, const tutti_coordinator_mesh_request *request)
{
    uint32_t stride = 1;
    uint32_t dim;

    mesh->dim_count = (uint32_t)request->dim_count;
    for (dim = mesh->dim_count; dim-- > 0;) {
        mesh->shape[dim] = (uint32_t)request->shape[dim];
        mesh->strides[dim] = stride;
        stride *= mesh->shape[dim];
        if (request->name_count == 0) {
            (void)snprintf(mesh->dims[dim], sizeof(mesh->dims[dim]), "%" PRIu32, dim);
        } else {
            (void)snprintf(mesh->dims[dim], sizeof(mesh->dims[dim]), "%s", request->dims[dim]);
        }
        mesh->dim_names[dim] = mesh->dims[dim];
    }
}

static uint64_t
hash_mesh(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *byte = data;
    size_t i;

    for (i = 0; i < size; i++) { /* FNV-1a */
        seed = (seed ^ byte[i]) * 0x100000001b3u;
    }
    return seed;
}

/*
 * A mesh without a name is named after its content, by FNV-1a of 64 bits: every rank that asks
 * for the same mesh gets the same name. Two different meshes of one hash are told apart by
 * same_content (meshes.c), and the second is refused.
 */
static void
set_name(coord_mesh *mesh, const char *name)
{
    uint64_t sum = 0xcbf29ce484222325u;

    if (name != NULL && name[0] != '\0') {
        (void)snprintf(mesh->name, sizeof(mesh->name), "%s", name);
    } else {
        sum = hash_mesh(sum, mesh->shape, sizeof(mesh->shape));
        sum = hash_mesh(sum, mesh->dims, sizeof(mesh->dims));
        sum = hash_mesh(sum, mesh->all->ranks, mesh->all->count * sizeof(uint32_t));
        (void)snprintf(mesh->name, sizeof(mesh->name), "unnamed-%016" PRIx64, sum);
    }
    mesh->node.key = tutti_bytes_of(mesh->name);
}

/* 0, 1, 2, ... when no ranks are given. */
static tutti_code
take_ranks(coord_group *world, const tutti_coordinator_mesh_request *request, uint32_t places,
           coord_rank_lists *ret_layout, tutti_error *err)
{
    const tutti_coordinator_list list = {request->ranks, request->rank_count};

    if (request->rank_count != 0) {
        return coord_rank_lists_take(world, "the mesh", &list, 1, ret_layout, err);
    }
    TUTTI_TRY(coord_rank_lists_blocks(world, world->count, ret_layout, err));
    ret_layout->ends[0] = places;
    return TUTTI_OK;
}

static tutti_code
set_ranks(coord_mesh *mesh, const tutti_coordinator_mesh_request *request, uint32_t places,
          tutti_error *err)
{
    coord_group *world = NULL;
    coord_rank_lists rank_lists = {0};
    tutti_code code = coord_group_find(mesh->job, NULL, COORD_NOBODY, &world, err);

    if (code == TUTTI_OK) {
        code = take_ranks(world, request, places, &rank_lists, err);
    }
    if (code == TUTTI_OK) {
        mesh->all = coord_group_new(mesh->job, "", places);
        code = mesh->all == NULL ? coord_fail_memory(err, "a mesh")
                                 : coord_group_fill(mesh->all, rank_lists.ranks, err);
    }
    coord_rank_lists_fini(&rank_lists);
    return code;
}

tutti_code
coord_mesh_make(coord_job *job, const tutti_coordinator_mesh_request *request,
                coord_mesh **ret_mesh, tutti_error *err)
{
    coord_mesh *mesh = NULL;
    uint64_t places = 0;
    tutti_code code = check_shape(job, request, &places, err);

    if (code == TUTTI_OK) {
        code = check_rank_count(request, places, err);
    }
    if (code == TUTTI_OK) {
        code = check_mesh_names(request, err);
    }
    if (code == TUTTI_OK) {
        mesh = calloc(1, sizeof(*mesh));
        code = mesh == NULL ? coord_fail_memory(err, "a mesh") : TUTTI_OK;
    }
    if (code == TUTTI_OK) {
        mesh->job = job;
        tutti_map_init(&mesh->rows);
        set_dims(mesh, request);
        code = set_ranks(mesh, request, (uint32_t)places, err);
    }
    if (code != TUTTI_OK) {
        coord_mesh_destroy(mesh);
        return code;
    }
    set_name(mesh, request->name);
    *ret_mesh = mesh;
    return TUTTI_OK;
}
