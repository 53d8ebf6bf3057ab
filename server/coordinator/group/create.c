/*
 * The calls about groups: create, get, list, delete, translate. They check the request and turn
 * group ranks into ranks of the job; which group it is, is claim.c's.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/claim.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/hold.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"

static const char *
or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

/* As callers see it, and their place in it. */
static void
describe_for(coord_group *group, int64_t asker, tutti_coordinator_group *ret_group)
{
    uint32_t position;

    coord_group_describe(group, ret_group);
    if (asker >= 0 && asker <= UINT32_MAX &&
        coord_group_position(group, (uint32_t)asker, &position)) {
        ret_group->rank = position;
    }
}

/* ------------------------------------------------------------------------------ create */

static tutti_code
check_group_words(const tutti_coordinator_group_request *request, tutti_error *err)
{
    if (or_empty(request->name)[0] != '\0') {
        TUTTI_TRY(tutti_check_name(request->name, "group", err));
    }
    if (or_empty(request->tag)[0] != '\0') {
        TUTTI_TRY(tutti_check_name(request->tag, "tag", err));
    }
    return TUTTI_OK;
}

/* The list in ranks of the job; the caller is in it. */
static tutti_code
take_group_list(const coord_agent *agent, const tutti_coordinator_group_request *request,
                coord_rank_lists *ret_layout, tutti_error *err)
{
    const tutti_coordinator_list list = {request->ranks, request->count};
    char what[TUTTI_NAME_MAX + 8] = "a group";
    coord_group *parent = NULL;
    uint32_t place[2];
    tutti_code code = coord_group_find(agent->job, request->parent, agent->rank, &parent, err);

    if (or_empty(request->name)[0] != '\0') {
        (void)snprintf(what, sizeof(what), "group %s", request->name);
    }
    if (code == TUTTI_OK) {
        code = coord_rank_lists_take(parent, what, &list, 1, ret_layout, err);
    }
    if (code == TUTTI_OK && !coord_rank_lists_find(ret_layout, agent->rank, &place[0], &place[1])) {
        coord_rank_lists_fini(ret_layout);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " asks for %s and is not in its list", agent->rank,
                              what);
    }
    return code;
}

tutti_code
tutti_coordinator_group_create(tutti_coordinator *self,
                               const tutti_coordinator_group_request *request,
                               tutti_coordinator_group *ret_group, bool *ret_created,
                               tutti_error *err)
{
    coord_agent *agent = NULL;
    coord_group *group = NULL;
    coord_rank_lists rank_lists = {0};
    coord_claim claim;
    coord_hold hold = {.ephemeral = request->ephemeral, .lease = request->lease};
    tutti_code code = coord_member_check(self, &request->member, &agent, err);

    if (code == TUTTI_OK) {
        code = check_group_words(request, err);
    }
    if (code == TUTTI_OK) {
        code = take_group_list(agent, request, &rank_lists, err);
    }
    if (code == TUTTI_OK) {
        claim = (coord_claim){.agent = agent,
                              .name = or_empty(request->name),
                              .tag = or_empty(request->tag),
                              .token = request->token,
                              .ranks = rank_lists.ranks,
                              .count = rank_lists.ends[0],
                              .timeout_ms = request->timeout_ms,
                              .caller = request->caller};
        code = coord_hold_begin(&hold, agent, err);
    }
    if (code == TUTTI_OK) {
        code = coord_group_claim(&claim, &group, ret_created, err);
        coord_hold_end(&hold, code == TUTTI_OK ? group : NULL, *ret_created);
    }
    if (code == TUTTI_OK) {
        describe_for(group, agent->rank, ret_group);
    }
    coord_rank_lists_fini(&rank_lists);
    return code;
}

/* ------------------------------------------------------------------------------ get, list */

tutti_code
tutti_coordinator_group_get(tutti_coordinator *self, const char *job, const char *name,
                            tutti_coordinator_asker asker, tutti_coordinator_group *ret_group,
                            tutti_error *err)
{
    coord_job *found = NULL;
    coord_group *group = NULL;

    TUTTI_TRY(coord_job_find(self, job, &found, err));
    TUTTI_TRY(coord_group_find(found, name, asker, &group, err));
    describe_for(group, asker, ret_group);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_group_next(tutti_coordinator *self, const char *job, const char *after,
                             tutti_coordinator_group *ret_group, bool *ret_found, tutti_error *err)
{
    const tutti_bytes name = tutti_bytes_of(after);
    coord_job *found = NULL;
    tutti_map_node *node = NULL;

    TUTTI_TRY(coord_job_find(self, job, &found, err));
    if (found->epoch != 0) {
        node = tutti_map_from(&found->groups, name);
        if (node != NULL && tutti_bytes_equal(node->key, name)) {
            node = tutti_map_next(node);
        }
    }
    *ret_found = node != NULL;
    if (node != NULL) {
        coord_group_describe(coord_group_from(node), ret_group);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ delete */

static tutti_code
check_deletable(const coord_group *group, const coord_agent *agent, tutti_error *err)
{
    uint32_t position;

    if (group->mesh != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "MESH_GROUP",
                              "group %s stays as long as its mesh: delete that", group->name);
    }
    if (coord_group_is_world(group)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "WORLD_GROUP",
                              "group world stays as long as its job");
    }
    if (!coord_group_position(group, agent->rank, &position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s", agent->rank, group->name);
    }
    return TUTTI_OK;
}

/*
 * Find the group to delete; NULL = there is none, which the caller allows. With an id a group of
 * the same name that was made since is not touched.
 */
static tutti_code
find_doomed(const coord_agent *agent, const tutti_coordinator_group_end *request,
            coord_group **ret_group, tutti_error *err)
{
    coord_group *group = NULL;
    tutti_code code = coord_group_find(agent->job, request->name, agent->rank, &group, err);

    if (code == TUTTI_OK && request->id != 0 && group->id != request->id) {
        code = TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_GROUP",
                              "group %s has id %" PRIu64 " now, the group with id %" PRIu64
                              " was deleted",
                              group->name, group->id, request->id);
    }
    if (code == TUTTI_NOT_FOUND && request->allow_missing) {
        *ret_group = NULL;
        return TUTTI_OK;
    }
    *ret_group = group;
    return code == TUTTI_OK ? check_deletable(group, agent, err) : code;
}

tutti_code
tutti_coordinator_group_delete(tutti_coordinator *self, const tutti_coordinator_group_end *request,
                               bool *ret_deleted, tutti_error *err)
{
    coord_agent *agent = NULL;
    coord_group *group = NULL;
    tutti_code code = coord_member_check(self, &request->member, &agent, err);

    if (code == TUTTI_OK) {
        code = find_doomed(agent, request, &group, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_deleted = group != NULL;
    if (group != NULL) {
        coord_group_delete(group);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ translation */

/* From one group to another. */
typedef struct translation {
    coord_group *from;
    coord_group *to;
    bool members_only;
} translation;

static tutti_code
translate_one(const translation *self, int32_t rank, int32_t *ret_rank, tutti_error *err)
{
    uint32_t position;

    *ret_rank = -1;
    if (rank == -1) {
        return TUTTI_OK;
    }
    if (rank < 0 || (uint32_t)rank >= self->from->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                              "rank %" PRId32 " in group %s of %" PRIu32
                              " ranks, need a group rank from 0 on and below that number",
                              rank, self->from->name, self->from->count);
    }
    if (coord_group_position(self->to, coord_group_rank(self->from, (uint32_t)rank), &position)) {
        *ret_rank = (int32_t)position;
    } else if (self->members_only) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_NOT_IN_GROUP",
                              "rank %" PRId32 " of group %s is not in group %s", rank,
                              self->from->name, self->to->name);
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_translate(tutti_coordinator *self, const tutti_coordinator_translation *request,
                            int32_t *ret_ranks, tutti_error *err)
{
    coord_job *job = NULL;
    translation both = {.members_only = request->members_only};
    size_t i;

    TUTTI_TRY(coord_job_find(self, request->job, &job, err));

    if (request->count > TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LOOKUP_LIMIT",
                              "%zu ranks in one call, at most %d", request->count, TUTTI_RANKS_MAX);
    }
    TUTTI_TRY(coord_group_find(job, request->from, request->asker, &both.from, err));
    TUTTI_TRY(coord_group_find(job, request->to, request->asker, &both.to, err));
    for (i = 0; i < request->count; i++) {
        TUTTI_TRY(translate_one(&both, request->ranks[i], &ret_ranks[i], err));
    }
    return TUTTI_OK;
}
