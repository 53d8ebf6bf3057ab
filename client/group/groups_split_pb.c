/* CoordinatorService: parts of groups, and ranks from one group to another. */
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/coordinator.h"
#include "client/conn/types_pb.h"
#include "client/group/groups.h"
#include "client/group/groups_pb.h"
#include "tutti/group.h"

#define SERVICE (&tutti__v1__coordinator_service__descriptor)

static const tutti_rpc_stub stub_split = {SERVICE, "CreateSubgroups"};
static const tutti_rpc_stub stub_translate = {SERVICE, "TranslateRanks"};

/* ------------------------------------------------------------------------------ lists */

/*
 * All lists lie behind one another in one block; `starts` says where each begins, with one more
 * for the end.
 */
tutti_code
client_read_lists(Tutti__V1__RankList *const *messages, size_t count, tutti_rank_lists *ret,
                  tutti_error *err)
{
    tutti_rank_lists lists = {.count = count, .starts = calloc(count + 1, sizeof(size_t))};
    size_t total = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        total += messages[i]->n_ranks;
    }
    lists.ranks = calloc(total + 1, sizeof(*lists.ranks));
    if (lists.starts == NULL || lists.ranks == NULL) {
        tutti_rank_lists_free(&lists);
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu lists of ranks", count);
    }
    for (i = 0; i < count; i++) {
        lists.starts[i + 1] = lists.starts[i] + messages[i]->n_ranks;
        if (messages[i]->n_ranks > 0) {
            memcpy(lists.ranks + lists.starts[i], messages[i]->ranks,
                   messages[i]->n_ranks * sizeof(*lists.ranks));
        }
    }
    *ret = lists;
    return TUTTI_OK;
}

/* Lists on their way out, in one block; borrows the ranks. */
typedef struct list_message {
    Tutti__V1__RankLists message;
    Tutti__V1__RankList *lists;
    Tutti__V1__RankList **pointers;
} list_message;

static void
list_message_fini(list_message *self)
{
    free(self->lists);
    free(self->pointers);
}

static tutti_code
list_message_init(list_message *self, const tutti_rank_lists *lists, tutti_error *err)
{
    const size_t count = lists == NULL ? 0 : lists->count;
    size_t i;

    tutti__v1__rank_lists__init(&self->message);
    self->lists = calloc(count + 1, sizeof(*self->lists));
    self->pointers = calloc(count + 1, sizeof(*self->pointers));
    if (self->lists == NULL || self->pointers == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu lists of ranks", count);
    }
    for (i = 0; i < count; i++) {
        tutti__v1__rank_list__init(&self->lists[i]);
        self->lists[i].ranks = (int32_t *)(uintptr_t)(lists->ranks + lists->starts[i]);
        self->lists[i].n_ranks = lists->starts[i + 1] - lists->starts[i];
        self->pointers[i] = &self->lists[i];
    }
    self->message.lists = self->pointers;
    self->message.n_lists = count;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ parts */

/* Without a group in the answer this rank is in no part, or nothing was made. */
static tutti_code
read_split_part(const Tutti__V1__CreateSubgroupsResponse *response, tutti_group_info *ret_info,
                tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    *ret_info = (tutti_group_info){.rank = response->group_rank};
    if (response->group != NULL) {
        code = client_read_group(response->group, ret_info, err);
        ret_info->rank = response->group_rank;
    }
    return code;
}

static tutti_code
split_group(tutti_client *client, const Tutti__V1__CreateSubgroupsRequest *request,
            tutti_group_info *ret_info, tutti_rank_lists *ret_lists, tutti_error *err)
{
    const client_call call = client_ask_coordinator(client, &stub_split);
    const Tutti__V1__CreateSubgroupsResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = client_invoke_again(client, &call, &request->base, &message, err);

    if (code != TUTTI_OK) {
        return code;
    }
    response = tutti_rpc_message_get(message);
    if (ret_info != NULL) {
        code = read_split_part(response, ret_info, err);
    }
    if (code == TUTTI_OK && ret_lists != NULL) {
        code = client_read_lists(response->lists, response->n_lists, ret_lists, err);
        if (code != TUTTI_OK) {
            tutti_group_info_free(ret_info);
        }
    }
    tutti_rpc_message_free(message);
    return code;
}

/* Which of the three ways to split; the message has room for one. */
static void
write_layout(const tutti_split *split, list_message *lists,
             Tutti__V1__CreateSubgroupsRequest *request)
{
    switch (split->kind) {
    case TUTTI_SPLIT_SIZE:
        request->layout_case = TUTTI__V1__CREATE_SUBGROUPS_REQUEST__LAYOUT_GROUP_SIZE;
        request->group_size = split->number;
        break;
    case TUTTI_SPLIT_COUNT:
        request->layout_case = TUTTI__V1__CREATE_SUBGROUPS_REQUEST__LAYOUT_GROUP_COUNT;
        request->group_count = split->number;
        break;
    case TUTTI_SPLIT_LISTS:
        request->layout_case = TUTTI__V1__CREATE_SUBGROUPS_REQUEST__LAYOUT_LISTS;
        request->lists = &lists->message;
        break;
    }
}

tutti_code
client_wire_group_split(tutti_client *client, const tutti_group_options *options,
                        const tutti_split *split, tutti_group_info *ret_info,
                        tutti_rank_lists *ret_lists, tutti_error *err)
{
    Tutti__V1__CreateSubgroupsRequest request = TUTTI__V1__CREATE_SUBGROUPS_REQUEST__INIT;
    Tutti__V1__Member member;
    list_message lists;
    tutti_code code = list_message_init(&lists, split->lists, err);

    client_write_member(client, &member);
    request.member = &member;
    request.parent = client_write_text(options->parent);
    request.name = client_write_text(options->name);
    request.tag = client_write_text(options->tag);
    request.token = tutti_id_draw();
    request.equal_sizes = split->equal_sizes;
    request.validate_only = split->validate_only;
    request.list_all = ret_lists != NULL;
    request.accept_spans = true;
    request.ephemeral = options->ephemeral;
    request.lease = options->ephemeral ? atomic_load(&client->lease) : 0;
    request.timeout_ms = options->timeout_ms;
    write_layout(split, &lists, &request);
    if (code == TUTTI_OK) {
        code = split_group(client, &request, ret_info, ret_lists, err);
    }
    list_message_fini(&lists);
    return code;
}

/* ------------------------------------------------------------------------------ translation */

/* The answer must have as many ranks as were asked for, since the caller's array has that size. */
static tutti_code
translate_split(tutti_client *client, const Tutti__V1__TranslateRanksRequest *request,
                int32_t *ret_ranks, tutti_error *err)
{
    const client_call call = client_ask_coordinator(client, &stub_translate);
    const Tutti__V1__TranslateRanksResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = client_invoke_again(client, &call, &request->base, &message, err);

    if (code != TUTTI_OK) {
        return code;
    }
    response = tutti_rpc_message_get(message);
    if (response->n_ranks != request->n_ranks) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the coordinator was asked for %zu ranks and answered %zu",
                              request->n_ranks, response->n_ranks);
    } else if (response->n_ranks > 0) {
        memcpy(ret_ranks, response->ranks, response->n_ranks * sizeof(*ret_ranks));
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_ranks_translate(tutti_client *client, const char *from, const char *to, const int32_t *ranks,
                      size_t count, int32_t *ret_ranks, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_ranks, err);
    TUTTI_NEED_LIST(ranks, count, err);

    Tutti__V1__TranslateRanksRequest request = TUTTI__V1__TRANSLATE_RANKS_REQUEST__INIT;
    const tutti_agent_info *own = tutti_whoami(client);

    if (count > TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LOOKUP_LIMIT",
                              "%zu ranks at once, at most %d", count, TUTTI_RANKS_MAX);
    }
    request.job = client_write_text(client_job(client));
    request.from_group = client_write_text(from);
    request.to_group = client_write_text(to);
    request.ranks = (int32_t *)(uintptr_t)ranks;
    request.n_ranks = count;
    if (own != NULL) {
        request.opt_rank_case = TUTTI__V1__TRANSLATE_RANKS_REQUEST__OPT_RANK_RANK;
        request.rank = own->rank;
    }
    return translate_split(client, &request, ret_ranks, err);
}
