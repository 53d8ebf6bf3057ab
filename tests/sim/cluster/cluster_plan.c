#include "sim/cluster/cluster_plan.h"

#include <string.h>

#include "sim/kernel.h"

static void
draw_group(cluster_plan *self, plan_group *group)
{
    const bool all = group == &self->groups[0];
    uint32_t rank;

    group->size = 0;
    for (rank = 0; rank < self->size; rank++) {
        if (all || rank < 1 || sim_chance(2) || (rank + 1 == self->size && group->size < 2)) {
            group->ranks[group->size++] = rank;
        }
    }
}

static void
draw_step(const cluster_plan *self, cluster_step *step)
{
    static const int64_t counts[] = {1, 3, 17, 200, 3000};
    static const uint64_t timeouts_ms[] = {1000, 2000, 5000, 20000};
    const bool in_time = self->kind == PLAN_GENTLE || self->kind == PLAN_DEATHS;
    plan_op *op = &step->op;
    uint32_t size;
    uint32_t rank;

    op->group = (uint32_t)sim_draw(self->group_count);
    size = self->groups[op->group].size;
    op->kind = 1 + (tutti_coll_kind)sim_draw(TUTTI_COLL_KIND_COUNT - 1);
    op->kind = op->kind == TUTTI_COLL_RECV ? TUTTI_COLL_SEND : op->kind;
    op->root = (uint32_t)sim_draw(size);
    op->peer = (op->root + 1 + (uint32_t)sim_draw(size - 1)) % size;
    op->count = counts[sim_draw(sizeof(counts) / sizeof(counts[0]))];
    op->odd = sim_chance(20) ? (uint32_t)sim_draw(size) : size;
    step->way = (cluster_way)sim_draw(CLUSTER_WAY_COUNT);
    for (rank = 0; rank < self->size; rank++) {
        op->timeout_ns[rank] = timeouts_ms[in_time ? 3 : sim_draw(4)] * TUTTI_NS_PER_MS;
        op->think_ns[rank] = sim_draw(3 * TUTTI_NS_PER_MS);
        if (!in_time && sim_chance(40)) {
            op->think_ns[rank] = sim_draw(4 * TUTTI_NS_PER_S);
        }
    }
}

static uint32_t
draw_program(const cluster_plan *self, bool deaths)
{
    static const uint32_t first[] = {CLUSTER_AGENT, CLUSTER_PROGRAM};

    if (!deaths && sim_chance(6)) {
        return CLUSTER_COORDINATOR;
    }
    if (sim_chance(4)) { /* or the controller */
        return CLUSTER_VISITOR + (uint32_t)sim_draw(CLUSTER_VISITORS + 1);
    }
    return first[sim_draw(2)] + (uint32_t)sim_draw(self->size);
}

static void
draw_fault(const cluster_plan *self, cluster_fault *fault)
{
    fault->kind =
        self->kind == PLAN_DEATHS ? FAULT_KILL : (plan_fault_kind)sim_draw(FAULT_SLOW + 1);
    fault->silent = sim_chance(3);
    fault->at_ns = sim_draw(1500 * TUTTI_NS_PER_MS);
    fault->span_ns =
        sim_chance(3) ? sim_draw(15 * TUTTI_NS_PER_S) : sim_draw(300 * TUTTI_NS_PER_MS);
    fault->who = draw_program(self, fault->kind == FAULT_KILL);
    do {
        fault->other = draw_program(self, false);
    } while (fault->other == fault->who);
}

void
cluster_plan_draw(cluster_plan *self, uint64_t seed)
{
    uint32_t i;

    memset(self, 0, sizeof(*self));
    self->seed = seed;
    self->op_mask = UINT64_MAX;
    self->fault_mask = UINT64_MAX;
    self->kind = (plan_kind)sim_draw(PLAN_ROUGH + 1);
    self->size = 2 + (uint32_t)sim_draw(3);
    self->group_count = 1 + (uint32_t)sim_draw(self->size > 2 ? CLUSTER_GROUPS : 1);
    for (i = 0; i < self->group_count; i++) {
        draw_group(self, &self->groups[i]);
    }
    self->step_count = 8 + (uint32_t)sim_draw(OPS_MAX - 8);
    for (i = 0; i < self->step_count; i++) {
        draw_step(self, &self->steps[i]);
    }
    self->fault_count = self->kind == PLAN_DEATHS  ? 1 + (uint32_t)sim_draw(3)
                        : self->kind == PLAN_ROUGH ? 1 + (uint32_t)sim_draw(CLUSTER_FAULTS)
                                                   : 0;
    for (i = 0; i < self->fault_count; i++) {
        draw_fault(self, &self->faults[i]);
    }
}
