#include "server/coordinator/group/registry.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/member/job.h"

static coord_roster *
roster_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, coord_roster, node);
}

/* The tag, its NUL, and the ranks. */
static size_t
key_size_of(const char *tag, uint32_t count)
{
    return strlen(tag) + 1 + count * sizeof(uint32_t);
}

static coord_roster *
roster_new(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count)
{
    const size_t size = key_size_of(tag, count);
    coord_roster *roster = calloc(1, sizeof(*roster) + size);

    if (roster == NULL) {
        return NULL;
    }
    roster->job = job;
    roster->count = count;
    roster->key_size = size;
    memcpy(roster->key, tag, strlen(tag));
    memcpy(roster->key + strlen(tag) + 1, ranks, count * sizeof(*ranks));
    roster->node.key = (tutti_bytes){roster->key, size};
    tutti_list_init(&roster->groups);
    if (tag[0] == '\0') {
        roster->turns = calloc(count, sizeof(*roster->turns));
    }
    if (tag[0] == '\0' && roster->turns == NULL) {
        free(roster);
        return NULL;
    }
    return roster;
}

static void
roster_free(coord_roster *roster)
{
    tutti_map_remove(&roster->job->rosters, &roster->node);
    if (roster->turns != NULL) {
        roster->job->member_count -= roster->count;
    }
    free(roster->turns);
    free(roster);
}

static tutti_code
make_roster(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count,
            coord_roster **ret_roster, tutti_error *err)
{
    coord_roster *roster;

    /* What remembers turns outlives its groups, so it counts like one. */
    if (tag[0] == '\0' && coord_group_check_limits(job, count, err) != TUTTI_OK) {
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    roster = roster_new(job, tag, ranks, count);
    if (roster == NULL) {
        return coord_fail_memory(err, "a group");
    }
    (void)tutti_map_add(&job->rosters, &roster->node);
    if (roster->turns != NULL) {
        job->member_count += count;
        roster->number = ++job->roster_numbers;
    }
    *ret_roster = roster;
    return TUTTI_OK;
}

tutti_code
coord_roster_of(coord_job *job, const char *tag, const uint32_t *ranks, uint32_t count, bool make,
                coord_roster **ret_roster, tutti_error *err)
{
    const size_t size = key_size_of(tag, count);
    unsigned char *key = calloc(1, size);

    if (key == NULL) {
        return coord_fail_memory(err, "a group");
    }
    memcpy(key, tag, strlen(tag));
    memcpy(key + strlen(tag) + 1, ranks, count * sizeof(*ranks));
    *ret_roster = roster_from(tutti_map_find(&job->rosters, (tutti_bytes){key, size}));
    free(key);
    if (*ret_roster != NULL || !make) {
        return TUTTI_OK;
    }
    return make_roster(job, tag, ranks, count, ret_roster, err);
}

const char *
coord_roster_tag(const coord_roster *roster)
{
    return (const char *)roster->key;
}

/* From the newest: that is what is asked for. */
coord_group *
coord_roster_find(const coord_roster *roster, uint64_t turn)
{
    tutti_link *link;

    for (link = roster->groups.before; link != &roster->groups; link = link->before) {
        coord_group *group = tutti_container_of(link, coord_group, mates);

        if (group->turn <= turn) {
            return group->turn == turn ? group : NULL;
        }
    }
    return NULL;
}

void
coord_roster_add(coord_roster *roster, coord_group *group, uint64_t turn)
{
    group->roster = roster;
    group->turn = turn;
    tutti_list_add(&roster->groups, &group->mates);
}

void
coord_roster_leave(coord_group *group)
{
    coord_roster *roster = group->roster;

    if (roster != NULL) {
        tutti_list_remove(&group->mates);
        group->roster = NULL;
        coord_roster_settle(roster);
    }
}

void
coord_roster_settle(coord_roster *roster)
{
    uint32_t i;

    if (!tutti_list_empty(&roster->groups)) {
        return;
    }
    for (i = 0; roster->turns != NULL && i < roster->count; i++) {
        if (roster->turns[i].count != roster->turn_count) {
            return; /* its call of a turn that is gone must not be taken for a new one */
        }
    }
    roster->job->owner->hooks->unrecord_roster(roster);
    roster_free(roster);
}

void
coord_rosters_fini(coord_job *job)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&job->rosters)) != NULL) {
        roster_free(roster_from(node));
    }
}
