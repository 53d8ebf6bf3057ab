/*
 * Making plans: steps are added in the order of their rounds; run.c relies on it (index_rounds). A
 * plan without memory for steps counts only. Pure. A rank adds only what it does itself; that the
 * messages of all ranks fit is the business of each algorithm, and
 * tests/lib/coll/host/test_coll_algorithms.c runs them all.
 */
#include "coll/host/plan.h"

#include <assert.h>

uint32_t
tutti_host_log2_up(uint32_t size)
{
    uint32_t rounds = 0;

    while ((UINT64_C(1) << rounds) < size) {
        rounds++;
    }
    return rounds;
}

/* A step without units is left out, which saves each algorithm the question. */
static void
add_plan_step(host_plan *plan, const host_plan_step *step)
{
    if (step->count == 0) {
        return;
    }
    if (plan->steps != NULL) {
        assert(plan->count == 0 || plan->steps[plan->count - 1].round <= step->round);
        assert(step->round <= plan->rounds);
        plan->steps[plan->count] = *step;
    }
    plan->count++;
}

void
tutti_host_plan_add(host_plan *plan, uint32_t round, host_plan_verb verb, uint32_t first,
                    uint32_t count, uint32_t other)
{
    add_plan_step(plan, &(host_plan_step){round, first, count, other, (uint8_t)verb, false});
}

void
tutti_host_plan_send(host_plan *plan, uint32_t round, uint32_t to, uint32_t first, uint32_t count)
{
    add_plan_step(plan, &(host_plan_step){round, first, count, to, PLAN_SEND, false});
}

void
tutti_host_plan_recv(host_plan *plan, uint32_t round, uint32_t from, uint32_t first, uint32_t count)
{
    add_plan_step(plan, &(host_plan_step){round, first, count, from, PLAN_RECV, false});
}

void
tutti_host_plan_send_staged(host_plan *plan, uint32_t round, uint32_t to, uint32_t first,
                            uint32_t count)
{
    add_plan_step(plan, &(host_plan_step){round, first, count, to, PLAN_SEND, true});
}

void
tutti_host_plan_recv_staged(host_plan *plan, uint32_t round, uint32_t from, uint32_t first,
                            uint32_t count)
{
    add_plan_step(plan, &(host_plan_step){round, first, count, from, PLAN_RECV, true});
}

/* A row for each pair of op and algorithm that is a plan; the others have code of their own
 * (pick.c). */
host_plan_fn
tutti_host_plan_of(tutti_coll_kind kind, tutti_algorithm algorithm)
{
    static const struct {
        tutti_coll_kind kind;
        tutti_algorithm algorithm;
        host_plan_fn make;
    } plans[] = {
        {TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_BRUCK, tutti_host_plan_bruck},
        {TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_CHAIN, tutti_host_plan_chain},
        {TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_RECURSIVE_DOUBLING, tutti_host_plan_doubling},
        {TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_RING, tutti_host_plan_ring},
        {TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_RABENSEIFNER, tutti_host_plan_rabenseifner},
        {TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_HIERARCHICAL, tutti_host_plan_hosts_all_reduce},
        {TUTTI_COLL_REDUCE, TUTTI_ALGORITHM_BINOMIAL, tutti_host_plan_reduce_binomial},
        {TUTTI_COLL_REDUCE, TUTTI_ALGORITHM_CHAIN, tutti_host_plan_reduce_chain},
        {TUTTI_COLL_BROADCAST, TUTTI_ALGORITHM_BINOMIAL, tutti_host_plan_broadcast_binomial},
        {TUTTI_COLL_BROADCAST, TUTTI_ALGORITHM_CHAIN, tutti_host_plan_broadcast_chain},
        {TUTTI_COLL_BROADCAST, TUTTI_ALGORITHM_HIERARCHICAL, tutti_host_plan_hosts_broadcast},
        {TUTTI_COLL_GATHER, TUTTI_ALGORITHM_BINOMIAL, tutti_host_plan_gather_binomial},
        {TUTTI_COLL_SCATTER, TUTTI_ALGORITHM_BINOMIAL, tutti_host_plan_scatter_binomial},
        {TUTTI_COLL_ALL_GATHER, TUTTI_ALGORITHM_RING, tutti_host_plan_all_gather_ring},
        {TUTTI_COLL_ALL_GATHER, TUTTI_ALGORITHM_RECURSIVE_DOUBLING,
         tutti_host_plan_all_gather_doubling},
        {TUTTI_COLL_ALL_GATHER, TUTTI_ALGORITHM_BRUCK, tutti_host_plan_all_gather_bruck},
        {TUTTI_COLL_ALL_GATHER, TUTTI_ALGORITHM_HIERARCHICAL, tutti_host_plan_hosts_all_gather},
        {TUTTI_COLL_REDUCE_SCATTER, TUTTI_ALGORITHM_RING, tutti_host_plan_reduce_scatter_ring},
        {TUTTI_COLL_REDUCE_SCATTER, TUTTI_ALGORITHM_RECURSIVE_HALVING,
         tutti_host_plan_reduce_scatter_halving},
        {TUTTI_COLL_ALL_TO_ALL, TUTTI_ALGORITHM_BRUCK, tutti_host_plan_all_to_all_bruck},
    };
    size_t i;

    for (i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        if (plans[i].kind == kind && plans[i].algorithm == algorithm) {
            return plans[i].make;
        }
    }
    return NULL;
}
