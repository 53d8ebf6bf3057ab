/*
 * Groups, registries and meshes out of the store. Ids are those of before, so `group_ids` must
 * not rise by loading: agents know groups by id.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/meshes.h"
#include "server/coordinator/group/registry.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/record/load.h"

/* ------------------------------------------------------------------------------ group registries
 */

tutti_code
coord_load_registry(tutti_coordinator *self, coord_job *job, coord_reading *key,
                    coord_reading *value, tutti_error *err)
{
    const uint64_t number = coord_reading_big_u64(key);
    const uint64_t turn_count = coord_reading_u64(value);
    coord_group_registry *registry = NULL;
    uint32_t count = 0;
    uint32_t *ranks = coord_reading_ranks(value, job->world_size, &count);
    tutti_code code;

    (void)self;
    if (key->failed || value->failed || number > job->registry_numbers) {
        free(ranks);
        return coord_fail_record(job, "the turns of a group", err);
    }
    code = coord_group_registry_of(job, "", ranks, count, true, &registry, err);
    if (code == TUTTI_OK) {
        registry->number = number;
        registry->turn_count = turn_count;
        registry->recorded_turn = turn_count;
    }
    free(ranks);
    return code;
}

static coord_group_registry *
find_registry(const coord_job *job, uint64_t number)
{
    tutti_map_node *node = tutti_map_first(&job->rosters);

    for (; node != NULL; node = tutti_map_next(node)) {
        coord_group_registry *registry = tutti_container_of(node, coord_group_registry, node);

        if (registry->turns != NULL && registry->number == number) {
            return registry;
        }
    }
    return NULL;
}

tutti_code
coord_load_turns(tutti_coordinator *self, coord_job *job, coord_reading *key, coord_reading *value,
                 tutti_error *err)
{
    coord_group_registry *registry = find_registry(job, coord_reading_big_u64(key));
    const uint32_t position = coord_reading_big_u32(key);
    coord_turns turns;

    (void)self;
    turns.incarnation = coord_reading_u64(value);
    turns.count = coord_reading_u64(value);
    turns.token = coord_reading_u64(value);
    if (registry == NULL) {
        return TUTTI_OK; /* on its way out */
    }
    if (key->failed || value->failed || position >= registry->count ||
        turns.count > registry->turn_count) {
        return coord_fail_record(job, "the turns of a group", err);
    }
    registry->turns[position] = turns;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ groups */

/* [in, moved] ranks */
static tutti_code
make_group(coord_job *job, const char *name, uint32_t *ranks, uint32_t count,
           coord_group **ret_group, tutti_error *err)
{
    coord_group *group = coord_group_new(job, name, count);
    tutti_code code = TUTTI_OK;

    if (group == NULL) {
        code = coord_fail_memory(err, "a group");
    } else {
        code = coord_group_fill(group, ranks, err);
    }
    free(ranks);
    if (code != TUTTI_OK && group != NULL) {
        coord_group_destroy(group);
    }
    *ret_group = group;
    return code;
}

static tutti_code
place_group(coord_job *job, coord_group *group, uint64_t id, tutti_error *err)
{
    const uint64_t ids = job->group_ids; /* coord_group_add draws one */

    if (tutti_map_find(&job->groups, group->node.key) != NULL) {
        coord_group_destroy(group);
        return coord_fail_record(job, "a group", err);
    }
    coord_group_add(group);
    group->id = id;
    job->group_ids = ids;
    return TUTTI_OK;
}

tutti_code
coord_load_group(tutti_coordinator *self, coord_job *job, coord_reading *key, coord_reading *value,
                 tutti_error *err)
{
    const uint64_t id = coord_reading_big_u64(key);
    const char *name = coord_reading_text(value);
    const char *tag = coord_reading_text(value);
    const uint64_t turn = coord_reading_u64(value);
    coord_group *group = NULL;
    coord_group_registry *registry = NULL;
    uint32_t count = 0;
    uint32_t *ranks = coord_reading_ranks(value, job->world_size, &count);
    /* Groups of an older version had none. */
    const uint32_t timeout_ms = value->left > 0 ? coord_reading_u32(value) : 0;
    tutti_code code = TUTTI_OK;

    (void)self;
    if (key->failed || value->failed || id > job->group_ids ||
        tutti_check_name(name, "group", NULL) != TUTTI_OK || strlen(tag) > TUTTI_NAME_MAX) {
        free(ranks);
        return coord_fail_record(job, "a group", err);
    }
    if (tag[0] != '\0' || turn > 0) {
        code = coord_group_registry_of(job, tag, ranks, count, true, &registry, err);
    }
    if (code != TUTTI_OK) {
        free(ranks);
        return code;
    }
    code = make_group(job, name, ranks, count, &group, err);
    if (code == TUTTI_OK) {
        group->timeout_ms = timeout_ms;
        code = place_group(job, group, id, err);
    }
    if (code == TUTTI_OK && registry != NULL) {
        registry->turn_count = turn > registry->turn_count ? turn : registry->turn_count;
        coord_group_registry_add(registry, group, turn);
    }
    return code;
}

/* ------------------------------------------------------------------------------ meshes */

static void
read_dims(coord_reading *value, const char **names, int32_t *shape, size_t *ret_count)
{
    const uint32_t count = coord_reading_u32(value);
    uint32_t dim;

    *ret_count = count;
    if (count == 0 || count > COORD_DIMS_MAX) {
        value->failed = true;
    }
    for (dim = 0; dim < count && !value->failed; dim++) {
        shape[dim] = (int32_t)coord_reading_u32(value);
        names[dim] = coord_reading_text(value);
    }
}

/* By the way that a client's call takes, so it is checked like one. */
static tutti_code
make_mesh(coord_job *job, tutti_coordinator_mesh_request *request, coord_reading *value,
          coord_mesh **ret_mesh, tutti_error *err)
{
    const char *names[COORD_DIMS_MAX];
    int32_t shape[COORD_DIMS_MAX];
    uint32_t count = 0;
    uint32_t *ranks;
    tutti_code code;

    read_dims(value, names, shape, &request->dim_count);
    ranks = value->failed ? NULL : coord_reading_ranks(value, job->world_size, &count);
    if (ranks == NULL) {
        return coord_fail_record(job, "a mesh", err);
    }
    request->shape = shape;
    request->dims = names;
    request->name_count = request->dim_count;
    request->ranks = (const int32_t *)ranks;
    request->rank_count = count;
    code = coord_mesh_make(job, request, ret_mesh, err);
    free(ranks);
    return code == TUTTI_OK || code == TUTTI_RESOURCE_EXHAUSTED
               ? code
               : coord_fail_record(job, "a mesh", err);
}

tutti_code
coord_load_mesh(tutti_coordinator *self, coord_job *job, coord_reading *key, coord_reading *value,
                tutti_error *err)
{
    tutti_coordinator_mesh_request request = {.name = coord_reading_key_text(key)};
    const uint64_t id = coord_reading_u64(value);
    coord_mesh *mesh = NULL;
    tutti_code code = make_mesh(job, &request, value, &mesh, err);

    (void)self;
    if (code == TUTTI_OK) {
        mesh->id = id;
        coord_mesh_place(mesh);
    }
    return code;
}

tutti_code
coord_load_row(tutti_coordinator *self, coord_job *job, coord_reading *key, coord_reading *value,
               tutti_error *err)
{
    const char *mesh_name = coord_reading_key_text(key);
    const uint64_t place = coord_reading_big_u64(key);
    const uint64_t id = coord_reading_u64(value);
    const char *name = coord_reading_text(value);
    const coord_row row = {.mask = (uint32_t)(place >> 32), .anchor = (uint32_t)place};
    coord_mesh *mesh = NULL;

    (void)self;
    if (key->failed || value->failed || id > job->group_ids) {
        return coord_fail_record(job, "a mesh's group", err);
    }
    if (coord_mesh_find(job, mesh_name, &mesh, NULL) != TUTTI_OK) {
        return TUTTI_OK; /* on its way out */
    }
    if (row.mask == 0 || row.mask >> mesh->dim_count != 0 || row.anchor >= mesh->all->count) {
        return coord_fail_record(job, "a mesh's group", err);
    }
    return coord_row_restore(mesh, row, name, id, err);
}
