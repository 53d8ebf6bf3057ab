/*
 * Plans of all_reduce.
 *
 *   doubling      recursive doubling: in round k everything is exchanged with the rank that differs
 *                 in bit k and joined. What is beyond a power of two is folded into a neighbour
 *                 before, and told after. Thakur, Rabenseifner, Gropp: Optimization of Collective
 *                 Communication Operations in MPICH, 2005
 *   rabenseifner  the same ranks, but halves, quarters, ... are exchanged (reduce-scatter by
 *                 recursive halving), then gathered by recursive doubling. Rabenseifner 2004
 *   ring          reduce-scatter and all-gather of n slices around a ring. Patarasuk, Yuan 2009
 *   chain         in the order of the ranks: each joins its own to what its predecessor has, and
 *                 the last one's result goes back the same way. Pipelined, so that each way carries
 *                 the tensor once in each direction, which costs as much as a ring; and the bits
 *                 are those of a sum from rank 0 to the last. After the pipelined reduce of Open
 *                 MPI (Pjesivac-Grbovic et al. 2007), both directions at once
 *   bruck         all inputs to all ranks in ceil(log2 n) rounds (Bruck et al. 1997), and each rank
 *                 reduces them all, in order
 */
#include "coll/host/plan.h"

/* ------------------------------------------------------------------------------ powers of two */

/* Of `size` ranks, 2^bits go on; of the first 2 * extra, each even one folds into the next. */
typedef struct folding {
    uint32_t bits;
    uint32_t extra;
    bool out;        /* this rank is folded into the next one */
    uint32_t number; /* among those that go on */
    uint32_t begin;  /* the first round after folding */
} folding;

static folding
fold_of(const host_topology *topology)
{
    folding self = {0};

    while ((UINT64_C(2) << self.bits) <= topology->size) {
        self.bits++;
    }
    self.extra = topology->size - (1U << self.bits);
    self.out = topology->me < 2 * self.extra && topology->me % 2 == 0;
    self.number = topology->me < 2 * self.extra ? topology->me / 2 : topology->me - self.extra;
    self.begin = self.extra > 0 ? 1 : 0;
    return self;
}

static uint32_t
get_reduce_plan_rank(const folding *self, uint32_t number)
{
    return number < self->extra ? 2 * number + 1 : number + self->extra;
}

/* Round 0 of both. */
static void
fold_in(host_plan *plan, const host_topology *topology, const folding *fold)
{
    const uint32_t all = plan->units;

    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, all, 0);
    if (topology->me < 2 * fold->extra && fold->out) {
        tutti_host_plan_send(plan, 0, topology->me + 1, 0, all);
    } else if (topology->me < 2 * fold->extra) {
        tutti_host_plan_recv_staged(plan, 0, topology->me - 1, 0, all);
        tutti_host_plan_add(plan, 1, PLAN_REDUCE, 0, all, 0);
    }
}

/* The last round of both. */
static void
fold_out(host_plan *plan, const host_topology *topology, const folding *fold)
{
    const uint32_t all = plan->units;

    if (topology->me < 2 * fold->extra && fold->out) {
        tutti_host_plan_recv(plan, plan->rounds - 1, topology->me + 1, 0, all);
    } else if (topology->me < 2 * fold->extra) {
        tutti_host_plan_send(plan, plan->rounds - 1, topology->me - 1, 0, all);
    }
}

void
tutti_host_plan_doubling(host_plan *plan, const host_topology *topology)
{
    const folding fold = fold_of(topology);
    uint32_t k;

    plan->units = 1;
    plan->staged = true;
    plan->rounds = fold.bits + 2 * fold.begin;
    plan->gap = (plan->rounds + 1) / 2;
    fold_in(plan, topology, &fold);
    for (k = 0; k < fold.bits && !fold.out; k++) {
        const uint32_t peer = get_reduce_plan_rank(&fold, fold.number ^ 1U << k);

        tutti_host_plan_send(plan, fold.begin + k, peer, 0, 1);
        tutti_host_plan_recv_staged(plan, fold.begin + k, peer, 0, 1);
        tutti_host_plan_add(plan, fold.begin + k + 1, PLAN_REDUCE, 0, 1, 0);
    }
    if (!fold.out) {
        tutti_host_plan_add(plan, fold.begin + fold.bits, PLAN_FINISH, 0, 1, 0);
    }
    fold_out(plan, topology, &fold);
}

/* Returns the first unit of this rank's own, when only one is left. */
static uint32_t
halve_reduce_plan(host_plan *plan, const folding *fold)
{
    uint32_t first = 0;
    uint32_t k;

    for (k = fold->bits; k-- > 0;) {
        const uint32_t half = 1U << k;
        const uint32_t round = fold->begin + (fold->bits - 1 - k);
        const uint32_t peer = get_reduce_plan_rank(fold, fold->number ^ half);
        const uint32_t mine = first + (fold->number & half);
        const uint32_t theirs = first + (half - (fold->number & half));

        tutti_host_plan_send(plan, round, peer, theirs, half);
        tutti_host_plan_recv_staged(plan, round, peer, mine, half);
        tutti_host_plan_add(plan, round + 1, PLAN_REDUCE, mine, half, 0);
        first = mine;
    }
    return first;
}

void
tutti_host_plan_rabenseifner(host_plan *plan, const host_topology *topology)
{
    const folding fold = fold_of(topology);
    uint32_t first;
    uint32_t k;

    plan->units = 1U << fold.bits;
    plan->staged = true;
    plan->rounds = 2 * fold.bits + 2 * fold.begin;
    plan->gap = (plan->rounds + 1) / 2;
    fold_in(plan, topology, &fold);
    if (!fold.out) {
        first = halve_reduce_plan(plan, &fold);
        tutti_host_plan_add(plan, fold.begin + fold.bits, PLAN_FINISH, first, 1, 0);
        for (k = 0; k < fold.bits; k++) {
            const uint32_t peer = get_reduce_plan_rank(&fold, fold.number ^ 1U << k);
            const uint32_t own = first >> k << k;

            tutti_host_plan_send(plan, fold.begin + fold.bits + k, peer, own, 1U << k);
            tutti_host_plan_recv(plan, fold.begin + fold.bits + k, peer, own ^ 1U << k, 1U << k);
        }
    }
    fold_out(plan, topology, &fold);
}

/* ------------------------------------------------------------------------------ rings */

void
tutti_host_plan_ring(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    const uint32_t next = (topology->me + 1) % n;
    const uint32_t before = (topology->me + n - 1) % n;
    uint32_t s;

    plan->units = n;
    plan->staged = true;
    plan->rounds = 2 * (n - 1);
    plan->gap = n - 1;
    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, n, 0);
    for (s = 0; s < n - 1; s++) {
        const uint32_t in = (topology->me + 2 * n - s - 1) % n;

        tutti_host_plan_send(plan, s, next, (topology->me + n - s) % n, 1);
        tutti_host_plan_recv_staged(plan, s, before, in, 1);
        tutti_host_plan_add(plan, s + 1, PLAN_REDUCE, in, 1, 0);
    }
    tutti_host_plan_add(plan, n - 1, PLAN_FINISH, next, 1, 0);
    for (s = 0; s < n - 1; s++) {
        tutti_host_plan_send(plan, n - 1 + s, next, (next + n - s) % n, 1);
        tutti_host_plan_recv(plan, n - 1 + s, before, (topology->me + n - s) % n, 1);
    }
}

void
tutti_host_plan_chain(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    const uint32_t me = topology->me;
    const uint32_t back = 2 * n - 3 - me; /* the round in which the result comes */

    plan->units = 1;
    plan->staged = true;
    plan->rounds = 2 * (n - 1);
    plan->gap = 1;
    plan->lives = 1;
    if (me > 0) {
        tutti_host_plan_recv_staged(plan, me - 1, me - 1, 0, 1);
    }
    tutti_host_plan_add(plan, me, PLAN_LOAD, 0, 1, 0);
    if (me > 0) {
        tutti_host_plan_add(plan, me, PLAN_REDUCE, 0, 1, 0);
    }
    if (me == n - 1) {
        tutti_host_plan_add(plan, me, PLAN_FINISH, 0, 1, 0);
        tutti_host_plan_send(plan, me, me - 1, 0, 1);
        return;
    }
    tutti_host_plan_send(plan, me, me + 1, 0, 1);
    tutti_host_plan_recv(plan, back, me + 1, 0, 1);
    if (me > 0) {
        tutti_host_plan_send(plan, back + 1, me - 1, 0, 1);
    }
}

/* ------------------------------------------------------------------------------ all inputs */

void
tutti_host_plan_bruck(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    uint32_t k;

    plan->units = 1;
    plan->stage_units = n;
    plan->staged = true;
    plan->whole = true;
    plan->rounds = tutti_host_log2_up(n);
    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, 1, 0);
    tutti_host_plan_add(plan, 0, PLAN_KEEP, 0, 1, 0);
    for (k = 0; k < plan->rounds; k++) {
        const uint32_t have = 1U << k;
        const uint32_t count = have < n - have ? have : n - have;

        tutti_host_plan_send_staged(plan, k, (topology->me + n - have) % n, 0, count);
        tutti_host_plan_recv_staged(plan, k, (topology->me + have) % n, have, count);
    }
    tutti_host_plan_add(plan, plan->rounds, PLAN_FOLD, (n - topology->me) % n, 1, 0);
}
