/*
 * Splitting a group. Each caller gets the part that it is in, by the same claim as one group
 * (claim.c), so the members of a part need not know of each other. The parts are computed anew by
 * each call, from the same request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/claim.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/hold.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"

void
tutti_coordinator_split_fini(tutti_coordinator_split *split)
{
    free(split->ranks);
    free(split->ends);
    *split = (tutti_coordinator_split){0};
}

/* ------------------------------------------------------------------------------ the parts */

static tutti_code
fail_size(const coord_group *parent, const char *what, int32_t number, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                          "sub-groups: %s %" PRId32 " does not divide group %s of %" PRIu32
                          ", need a divisor of it",
                          what, number, parent->name, parent->count);
}

static tutti_code
make_blocks(const coord_group *parent, const tutti_coordinator_split_request *request,
            coord_rank_lists *ret_layout, tutti_error *err)
{
    const bool sized = request->kind == TUTTI_COORDINATOR_SPLIT_SIZE;
    const uint32_t number = (uint32_t)request->number;

    if (request->number < 1 || number > parent->count || parent->count % number != 0) {
        return fail_size(parent, sized ? "size" : "number of groups", request->number, err);
    }
    return coord_rank_lists_blocks(parent, sized ? number : parent->count / number, ret_layout,
                                   err);
}

static tutti_code
fail_unequal(const coord_rank_lists *rank_lists, tutti_error *err)
{
    uint32_t list = 1;

    while (rank_lists->ends[list] - rank_lists->ends[list - 1] == rank_lists->ends[0]) {
        list++;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                          "sub-groups: list 0 has %" PRIu32 " ranks and list %" PRIu32
                          " has %" PRIu32 ", need equal sizes",
                          rank_lists->ends[0], list,
                          rank_lists->ends[list] - rank_lists->ends[list - 1]);
}

static tutti_code
make_layout(const coord_group *parent, const tutti_coordinator_split_request *request,
            coord_rank_lists *ret_layout, tutti_error *err)
{
    tutti_code code;

    switch (request->kind) {
    case TUTTI_COORDINATOR_SPLIT_SIZE:
    case TUTTI_COORDINATOR_SPLIT_COUNT:
        return make_blocks(parent, request, ret_layout, err);
    case TUTTI_COORDINATOR_SPLIT_LISTS:
        break;
    case TUTTI_COORDINATOR_SPLIT_NONE:
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "EMPTY_GROUP",
                              "sub-groups: neither a size, a number of groups nor lists are given");
    }
    code = coord_rank_lists_take(parent, "sub-groups", request->lists, request->list_count,
                                 ret_layout, err);
    if (code == TUTTI_OK && request->equal && coord_rank_lists_size(ret_layout) == 0) {
        code = fail_unequal(ret_layout, err);
        coord_rank_lists_fini(ret_layout);
    }
    return code;
}

/* ------------------------------------------------------------------------------ the caller's */

static tutti_code
say_name(const tutti_coordinator_split_request *request, uint32_t index, char *ret, size_t size,
         tutti_error *err)
{
    ret[0] = '\0';
    if (request->name != NULL && request->name[0] != '\0') {
        (void)snprintf(ret, size, "%s/%" PRIu32, request->name, index);
        TUTTI_TRY(tutti_check_name(ret, "group", err));
    }
    if (request->tag != NULL && request->tag[0] != '\0') {
        TUTTI_TRY(tutti_check_name(request->tag, "tag", err));
    }
    return TUTTI_OK;
}

static tutti_code
make_part(const coord_agent *agent, const tutti_coordinator_split_request *request,
          const coord_rank_lists *rank_lists, tutti_coordinator_split *split, tutti_error *err)
{
    const uint32_t begin = split->index == 0 ? 0 : rank_lists->ends[split->index - 1];
    char name[TUTTI_NAME_MAX + 16 + TUTTI_NAME_MAX];
    coord_group *group = NULL;
    coord_claim claim = {.agent = agent,
                         .name = name,
                         .tag = request->tag == NULL ? "" : request->tag,
                         .token = request->token,
                         .ranks = rank_lists->ranks + begin,
                         .count = rank_lists->ends[split->index] - begin,
                         .timeout_ms = request->timeout_ms,
                         .caller = request->caller};

    coord_hold hold = {.ephemeral = request->ephemeral, .lease = request->lease};
    tutti_code code;

    TUTTI_TRY(say_name(request, split->index, name, sizeof(name), err));
    TUTTI_TRY(coord_hold_begin(&hold, agent, err));
    code = coord_group_claim(&claim, &group, &split->created, err);
    coord_hold_end(&hold, code == TUTTI_OK ? group : NULL, split->created);
    if (code != TUTTI_OK) {
        return code;
    }
    split->made = true;
    coord_group_describe(group, &split->group);
    split->group.rank = split->rank;
    return TUTTI_OK;
}

/* Who speaks, and the group they split. */
static tutti_code
find_parent(tutti_coordinator *self, const tutti_coordinator_split_request *request,
            coord_agent **ret_agent, coord_group **ret_parent, tutti_error *err)
{
    uint32_t position;

    TUTTI_TRY(coord_member_check(self, &request->member, ret_agent, err));
    TUTTI_TRY(
        coord_group_find((*ret_agent)->job, request->parent, (*ret_agent)->rank, ret_parent, err));
    if (!coord_group_position(*ret_parent, (*ret_agent)->rank, &position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s and cannot split it",
                              (*ret_agent)->rank, (*ret_parent)->name);
    }
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_group_split(tutti_coordinator *self,
                              const tutti_coordinator_split_request *request,
                              tutti_coordinator_split *ret_split, tutti_error *err)
{
    coord_agent *agent = NULL;
    coord_group *parent = NULL;
    coord_rank_lists rank_lists = {0};
    tutti_coordinator_split split = {0};
    tutti_code code = find_parent(self, request, &agent, &parent, err);

    if (code == TUTTI_OK) {
        code = make_layout(parent, request, &rank_lists, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    split.inside = coord_rank_lists_find(&rank_lists, agent->rank, &split.index, &split.rank);
    split.size = coord_rank_lists_size(&rank_lists);
    if (split.inside && !request->validate_only) {
        code = make_part(agent, request, &rank_lists, &split, err);
    }
    if (code != TUTTI_OK) {
        coord_rank_lists_fini(&rank_lists);
        return code;
    }
    split.list_count = rank_lists.list_count;
    split.ranks = rank_lists.ranks;
    split.ends = rank_lists.ends;
    *ret_split = split;
    return TUTTI_OK;
}
