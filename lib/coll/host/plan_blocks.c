/*
 * Plans of ops on blocks, one for each rank.
 *
 *   ring      each block goes around; n - 1 rounds. Thakur, Rabenseifner, Gropp 2005
 *   doubling, halving
 *             in round k twice as many (half as many) blocks are exchanged with the rank that
 *             differs in one bit; powers of two only. The same
 *   bruck     blocks in rotated order, ceil(log2 n) rounds for any n. Bruck, Ho, Kipnis, Upfal,
 *             Weathersby: Efficient Algorithms for All-to-All Communications, 1997
 */
#include "coll/host/plan.h"

/* Our own block is there from the beginning; in scratch all of them have to be put in place. */
static void
store_all(host_plan *plan, const host_topology *topology)
{
    uint32_t i;

    for (i = 0; i < topology->size && plan->scratch; i++) {
        tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, i, 1, i);
    }
}

/* ------------------------------------------------------------------------------ all_gather */

void
tutti_host_plan_all_gather_ring(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    uint32_t s;

    plan->units = n;
    plan->scratch = !topology->whole_rows;
    plan->rounds = n - 1;
    plan->gap = (plan->rounds + 1) / 2;
    tutti_host_plan_add(plan, 0, PLAN_LOAD, topology->me, 1, topology->me);
    for (s = 0; s < n - 1; s++) {
        tutti_host_plan_send(plan, s, (topology->me + 1) % n, (topology->me + n - s) % n, 1);
        tutti_host_plan_recv(plan, s, (topology->me + n - 1) % n,
                             (topology->me + 2 * n - s - 1) % n, 1);
    }
    store_all(plan, topology);
}

void
tutti_host_plan_all_gather_doubling(host_plan *plan, const host_topology *topology)
{
    uint32_t k;

    plan->units = topology->size;
    plan->scratch = !topology->whole_rows;
    plan->whole = true;
    plan->rounds = tutti_host_log2_up(topology->size);
    tutti_host_plan_add(plan, 0, PLAN_LOAD, topology->me, 1, topology->me);
    for (k = 0; k < plan->rounds; k++) {
        const uint32_t have = 1U << k;
        const uint32_t own = topology->me >> k << k;

        tutti_host_plan_send(plan, k, topology->me ^ have, own, have);
        tutti_host_plan_recv(plan, k, topology->me ^ have, own ^ have, have);
    }
    store_all(plan, topology);
}

/* In scratch, unit j is the block of rank me + j. */
void
tutti_host_plan_all_gather_bruck(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    uint32_t k;

    plan->units = n;
    plan->scratch = true;
    plan->whole = true;
    plan->rounds = tutti_host_log2_up(n);
    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, 1, topology->me);
    for (k = 0; k < plan->rounds; k++) {
        const uint32_t have = 1U << k;
        const uint32_t count = have < n - have ? have : n - have;

        tutti_host_plan_send(plan, k, (topology->me + n - have) % n, 0, count);
        tutti_host_plan_recv(plan, k, (topology->me + have) % n, have, count);
    }
    for (k = 0; k < n; k++) {
        tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, k, 1, (topology->me + k) % n);
    }
}

/* ------------------------------------------------------------------------------ reduce_scatter */

static void
load_all(host_plan *plan, const host_topology *topology)
{
    uint32_t i;

    for (i = 0; i < topology->size; i++) {
        tutti_host_plan_add(plan, 0, PLAN_LOAD, i, 1, i);
    }
}

static void
store_own(host_plan *plan, const host_topology *topology)
{
    tutti_host_plan_add(plan, plan->rounds, PLAN_FINISH, topology->me, 1, 0);
    tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, topology->me, 1, topology->me);
}

void
tutti_host_plan_reduce_scatter_ring(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    uint32_t s;

    plan->units = n;
    plan->scratch = true;
    plan->staged = true;
    plan->rounds = n - 1;
    plan->gap = (plan->rounds + 1) / 2;
    load_all(plan, topology);
    for (s = 0; s < n - 1; s++) {
        const uint32_t in = (topology->me + 2 * n - s - 2) % n;

        tutti_host_plan_send(plan, s, (topology->me + 1) % n, (topology->me + 2 * n - s - 1) % n,
                             1);
        tutti_host_plan_recv_staged(plan, s, (topology->me + n - 1) % n, in, 1);
        tutti_host_plan_add(plan, s + 1, PLAN_REDUCE, in, 1, 0);
    }
    store_own(plan, topology);
}

void
tutti_host_plan_reduce_scatter_halving(host_plan *plan, const host_topology *topology)
{
    uint32_t k;

    plan->units = topology->size;
    plan->scratch = true;
    plan->staged = true;
    plan->rounds = tutti_host_log2_up(topology->size);
    plan->gap = (plan->rounds + 1) / 2;
    load_all(plan, topology);
    for (k = plan->rounds; k-- > 0;) {
        const uint32_t half = 1U << k;
        const uint32_t round = plan->rounds - 1 - k;
        const uint32_t mine = topology->me >> k << k;

        tutti_host_plan_send(plan, round, topology->me ^ half, mine ^ half, half);
        tutti_host_plan_recv_staged(plan, round, topology->me ^ half, mine, half);
        tutti_host_plan_add(plan, round + 1, PLAN_REDUCE, mine, half, 0);
    }
    store_own(plan, topology);
}

/* ------------------------------------------------------------------------------ all_to_all */

/*
 * In scratch, unit j is for rank me + j at first, and in the end from rank me - j. In round k those
 * whose j has bit k go 2^k ranks on, packed in the stage: going out below, coming in above.
 */
void
tutti_host_plan_all_to_all_bruck(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    uint32_t k;
    uint32_t j;

    plan->units = n;
    plan->stage_units = 2 * n;
    plan->scratch = true;
    plan->staged = true;
    plan->whole = true;
    plan->rounds = tutti_host_log2_up(n);
    for (j = 0; j < n; j++) {
        tutti_host_plan_add(plan, 0, PLAN_LOAD, j, 1, (topology->me + j) % n);
    }
    for (k = 0; k < plan->rounds; k++) {
        uint32_t count = 0;

        for (j = 0; j < n; j++) {
            if ((j >> k & 1) != 0) {
                tutti_host_plan_add(plan, k, PLAN_KEEP, j, 1, count++);
            }
        }
        tutti_host_plan_send_staged(plan, k, (topology->me + (1U << k)) % n, 0, count);
        tutti_host_plan_recv_staged(plan, k, (topology->me + n - (1U << k)) % n, n, count);
        count = n;
        for (j = 0; j < n; j++) {
            if ((j >> k & 1) != 0) {
                tutti_host_plan_add(plan, k + 1, PLAN_TAKE, j, 1, count++);
            }
        }
    }
    for (j = 0; j < n; j++) {
        tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, j, 1, (topology->me + n - j) % n);
    }
}
