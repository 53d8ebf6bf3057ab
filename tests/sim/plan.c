#include "plan.h"

#include <string.h>

#include "kernel.h"

/* What ops are forced to; NULL = what is fast. */
static const char *const algorithms[] = {
    NULL,
    NULL,
    "all_reduce=ring,all_gather=ring,reduce_scatter=ring",
    "all_reduce=recursive_doubling,all_gather=recursive_doubling,reduce_scatter=recursive_halving",
    "all_reduce=rabenseifner,reduce_scatter=pairwise,all_to_all=pairwise",
    "all_reduce=bruck,all_gather=bruck,all_to_all=bruck",
    "all_reduce=chain,broadcast=chain,reduce=chain",
    "broadcast=binomial,reduce=binomial,gather=binomial,scatter=binomial",
    "all_reduce=direct,all_gather=direct,reduce=direct,gather=direct,scatter=direct,"
    "reduce_scatter=direct,all_to_all=direct",
};

static void
draw_group(plan *self, plan_group *group)
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
draw_op(const plan *self, plan_op *op, uint64_t usual_ns)
{
    static const int64_t counts[] = {0, 1, 3, 17, 200, 1500, 6000};
    static const uint64_t timeouts_ms[] = {400, 2000, 5000, 20000};
    const bool in_time = self->kind == PLAN_GENTLE || self->kind == PLAN_DEATHS;
    uint32_t rank;

    op->group = (uint32_t)sim_draw(self->group_count);
    const uint32_t size = self->groups[op->group].size;
    op->kind = 1 + (tutti_coll_kind)sim_draw(TUTTI_COLL_KIND_COUNT - 1);
    op->kind = op->kind == TUTTI_COLL_RECV ? TUTTI_COLL_SEND : op->kind;
    op->root = (uint32_t)sim_draw(size);
    op->peer = (op->root + 1 + (uint32_t)sim_draw(size - 1)) % size;
    op->count = counts[sim_draw(sizeof(counts) / sizeof(counts[0]))];
    op->odd = sim_chance(12) ? (uint32_t)sim_draw(size) : size;
    for (rank = 0; rank < self->size; rank++) {
        op->timeout_ns[rank] = timeouts_ms[in_time ? 3 : sim_draw(4)] * TUTTI_NS_PER_MS;
        op->think_ns[rank] = sim_chance(4) ? sim_draw(30 * TUTTI_NS_PER_MS) : sim_draw(usual_ns);
        if (!in_time && sim_chance(60)) {
            op->timeout_ns[rank] = timeouts_ms[in_time ? 3 : sim_draw(4)] * TUTTI_NS_PER_MS;
            op->think_ns[rank] = sim_draw(3 * TUTTI_NS_PER_S); /* may be too late */
        }
    }
}

static void
draw_fault(const plan *self, plan_fault *fault)
{
    fault->kind =
        self->kind == PLAN_DEATHS ? FAULT_KILL : (plan_fault_kind)sim_draw(FAULT_SLOW + 1);
    fault->silent = sim_chance(2);
    fault->at_ns = sim_draw(400 * TUTTI_NS_PER_MS);
    fault->span_ns = sim_chance(3) ? sim_draw(4 * TUTTI_NS_PER_S) : sim_draw(100 * TUTTI_NS_PER_MS);
    fault->rank = (uint32_t)sim_draw(self->size);
    fault->other = (fault->rank + 1 + (uint32_t)sim_draw(self->size - 1)) % self->size;
}

void
plan_draw(plan *self, uint64_t seed)
{
    static const uint64_t usual[] = {20 * TUTTI_NS_PER_US, 300 * TUTTI_NS_PER_US,
                                     3 * TUTTI_NS_PER_MS};
    uint64_t usual_ns;
    uint32_t i;

    memset(self, 0, sizeof(*self));
    self->seed = seed;
    self->op_mask = UINT64_MAX;
    self->fault_mask = UINT64_MAX;
    self->kind = (plan_kind)sim_draw(PLAN_KIND_COUNT);
    self->size = 2 + (uint32_t)sim_draw(RANKS_MAX - 1);
    self->window = sim_chance(2) ? 1 : 1 + (uint32_t)sim_draw(4);
    self->algorithms = algorithms[sim_draw(sizeof(algorithms) / sizeof(algorithms[0]))];
    self->group_count = 1 + (uint32_t)sim_draw(self->size > 2 ? GROUPS_MAX : 1);
    for (i = 0; i < self->group_count; i++) {
        draw_group(self, &self->groups[i]);
    }
    self->op_count = 8 + (uint32_t)sim_draw(OPS_MAX - 8);
    usual_ns = usual[sim_draw(3)];
    for (i = 0; i < self->op_count; i++) {
        draw_op(self, &self->ops[i], usual_ns);
    }
    self->fault_count = self->kind == PLAN_DEATHS  ? 1 + (uint32_t)sim_draw(2)
                        : self->kind == PLAN_ROUGH ? 1 + (uint32_t)sim_draw(FAULTS_MAX)
                                                   : 0;
    for (i = 0; i < self->fault_count; i++) {
        draw_fault(self, &self->faults[i]);
    }
}

bool
plan_plays(uint64_t mask, uint32_t index)
{
    return (mask >> index & 1) != 0;
}
