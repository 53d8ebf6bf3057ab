/* CoordinatorService: splitting groups, and ranks of one group as those of another. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/groups_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "tutti/types.h"

/* ------------------------------------------------------------------------------ lists */

/* Pointers and messages are in one block of memory, so there is one thing to free. */
tutti_code
coord_wire_lists_init(coord_wire_lists *lists, size_t count, tutti_error *err)
{
    const size_t each = sizeof(Tutti__V1__RankList *) + sizeof(Tutti__V1__RankList);
    Tutti__V1__RankList *first;
    size_t i;

    lists->pointers = calloc(count + 1, each);
    if (lists->pointers == NULL) {
        return coord_fail_answer(err);
    }
    first = (void *)(lists->pointers + count);
    for (i = 0; i < count; i++) {
        tutti__v1__rank_list__init(&first[i]);
        lists->pointers[i] = &first[i];
    }
    lists->count = count;
    return TUTTI_OK;
}

/* Ranks of a job fit into both kinds of 32 bits. */
void
coord_wire_lists_set(coord_wire_lists *lists, size_t i, const uint32_t *ranks, size_t count)
{
    lists->pointers[i]->ranks = (int32_t *)(uintptr_t)ranks;
    lists->pointers[i]->n_ranks = count;
}

void
coord_wire_lists_fini(coord_wire_lists *lists)
{
    free(lists->pointers);
    *lists = (coord_wire_lists){0};
}

/* ------------------------------------------------------------------------------ sub-groups */

/*
 * The lists borrow their ranks from the message.
 *
 * [out, owned] ret_lists  free it; NULL when there are none
 */
static tutti_code
lists_from_wire(const Tutti__V1__RankLists *wire, tutti_coordinator_list **ret_lists,
                size_t *ret_count, tutti_error *err)
{
    size_t i;

    *ret_count = wire == NULL ? 0 : wire->n_lists;
    *ret_lists = calloc(*ret_count + 1, sizeof(**ret_lists));
    if (*ret_lists == NULL) {
        return coord_fail_answer(err);
    }
    for (i = 0; i < *ret_count; i++) {
        (*ret_lists)[i] = (tutti_coordinator_list){wire->lists[i]->ranks, wire->lists[i]->n_ranks};
    }
    return TUTTI_OK;
}

static tutti_code
split_from_wire(const Tutti__V1__CreateSubgroupsRequest *wire, tutti_coordinator_split_request *ret,
                tutti_coordinator_list **ret_lists, tutti_error *err)
{
    *ret = (tutti_coordinator_split_request){.member = member_from_wire(wire->member),
                                             .parent = wire->parent,
                                             .name = wire->name,
                                             .tag = wire->tag,
                                             .token = wire->token,
                                             .equal = wire->equal_sizes,
                                             .validate_only = wire->validate_only,
                                             .ephemeral = wire->ephemeral,
                                             .lease = wire->lease,
                                             .timeout_ms = wire->timeout_ms};
    *ret_lists = NULL;
    if (wire->layout_case == TUTTI__V1__CREATE_SUBGROUPS_REQUEST__LAYOUT_GROUP_SIZE) {
        ret->kind = TUTTI_COORDINATOR_SPLIT_SIZE;
        ret->number = wire->group_size;
    } else if (wire->layout_case == TUTTI__V1__CREATE_SUBGROUPS_REQUEST__LAYOUT_GROUP_COUNT) {
        ret->kind = TUTTI_COORDINATOR_SPLIT_COUNT;
        ret->number = wire->group_count;
    } else if (wire->layout_case == TUTTI__V1__CREATE_SUBGROUPS_REQUEST__LAYOUT_LISTS) {
        const tutti_code code = lists_from_wire(wire->lists, ret_lists, &ret->list_count, err);

        ret->kind = TUTTI_COORDINATOR_SPLIT_LISTS;
        ret->lists = *ret_lists;
        return code;
    }
    return TUTTI_OK;
}

static tutti_code
lists_to_wire(const tutti_coordinator_split *split, coord_wire_lists *ret_lists, tutti_error *err)
{
    uint32_t begin = 0;
    uint32_t i;

    TUTTI_TRY(coord_wire_lists_init(ret_lists, split->list_count, err));

    for (i = 0; i < split->list_count; i++) {
        coord_wire_lists_set(ret_lists, i, split->ranks + begin, split->ends[i] - begin);
        begin = split->ends[i];
    }
    return TUTTI_OK;
}

/* A rank that is in no part has -1 for its place, and no group. */
static tutti_code
reply_split(tutti_rpc_call *call, const tutti_coordinator_split *split,
            const Tutti__V1__CreateSubgroupsRequest *wire, tutti_error *err)
{
    Tutti__V1__CreateSubgroupsResponse response = TUTTI__V1__CREATE_SUBGROUPS_RESPONSE__INIT;
    Tutti__V1__Group group = TUTTI__V1__GROUP__INIT;
    coord_wire_lists lists = {0};
    tutti_spans spans;
    tutti_code code = TUTTI_OK;

    response.group_rank = split->inside ? (int32_t)split->rank : -1;
    response.index = split->inside ? (int32_t)split->index : -1;
    response.group_count = split->list_count;
    response.group_size = split->size;
    response.created = split->created;
    if (wire->list_all) {
        code = lists_to_wire(split, &lists, err);
    }
    if (code == TUTTI_OK && split->made) {
        response.group = &group;
        code = coord_group_to_wire(&split->group, wire->accept_spans ? &spans : NULL, &group, err);
    }
    if (code == TUTTI_OK) {
        response.lists = lists.pointers;
        response.n_lists = lists.count;
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
    if (code == TUTTI_OK && split->made) {
        coord_group_wire_fini(&split->group, &group);
    }
    coord_wire_lists_fini(&lists);
    return code;
}

void
coord_on_create_subgroups(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__CreateSubgroupsRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_coordinator_split_request request;
    tutti_coordinator_list *lists = NULL;
    tutti_coordinator_split split = {0};
    tutti_error err;
    tutti_code code = split_from_wire(wire, &request, &lists, &err);

    request.caller = coord_caller(call);
    if (code == TUTTI_OK) {
        code = tutti_coordinator_group_split(core, &request, &split, &err);
    }
    if (code == TUTTI_OK) {
        code = reply_split(call, &split, wire, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
    }
    tutti_coordinator_split_fini(&split);
    free(lists);
    service_loop_leave(arg);
}

/* ------------------------------------------------------------------------------ translation */

void
coord_on_translate_ranks(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__TranslateRanksRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__TranslateRanksResponse response = TUTTI__V1__TRANSLATE_RANKS_RESPONSE__INIT;
    tutti_coordinator *core = service_loop_enter(arg);
    const bool asked = wire->opt_rank_case == TUTTI__V1__TRANSLATE_RANKS_REQUEST__OPT_RANK_RANK;
    const tutti_coordinator_translation request = {.job = wire->job,
                                                   .from = wire->from_group,
                                                   .to = wire->to_group,
                                                   .asker = asked ? (int64_t)wire->rank : -1,
                                                   .ranks = wire->ranks,
                                                   .count = wire->n_ranks,
                                                   .members_only = wire->members_only};
    int32_t *ranks = calloc(wire->n_ranks + 1, sizeof(*ranks));
    tutti_error err;
    tutti_code code = ranks == NULL ? coord_fail_answer(&err)
                                    : tutti_coordinator_translate(core, &request, ranks, &err);

    if (code == TUTTI_OK) {
        response.ranks = ranks;
        response.n_ranks = wire->n_ranks;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    free(ranks);
    service_loop_leave(arg);
}
