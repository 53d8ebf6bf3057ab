#include "plan.h"

#include <string.h>

#include "kernel.h"

/* What ops are forced to; "" = what the shipped table says, NULL = what is promised to run. */
static const char *const algorithms[] = {
    NULL,
    "",
    "",
    "all_reduce=ring,all_gather=ring,reduce_scatter=ring",
    "all_reduce=recursive_doubling,all_gather=recursive_doubling,reduce_scatter=recursive_halving",
    "all_reduce=rabenseifner,reduce_scatter=pairwise,all_to_all=pairwise",
    "all_reduce=bruck,all_gather=bruck,all_to_all=bruck",
    "all_reduce=chain,broadcast=chain,reduce=chain",
    "broadcast=binomial,reduce=binomial,gather=binomial,scatter=binomial",
    "all_reduce=direct,all_gather=direct,reduce=direct,gather=direct,scatter=direct,"
    "reduce_scatter=direct,all_to_all=direct",
    "all_reduce=flat",
    "all_reduce=hierarchical,all_gather=hierarchical,broadcast=hierarchical",
    "all_reduce=shared,all_gather=shared,broadcast=shared,reduce=shared,gather=shared,"
    "scatter=shared,reduce_scatter=shared,all_to_all=shared,permute=shared",
};

const char *
plan_fault_name(plan_fault_kind kind)
{
    static const char *const names[] = {"is killed",         "stops",
                                        "is cut off from",   "is not heard by",
                                        "and all are slow",  "leaves",
                                        "loses its program", "looks who is there",
                                        "has no memory",     "has a clock that jumps"};

    return names[kind];
}

bool
plan_shape_fits(plan_shape shape, tutti_coll_kind kind)
{
    switch (shape) {
    case SHAPE_LIST:
        return kind == TUTTI_COLL_ALL_GATHER || kind == TUTTI_COLL_GATHER ||
               kind == TUTTI_COLL_ALL_TO_ALL || kind == TUTTI_COLL_SCATTER ||
               kind == TUTTI_COLL_REDUCE_SCATTER;
    case SHAPE_COALESCED:
        return kind != TUTTI_COLL_BARRIER && kind != TUTTI_COLL_SEND && kind != TUTTI_COLL_RECV;
    case SHAPE_SPLITS:
        return kind == TUTTI_COLL_ALL_TO_ALL || kind == TUTTI_COLL_SCATTER;
    case SHAPE_META:
        return kind == TUTTI_COLL_BROADCAST || kind == TUTTI_COLL_SCATTER ||
               kind == TUTTI_COLL_SEND;
    default:
        return kind != TUTTI_COLL_RECV;
    }
}

/* Does anything but what its kind says befall the ops of a plan? */
static bool
is_quiet(const plan *self)
{
    return self->kind == PLAN_GENTLE;
}

static void
draw_members(plan *self, plan_group *group)
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

/* Some are made and end in the middle; world lives as long as the job, but it may be aborted. */
static void
draw_group(plan *self, plan_group *group)
{
    const bool world = group == &self->groups[0];

    draw_members(self, group);
    group->opens_ns = world || sim_chance(2) ? 0 : sim_draw(100 * TUTTI_NS_PER_MS);
    if (!is_quiet(self) && sim_chance(world ? 8 : 3)) {
        group->end = world || sim_chance(2) ? END_ABORTED : END_DELETED;
        group->ends_ns = group->opens_ns + sim_draw(200 * TUTTI_NS_PER_MS);
        group->ender = group->ranks[sim_draw(group->size)];
    }
}

static void
draw_shape(plan_op *op)
{
    static const tutti_reduce reduces[] = {TUTTI_REDUCE_SUM, TUTTI_REDUCE_SUM, TUTTI_REDUCE_PROD,
                                           TUTTI_REDUCE_MIN, TUTTI_REDUCE_MAX};
    const plan_shape shape = sim_chance(2) ? SHAPE_PLAIN : (plan_shape)sim_draw(SHAPE_COUNT);

    op->shape = plan_shape_fits(shape, op->kind) ? shape : SHAPE_PLAIN;
    op->reduce = reduces[sim_draw(sizeof(reduces) / sizeof(reduces[0]))];
    op->any_source = sim_chance(6);
    op->states = sim_chance(3);
}

static void
draw_times(const plan *self, plan_op *op, uint64_t usual_ns)
{
    static const uint64_t timeouts_ms[] = {400, 2000, 5000, 20000};
    const bool in_time = self->kind != PLAN_LATE && self->kind != PLAN_ROUGH;
    uint32_t rank;

    for (rank = 0; rank < self->size; rank++) {
        op->timeout_ns[rank] = timeouts_ms[in_time ? 3 : sim_draw(4)] * TUTTI_NS_PER_MS;
        op->think_ns[rank] = sim_chance(4) ? sim_draw(30 * TUTTI_NS_PER_MS) : sim_draw(usual_ns);
        if (!in_time && sim_chance(60)) {
            op->think_ns[rank] = sim_draw(3 * TUTTI_NS_PER_S); /* may be too late */
        }
    }
}

static void
draw_op(const plan *self, plan_op *op, uint64_t usual_ns)
{
    static const int64_t counts[] = {0, 1, 3, 17, 200, 1500, 6000};

    op->group = (uint32_t)sim_draw(self->group_count);
    const uint32_t size = self->groups[op->group].size;
    op->kind = 1 + (tutti_coll_kind)sim_draw(TUTTI_COLL_KIND_COUNT - 1);
    op->kind = op->kind == TUTTI_COLL_RECV ? TUTTI_COLL_SEND : op->kind;
    draw_shape(op);
    op->root = (uint32_t)sim_draw(size);
    op->peer = (op->root + 1 + (uint32_t)sim_draw(size - 1)) % size;
    op->count = counts[sim_draw(sizeof(counts) / sizeof(counts[0]))];
    op->in_place = sim_chance(4);
    op->apart = sim_chance(8) ? (uint32_t)sim_draw(1U << self->size) : 0;
    op->odd = sim_chance(12) ? (uint32_t)sim_draw(size) : size;
    op->refuser = !is_quiet(self) && sim_chance(30) ? (uint32_t)sim_draw(size) : NOBODY;
    op->canceller = !is_quiet(self) && sim_chance(30) ? (uint32_t)sim_draw(size) : NOBODY;
    op->cancel_ns = sim_chance(2) ? sim_draw(TUTTI_NS_PER_MS) : sim_draw(20 * TUTTI_NS_PER_US);
    draw_times(self, op, usual_ns);
}

/* One host for all, some for some, or nobody knows. */
static void
draw_hosts(plan *self)
{
    const uint32_t count = 1 + (uint32_t)sim_draw(3);
    const bool known = !sim_chance(4);
    uint32_t rank;

    self->shares = known && sim_chance(2);
    for (rank = 0; rank < self->size; rank++) {
        self->hosts[rank] = known ? 1 + (uint32_t)sim_draw(count) : 0;
    }
}

static plan_fault_kind
draw_fault_kind(const plan *self)
{
    switch (self->kind) {
    case PLAN_DEATHS:
        return sim_chance(3) ? FAULT_LEAVE : FAULT_KILL;
    case PLAN_RETURNS:
        return FAULT_KILL;
    case PLAN_ROUGH:
        return (plan_fault_kind)sim_draw(FAULT_COUNT);
    case PLAN_LATE:
        return sim_chance(3) ? FAULT_PROBE : FAULT_CALLERS;
    default:
        return FAULT_PROBE;
    }
}

static void
draw_fault(const plan *self, plan_fault *fault)
{
    fault->kind = draw_fault_kind(self);
    fault->silent = sim_chance(2);
    fault->at_ns = sim_draw(400 * TUTTI_NS_PER_MS);
    fault->span_ns = sim_chance(3) ? sim_draw(4 * TUTTI_NS_PER_S) : sim_draw(100 * TUTTI_NS_PER_MS);
    fault->rank = (uint32_t)sim_draw(self->size);
    fault->other = (fault->rank + 1 + (uint32_t)sim_draw(self->size - 1)) % self->size;
    if (self->kind == PLAN_RETURNS || (self->kind == PLAN_ROUGH && sim_chance(2))) {
        fault->returns_ns = 1 + sim_draw(sim_chance(2) ? 50 * TUTTI_NS_PER_MS : TUTTI_NS_PER_S);
    }
}

static uint32_t
draw_fault_count(const plan *self)
{
    switch (self->kind) {
    case PLAN_DEATHS:
    case PLAN_RETURNS:
        return 1 + (uint32_t)sim_draw(2);
    case PLAN_ROUGH:
        return 1 + (uint32_t)sim_draw(FAULTS_MAX);
    default:
        return sim_chance(self->kind == PLAN_LATE ? 2 : 4) ? 1 : 0;
    }
}

static void
draw_groups(plan *self)
{
    uint32_t i;

    self->group_count = 1 + (uint32_t)sim_draw(self->size > 2 ? GROUPS_MAX : 1);
    for (i = 0; i < self->group_count; i++) {
        draw_group(self, &self->groups[i]);
    }
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
    self->steps = self->kind == PLAN_RETURNS || self->kind == PLAN_ROUGH || sim_chance(4);
    self->skews = sim_chance(2);
    self->follows = (self->kind == PLAN_LATE || self->kind == PLAN_ROUGH) && sim_chance(6);
    self->algorithms = algorithms[sim_draw(sizeof(algorithms) / sizeof(algorithms[0]))];
    self->others = algorithms[sim_draw(sizeof(algorithms) / sizeof(algorithms[0]))];
    self->other_rank = sim_chance(8) ? (uint32_t)sim_draw(self->size) : NOBODY;
    draw_hosts(self);
    draw_groups(self);
    self->op_count = 20 + (uint32_t)sim_draw(OPS_MAX - 20 + 1);
    usual_ns = usual[sim_draw(3)];
    for (i = 0; i < self->op_count; i++) {
        draw_op(self, &self->ops[i], usual_ns);
    }
    self->fault_count = draw_fault_count(self);
    for (i = 0; i < self->fault_count; i++) {
        draw_fault(self, &self->faults[i]);
    }
}

bool
plan_plays(uint64_t mask, uint32_t index)
{
    return (mask >> index & 1) != 0;
}
