/*
 * Plans of trees and chains to and from a root. Ranks have places, counted from the root on.
 *
 *   binomial  place p hears from, or tells, p without one of its bits: ceil(log2 n) levels. For
 *             broadcast the highest bit (every chunk goes on as soon as it is there), for gather
 *             and scatter the lowest, so that what a subtree has lies together. Thakur et al. 2005
 *   chain     broadcast: from place to place in chunks (pipelined; Pjesivac-Grbovic et al. 2007).
 *             reduce: in the order of the group ranks, and from the last one to the root; the bits
 *             are those of a sum from rank 0 to the last
 */
#include "coll/host/plan.h"

static uint32_t
rank_at(const host_topology *topology, uint32_t place)
{
    return (uint32_t)(((uint64_t)topology->root + place) % topology->size);
}

static uint32_t
find_tree_place(const host_topology *topology)
{
    return (topology->me + topology->size - topology->root) % topology->size;
}

/* Places of the subtree of `place` whose root differs from its parent in bit k. */
static uint32_t
get_subtree_size(const host_topology *topology, uint32_t place, uint32_t k)
{
    const uint32_t most = 1U << k;
    const uint32_t rest = topology->size - place;

    return rest < most ? rest : most;
}

/* ------------------------------------------------------------------------------ reduce */

void
tutti_host_plan_reduce_binomial(host_plan *plan, const host_topology *topology)
{
    const uint32_t place = find_tree_place(topology);
    uint32_t k;

    plan->units = 1;
    plan->staged = true;
    plan->scratch = place != 0;
    plan->rounds = tutti_host_log2_up(topology->size);
    plan->gap = (plan->rounds + 1) / 2;
    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, 1, 0);
    for (k = 0; k < plan->rounds && (place & ((1U << k) - 1)) == 0; k++) {
        if ((place >> k & 1) != 0) {
            tutti_host_plan_send(plan, k, rank_at(topology, place - (1U << k)), 0, 1);
        } else if (place + (1U << k) < topology->size) {
            tutti_host_plan_recv_staged(plan, k, rank_at(topology, place + (1U << k)), 0, 1);
            tutti_host_plan_add(plan, k + 1, PLAN_REDUCE, 0, 1, 0);
        }
    }
    if (place == 0) {
        tutti_host_plan_add(plan, plan->rounds, PLAN_FINISH, 0, 1, 0);
    }
}

void
tutti_host_plan_reduce_chain(host_plan *plan, const host_topology *topology)
{
    const uint32_t n = topology->size;
    const uint32_t me = topology->me;

    plan->units = 1;
    plan->staged = true;
    plan->scratch = me != topology->root;
    plan->rounds = n;
    plan->gap = 1;
    plan->lives = 1;
    if (me > 0) {
        tutti_host_plan_recv_staged(plan, me - 1, me - 1, 0, 1);
    }
    tutti_host_plan_add(plan, me, PLAN_LOAD, 0, 1, 0);
    if (me > 0) {
        tutti_host_plan_add(plan, me, PLAN_REDUCE, 0, 1, 0);
    }
    if (me < n - 1) {
        tutti_host_plan_send(plan, me, me + 1, 0, 1);
    } else {
        tutti_host_plan_add(plan, me, PLAN_FINISH, 0, 1, 0);
    }
    if (me == n - 1 && me != topology->root) {
        tutti_host_plan_send(plan, n - 1, topology->root, 0, 1);
    } else if (me == topology->root && me != n - 1) {
        tutti_host_plan_recv(plan, n - 1, n - 1, 0, 1);
    }
}

/* ------------------------------------------------------------------------------ broadcast */

void
tutti_host_plan_broadcast_binomial(host_plan *plan, const host_topology *topology)
{
    const uint32_t place = find_tree_place(topology);
    uint32_t k;

    plan->units = 1;
    plan->rounds = tutti_host_log2_up(topology->size);
    plan->gap = 1;
    if (place == 0) {
        tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, 1, 0);
    }
    for (k = 0; k < plan->rounds; k++) {
        const uint32_t bit = 1U << k;

        if (place < bit && place + bit < topology->size) {
            tutti_host_plan_send(plan, k, rank_at(topology, place + bit), 0, 1);
        } else if (place >= bit && place < 2 * bit) {
            tutti_host_plan_recv(plan, k, rank_at(topology, place - bit), 0, 1);
        }
    }
}

void
tutti_host_plan_broadcast_chain(host_plan *plan, const host_topology *topology)
{
    const uint32_t place = find_tree_place(topology);

    plan->units = 1;
    plan->rounds = topology->size - 1;
    plan->gap = 1;
    if (place == 0) {
        tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, 1, 0);
    } else {
        tutti_host_plan_recv(plan, place - 1, rank_at(topology, place - 1), 0, 1);
    }
    if (place + 1 < topology->size) {
        tutti_host_plan_send(plan, place, rank_at(topology, place + 1), 0, 1);
    }
}

/* ------------------------------------------------------------------------------ blocks */

void
tutti_host_plan_gather_binomial(host_plan *plan, const host_topology *topology)
{
    const uint32_t place = find_tree_place(topology);
    uint32_t k;

    plan->units = topology->size;
    plan->scratch = true;
    plan->whole = true;
    plan->rounds = tutti_host_log2_up(topology->size);
    tutti_host_plan_add(plan, 0, PLAN_LOAD, place, 1, topology->root);
    for (k = 0; k < plan->rounds && (place & ((1U << k) - 1)) == 0; k++) {
        const uint32_t child = place + (1U << k);

        if ((place >> k & 1) != 0) {
            tutti_host_plan_send(plan, k, rank_at(topology, place - (1U << k)), place,
                                 get_subtree_size(topology, place, k));
        } else if (child < topology->size) {
            tutti_host_plan_recv(plan, k, rank_at(topology, child), child,
                                 get_subtree_size(topology, child, k));
        }
    }
    for (k = 0; k < topology->size && place == 0; k++) {
        tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, k, 1, rank_at(topology, k));
    }
}

void
tutti_host_plan_scatter_binomial(host_plan *plan, const host_topology *topology)
{
    const uint32_t place = find_tree_place(topology);
    uint32_t round;
    uint32_t i;

    plan->units = topology->size;
    plan->scratch = true;
    plan->whole = true;
    plan->rounds = tutti_host_log2_up(topology->size);
    for (i = 0; i < topology->size && place == 0; i++) {
        tutti_host_plan_add(plan, 0, PLAN_LOAD, i, 1, rank_at(topology, i));
    }
    for (round = 0; round < plan->rounds; round++) {
        const uint32_t k = plan->rounds - 1 - round;
        const uint32_t low = place & ((2U << k) - 1);
        const uint32_t child = place + (1U << k);

        if (low == 0 && child < topology->size) {
            tutti_host_plan_send(plan, round, rank_at(topology, child), child,
                                 get_subtree_size(topology, child, k));
        } else if (low == 1U << k) {
            tutti_host_plan_recv(plan, round, rank_at(topology, place - low), place,
                                 get_subtree_size(topology, place, k));
        }
    }
    tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, place, 1, topology->root);
}
