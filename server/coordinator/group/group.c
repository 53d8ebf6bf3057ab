/*
 * Groups: memory, the job's map, look-up of members, limits.
 *
 * A group has its ranks in order of group ranks, and `order`, the positions sorted by rank, so
 * the group rank of a rank is found by bisection. "world" of a job that is not elastic has
 * neither: position and rank are the same.
 *
 * A deleted group leaves the maps at once and lives on as its event (member/events.c), which
 * frees it.
 */
#include "server/coordinator/group/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/mesh.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/group/registry.h"
#include "server/coordinator/group/shrink.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

coord_group *
coord_group_from(tutti_map_node *node)
{
    return node == NULL ? NULL : tutti_container_of(node, coord_group, node);
}

coord_group *
coord_group_new(coord_job *job, const char *name, uint32_t count)
{
    coord_group *group = calloc(1, sizeof(*group));

    if (group != NULL) {
        group->job = job;
        group->count = count;
        group->event.of_group = true;
        tutti_list_init(&group->talking);
        tutti_list_init(&group->event.deleted);
        tutti_list_init(&group->mates);
        tutti_list_init(&group->holders);
        tutti_list_init(&group->orphans);
        tutti_map_init(&group->channels);
        (void)snprintf(group->name, sizeof(group->name), "%s", name);
        group->node.key = tutti_bytes_of(group->name);
    }
    return group;
}

static void
drop_holders(coord_group *group)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&group->holders)) != NULL) {
        free(tutti_container_of(link, coord_holder, link));
    }
}

static void
drop_orphans(coord_group *group)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&group->orphans)) != NULL) {
        free(tutti_container_of(link, coord_orphan, link));
    }
}

void
coord_group_destroy(coord_group *group)
{
    coord_group_forget_abort(group);
    drop_holders(group);
    drop_orphans(group);
    free(group->ranks);
    free(group->order);
    free(group);
}

void
coord_group_add(coord_group *group)
{
    tutti_map_node *there = tutti_map_add(&group->job->groups, &group->node);

    assert(there == NULL);
    group->id = ++group->job->group_ids;
    if (!coord_group_is_world(group)) {
        group->job->member_count += group->count;
    }
}

void
coord_group_remove(coord_group *group)
{
    group->job->owner->hooks->group_deleted(group);
    coord_group_end_shrink(group);
    coord_group_registry_leave(group);
    tutti_map_remove(&group->job->groups, &group->node);
    if (!coord_group_is_world(group)) {
        group->job->member_count -= group->count;
    }
}

tutti_code
coord_group_add_world(coord_job *job, tutti_error *err)
{
    coord_group *group = coord_group_new(job, "world", job->world_size);

    if (group == NULL) {
        return coord_fail_memory(err, "a group");
    }
    coord_group_add(group);
    return TUTTI_OK;
}

bool
coord_group_is_world(const coord_group *group)
{
    return group->mesh == NULL && strcmp(group->name, "world") == 0;
}

/*
 * Free a group. A deleted one is in no map any more, though a new one may have its name: the node
 * itself is compared.
 */
void
coord_group_free(coord_group *group)
{
    if (tutti_map_find(&group->job->groups, group->node.key) == &group->node) {
        coord_group_remove(group);
    }
    coord_group_destroy(group);
}

void
coord_groups_fini(coord_job *job)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&job->groups)) != NULL) {
        coord_group_free(coord_group_from(node));
    }
    coord_rosters_fini(job);
}

tutti_code
coord_group_find(coord_job *job, const char *name, int64_t asker, coord_group **ret_group,
                 tutti_error *err)
{
    const char *wanted = name == NULL || name[0] == '\0' ? "world" : name;
    coord_group *group;

    TUTTI_TRY(tutti_check_group_name(wanted, err));
    if (strncmp(wanted, TUTTI_MESH_PREFIX, sizeof(TUTTI_MESH_PREFIX) - 1) == 0) {
        return coord_mesh_find_group(job, wanted, asker, ret_group, err);
    }
    group = coord_group_from(tutti_map_find(&job->groups, tutti_bytes_of(wanted)));
    if (group == NULL || job->epoch == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_GROUP", "there is no group %s in job %s%s",
                              wanted, job->name, job->epoch == 0 ? ": it is not complete yet" : "");
    }
    *ret_group = group;
    return TUTTI_OK;
}

bool
coord_group_position(const coord_group *group, uint32_t rank, uint32_t *ret_position)
{
    uint32_t low = 0;
    uint32_t high = group->count;

    if (group->ranks == NULL) {
        *ret_position = rank;
        return rank < group->count;
    }
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (group->ranks[group->order[middle]] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == group->count || group->ranks[group->order[low]] != rank) {
        return false;
    }
    *ret_position = group->order[low];
    return true;
}

uint32_t
coord_group_rank(const coord_group *group, uint32_t position)
{
    assert(position < group->count);
    return group->ranks == NULL ? position : group->ranks[position];
}

const coord_agent *
coord_group_find_lost(const coord_group *group)
{
    uint32_t i;

    /* Nobody is lost in most jobs: then nothing is looked at. */
    for (i = 0; group->job->lost_count > 0 && i < group->count; i++) {
        const coord_agent *agent = group->job->seats[coord_group_rank(group, i)];

        if (agent->state != TUTTI_COORDINATOR_ALIVE) {
            return agent;
        }
    }
    return NULL;
}

/*
 * The epoch of a group: the newest at which one of its members joined. It is looked for only if
 * somebody has joined the job since: every member of a large group asks. "world" of an elastic
 * job changes its members with the job, so its epoch is the job's.
 */
static uint64_t
newest_epoch(coord_group *group)
{
    const coord_job *job = group->job;
    uint32_t i;

    if (coord_group_is_world(group) && group->ranks != NULL) {
        return job->epoch;
    }
    if (group->ranks == NULL) {
        return job->last_joined_epoch;
    }
    for (i = 0; group->seen_epoch != job->last_joined_epoch && i < group->count; i++) {
        const coord_agent *agent = job->seats[group->ranks[i]];

        if (agent->joined_epoch > group->epoch) {
            group->epoch = agent->joined_epoch;
        }
    }
    group->seen_epoch = job->last_joined_epoch;
    return group->epoch;
}

const tutti_coordinator_abort *
coord_group_abort_of(coord_group *group)
{
    const bool over = coord_group_is_world(group) && group->abort.epoch < newest_epoch(group);

    return group->abort.text == NULL || over ? NULL : &group->abort;
}

void
coord_group_forget_abort(coord_group *group)
{
    coord_event_remove(group->job, &group->abort_event);
    free((char *)(uintptr_t)group->abort.text);
    group->abort = (tutti_coordinator_abort){0};
}

uint64_t
coord_group_epoch(coord_group *group)
{
    return newest_epoch(group);
}

void
coord_group_describe(coord_group *group, tutti_coordinator_group *ret_group)
{
    *ret_group = (tutti_coordinator_group){
        .id = group->id,
        .name = group->name,
        .tag = group->registry == NULL ? "" : coord_group_registry_tag(group->registry),
        .ranks = group->ranks,
        .count = group->count,
        .epoch = newest_epoch(group),
        .rank = -1,
        .abort = coord_group_abort_of(group),
        .timeout_ms = group->timeout_ms,
        .age_ms =
            group->made_ns == 0 ? 0 : 1 + (group->job->owner->now_ns - group->made_ns) / 1000000,
        .owner = group->owner};
}

tutti_code
coord_group_check_alive(const coord_group *group, tutti_error *err)
{
    const coord_agent *lost = coord_group_find_lost(group);

    if (lost == NULL) {
        return TUTTI_OK;
    }
    (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "RANK_LOST",
                         "rank %" PRIu32 " of group %s is lost: %s", lost->rank, group->name,
                         lost->reason);
    tutti_error_set_op(err, group->name, 0, (int32_t)lost->rank);
    return TUTTI_UNAVAILABLE;
}

tutti_code
coord_group_check_limits(const coord_job *job, size_t count, tutti_error *err)
{
    const tutti_coordinator_options *options = &job->owner->options;
    const uint64_t groups = job->groups.count + job->meshes.count + job->row_count;

    if (groups >= options->group_limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT",
                              "job %s has %" PRIu64 " groups and meshes, the limit (--group-limit)",
                              job->name, groups);
    }
    if (count > options->member_limit || job->member_count > options->member_limit - count) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT",
                              "the groups of job %s have %" PRIu64 " members, %zu more pass the "
                              "limit of %" PRIu64 " (--group-members-limit)",
                              job->name, job->member_count, count, options->member_limit);
    }
    return TUTTI_OK;
}

static int
compare_positions(const void *left, const void *right, void *arg)
{
    const uint32_t *ranks = arg;
    const uint32_t a = ranks[*(const uint32_t *)left];
    const uint32_t b = ranks[*(const uint32_t *)right];

    return a == b ? 0 : a < b ? -1 : 1;
}

tutti_code
coord_group_fill(coord_group *group, const uint32_t *ranks, tutti_error *err)
{
    uint32_t i;

    group->ranks = malloc(group->count * sizeof(uint32_t));
    group->order = malloc(group->count * sizeof(uint32_t));
    if (group->ranks == NULL || group->order == NULL) {
        return coord_fail_memory(err, "a group's ranks");
    }
    memcpy(group->ranks, ranks, group->count * sizeof(uint32_t));
    for (i = 0; i < group->count; i++) {
        group->order[i] = i;
    }
    qsort_r(group->order, group->count, sizeof(uint32_t), compare_positions, group->ranks);
    return TUTTI_OK;
}

void
coord_group_publish_deleted(coord_group *group)
{
    coord_group_forget_abort(group); /* before its members hear of an abort of what is gone */
    group->event.group_id = group->id;
    group->event.group_name = group->name;
    coord_event_publish(group->job, &group->event);
}

void
coord_group_drop_deleted(coord_event *event)
{
    coord_group_free(tutti_container_of(event, coord_group, event));
}

/*
 * The record first: if the process dies behind it, the group is gone for the next one, and nobody
 * has been told yet.
 */
void
coord_group_delete(coord_group *group)
{
    group->job->owner->hooks->unrecord_group(group);
    coord_group_remove(group);
    coord_group_publish_deleted(group);
}

tutti_code
coord_group_inherit_end(coord_group *group, const coord_group *from, tutti_error *err)
{
    const tutti_list_node *link;
    uint32_t position;

    group->made_epoch = from->made_epoch == 0 ? 0 : group->job->epoch;
    for (link = from->holders.next; link != &from->holders; link = link->next) {
        const coord_holder *one = tutti_container_of(link, coord_holder, link);
        coord_holder *copy;

        if (!coord_group_position(group, one->rank, &position)) {
            continue;
        }
        copy = malloc(sizeof(*copy));
        if (copy == NULL) {
            return coord_fail_memory(err, "a lease of a group");
        }
        *copy = *one;
        tutti_list_init(&copy->link);
        tutti_list_add(&group->holders, &copy->link);
    }
    return TUTTI_OK;
}
