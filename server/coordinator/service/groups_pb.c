/*
 * CoordinatorService: groups. Their ranks travel as spans when the client takes them and they are
 * shorter, else as a list. A group that is all ranks in order has no list in the core; one is
 * made for the message.
 */
#include "server/coordinator/service/groups_pb.h"

#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"

#define PAGE_RANKS_MAX 262144 /* ranks of all groups of a page: it stays below a mebibyte */

tutti_code
coord_fail_answer(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for an answer");
}

const char *
coord_caller(const tutti_rpc_call *call)
{
    const char *identity = tutti_rpc_call_identity(call);

    return identity[0] != '\0' ? identity : tutti_rpc_call_peer(call);
}

void
coord_abort_to_wire(const tutti_coordinator_abort *abort, Tutti__V1__GroupAbort *ret_wire)
{
    tutti__v1__group_abort__init(ret_wire);
    ret_wire->text = text_to_wire(abort->text);
    ret_wire->rank = abort->rank;
    ret_wire->epoch = abort->epoch;
}

static tutti_code
count_ranks(uint32_t count, uint32_t **ret_ranks, tutti_error *err)
{
    uint32_t *ranks = malloc(count * sizeof(*ranks));
    uint32_t i;

    if (ranks == NULL) {
        return coord_fail_answer(err);
    }
    for (i = 0; i < count; i++) {
        ranks[i] = i;
    }
    *ret_ranks = ranks;
    return TUTTI_OK;
}

/*
 * [out] ret_wire  coord_group_wire_fini it, after the reply
 * [in]  spans     the memory for spans; NULL = the client does not take them
 */
tutti_code
coord_group_to_wire(const tutti_coordinator_group *group, tutti_spans *spans,
                    Tutti__V1__Group *ret_wire, tutti_error *err)
{
    uint32_t *ranks = (uint32_t *)(uintptr_t)group->ranks;

    tutti__v1__group__init(ret_wire);
    ret_wire->id = group->id;
    ret_wire->name = text_to_wire(group->name);
    ret_wire->epoch = group->epoch;
    ret_wire->tag = text_to_wire(group->tag);
    ret_wire->timeout_ms = group->timeout_ms;
    ret_wire->age_ms = group->age_ms;
    ret_wire->owner = text_to_wire(group->owner == NULL ? "" : group->owner);
    if (group->abort != NULL) {
        ret_wire->abort = malloc(sizeof(*ret_wire->abort));
        if (ret_wire->abort == NULL) {
            return coord_fail_answer(err);
        }
        coord_abort_to_wire(group->abort, ret_wire->abort);
    }
    if (spans != NULL) {
        tutti_spans_pack(group->ranks, group->count, spans);
        ret_wire->spans = spans->numbers;
        ret_wire->n_spans = spans->count;
    }
    if (ret_wire->n_spans > 0) {
        return TUTTI_OK;
    }
    if (ranks == NULL && count_ranks(group->count, &ranks, err) != TUTTI_OK) {
        free(ret_wire->abort);
        return err->code;
    }
    ret_wire->ranks = ranks;
    ret_wire->n_ranks = group->count;
    return TUTTI_OK;
}

void
coord_group_wire_fini(const tutti_coordinator_group *group, Tutti__V1__Group *wire)
{
    free(wire->abort);
    if (group->ranks == NULL) {
        free(wire->ranks);
    }
}

/*
 * The ranks of a request, in either form.
 * [out, owned] ret_unpacked  free it; NULL when there was nothing to unpack
 */
static tutti_code
ranks_from_wire(const Tutti__V1__CreateGroupRequest *wire, tutti_coordinator_group_request *request,
                uint32_t **ret_unpacked, tutti_error *err)
{
    request->ranks = wire->ranks;
    request->count = wire->n_ranks;
    if (wire->n_spans == 0) {
        return TUTTI_OK;
    }
    if (wire->n_ranks > 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SPANS",
                              "the group is given as %zu ranks and as spans, need one of the two",
                              wire->n_ranks);
    }
    TUTTI_TRY(tutti_spans_unpack(wire->spans, wire->n_spans, ret_unpacked, &request->count, err));
    request->ranks = (const int32_t *)*ret_unpacked; /* below TUTTI_RANKS_MAX */
    return TUTTI_OK;
}

static void
reply_created(tutti_rpc_call *call, const tutti_coordinator_group *group, bool created,
              bool accept_spans)
{
    Tutti__V1__CreateGroupResponse response = TUTTI__V1__CREATE_GROUP_RESPONSE__INIT;
    Tutti__V1__Group made;
    tutti_spans spans;
    tutti_error err;

    if (coord_group_to_wire(group, accept_spans ? &spans : NULL, &made, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    response.group = &made;
    response.created = created;
    response.group_rank = (uint32_t)group->rank;
    tutti_rpc_call_reply(call, &response.base, NULL);
    coord_group_wire_fini(group, &made);
}

void
coord_on_create_group(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__CreateGroupRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator_group_request request = {.member = member_from_wire(wire->member),
                                               .name = wire->name,
                                               .tag = wire->tag,
                                               .parent = wire->parent,
                                               .token = wire->token,
                                               .ephemeral = wire->ephemeral,
                                               .lease = wire->lease,
                                               .timeout_ms = wire->timeout_ms,
                                               .caller = coord_caller(call)};
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_coordinator_group group;
    uint32_t *unpacked = NULL;
    bool created = false;
    tutti_error err;
    tutti_code code = ranks_from_wire(wire, &request, &unpacked, &err);

    if (code == TUTTI_OK) {
        code = tutti_coordinator_group_create(core, &request, &group, &created, &err);
    }
    free(unpacked);
    if (code == TUTTI_OK) {
        reply_created(call, &group, created, wire->accept_spans);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* The asker's rank is optional; with it the answer says its group rank too. */
void
coord_on_get_group(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__GetGroupRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__GetGroupResponse response = TUTTI__V1__GET_GROUP_RESPONSE__INIT;
    tutti_coordinator_group group;
    Tutti__V1__Group found;
    tutti_spans spans;
    const int64_t asker = wire->opt_rank_case == TUTTI__V1__GET_GROUP_REQUEST__OPT_RANK_RANK
                              ? (int64_t)wire->rank
                              : -1;
    tutti_error err;
    tutti_code code = tutti_coordinator_group_get(service_loop_enter(arg), wire->job, wire->name,
                                                  asker, &group, &err);

    if (code == TUTTI_OK) {
        code = coord_group_to_wire(&group, wire->accept_spans ? &spans : NULL, &found, &err);
    }
    if (code == TUTTI_OK) {
        response.group = &found;
        response.group_rank = (int32_t)group.rank;
        tutti_rpc_call_reply(call, &response.base, NULL);
        coord_group_wire_fini(&group, &found);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

void
coord_on_delete_group(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__DeleteGroupRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__DeleteGroupResponse response = TUTTI__V1__DELETE_GROUP_RESPONSE__INIT;
    const tutti_coordinator_group_end request = {.member = member_from_wire(wire->member),
                                                 .name = wire->name,
                                                 .id = wire->id,
                                                 .allow_missing = wire->allow_missing};
    bool deleted = false;
    tutti_error err;

    tutti_coordinator *core = service_loop_enter(arg);
    const tutti_code code =
        wire->lease == 0
            ? tutti_coordinator_group_delete(core, &request, &deleted, &err)
            : tutti_coordinator_group_release(core, &request.member, wire->lease, &deleted, &err);

    if (code == TUTTI_OK) {
        response.deleted = deleted;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

void
coord_on_abort_group(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__AbortGroupRequest *wire = tutti_rpc_call_request(call);
    Tutti__V1__AbortGroupResponse response = TUTTI__V1__ABORT_GROUP_RESPONSE__INIT;
    const tutti_coordinator_abort_request request = {.member = member_from_wire(wire->member),
                                                     .name = wire->name,
                                                     .id = wire->id,
                                                     .reason = wire->reason,
                                                     .identity = tutti_rpc_call_identity(call)};
    const tutti_coordinator_abort *abort = NULL;
    Tutti__V1__GroupAbort told;
    bool aborted = false;
    tutti_error err;

    if (tutti_coordinator_group_abort(service_loop_enter(arg), &request, &abort, &aborted, &err) ==
        TUTTI_OK) {
        coord_abort_to_wire(abort, &told);
        response.abort = &told;
        response.aborted = aborted;
        tutti_rpc_call_reply(call, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}

/* A page of groups, on its way to the wire. */
typedef struct group_page {
    tutti_coordinator_group *groups;
    Tutti__V1__Group *wires;
    Tutti__V1__Group **pointers;
    size_t count;
    size_t ranks;
    bool more;
} group_page;

static void
group_page_fini(group_page *page)
{
    size_t i;

    for (i = 0; i < page->count; i++) {
        coord_group_wire_fini(&page->groups[i], &page->wires[i]);
    }
    free(page->groups);
    free(page->wires);
    free(page->pointers);
}

static tutti_code
group_page_init(group_page *page, size_t size, tutti_error *err)
{
    *page = (group_page){.groups = calloc(size, sizeof(*page->groups)),
                         .wires = calloc(size, sizeof(*page->wires)),
                         .pointers = calloc(size, sizeof(*page->pointers))};
    if (page->groups == NULL || page->wires == NULL || page->pointers == NULL) {
        return coord_fail_answer(err);
    }
    return TUTTI_OK;
}

/*
 * A page ends at the number of groups that was asked for, or when their ranks become too many for
 * a message. The first group is always taken, so there is progress.
 */
static tutti_code
group_page_fill(group_page *page, size_t size, tutti_coordinator *core,
                const Tutti__V1__ListGroupsRequest *wire, tutti_error *err)
{
    const char *after = wire->page_token;
    tutti_coordinator_group group;
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK) {
        code = tutti_coordinator_group_next(core, wire->job, after, &group, &page->more, err);
        if (code != TUTTI_OK || !page->more) {
            return code;
        }
        if (page->count == size ||
            (page->count > 0 && page->ranks + group.count > PAGE_RANKS_MAX)) {
            return TUTTI_OK;
        }
        code = coord_group_to_wire(&group, NULL, &page->wires[page->count], err);
        if (code == TUTTI_OK) {
            page->groups[page->count] = group;
            page->pointers[page->count] = &page->wires[page->count];
            page->ranks += group.count;
            page->count++;
            after = group.name;
        }
    }
    return code;
}

static void
reply_groups(tutti_rpc_call *call, const group_page *page)
{
    Tutti__V1__ListGroupsResponse response = TUTTI__V1__LIST_GROUPS_RESPONSE__INIT;

    response.groups = page->pointers;
    response.n_groups = page->count;
    if (page->more) {
        response.next_page_token = page->wires[page->count - 1].name;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

void
coord_on_list_groups(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__ListGroupsRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(arg);
    group_page page = {0};
    size_t size = 0;
    tutti_error err;
    tutti_code code = coord_page_size(wire->page_size, &size, &err);

    if (code == TUTTI_OK) {
        code = group_page_init(&page, size, &err);
    }
    if (code == TUTTI_OK) {
        code = group_page_fill(&page, size, core, wire, &err);
    }
    if (code == TUTTI_OK) {
        reply_groups(call, &page);
    } else {
        tutti_rpc_call_fail(call, &err);
    }
    group_page_fini(&page);
    service_loop_leave(arg);
}
