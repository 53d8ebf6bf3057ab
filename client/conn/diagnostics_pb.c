/* DiagnosticsService, and grpc.health.v1. */
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/address_pick.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/diagnostics.h"
#include "client/conn/types_pb.h"
#include "grpc/health/v1/health.pb-c.h"
#include "tutti/client.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

#define SERVICE (&tutti__v1__diagnostics_service__descriptor)

static const tutti_rpc_stub stub_describe = {SERVICE, "DescribeAgent"};
static const tutti_rpc_stub stub_stats = {SERVICE, "GetStats"};
static const tutti_rpc_stub stub_health = {&grpc__health__v1__health__descriptor, "Check"};

static void
read_description(const Tutti__V1__DescribeAgentResponse *response, client_description *ret)
{
    *ret = (client_description){.joined = response->joined,
                                .elastic = response->elastic,
                                .several = response->several_coordinators,
                                .rank = response->rank,
                                .world_size = response->world_size,
                                .incarnation = response->incarnation,
                                .epoch = response->epoch,
                                .pid = response->pid,
                                .commands_max = response->commands_max,
                                .queue_commands_max = response->queue_commands_max,
                                .transfer_streams_max = response->transfer_streams_max};
    client_read_text(
        client_pick_address(response->addresses, response->n_addresses, response->host_id),
        ret->picked, sizeof(ret->picked));
    client_read_text(response->job, ret->job, sizeof(ret->job));
    client_read_text(response->coordinator, ret->coordinator, sizeof(ret->coordinator));
    client_read_text(response->host, ret->host, sizeof(ret->host));
    client_read_text(response->device, ret->device, sizeof(ret->device));
    client_read_text(response->version, ret->version, sizeof(ret->version));
}

tutti_code
client_wire_describe(tutti_client *client, uint64_t deadline_ns,
                     client_description *ret_description, tutti_error *err)
{
    Tutti__V1__DescribeAgentRequest request = TUTTI__V1__DESCRIBE_AGENT_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_describe, .kind = CLIENT_CONTROL, .deadline_ns = deadline_ns};
    tutti_rpc_message *message = NULL;

    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));

    read_description(tutti_rpc_message_get(message), ret_description);
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

/* "world" comes first, so it is the newest one if nothing has run. */
static void
read_newest(const Tutti__V1__GetStatsResponse *response, tutti_agent_stats *ret)
{
    const Tutti__V1__GroupStats *newest = NULL;
    size_t i;

    for (i = 0; i < response->n_groups; i++) {
        const Tutti__V1__GroupStats *group = response->groups[i];

        if (group->sequence > 0 && (newest == NULL || group->idle_ms < newest->idle_ms)) {
            newest = group;
        }
    }
    if (newest != NULL) {
        ret->newest_sequence = newest->sequence;
        client_read_text(newest->group, ret->newest_group, sizeof(ret->newest_group));
        client_read_text(newest->last_op, ret->newest_op, sizeof(ret->newest_op));
    }
}

static void
read_world(const Tutti__V1__GetStatsResponse *response, tutti_agent_stats *ret)
{
    size_t i;

    for (i = 0; i < response->n_groups; i++) {
        const Tutti__V1__GroupStats *group = response->groups[i];

        if (strcmp(group->group, "world") == 0) {
            ret->world_sequence = group->sequence;
            client_read_text(group->last_op, ret->world_last_op, sizeof(ret->world_last_op));
        }
    }
}

static void
read_gpus(const Tutti__V1__GetStatsResponse *response, tutti_agent_stats *ret)
{
    size_t i;

    for (i = 0; i < response->n_gpus; i++) {
        ret->gpu_used_bytes += response->gpus[i]->memory_used_bytes;
        ret->gpu_limit_bytes += response->gpus[i]->memory_limit_bytes;
    }
}

tutti_code
tutti_agent_stat(tutti_client *client, tutti_agent_stats *ret_stats, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_stats, err);

    Tutti__V1__GetStatsRequest request = TUTTI__V1__GET_STATS_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_stats, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};
    const Tutti__V1__GetStatsResponse *response;
    tutti_rpc_message *message = NULL;

    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    *ret_stats = (tutti_agent_stats){.tensor_count = response->tensor_count,
                                     .memory_used_bytes = response->memory_used_bytes,
                                     .memory_limit_bytes = response->memory_limit_bytes,
                                     .work_count = response->work_count,
                                     .op_running_count = response->op_running_count,
                                     .op_done_count = response->op_done_count,
                                     .op_failed_count = response->op_failed_count,
                                     .call_running_count = response->call_running_count};
    read_world(response, ret_stats);
    read_newest(response, ret_stats);
    read_gpus(response, ret_stats);
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
client_wire_health(tutti_client *client, const char *service, uint64_t deadline_ns,
                   bool *ret_serving, tutti_error *err)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_health, .kind = CLIENT_CONTROL, .deadline_ns = deadline_ns};
    const Grpc__Health__V1__HealthCheckResponse *response;
    tutti_rpc_message *message = NULL;

    request.service = client_write_text(service);
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    *ret_serving =
        response->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}
