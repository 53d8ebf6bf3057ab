/*
 * DiagnosticsService: what the agent is, what it can do, what it holds. Control loop. Answers are
 * limited in length (GROUPS_SHOWN), since an agent may know thousands of groups.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce.h"
#include "rpc/follow.h"
#include "server/agent/op/group.h"
#include "server/agent/op/works.h"
#include "server/agent/record/progress.h"
#include "server/agent/service/services.h"
#include "server/agent/state/device.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "tutti/v1/diagnostics_service.pb-c.h"
#include "tutti/version.h"

#define DTYPES TUTTI_DTYPE_FP8_E5M2
#define REDUCES TUTTI_REDUCE_PREMUL_SUM
#define GROUPS_SHOWN 256

/* protobuf-c has pointers that are not const; the text is packed at once and never written. */
static char *
get_diagnostics_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void
on_describe(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    Tutti__V1__DescribeAgentResponse response = TUTTI__V1__DESCRIBE_AGENT_RESPONSE__INIT;
    char *addresses[TUTTI_ADDRESSES_MAX];

    agent_clients_note(&agent->clients, call);
    response.job = get_diagnostics_text(agent_job(agent));
    response.joined = agent->state == AGENT_JOINED;
    response.rank = agent->rank;
    response.world_size = agent->world_size;
    response.incarnation = agent->incarnation;
    response.epoch = agent->epoch;
    response.coordinator = get_diagnostics_text(agent->options->coordinator);
    response.host = agent->host;
    response.host_id = agent->host_id;
    response.pid = (uint32_t)getpid();
    response.device = get_diagnostics_text(agent->options->device);
    response.version = get_diagnostics_text(TUTTI_VERSION);
    response.commands_max = (uint32_t)agent->options->commands_max;
    response.queue_commands_max = agent_queue_commands_max(agent);
    response.transfer_streams_max = AGENT_UPLOAD_PARTS_MAX;
    response.elastic = agent->elastic;
    response.several_coordinators = tutti_rpc_channel_has_others(agent->coordinator);
    response.addresses = addresses;
    response.n_addresses = agent_addresses(agent, addresses);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* Which reduce ops a dtype has: asked of the kernels themselves. */
static size_t
list_reduces(tutti_dtype dtype, Tutti__V1__ReduceOp *ret)
{
    size_t count = 0;
    int reduce;

    for (reduce = 1; reduce <= REDUCES; reduce++) {
        if (tutti_reduce_check((tutti_reduce)reduce, dtype, NULL) == TUTTI_OK) {
            ret[count++] = (Tutti__V1__ReduceOp)reduce;
        }
    }
    return count;
}

static void
on_capabilities(tutti_rpc_call *call, void *self)
{
    Tutti__V1__GetCapabilitiesResponse response = TUTTI__V1__GET_CAPABILITIES_RESPONSE__INIT;
    Tutti__V1__Capability capabilities[DTYPES];
    Tutti__V1__Capability *pointers[DTYPES];
    Tutti__V1__ReduceOp reduces[DTYPES][REDUCES];
    int i;

    (void)self;
    for (i = 0; i < DTYPES; i++) {
        const tutti_dtype dtype = (tutti_dtype)(i + 1);

        tutti__v1__capability__init(&capabilities[i]);
        capabilities[i].dtype = (Tutti__V1__Dtype)dtype;
        capabilities[i].element_bytes = (uint32_t)tutti_dtype_bytes(dtype);
        capabilities[i].reduce_ops = reduces[i];
        capabilities[i].n_reduce_ops = list_reduces(dtype, reduces[i]);
        capabilities[i].backend = get_diagnostics_text("host");
        pointers[i] = &capabilities[i];
    }
    response.capabilities = pointers;
    response.n_capabilities = DTYPES;
    response.inline_bytes_max = TUTTI_INLINE_BYTES_MAX;
    response.chunk_bytes_max = TUTTI_CHUNK_BYTES_MAX;
    response.dims_max = TUTTI_DIMS_MAX;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* A group's numbers out, with the memory they point to. */
typedef struct wire_group {
    Tutti__V1__GroupStats message;
    char last[128];
} wire_group;

static void
write_group_stats(const agent_group *group, wire_group *one)
{
    tutti__v1__group_stats__init(&one->message);
    one->message.group = get_diagnostics_text(group->name);
    one->message.id = tutti_coll_group_id(group->coll);
    one->message.sequence = tutti_coll_group_last(group->coll, one->last, sizeof(one->last));
    one->message.last_op = one->last;
    if (tutti_list_empty(&group->running) && group->last_ns != 0) {
        one->message.idle_ms = (tutti_clock_ns() - group->last_ns) / TUTTI_NS_PER_MS;
    }
}

/*
 * "world" comes first, so that it is there however many groups there are: clients look for it. The
 * others follow in the order of their names.
 */
static size_t
list_groups(tutti_agent *agent, wire_group *memory, Tutti__V1__GroupStats **messages)
{
    const agent_group *world = agent_group_find(agent, "world");
    tutti_map_node *node;
    size_t count = 0;
    size_t i;

    if (world != NULL && world->coll != NULL) {
        write_group_stats(world, &memory[count++]);
    }
    for (node = tutti_map_first(&agent->groups); node != NULL && count < GROUPS_SHOWN;
         node = tutti_map_next(node)) {
        const agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll != NULL && group != world) {
            write_group_stats(group, &memory[count++]);
        }
    }
    for (i = 0; i < count; i++) {
        messages[i] = &memory[i].message;
    }
    return count;
}

/* A GPU's numbers, with the memory that they point to. */
typedef struct wire_gpus {
    Tutti__V1__GpuStats messages[AGENT_DEVICES_MAX];
    Tutti__V1__GpuStats *pointers[AGENT_DEVICES_MAX];
} wire_gpus;

static size_t
list_gpus(tutti_agent *agent, wire_gpus *ret)
{
    tutti_space_stats space;
    size_t i;

    for (i = 0; i < agent->devices.count; i++) {
        agent_device *device = &agent->devices.list[i];
        Tutti__V1__GpuStats *message = &ret->messages[i];

        tutti_space_stat(device->space, &space);
        tutti__v1__gpu_stats__init(message);
        message->device = get_diagnostics_text(tutti_space_device(device->space));
        message->uuid = device->cuda.uuid;
        message->name = device->cuda.name;
        message->tensor_count = space.tensor_count;
        message->memory_used_bytes = space.used_bytes;
        message->memory_limit_bytes = space.limit_bytes;
        message->backend = get_diagnostics_text(device->has_backend ? "nccl" : "");
        ret->pointers[i] = message;
    }
    return agent->devices.count;
}

static void
on_stats(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    Tutti__V1__GetStatsResponse response = TUTTI__V1__GET_STATS_RESPONSE__INIT;
    Tutti__V1__GroupStats *messages[GROUPS_SHOWN];
    wire_group *memory = calloc(GROUPS_SHOWN, sizeof(*memory));
    tutti_space_stats space;
    tutti_coll_stats coll = {0};
    wire_gpus gpus;

    agent_clients_note(&agent->clients, call);
    tutti_space_stat(agent->space, &space);
    if (agent->engine != NULL) {
        tutti_coll_stat(agent->engine, &coll);
    }
    response.tensor_count = tutti_table_count(agent->table);
    response.memory_used_bytes = space.used_bytes;
    response.memory_limit_bytes = space.limit_bytes;
    response.work_count = agent_works_count(agent);
    response.op_running_count = agent->ops_live;
    response.op_done_count = coll.done;
    response.op_failed_count = coll.failed;
    response.call_running_count = atomic_load(&agent->calls);
    response.n_gpus = list_gpus(agent, &gpus);
    response.gpus = gpus.pointers;
    if (memory != NULL) {
        response.n_groups = list_groups(agent, memory, messages);
        response.groups = messages;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
    free(memory);
}

void
agent_add_diagnostics(tutti_agent *agent)
{
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_UNARY("DescribeAgent", on_describe),
        TUTTI_RPC_UNARY("GetCapabilities", on_capabilities),
        TUTTI_RPC_UNARY("GetStats", on_stats),
        TUTTI_RPC_UNARY("GetFlightRecord", agent_on_flight),
        TUTTI_RPC_UNARY("Examine", agent_on_examine),
        TUTTI_RPC_UNARY("Explain", agent_on_explain),
        TUTTI_RPC_UNARY("SetAlgorithms", agent_on_set_algorithms),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__diagnostics_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->control,
    };

    tutti_rpc_server_add(agent->server, &service);
}
