/* What befalls a job, and what the coordinator does with groups. */
#include "base/error/fail.h"
#include "job.h"
#include "memory.h"
#include "wire.h"

#define NEWS_NS (5 * TUTTI_NS_PER_MS)        /* until a word of the coordinator is heard */
#define LAST_WORDS_NS (20 * TUTTI_NS_PER_MS) /* the coordinator answers one that leaves */
#define ABORT_NS (20 * TUTTI_NS_PER_MS)      /* of one that another member has asked for */

static void
tell_all(uint64_t most_ns, member_news run, uint64_t a, uint64_t b)
{
    uint32_t i;

    for (i = 0; i < our.plan.size; i++) {
        if (!our.seats[i]->dead && !our.seats[i]->left) {
            member_tell(our.seats[i], most_ns, run, a, b);
        }
    }
}

/* ------------------------------------------------------------------------------ groups */

static bool
is_member(uint64_t group, uint32_t rank)
{
    return member_of(&our.plan.groups[group], rank) < our.plan.groups[group].size;
}

static void
make_group(void *arg, uint64_t number)
{
    (void)arg;
    our.groups[number].made = true;
    our.groups[number].epoch = our.epoch;
    tell_all(NEWS_NS, member_hear_open, number, our.epoch);
    if (our.plan.groups[number].opens_ns > 0) {
        play_see(SEEN_MADE);
    }
}

static void
end_group(void *arg, uint64_t number)
{
    const plan_group *group = &our.plan.groups[number];
    job_group *all = &our.groups[number];
    uint32_t i;

    (void)arg;
    if (our.calm) {
        return;
    }
    all->end = group->end;
    all->deleted_ns = sim_now_ns();
    play_see(group->end == END_DELETED ? SEEN_DELETED : SEEN_ABORTED);
    for (i = 0; i < our.plan.size; i++) {
        process *one = our.seats[i];

        if (one->dead || one->left) {
            continue;
        }
        if (group->end == END_DELETED) {
            all->unclosed += is_member(number, i) ? 1 : 0;
            member_tell(one, NEWS_NS, member_hear_deleted, number, 0);
        } else {
            member_tell(one, i == group->ender ? 1 : ABORT_NS, member_hear_aborted, number,
                        i == group->ender);
        }
    }
}

/* ------------------------------------------------------------------------------ deaths */

static void
lose(void *arg, uint64_t number)
{
    process *self = &our.processes[number];

    (void)arg;
    if (!self->told) {
        self->told = true;
        our.untold--;
        sim_note("all hear that rank %u is lost", self->rank);
        tell_all(NEWS_NS, member_hear_of, number, 0);
    }
}

static void
note_going(process *self)
{
    if (!self->leaving) {
        our.untold++;
    }
    our.lost_ns = SIM_NEVER;
}

/* Another process takes the rank: its groups begin a new epoch, and all ops behind those that anybody
 * has called. */
static void
come_back(void *arg, uint64_t rank)
{
    process *old = our.seats[rank];
    process *self;
    uint32_t i;

    (void)arg;
    if (our.calm || !old->dead) {
        return;
    }
    lose(NULL, old->number);
    our.epoch++;
    for (i = 0; i < our.plan.group_count; i++) {
        job_group *group = &our.groups[i];

        if (group->made && is_member(i, (uint32_t)rank) && (group->end == END_NONE || i == 0)) {
            group->end = END_NONE;
            group->epoch = our.epoch;
            group->resume = group->called;
        }
    }
    self = member_new((uint32_t)rank);
    sim_note("rank %llu comes back as process %u", (unsigned long long)rank, self->number);
    client_start_all(self);
    play_see(SEEN_RETURN);
    for (i = 0; i < our.plan.size; i++) {
        if (our.seats[i] != self && !our.seats[i]->dead && !our.seats[i]->left) {
            uint32_t k;

            member_tell(our.seats[i], NEWS_NS, member_hear_of, self->number, 0);
            for (k = 0; k < our.plan.group_count; k++) {
                if (our.groups[k].epoch == our.epoch) {
                    member_tell(our.seats[i], 0, member_hear_renewed, k, our.epoch);
                }
            }
        }
    }
}

static void
kill_process(const plan_fault *fault)
{
    process *self = our.seats[fault->rank];

    if (self->dead || self->left) {
        return;
    }
    note_going(self);
    if (sim_frozen((int)self->number)) {
        self->stopped_ns += sim_now_ns() - self->stopped_since_ns;
    }
    self->dead = true;
    sim_freeze((int)self->number, true);
    wire_kill(self->number, fault->silent);
    sim_at(sim_now_ns() + sim_draw(LOST_NS), lose, NULL, self->number);
    if (fault->returns_ns > 0) {
        sim_at(sim_now_ns() + fault->returns_ns, come_back, NULL, fault->rank);
    }
}

/* ------------------------------------------------------------------------------ leaving */

static bool
has_none(void *arg)
{
    const process *self = arg;

    return self->under_way == 0;
}

static void *
run_leaver(void *arg)
{
    process *self = arg;

    sim_sleep(LAST_WORDS_NS);
    (void)sim_wait(has_none, self, SIM_NEVER);
    (void)pthread_mutex_lock(&self->lock);
    tutti_coll_engine_refuse(self->engine);
    tutti_coll_engine_stop(self->engine);
    self->engine = NULL;
    self->left = true;
    (void)pthread_mutex_unlock(&self->lock);
    sim_note("rank %u has left", self->rank);
    sim_at(sim_now_ns() + sim_draw(NEWS_NS), lose, NULL, self->number);
    return NULL;
}

static void
leave(process *self, uint64_t a, uint64_t b)
{
    uint32_t i;

    (void)a;
    (void)b;
    if (self->leaving || our.calm) {
        return;
    }
    note_going(self);
    self->leaving = true;
    self->leaving_ns = sim_now_ns();
    for (i = 0; i < our.plan.group_count; i++) {
        if (self->groups[i].state == MEMBER_OPEN) {
            tutti_coll_group_leave(self->groups[i].coll, "it leaves");
            self->left_groups |= 1U << i;
        }
    }
    self->leaver = sim_task_new((int)self->number, run_leaver, self);
}

/* ------------------------------------------------------------------------------ programs */

static void
cancel_all(process *self, const tutti_error *why)
{
    tutti_list_node *at;

    for (at = self->calls.next; at != &self->calls; at = at->next) {
        const call *one = tutti_container_of(at, call, link);

        if (!one->done) {
            tutti_coll_cancel(self->engine, one->op.id, why);
        }
    }
}

static void
lose_callers(process *self, uint64_t a, uint64_t b)
{
    tutti_error why;
    uint32_t i;

    (void)a;
    (void)b;
    self->callers_gone = true;
    self->gone_ns = sim_now_ns();
    self->come_ns = SIM_NEVER;
    self->orphans = 0;
    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "the program of rank %u has ended",
                         self->rank);
    cancel_all(self, &why);
    for (i = 0; i < our.plan.group_count; i++) {
        if (self->groups[i].state == MEMBER_OPEN) {
            tutti_coll_group_over(self->groups[i].coll);
            tutti_coll_group_orphan(self->groups[i].coll, &why);
            self->orphans |= 1U << i;
        }
    }
}

static void
get_callers(process *self, uint64_t a, uint64_t b)
{
    uint32_t i;

    (void)a;
    (void)b;
    if (!self->callers_gone) {
        return;
    }
    sim_note("rank %u has another program", self->rank);
    self->callers_gone = false;
    self->come_ns = sim_now_ns();
    self->restarts++;
    self->caller_ns = sim_clock((int)self->number);
    for (i = 0; i < our.plan.group_count; i++) {
        if (self->groups[i].state == MEMBER_OPEN) {
            tutti_coll_group_adopt(self->groups[i].coll);
        }
    }
}

static void
send_callers(void *arg, uint64_t number)
{
    (void)arg;
    member_tell(&our.processes[number], 1, get_callers, 0, 0);
}

/* ------------------------------------------------------------------------------ probes */

/* Where nothing is cut or dead, each is reached. */
static void
on_probed(void *arg, const tutti_coll_reach *reaches, size_t count)
{
    process *self = arg;
    size_t i;

    for (i = 0; i < count && our.prompt && our.plan.kind <= PLAN_LATE; i++) {
        if (!reaches[i].reached) {
            sim_fail("rank %u cannot reach rank %u: %s", self->rank, reaches[i].rank,
                     reaches[i].why);
        }
    }
    self->probes--;
}

static void
probe(process *self, uint64_t wait_ns, uint64_t unused)
{
    uint32_t ranks[RANKS_MAX];
    size_t count = 0;
    uint32_t i;
    tutti_error err;

    (void)unused;
    for (i = 0; i < our.plan.size; i++) {
        if (i != self->rank) {
            ranks[count++] = i;
        }
    }
    self->probes++;
    if (tutti_coll_probe(self->engine, ranks, count, wait_ns, on_probed, self, &err) != TUTTI_OK) {
        self->probes--;
    }
}

/* ------------------------------------------------------------------------------ stops and cuts */

static void
thaw(void *arg, uint64_t number)
{
    process *self = &our.processes[number];

    (void)arg;
    if (!self->dead && sim_frozen((int)number)) {
        sim_note("rank %u goes on", self->rank);
        self->stopped_ns += sim_now_ns() - self->stopped_since_ns;
        self->stopped_since_ns = sim_now_ns();
        sim_freeze((int)number, false);
    }
}

static void
stop_process(process *self, uint64_t span_ns)
{
    if (!self->dead && !sim_frozen((int)self->number)) {
        self->stopped_since_ns = sim_now_ns();
        sim_freeze((int)self->number, true);
        sim_at(sim_now_ns() + span_ns, thaw, NULL, self->number);
    }
}

static void
end_slow(void *arg, uint64_t number)
{
    (void)arg;
    (void)number;
    wire_slow(0);
}

static void
end_hunger(void *arg, uint64_t number)
{
    (void)arg;
    (void)number;
    memory_feed();
}

/* One allocation fails, or all for a while. */
static void
starve(const process *self, const plan_fault *fault)
{
    our.starved = true;
    our.parks = true; /* a word that nobody has memory for is not said */
    memory_starve(self->number, fault->silent, fault->span_ns % 40);
    if (!fault->silent) {
        sim_at(sim_now_ns() + fault->span_ns, end_hunger, NULL, 0);
    }
}

/* ------------------------------------------------------------------------------ all */

static void
befall(void *arg, uint64_t number)
{
    const plan_fault *fault = &our.plan.faults[number];
    process *self = our.seats[fault->rank];
    const process *other = our.seats[fault->other];
    const uint64_t until_ns = sim_now_ns() + fault->span_ns;

    (void)arg;
    sim_note("rank %u %s (rank %u), %.3f ms", fault->rank, plan_fault_name(fault->kind),
             fault->other, (double)fault->span_ns / 1e6);
    our.counts.faults++;
    play_see(SEEN_FAULTS + (uint32_t)fault->kind);
    switch (fault->kind) {
    case FAULT_KILL:
        kill_process(fault);
        break;
    case FAULT_STOP:
        stop_process(self, fault->span_ns);
        break;
    case FAULT_CUT:
        wire_cut(other->number, self->number, until_ns);
        wire_cut(self->number, other->number, until_ns);
        break;
    case FAULT_ONE_WAY:
        wire_cut(self->number, other->number, until_ns);
        break;
    case FAULT_LEAVE:
        member_tell(self, 1, leave, 0, 0);
        break;
    case FAULT_CALLERS:
        member_tell(self, 1, lose_callers, 0, 0);
        sim_at(until_ns, send_callers, NULL, self->number);
        break;
    case FAULT_PROBE:
        member_tell(self, 1, probe, 200 * TUTTI_NS_PER_MS + fault->span_ns, 0);
        break;
    case FAULT_CLOCK:
        sim_skew((int)self->number, fault->span_ns);
        break;
    case FAULT_MEMORY:
        starve(self, fault);
        break;
    default:
        wire_slow(fault->span_ns / 20);
        sim_at(until_ns, end_slow, NULL, 0);
    }
}

void
befall_all(void)
{
    uint32_t i;

    for (i = 0; i < our.plan.group_count; i++) {
        const plan_group *group = &our.plan.groups[i];

        if (group->opens_ns == 0) {
            make_group(NULL, i);
        } else {
            sim_at(sim_now_ns() + group->opens_ns, make_group, NULL, i);
        }
        if (group->end != END_NONE) {
            sim_at(sim_now_ns() + group->ends_ns + 1, end_group, NULL, i);
        }
    }
    for (i = 0; i < our.plan.fault_count; i++) {
        if (plan_plays(our.plan.fault_mask, i)) {
            sim_at(sim_now_ns() + our.plan.faults[i].at_ns, befall, NULL, i);
        }
    }
}
