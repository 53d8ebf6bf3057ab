/*
 * Plans for groups of several hosts with several ranks each: between two hosts goes only what must.
 *
 *   all_reduce  As many ranks on each host: reduce-scatter around a ring in each host, all_reduce
 *               of each slice around the ring of the ranks that have it, all-gather in each host,
 *               so that all ranks of a host use its network (as the 2D ring of Ying et al. 2018,
 *               Image Classification at Supercomputer Scale). Else a tree in each host, a ring of
 *               the first ranks of the hosts, and trees back
 *   broadcast   a tree over the hosts, then one in each host (Karonis et al. 2000, MPICH-G2)
 *   all_gather  to the first rank of each host, around the ring of these, a tree in each host
 */
#include "coll/host/plan.h"

/* Where this rank stands. A host's ranks are counted in the order of group ranks. */
typedef struct standing {
    uint32_t host;
    uint32_t local;
    uint32_t mates;      /* ranks of our host */
    uint32_t mates_most; /* ... of the host that has most */
    bool even;
} standing;

static uint32_t
count_in(const host_topology *topology, uint32_t host)
{
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < topology->size; i++) {
        count += topology->hosts[i] == host ? 1 : 0;
    }
    return count;
}

static uint32_t
local_of(const host_topology *topology, uint32_t rank)
{
    uint32_t local = 0;
    uint32_t i;

    for (i = 0; i < rank; i++) {
        local += topology->hosts[i] == topology->hosts[rank] ? 1 : 0;
    }
    return local;
}

static uint32_t
get_host_plan_rank(const host_topology *topology, uint32_t host, uint32_t local)
{
    uint32_t i = 0;

    while (topology->hosts[i] != host || local-- > 0) {
        i++;
    }
    return i;
}

static standing
find_own_host(const host_topology *topology)
{
    standing self = {.host = topology->hosts[topology->me], .even = true};
    uint32_t h;

    self.local = local_of(topology, topology->me);
    self.mates = count_in(topology, self.host);
    for (h = 0; h < topology->host_count; h++) {
        const uint32_t count = count_in(topology, h);

        self.even = self.even && count == self.mates;
        self.mates_most = count > self.mates_most ? count : self.mates_most;
    }
    return self;
}

/* ------------------------------------------------------------------------------ rings */

/* A ring of `size` with this one at `place`, on slices of `width` units from `first` on. */
typedef struct ring {
    uint32_t size;
    uint32_t place;
    uint32_t next; /* ranks */
    uint32_t before;
    uint32_t first;
    uint32_t width;
    uint32_t begin; /* round */
} ring;

static uint32_t
unit_of(const ring *self, uint32_t slice)
{
    return self->first + slice % self->size * self->width;
}

/* Afterwards slice place + 1 is complete. */
static void
ring_reduce(host_plan *plan, const ring *self)
{
    uint32_t s;

    for (s = 0; s + 1 < self->size; s++) {
        const uint32_t in = unit_of(self, self->place + 2 * self->size - s - 1);

        tutti_host_plan_send(plan, self->begin + s, self->next,
                             unit_of(self, self->place + self->size - s), self->width);
        tutti_host_plan_recv_staged(plan, self->begin + s, self->before, in, self->width);
        tutti_host_plan_add(plan, self->begin + s + 1, PLAN_REDUCE, in, self->width, 0);
    }
}

static void
ring_gather(host_plan *plan, const ring *self)
{
    uint32_t s;

    for (s = 0; s + 1 < self->size; s++) {
        tutti_host_plan_send(plan, self->begin + s, self->next,
                             unit_of(self, self->place + 1 + self->size - s), self->width);
        tutti_host_plan_recv(plan, self->begin + s, self->before,
                             unit_of(self, self->place + self->size - s), self->width);
    }
}

static ring
ring_of_mates(const host_topology *topology, const standing *at)
{
    return (ring){
        .size = at->mates,
        .place = at->local,
        .next = get_host_plan_rank(topology, at->host, (at->local + 1) % at->mates),
        .before = get_host_plan_rank(topology, at->host, (at->local + at->mates - 1) % at->mates),
        .width = topology->host_count,
    };
}

/* Of the ranks that are the same in their hosts. */
static ring
ring_of_hosts(const host_topology *topology, const standing *at)
{
    const uint32_t hosts = topology->host_count;

    return (ring){.size = hosts,
                  .place = at->host,
                  .next = get_host_plan_rank(topology, (at->host + 1) % hosts, at->local),
                  .before = get_host_plan_rank(topology, (at->host + hosts - 1) % hosts, at->local),
                  .width = 1};
}

/* ------------------------------------------------------------------------------ all_reduce */

static void
reduce_in_two(host_plan *plan, const host_topology *topology, const standing *at)
{
    ring mates = ring_of_mates(topology, at);
    ring hosts = ring_of_hosts(topology, at);

    plan->units = at->mates * topology->host_count;
    plan->rounds = 2 * (at->mates - 1) + 2 * (topology->host_count - 1);
    plan->gap = (plan->rounds + 1) / 2;
    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, plan->units, 0);
    ring_reduce(plan, &mates);
    hosts.first = unit_of(&mates, at->local + 1);
    hosts.begin = at->mates - 1;
    ring_reduce(plan, &hosts);
    hosts.begin += topology->host_count - 1;
    tutti_host_plan_add(plan, hosts.begin, PLAN_FINISH, unit_of(&hosts, at->host + 1), 1, 0);
    ring_gather(plan, &hosts);
    mates.begin = hosts.begin + topology->host_count - 1;
    ring_gather(plan, &mates);
}

/* In our host, to the first rank; `level` 2^k is round k. */
static void
plan_reduce_to_root(host_plan *plan, const host_topology *topology, const standing *at)
{
    const uint32_t levels = tutti_host_log2_up(at->mates_most);
    uint32_t k;

    for (k = 0; k < levels && (at->local & ((1U << k) - 1)) == 0; k++) {
        if ((at->local >> k & 1) != 0) {
            tutti_host_plan_send(plan, k,
                                 get_host_plan_rank(topology, at->host, at->local - (1U << k)), 0,
                                 plan->units);
        } else if (at->local + (1U << k) < at->mates) {
            tutti_host_plan_recv_staged(
                plan, k, get_host_plan_rank(topology, at->host, at->local + (1U << k)), 0,
                plan->units);
            tutti_host_plan_add(plan, k + 1, PLAN_REDUCE, 0, plan->units, 0);
        }
    }
}

/* In our host, from `local` 0 as counted by `shift`, from round `begin` on. */
static void
plan_broadcast_down(host_plan *plan, const host_topology *topology, const standing *at,
                    uint32_t shift, uint32_t begin)
{
    const uint32_t levels = tutti_host_log2_up(at->mates_most);
    const uint32_t place = (at->local + at->mates - shift) % at->mates;
    uint32_t k;

    for (k = 0; k < levels; k++) {
        const uint32_t bit = 1U << k;

        if (place < bit && place + bit < at->mates) {
            tutti_host_plan_send(
                plan, begin + k,
                get_host_plan_rank(topology, at->host, (place + bit + shift) % at->mates), 0,
                plan->units);
        } else if (place >= bit && place < 2 * bit) {
            tutti_host_plan_recv(
                plan, begin + k,
                get_host_plan_rank(topology, at->host, (place - bit + shift) % at->mates), 0,
                plan->units);
        }
    }
}

static void
reduce_by_firsts(host_plan *plan, const host_topology *topology, const standing *at)
{
    const uint32_t levels = tutti_host_log2_up(at->mates_most);
    const uint32_t hosts = topology->host_count;
    ring firsts;

    plan->units = hosts;
    plan->rounds = 2 * levels + 2 * (hosts - 1);
    plan->gap = (plan->rounds + 1) / 2;
    tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, plan->units, 0);
    plan_reduce_to_root(plan, topology, at);
    if (at->local == 0) {
        firsts = ring_of_hosts(topology, at);
        firsts.begin = levels;
        ring_reduce(plan, &firsts);
        firsts.begin += hosts - 1;
        tutti_host_plan_add(plan, firsts.begin, PLAN_FINISH, unit_of(&firsts, at->host + 1), 1, 0);
        ring_gather(plan, &firsts);
    }
    plan_broadcast_down(plan, topology, at, 0, levels + 2 * (hosts - 1));
}

void
tutti_host_plan_hosts_all_reduce(host_plan *plan, const host_topology *topology)
{
    const standing at = find_own_host(topology);

    plan->staged = true;
    if (at.even) {
        reduce_in_two(plan, topology, &at);
    } else {
        reduce_by_firsts(plan, topology, &at);
    }
}

/* ------------------------------------------------------------------------------ broadcast */

/* The rank that speaks for a host: the root for its own. */
static uint32_t
get_host_leader(const host_topology *topology, uint32_t host)
{
    return host == topology->hosts[topology->root] ? topology->root
                                                   : get_host_plan_rank(topology, host, 0);
}

void
tutti_host_plan_hosts_broadcast(host_plan *plan, const host_topology *topology)
{
    const standing at = find_own_host(topology);
    const uint32_t hosts = topology->host_count;
    const uint32_t home = topology->hosts[topology->root];
    const uint32_t place = (at.host + hosts - home) % hosts;
    const uint32_t levels = tutti_host_log2_up(hosts);
    uint32_t k;

    plan->units = 1;
    plan->rounds = levels + tutti_host_log2_up(at.mates_most);
    plan->gap = 1;
    if (topology->me == topology->root) {
        tutti_host_plan_add(plan, 0, PLAN_LOAD, 0, 1, 0);
    }
    for (k = 0; k < levels && topology->me == get_host_leader(topology, at.host); k++) {
        const uint32_t bit = 1U << k;

        if (place < bit && place + bit < hosts) {
            tutti_host_plan_send(plan, k, get_host_leader(topology, (place + bit + home) % hosts),
                                 0, 1);
        } else if (place >= bit && place < 2 * bit) {
            tutti_host_plan_recv(plan, k, get_host_leader(topology, (place - bit + home) % hosts),
                                 0, 1);
        }
    }
    plan_broadcast_down(plan, topology, &at,
                        at.host == home ? local_of(topology, topology->root) : 0, levels);
}

/* ------------------------------------------------------------------------------ all_gather */

/* In scratch, blocks are sorted by hosts. */
static uint32_t
first_of_host(const host_topology *topology, uint32_t host)
{
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < topology->size; i++) {
        count += topology->hosts[i] < host ? 1 : 0;
    }
    return count;
}

static void
gather_among_firsts(host_plan *plan, const host_topology *topology, const standing *at)
{
    const uint32_t hosts = topology->host_count;
    const uint32_t own = first_of_host(topology, at->host);
    const uint32_t next = get_host_plan_rank(topology, (at->host + 1) % hosts, 0);
    const uint32_t before = get_host_plan_rank(topology, (at->host + hosts - 1) % hosts, 0);
    uint32_t s;

    for (s = 1; s < at->mates; s++) {
        tutti_host_plan_recv(plan, 0, get_host_plan_rank(topology, at->host, s), own + s, 1);
    }
    for (s = 0; s + 1 < hosts; s++) {
        const uint32_t out = (at->host + hosts - s) % hosts;
        const uint32_t in = (at->host + 2 * hosts - s - 1) % hosts;

        tutti_host_plan_send(plan, 1 + s, next, first_of_host(topology, out),
                             count_in(topology, out));
        tutti_host_plan_recv(plan, 1 + s, before, first_of_host(topology, in),
                             count_in(topology, in));
    }
}

void
tutti_host_plan_hosts_all_gather(host_plan *plan, const host_topology *topology)
{
    const standing at = find_own_host(topology);
    const uint32_t own = first_of_host(topology, at.host) + at.local;
    uint32_t i;

    plan->units = topology->size;
    plan->scratch = true;
    plan->rounds = topology->host_count + tutti_host_log2_up(at.mates_most);
    plan->gap = (plan->rounds + 1) / 2;
    tutti_host_plan_add(plan, 0, PLAN_LOAD, own, 1, topology->me);
    if (at.local == 0) {
        gather_among_firsts(plan, topology, &at);
    } else {
        tutti_host_plan_send(plan, 0, get_host_plan_rank(topology, at.host, 0), own, 1);
    }
    plan_broadcast_down(plan, topology, &at, 0, topology->host_count);
    for (i = 0; i < topology->size; i++) {
        const uint32_t unit = first_of_host(topology, topology->hosts[i]) + local_of(topology, i);

        tutti_host_plan_add(plan, plan->rounds, PLAN_STORE, unit, 1, i);
    }
}
