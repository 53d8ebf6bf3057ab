/*
 * CoordinatorService: groups. Lists of ranks are sent as spans where that is shorter, and are
 * taken in either form. What the coordinator answers is checked before memory is taken for it.
 */
#include "client/group/groups_pb.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/data/spans.h"
#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/coordinator.h"
#include "client/conn/pager.h"
#include "client/conn/types_pb.h"
#include "client/group/groups.h"
#include "tutti/group.h"

#define SERVICE (&tutti__v1__coordinator_service__descriptor)

static const tutti_rpc_stub stub_create_group = {SERVICE, "CreateGroup"};
static const tutti_rpc_stub stub_get_group = {SERVICE, "GetGroup"};
static const tutti_rpc_stub stub_list_groups = {SERVICE, "ListGroups"};
static const tutti_rpc_stub stub_abort_group = {SERVICE, "AbortGroup"};
static const tutti_rpc_stub stub_shrink_group = {SERVICE, "ShrinkGroup"};
static const tutti_rpc_stub stub_delete_group = {SERVICE, "DeleteGroup"};

/* [out, owned] ret_ranks  free it */
static tutti_code
read_groups_ranks(const Tutti__V1__Group *message, uint32_t **ret_ranks, size_t *ret_count,
                  tutti_error *err)
{
    const size_t bytes = message->n_ranks * sizeof(**ret_ranks);

    if (message->n_spans > 0) {
        return tutti_spans_unpack(message->spans, message->n_spans, ret_ranks, ret_count, err);
    }
    *ret_ranks = malloc(bytes);
    if (*ret_ranks == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a group of %zu ranks", message->n_ranks);
    }
    memcpy(*ret_ranks, message->ranks, bytes);
    *ret_count = message->n_ranks;
    return TUTTI_OK;
}

/* [out, owned] ret  tutti_group_info_free it; its rank is -1, which the caller sets */
tutti_code
client_read_group(const Tutti__V1__Group *message, tutti_group_info *ret, tutti_error *err)
{
    tutti_group_info info = {.rank = -1};
    size_t count = 0;

    if (message == NULL || message->n_ranks > TUTTI_RANKS_MAX ||
        (message->n_ranks == 0 && message->n_spans == 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the coordinator answered a group of %zu ranks",
                              message == NULL ? 0 : message->n_ranks);
    }
    TUTTI_TRY(read_groups_ranks(message, &info.ranks, &count, err));
    info.rank_count = (uint32_t)count;
    info.id = message->id;
    info.epoch = message->epoch;
    client_read_text(message->name, info.name, sizeof(info.name));
    client_read_text(message->tag, info.tag, sizeof(info.tag));
    info.age_ms = message->age_ms;
    client_read_text(message->owner, info.owner, sizeof(info.owner));
    *ret = info;
    return TUTTI_OK;
}

/* The request may be made twice: it has a token, and with a name it finds what is there. */
static tutti_code
create_group(tutti_client *client, Tutti__V1__CreateGroupRequest *request,
             tutti_group_info *ret_info, tutti_error *err)
{
    const client_call call = client_ask_coordinator(client, &stub_create_group);
    const Tutti__V1__CreateGroupResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = client_invoke_again(client, &call, &request->base, &message, err);

    if (code == TUTTI_OK && ret_info != NULL) {
        response = tutti_rpc_message_get(message);
        code = client_read_group(response->group, ret_info, err);
        if (code == TUTTI_OK) {
            ret_info->rank = (int32_t)response->group_rank;
        }
    }
    tutti_rpc_message_free(message);
    return code;
}

/* Only a member may create a group, so the request says which member this is. */
tutti_code
client_wire_group_create(tutti_client *client, const tutti_group_options *options,
                         const uint32_t *ranks, size_t count, tutti_group_info *ret_info,
                         tutti_error *err)
{
    Tutti__V1__CreateGroupRequest request = TUTTI__V1__CREATE_GROUP_REQUEST__INIT;
    Tutti__V1__Member member;
    tutti_spans spans;

    client_write_member(client, &member);
    request.member = &member;
    request.name = client_write_text(options->name);
    request.tag = client_write_text(options->tag);
    request.parent = client_write_text(options->parent);
    request.token = tutti_id_draw();
    request.accept_spans = true;
    request.ephemeral = options->ephemeral;
    request.lease = options->ephemeral ? atomic_load(&client->lease) : 0;
    request.timeout_ms = options->timeout_ms;
    tutti_spans_pack(ranks, count, &spans);
    request.n_spans = spans.count;
    request.spans = spans.numbers;
    if (spans.count == 0) {
        request.n_ranks = count;
        request.ranks = (int32_t *)(uintptr_t)ranks; /* below TUTTI_RANKS_MAX, or refused there */
    }
    return create_group(client, &request, ret_info, err);
}

/* Without an agent there is no own rank, and mesh:NAME/DIM has no meaning then. */
tutti_code
tutti_group_get(tutti_client *client, const char *name, tutti_group_info *ret_info,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_info, err);

    Tutti__V1__GetGroupRequest request = TUTTI__V1__GET_GROUP_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_get_group);
    const tutti_agent_info *own = tutti_whoami(client);
    const Tutti__V1__GetGroupResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.job = client_write_text(client_job(client));
    request.name = client_write_text(name);
    request.accept_spans = true;
    if (own != NULL) {
        request.opt_rank_case = TUTTI__V1__GET_GROUP_REQUEST__OPT_RANK_RANK;
        request.rank = own->rank;
    }
    code = client_invoke_again(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_group(response->group, ret_info, err);
        if (code == TUTTI_OK) {
            ret_info->rank = own == NULL ? -1 : response->group_rank;
        }
        tutti_rpc_message_free(message);
    }
    return code;
}

tutti_code
client_wire_group_delete(tutti_client *client, const char *name, uint64_t id, bool missing_is_fine,
                         tutti_error *err)
{
    Tutti__V1__DeleteGroupRequest request = TUTTI__V1__DELETE_GROUP_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_delete_group);
    Tutti__V1__Member member;

    TUTTI_TRY(client_check_member(client, err));
    client_write_member(client, &member);
    request.member = &member;
    request.name = client_write_text(name);
    request.id = id;
    request.allow_missing = missing_is_fine;
    return client_invoke(client, &call, &request.base, NULL, err);
}

/* May be made twice: the second one finds the group aborted. */
tutti_code
client_wire_group_abort(tutti_client *client, const char *name, uint64_t id, const char *reason,
                        tutti_error *err)
{
    Tutti__V1__AbortGroupRequest request = TUTTI__V1__ABORT_GROUP_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_abort_group);
    tutti_rpc_message *message = NULL;
    Tutti__V1__Member member;

    TUTTI_TRY(client_check_member(client, err));
    client_write_member(client, &member);
    request.member = &member;
    request.name = client_write_text(name);
    request.id = id;
    request.reason = client_write_text(reason);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* May be made twice: the second one takes the first one's place, or gets its answer again. */
tutti_code
client_wire_group_shrink(tutti_client *client, const char *name, uint32_t timeout_ms,
                         tutti_group_info *ret_info, tutti_error *err)
{
    Tutti__V1__ShrinkGroupRequest request = TUTTI__V1__SHRINK_GROUP_REQUEST__INIT;
    client_call call = {.stub = &stub_shrink_group, .kind = CLIENT_COORDINATOR};
    const Tutti__V1__ShrinkGroupResponse *response;
    tutti_rpc_message *message = NULL;
    Tutti__V1__Member member;
    tutti_code code;

    TUTTI_TRY(client_check_member(client, err));
    client_write_member(client, &member);
    request.member = &member;
    request.name = client_write_text(name);
    request.timeout_ms = timeout_ms != 0 ? timeout_ms : client->settings.timeout_ms;
    request.accept_spans = true;
    call.deadline_ns = client_op_deadline(request.timeout_ms);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    code = client_read_group(response->group, ret_info, err);
    if (code == TUTTI_OK) {
        ret_info->rank = (int32_t)response->group_rank;
    }
    tutti_rpc_message_free(message);
    return code;
}

/* For client_list_pages: one page, whose items are lent by the response. */
static tutti_code
ask_groups(tutti_client *client, const char *token, tutti_rpc_message **ret_response,
           client_page *ret_page, tutti_error *err)
{
    Tutti__V1__ListGroupsRequest request = TUTTI__V1__LIST_GROUPS_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_list_groups);
    const Tutti__V1__ListGroupsResponse *response;

    request.job = client_write_text(client_job(client));
    request.page_size = CLIENT_PAGE_SIZE;
    request.page_token = client_write_text(token);
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, ret_response, err));
    response = tutti_rpc_message_get(*ret_response);
    *ret_page = (client_page){.items = (void *const *)response->groups,
                              .count = response->n_groups,
                              .next_token = response->next_page_token};
    return TUTTI_OK;
}

static tutti_code
read_group_item(const void *item, void *ret_item, tutti_error *err)
{
    return client_read_group(item, ret_item, err);
}

static void
free_group_item(void *item)
{
    tutti_group_info_free(item);
}

tutti_code
tutti_group_list(tutti_client *client, tutti_group_info **ret_infos, size_t *ret_count,
                 tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED(ret_count, err);

    static const client_pager pager = {.what = "groups",
                                       .item_size = sizeof(tutti_group_info),
                                       .ask = ask_groups,
                                       .read = read_group_item,
                                       .free = free_group_item};

    return client_list_pages(client, &pager, (void **)ret_infos, ret_count, err);
}
