/* CoordinatorService.DescribeStall. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/coordinator.h"
#include "client/conn/options.h"
#include "client/conn/types_pb.h"
#include "tutti/diagnose.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define WAIT_DEFAULT_MS 500
#define ANSWER_MS 2000 /* beyond what agents may take */

static const tutti_rpc_stub stub_stall = {&tutti__v1__coordinator_service__descriptor,
                                          "DescribeStall"};

const char *
tutti_standing_name(tutti_standing standing)
{
    static const char *const names[] = {"unknown", "arrived", "absent", "slow",
                                        "queued",  "silent",  "lost"};
    const size_t at = (size_t)standing;

    return names[at < sizeof(names) / sizeof(names[0]) ? at : 0];
}

void
tutti_stall_options_init(tutti_stall_options *options)
{
    *options = (tutti_stall_options){.size = sizeof(*options)};
}

/* Good for one that was only read in part. */
void
tutti_stalls_free(tutti_stalls *stalls)
{
    size_t i;

    if (stalls == NULL) {
        return;
    }
    for (i = 0; i < stalls->count; i++) {
        free(stalls->stalls[i].arrived);
        free(stalls->stalls[i].ranks);
    }
    for (i = 0; i < stalls->uneven_count; i++) {
        free(stalls->uneven[i].behind);
    }
    free(stalls->stalls);
    free(stalls->ranks);
    free(stalls->uneven);
    *stalls = (tutti_stalls){.count = 0};
}

/* NULL: no memory. */
static tutti_stalled_rank *
read_stall_ranks(Tutti__V1__StalledRank *const *messages, size_t count)
{
    tutti_stalled_rank *ranks = calloc(count + 1, sizeof(*ranks));
    size_t i;

    for (i = 0; ranks != NULL && i < count; i++) {
        const Tutti__V1__StalledRank *message = messages[i];

        ranks[i] = (tutti_stalled_rank){.rank = message->rank,
                                        .standing = (tutti_standing)message->standing,
                                        .arrived = message->arrived,
                                        .last_sequence = message->last_sequence,
                                        .last_ms = message->last_ms,
                                        .silent_ms = message->silent_ms};
        client_read_text(message->last_op, ranks[i].last_op, sizeof(ranks[i].last_op));
        client_read_text(message->reason, ranks[i].reason, sizeof(ranks[i].reason));
    }
    return ranks;
}

static bool
read_stall(const Tutti__V1__Stall *message, tutti_stall *ret)
{
    size_t i;

    *ret = (tutti_stall){.sequence = message->sequence,
                         .waited_ms = message->waited_ms,
                         .group_size = message->group_size,
                         .arrived_count = message->arrived_count,
                         .missing_count = message->missing_count,
                         .arrived_listed = message->n_arrived,
                         .rank_count = message->n_ranks};
    client_read_text(message->group, ret->group, sizeof(ret->group));
    client_read_text(message->op, ret->op, sizeof(ret->op));
    client_read_text(message->text, ret->text, sizeof(ret->text));
    ret->arrived = calloc(message->n_arrived + 1, sizeof(*ret->arrived));
    ret->ranks = read_stall_ranks(message->ranks, message->n_ranks);
    for (i = 0; ret->arrived != NULL && i < message->n_arrived; i++) {
        ret->arrived[i] = message->arrived[i];
    }
    return ret->arrived != NULL && ret->ranks != NULL;
}

static void
read_counted(const Tutti__V1__CountedRank *message, tutti_counted_rank *ret)
{
    *ret = (tutti_counted_rank){
        .rank = message->rank, .sequence = message->sequence, .last_ms = message->last_ms};
    client_read_text(message->last_op, ret->last_op, sizeof(ret->last_op));
}

static bool
read_uneven(const Tutti__V1__UnevenGroup *message, tutti_uneven_group *ret)
{
    size_t i;

    *ret = (tutti_uneven_group){.behind_count = message->behind_count,
                                .behind_listed = message->n_behind};
    client_read_text(message->group, ret->group, sizeof(ret->group));
    client_read_text(message->text, ret->text, sizeof(ret->text));
    if (message->ahead != NULL) {
        read_counted(message->ahead, &ret->ahead);
    }
    ret->behind = calloc(message->n_behind + 1, sizeof(*ret->behind));
    for (i = 0; ret->behind != NULL && i < message->n_behind; i++) {
        read_counted(message->behind[i], &ret->behind[i]);
    }
    return ret->behind != NULL;
}

/*
 * `count` grows before the result is looked at, so that a stall which was read in part is freed
 * as well.
 */
static tutti_code
read_stalls(const Tutti__V1__DescribeStallResponse *response, tutti_stalls *ret, tutti_error *err)
{
    tutti_stalls stalls = {.epoch = response->epoch,
                           .world_size = response->world_size,
                           .rank_count = response->n_ranks,
                           .silent_count = response->silent_count,
                           .lost_count = response->lost_count};
    bool well;
    size_t i;

    client_read_text(response->job, stalls.job, sizeof(stalls.job));
    stalls.stalls = calloc(response->n_stalls + 1, sizeof(*stalls.stalls));
    stalls.ranks = read_stall_ranks(response->ranks, response->n_ranks);
    stalls.uneven = calloc(response->n_uneven_groups + 1, sizeof(*stalls.uneven));
    well = stalls.stalls != NULL && stalls.ranks != NULL && stalls.uneven != NULL;
    for (i = 0; well && i < response->n_stalls; i++) {
        well = read_stall(response->stalls[i], &stalls.stalls[i]);
        stalls.count++;
    }
    for (i = 0; well && i < response->n_uneven_groups; i++) {
        well = read_uneven(response->uneven_groups[i], &stalls.uneven[i]);
        stalls.uneven_count++;
    }
    if (!well) {
        tutti_stalls_free(&stalls);
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu stalls", response->n_stalls);
    }
    *ret = stalls;
    return TUTTI_OK;
}

/* The coordinator asks all agents first, which takes up to `wait_ms`. */
tutti_code
tutti_stalls_find(tutti_client *client, const tutti_stall_options *options,
                  tutti_stalls *ret_stalls, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_stalls, err);

    Tutti__V1__DescribeStallRequest request = TUTTI__V1__DESCRIBE_STALL_REQUEST__INIT;
    client_call call = client_ask_coordinator(client, &stub_stall);
    tutti_stall_options own;
    tutti_rpc_message *message = NULL;
    tutti_code code = TUTTI_OK;

    tutti_stall_options_init(&own);
    if (options != NULL) {
        code = client_take_struct(&own, sizeof(own), options, options->size, "tutti_stall_options",
                                  err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    request.job = client_write_text(client_job(client));
    request.group = client_write_text(own.group);
    request.older_than_ms = own.older_than_ms;
    request.wait_ms = own.wait_ms == 0 ? WAIT_DEFAULT_MS : own.wait_ms;
    call.deadline_ns += own.wait_ms > ANSWER_MS ? own.wait_ms * 1000000ULL : 0;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        code = read_stalls(tutti_rpc_message_get(message), ret_stalls, err);
        tutti_rpc_message_free(message);
    }
    return code;
}
