/* The order of it all. */
#include "play.h"

#include <string.h>

#include "job.h"
#include "memory.h"
#include "wire.h"

job our;

/* ------------------------------------------------------------------------------ the end */

static bool
lives(uint32_t which)
{
    const plan_group *group = &our.plan.groups[which];
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        const process *one = our.seats[group->ranks[i]];

        if (member_is_gone(one) || one->groups[which].state != MEMBER_OPEN ||
            one->groups[which].epoch != our.groups[which].epoch) {
            return false;
        }
    }
    return our.groups[which].end == END_NONE;
}

static void
call_last(uint32_t which)
{
    const plan_group *group = &our.plan.groups[which];
    uint32_t i;

    for (i = 0; i < group->size && lives(which); i++) {
        call *one = call_new(our.seats[group->ranks[i]], which, i, 1000 + which);

        one->op.args.kind = TUTTI_COLL_BARRIER;
        one->output = call_values(0);
        sim_enter(
            (int)one->process->number); /* it may run the engine, by the clock of the process */
        call_post(one, LAST_NS);
        sim_enter(SIM_DRIVER);
    }
}

static void
judge_memory(const process *self)
{
    tutti_list_node *at;

    for (at = self->calls.next; at != &self->calls; at = at->next) {
        judge_spoilt(tutti_container_of(at, call, link));
    }
}

/* Of the dead or of the others. Dead processes are frozen: their engines end last, by themselves, to
 * give their memory back. */
static void
close_those(bool dead)
{
    uint32_t i;

    for (i = 0; i < our.process_count; i++) {
        process *self = &our.processes[i];

        if (self->dead == dead) {
            if (dead) {
                sim_freeze((int)i, false);
            }
            client_join_all(self);
            member_close(self);
        }
    }
}

static void
close_all(void)
{
    uint32_t i;

    for (i = 0; i < our.process_count; i++) {
        if (!our.processes[i].dead && !our.processes[i].left) {
            judge_rest(&our.processes[i]);
        }
    }
    if (wire_loans() > 0) {
        sim_fail("%llu regions were never given back", (unsigned long long)wire_loans());
    }
    close_those(false);
    for (i = 0; i < our.process_count; i++) {
        if (!our.processes[i].dead) {
            judge_memory(&our.processes[i]);
        }
    }
    close_those(true);
    sim_sleep(TUTTI_NS_PER_S); /* what was on its way is dropped */
    for (i = 0; i < our.process_count; i++) {
        member_free(&our.processes[i]);
    }
}

static bool
have_ended(void *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < our.process_count; i++) {
        if (!our.processes[i].dead && our.processes[i].under_way > 0) {
            return false;
        }
    }
    return true;
}

/* For a process that is killed nobody waits. */
static bool
are_at_end(void *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < our.plan.size; i++) {
        const process *one = our.seats[i];

        if (!one->dead && !one->left &&
            (sim_frozen((int)one->number) || one->leaving || !tutti_list_empty(&one->news) ||
             !client_are_at_end(one))) {
            return false;
        }
    }
    return true;
}

static void *
run_all(void *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < our.plan.size; i++) {
        (void)member_new(i);
    }
    befall_all();
    for (i = 0; i < our.plan.size; i++) {
        client_start_all(our.seats[i]);
    }
    sim_sleep(BEFALL_NS);
    (void)sim_wait(are_at_end, NULL, SIM_NEVER);
    memory_feed();
    our.calm = true;
    sim_sleep(CALM_NS);
    for (i = 0; i < our.plan.group_count; i++) {
        call_last(i);
    }
    (void)sim_wait(have_ended, NULL, SIM_NEVER);
    sim_sleep(CALM_NS);
    close_all();
    return NULL;
}

/* Programs that begin anew wait for each other, and ranks that count apart for deadlines. */
static bool
is_prompt(const plan *self)
{
    uint32_t i;

    for (i = 0; i < self->fault_count; i++) {
        if (self->faults[i].kind == FAULT_CALLERS) {
            return false;
        }
    }
    return self->kind != PLAN_ROUGH && !self->follows;
}

void
play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts)
{
    memset(&our, 0, sizeof(our));
    sim_open(seed, print);
    wire_open(call_holds);
    memory_feed();
    plan_draw(&our.plan, seed);
    our.plan.op_mask = ops;
    our.plan.fault_mask = faults;
    our.epoch = 1;
    our.prompt = is_prompt(&our.plan);
    sim_run(sim_task_new(SIM_DRIVER, run_all, NULL));
    our.counts.virtual_ns = sim_now_ns() - TUTTI_NS_PER_S;
    our.counts.hash = sim_hash();
    our.counts.seen[SEEN_REGION] = wire_regions();
    *ret_counts = our.counts;
    sim_close();
}
