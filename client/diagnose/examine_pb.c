/* DiagnosticsService.Examine. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "tutti/diagnose.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

#define ADDRESSES_MAX 8
#define RDMA_MAX 16
#define GPUS_MAX 8

static const tutti_rpc_stub stub_examine = {&tutti__v1__diagnostics_service__descriptor, "Examine"};

/* What the struct has no room for is left out. */
static void
read_lists(const Tutti__V1__ExamineResponse *response, tutti_self_check *ret)
{
    size_t i;

    for (i = 0; i < response->n_addresses && i < ADDRESSES_MAX; i++) {
        client_read_text(response->addresses[i], ret->addresses[i], sizeof(ret->addresses[i]));
    }
    ret->address_count = i;
    for (i = 0; i < response->n_rdma_devices && i < RDMA_MAX; i++) {
        client_read_text(response->rdma_devices[i], ret->rdma_devices[i],
                         sizeof(ret->rdma_devices[i]));
    }
    ret->rdma_device_count = i;
    for (i = 0; i < response->n_gpus && i < GPUS_MAX; i++) {
        client_read_text(response->gpus[i], ret->gpus[i], sizeof(ret->gpus[i]));
    }
    ret->gpu_count = i;
}

static void
read_self_check(const Tutti__V1__ExamineResponse *response, tutti_self_check *ret)
{
    *ret = (tutti_self_check){.rank = response->rank,
                              .pid = response->pid,
                              .memlock_bytes = response->memlock_bytes,
                              .memlock_max_bytes = response->memlock_max_bytes,
                              .files = response->files,
                              .files_max = response->files_max,
                              .files_open = response->files_open};
    client_read_text(response->host, ret->host, sizeof(ret->host));
    client_read_text(response->version, ret->version, sizeof(ret->version));
    client_read_text(response->kernel, ret->kernel, sizeof(ret->kernel));
    client_read_text(response->device, ret->device, sizeof(ret->device));
    client_read_text(response->transports, ret->transports, sizeof(ret->transports));
    client_read_text(response->net_devices, ret->net_devices, sizeof(ret->net_devices));
    read_lists(response, ret);
}

static tutti_code
read_reaches(const Tutti__V1__ExamineResponse *response, tutti_reach **ret, tutti_error *err)
{
    tutti_reach *reaches = calloc(response->n_reaches + 1, sizeof(*reaches));
    size_t i;

    if (reaches == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu ranks", response->n_reaches);
    }
    for (i = 0; i < response->n_reaches; i++) {
        const Tutti__V1__Reach *message = response->reaches[i];

        reaches[i].rank = message->rank;
        reaches[i].reached = message->reached;
        reaches[i].trip_us = message->trip_us;
        client_read_text(message->why, reaches[i].why, sizeof(reaches[i].why));
    }
    *ret = reaches;
    return TUTTI_OK;
}

/* The agent needs `wait_ms` to reach the others, so the deadline is that much later. */
tutti_code
tutti_agent_examine(tutti_client *client, const uint32_t *ranks, size_t count, uint32_t wait_ms,
                    tutti_self_check *ret_self_check, tutti_reach **ret_reaches,
                    size_t *ret_reach_count, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(ranks, count, err);
    TUTTI_NEED(ret_self_check, err);
    TUTTI_NEED(ret_reaches, err);
    TUTTI_NEED(ret_reach_count, err);

    Tutti__V1__ExamineRequest request = TUTTI__V1__EXAMINE_REQUEST__INIT;
    const client_call call = {.stub = &stub_examine,
                              .kind = CLIENT_CONTROL,
                              .deadline_ns = client_deadline(client, 0) + wait_ms * 1000000ULL};
    const Tutti__V1__ExamineResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.ranks = (uint32_t *)(uintptr_t)ranks;
    request.n_ranks = count;
    request.wait_ms = wait_ms;
    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    code = read_reaches(response, ret_reaches, err);
    if (code == TUTTI_OK) {
        *ret_reach_count = response->n_reaches;
        read_self_check(response, ret_self_check);
    }
    tutti_rpc_message_free(message);
    return code;
}
