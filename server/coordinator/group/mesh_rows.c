/*
 * Rows: groups along some dimensions of a mesh. A row is (mask, anchor): which dimensions, and
 * the position of its first rank, whose coordinates along them are 0. All ranks of a row compute
 * the same pair, so the row is found without searching. Rows are made when they are named,
 * because a mesh of 16 dimensions has 65535 kinds of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"

coord_row
coord_row_of(const coord_mesh *mesh, uint32_t mask, uint32_t position)
{
    coord_row row = {.mask = mask, .anchor = position};
    uint32_t dim;

    for (dim = 0; dim < mesh->dim_count; dim++) {
        if ((mask >> dim & 1) != 0) {
            /* Take the coordinate along this dimension out of the position. */
            row.anchor -= position / mesh->strides[dim] % mesh->shape[dim] * mesh->strides[dim];
        }
    }
    return row;
}

uint32_t
coord_row_size(const coord_mesh *mesh, uint32_t mask)
{
    uint32_t size = 1;
    uint32_t dim;

    for (dim = 0; dim < mesh->dim_count; dim++) {
        size *= (mask >> dim & 1) != 0 ? mesh->shape[dim] : 1;
    }
    return size;
}

/*
 * The distance of the i-th rank of a row from its anchor. i is read as a number whose digits are
 * the coordinates, the last dimension first.
 */
static uint32_t
offset_of(const coord_mesh *mesh, uint32_t mask, uint32_t i)
{
    uint32_t offset = 0;
    uint32_t dim;

    for (dim = mesh->dim_count; dim-- > 0;) {
        if ((mask >> dim & 1) != 0) {
            offset += i % mesh->shape[dim] * mesh->strides[dim];
            i /= mesh->shape[dim];
        }
    }
    return offset;
}

void
coord_row_fill(const coord_mesh *mesh, coord_row row, uint32_t *ret_ranks)
{
    const uint32_t size = coord_row_size(mesh, row.mask);
    uint32_t i;

    for (i = 0; i < size; i++) {
        ret_ranks[i] = mesh->all->ranks[row.anchor + offset_of(mesh, row.mask, i)];
    }
}

/* ------------------------------------------------------------------------------ dimensions */

tutti_code
coord_mesh_find_dim(const coord_mesh *mesh, const char *name, size_t size, uint32_t *ret_dim,
                    tutti_error *err)
{
    char buffer[256];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    uint32_t dim;

    for (dim = 0; dim < mesh->dim_count; dim++) {
        if (strlen(mesh->dims[dim]) == size && memcmp(mesh->dims[dim], name, size) == 0) {
            *ret_dim = dim;
            return TUTTI_OK;
        }
        tutti_text_add(&text, "%s%s", dim == 0 ? "" : ", ", mesh->dims[dim]);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                          "mesh %s has no dimension \"%.*s\", need one of %s", mesh->name,
                          size > 64 ? 64 : (int)size, name, buffer);
}

tutti_code
coord_mesh_add_dim(const coord_mesh *mesh, uint32_t dim, uint32_t *mask, tutti_error *err)
{
    if (*mask >> dim != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "dimension %s of mesh %s is named twice or after a later one, need "
                              "each once, in the order of the mesh",
                              mesh->dims[dim], mesh->name);
    }
    *mask |= 1u << dim;
    return TUTTI_OK;
}

/* "dp+tp" */
static tutti_code
parse_dims(const coord_mesh *mesh, const char *words, uint32_t *ret_mask, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    const char *word = words;

    *ret_mask = 0;
    while (code == TUTTI_OK && word != NULL) {
        const size_t size = strcspn(word, "+");
        uint32_t dim = 0;

        code = coord_mesh_find_dim(mesh, word, size, &dim, err);
        if (code == TUTTI_OK) {
            code = coord_mesh_add_dim(mesh, dim, ret_mask, err);
        }
        word = word[size] == '+' ? word + size + 1 : NULL;
    }
    return code;
}

/* ------------------------------------------------------------------------------ groups */

static void
make_key(coord_row row, unsigned char ret_key[8])
{
    (void)tutti_map_key_u64(ret_key, (uint64_t)row.mask << 32 | row.anchor);
}

static tutti_code
fill_row(const coord_mesh *mesh, coord_row row, coord_group *group, tutti_error *err)
{
    uint32_t *ranks = malloc(group->count * sizeof(*ranks));
    tutti_code code;

    if (ranks == NULL) {
        return coord_fail_memory(err, "a group's ranks");
    }
    coord_row_fill(mesh, row, ranks);
    code = coord_group_fill(group, ranks, err);
    free(ranks);
    return code;
}

static tutti_code
place_row(coord_mesh *mesh, coord_row row, const char *name, coord_group **ret_group,
          tutti_error *err)
{
    const uint32_t size = coord_row_size(mesh, row.mask);
    coord_group *group = coord_group_new(mesh->job, name, size);
    tutti_code code;

    if (group == NULL) {
        return coord_fail_memory(err, "a group");
    }
    code = fill_row(mesh, row, group, err);
    if (code != TUTTI_OK) {
        coord_group_destroy(group);
        return code;
    }
    group->mesh = mesh;
    make_key(row, group->key);
    group->node.key = (tutti_bytes){group->key, sizeof(group->key)};
    (void)tutti_map_add(&mesh->rows, &group->node);
    mesh->job->row_count++;
    mesh->job->member_count += size;
    *ret_group = group;
    return TUTTI_OK;
}

static tutti_code
make_row(coord_mesh *mesh, coord_row row, const char *name, coord_group **ret_group,
         tutti_error *err)
{
    TUTTI_TRY(coord_group_check_limits(mesh->job, coord_row_size(mesh, row.mask), err));

    TUTTI_TRY(place_row(mesh, row, name, ret_group, err));
    (*ret_group)->id = ++mesh->job->group_ids;
    (*ret_group)->job->owner->hooks->record_group(*ret_group);
    return TUTTI_OK;
}

tutti_code
coord_row_restore(coord_mesh *mesh, coord_row row, const char *name, uint64_t id, tutti_error *err)
{
    coord_group *group = NULL;

    TUTTI_TRY(place_row(mesh, row, name, &group, err));

    group->id = id;
    return TUTTI_OK;
}

/* "mesh:NAME/DIM+DIM": the mesh, and the words behind the last stroke. */
static tutti_code
split_name(coord_job *job, const char *name, coord_mesh **ret_mesh, const char **ret_dims,
           tutti_error *err)
{
    char mesh_name[TUTTI_NAME_MAX + 1];
    const char *start = name + sizeof(TUTTI_MESH_PREFIX) - 1;
    const char *stroke = strrchr(start, '/');

    if (stroke == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MESH_DIM",
                              "group %s names no dimension, need mesh:NAME/DIM", name);
    }
    (void)snprintf(mesh_name, sizeof(mesh_name), "%.*s", (int)(stroke - start), start);
    *ret_dims = stroke + 1;
    return coord_mesh_find(job, mesh_name, ret_mesh, err);
}

static tutti_code
find_position(const coord_mesh *mesh, const char *name, int64_t asker, uint32_t *ret_position,
              tutti_error *err)
{
    if (asker < 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_NEEDED",
                              "group %s depends on the rank: say for which rank", name);
    }
    if (asker > UINT32_MAX || !coord_group_position(mesh->all, (uint32_t)asker, ret_position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRId64 " is not in mesh %s", asker, mesh->name);
    }
    return TUTTI_OK;
}

tutti_code
coord_mesh_find_group(coord_job *job, const char *name, int64_t asker, coord_group **ret_group,
                      tutti_error *err)
{
    coord_mesh *mesh = NULL;
    const char *dims = "";
    uint32_t mask = 0;
    uint32_t position = 0;
    unsigned char key[8];
    coord_row row;
    tutti_code code = split_name(job, name, &mesh, &dims, err);

    if (code == TUTTI_OK) {
        code = parse_dims(mesh, dims, &mask, err);
    }
    if (code == TUTTI_OK) {
        code = find_position(mesh, name, asker, &position, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    row = coord_row_of(mesh, mask, position);
    make_key(row, key);
    *ret_group = coord_group_from(tutti_map_find(&mesh->rows, (tutti_bytes){key, sizeof(key)}));
    return *ret_group == NULL ? make_row(mesh, row, name, ret_group, err) : TUTTI_OK;
}
