/*
 * The end: all is well again. Each group works, asked by fresh clients, and agents hold nothing that nobody owns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster/cluster_private.h"

#define TRIES 4 /* of the last barrier: the first may find the ends of others */
#define LAST_MS 20000

typedef struct last_call {
    uint32_t rank;
    uint32_t group;
    bool well;
    bool through;
    sim_task *task;
    tutti_error err;
} last_call;

static tutti_client *
connect_to(uint32_t rank)
{
    tutti_client *client = NULL;
    tutti_client_options options;
    char address[32];
    tutti_error err;

    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", 7100 + rank);
    tutti_client_options_init(&options);
    options.agent = address;
    if (tutti_connect_with(&options, &client, &err) != TUTTI_OK) {
        sim_fail("all is well, and rank %u cannot be reached: %s", rank, err.text);
    }
    return client;
}

static tutti_code
find_group(tutti_client *client, uint32_t group, tutti_error *err)
{
    static const char *const names[CLUSTER_GROUPS] = {"world", "left", "right"};
    const plan_group *of = &cluster.plan.groups[group];

    return group == 0 ? TUTTI_OK
                      : tutti_group_create(client, names[group], of->ranks, of->size, NULL, err);
}

static void *
run_last(void *arg)
{
    static const char *const names[CLUSTER_GROUPS] = {"world", "left", "right"};
    last_call *self = arg;
    tutti_client *client = connect_to(self->rank);
    tutti_op op;

    tutti_op_init(&op);
    op.group = names[self->group];
    op.timeout_ms = LAST_MS;
    self->well = find_group(client, self->group, &self->err) == TUTTI_OK &&
                 tutti_barrier(client, &op, NULL, &self->err) == TUTTI_OK;
    sim_note("rank %u: the last barrier of group %u ends: %s", self->rank, self->group,
             self->well ? "well" : self->err.text);
    tutti_close(client);
    self->through = true;
    return NULL;
}

static bool
try_group(uint32_t group, tutti_error *ret_why)
{
    const plan_group *of = &cluster.plan.groups[group];
    last_call calls[RANKS_MAX];
    bool well = true;
    uint32_t i;

    for (i = 0; i < of->size; i++) {
        calls[i] = (last_call){.rank = of->ranks[i], .group = group};
        calls[i].task = sim_task_new(program_number(), run_last, &calls[i]);
    }
    for (i = 0; i < of->size; i++) {
        sim_task_join(calls[i].task);
        if (!calls[i].well) {
            well = false;
            *ret_why = calls[i].err;
        }
    }
    return well;
}

static void
judge_group(uint32_t group)
{
    tutti_error why;
    uint32_t i;

    for (i = 0; i < TRIES && !try_group(group, &why); i++) {
        sim_sleep(TUTTI_NS_PER_S);
    }
    if (i == TRIES) {
        sim_fail("all is well, and group %u does not work: %s: %s", group, why.reason, why.text);
    }
}

/* What a program puts without a lease stays, as its handle may be known to others. */
static void
delete_all(tutti_client *client)
{
    tutti_tensor_info *infos = NULL;
    size_t count = 0;
    size_t i;

    if (tutti_tensor_list(client, &infos, &count, NULL) != TUTTI_OK) {
        sim_fail("tensors cannot be listed");
    }
    for (i = 0; i < count; i++) {
        (void)tutti_tensor_delete(client, infos[i].handle.text, NULL);
    }
    tutti_free(infos);
}

static void
judge_agent(uint32_t rank)
{
    tutti_client *client = connect_to(rank);
    tutti_agent_stats stats;
    tutti_error err;

    delete_all(client);
    sim_sleep(TUTTI_NS_PER_S);
    if (tutti_agent_stat(client, &stats, &err) != TUTTI_OK) {
        sim_fail("rank %u: %s", rank, err.text);
    }
    if (stats.tensor_count != 0 || stats.op_running_count != 0 || stats.call_running_count != 0 ||
        stats.memory_used_bytes != 0) {
        sim_fail("rank %u: %llu tensors, %llu bytes, %llu ops and %llu calls are left", rank,
                 (unsigned long long)stats.tensor_count,
                 (unsigned long long)stats.memory_used_bytes,
                 (unsigned long long)stats.op_running_count,
                 (unsigned long long)stats.call_running_count);
    }
    tutti_close(client);
}

static void
judge_engine(uint32_t rank)
{
    uint64_t parked = 0;
    uint64_t running = 0;

    program_engine_counts(cluster.programs[CLUSTER_AGENT + rank], &parked, &running);
    if (parked != 0 || running != 0) {
        sim_fail("rank %u: %llu packets and %llu ops are left in the engine", rank,
                 (unsigned long long)parked, (unsigned long long)running);
    }
}

static void *
run_end(void *arg)
{
    uint32_t i;

    for (i = 0; i < cluster.plan.group_count; i++) {
        judge_group(i);
    }
    for (i = 0; i < cluster.plan.size; i++) {
        judge_agent(i);
        judge_engine(i);
    }
    return arg;
}

void
cluster_judge_end(void)
{
    sim_task_join(sim_task_new(program_number(), run_end, NULL));
}
