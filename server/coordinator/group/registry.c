/*
 * Group registries: the groups that share a tag and a list of ranks, or only the list (then known
 * by turns). The key is "tag NUL ranks". A registry with turns has a count for each member and
 * outlives its groups as long as some member has had fewer turns than others, since that member's
 * next call is for a group that exists no more.
 */
#include "server/coordinator/group/registry.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/member/job.h"

static coord_group_registry *
registry_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, coord_group_registry, node);
}

/* The tag, its NUL, and the ranks. */
static size_t
key_size_of(const char *tag, uint32_t count)
{
    return strlen(tag) + 1 + count * sizeof(uint32_t);
}

static coord_group_registry *
registry_new(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count)
{
    const size_t size = key_size_of(tag, count);
    coord_group_registry *registry = calloc(1, sizeof(*registry) + size);

    if (registry == NULL) {
        return NULL;
    }
    registry->job = job;
    registry->count = count;
    registry->key_size = size;
    memcpy(registry->key, tag, strlen(tag));
    memcpy(registry->key + strlen(tag) + 1, ranks, count * sizeof(*ranks));
    registry->node.key = (tutti_bytes){registry->key, size};
    tutti_list_init(&registry->groups);
    if (tag[0] == '\0') {
        registry->turns = calloc(count, sizeof(*registry->turns));
    }
    if (tag[0] == '\0' && registry->turns == NULL) {
        free(registry);
        return NULL;
    }
    return registry;
}

static void
registry_free(coord_group_registry *registry)
{
    tutti_map_remove(&registry->job->rosters, &registry->node);
    if (registry->turns != NULL) {
        registry->job->member_count -= registry->count;
    }
    free(registry->turns);
    free(registry);
}

static tutti_code
make_registry(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count,
              coord_group_registry **ret_registry, tutti_error *err)
{
    coord_group_registry *registry;

    /* What remembers turns outlives its groups, so it counts like one. */
    if (tag[0] == '\0' && coord_group_check_limits(job, count, err) != TUTTI_OK) {
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    registry = registry_new(job, tag, ranks, count);
    if (registry == NULL) {
        return coord_fail_memory(err, "a group");
    }
    (void)tutti_map_add(&job->rosters, &registry->node);
    if (registry->turns != NULL) {
        job->member_count += count;
        registry->number = ++job->registry_numbers;
    }
    *ret_registry = registry;
    return TUTTI_OK;
}

tutti_code
coord_group_registry_of(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count,
                        bool make, coord_group_registry **ret_registry, tutti_error *err)
{
    const size_t size = key_size_of(tag, count);
    unsigned char *key = calloc(1, size);

    if (key == NULL) {
        return coord_fail_memory(err, "a group");
    }
    memcpy(key, tag, strlen(tag));
    memcpy(key + strlen(tag) + 1, ranks, count * sizeof(*ranks));
    *ret_registry = registry_from(tutti_map_find(&job->rosters, (tutti_bytes){key, size}));
    free(key);
    if (*ret_registry != NULL || !make) {
        return TUTTI_OK;
    }
    return make_registry(job, tag, ranks, count, ret_registry, err);
}

const char *
coord_group_registry_tag(const coord_group_registry *registry)
{
    return (const char *)registry->key;
}

/*
 * The list is in order of turns; the search goes from the newest, which is what is mostly asked
 * for.
 */
coord_group *
coord_group_registry_find(const coord_group_registry *registry, uint64_t turn)
{
    tutti_list_node *link;

    for (link = registry->groups.before; link != &registry->groups; link = link->before) {
        coord_group *group = tutti_container_of(link, coord_group, mates);

        if (group->turn <= turn) {
            return group->turn == turn ? group : NULL;
        }
    }
    return NULL;
}

void
coord_group_registry_add(coord_group_registry *registry, coord_group *group, uint64_t turn)
{
    group->registry = registry;
    group->turn = turn;
    tutti_list_add(&registry->groups, &group->mates);
}

void
coord_group_registry_leave(coord_group *group)
{
    coord_group_registry *registry = group->registry;

    if (registry != NULL) {
        tutti_list_remove(&group->mates);
        group->registry = NULL;
        coord_group_registry_settle(registry);
    }
}

void
coord_group_registry_settle(coord_group_registry *registry)
{
    uint32_t i;

    if (!tutti_list_empty(&registry->groups)) {
        return;
    }
    for (i = 0; registry->turns != NULL && i < registry->count; i++) {
        if (registry->turns[i].count != registry->turn_count) {
            return; /* its next call is for a group that is gone, not for a new one */
        }
    }
    registry->job->owner->hooks->unrecord_registry(registry);
    registry_free(registry);
}

void
coord_rosters_fini(coord_job *job)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&job->rosters)) != NULL) {
        registry_free(registry_from(node));
    }
}
