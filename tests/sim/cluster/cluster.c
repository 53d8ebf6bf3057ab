/*
 * Processes, what befalls them, and the end. Who is killed is started anew by a supervisor of the simulation, as
 * Kubernetes does, at the same address; what was killed is kept frozen, and ends at the very end, unheard, to give its
 * memory back.
 */
#include "sim/cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/conn/conn_pool.h"
#include "sim/cluster/cluster_private.h"
#include "sim/core/core.h"
#include "sim/wire.h"

#define LOOK_NS (200 * TUTTI_NS_PER_MS)
#define HEALS_NS (90 * TUTTI_NS_PER_S) /* until the job is whole again, when all is well */
#define CALM_NS (25 * TUTTI_NS_PER_S)  /* until all that is over is forgotten */
#define FAREWELL_NS (120 * TUTTI_NS_PER_S)

cluster_state cluster;

/* ------------------------------------------------------------------------------ starting */

static bool
is_program(uint32_t who)
{
    return who < CLUSTER_PROGRAM;
}

static bool
is_there(uint32_t who)
{
    return who == CLUSTER_COORDINATOR || who >= CLUSTER_VISITOR ||
           (who - CLUSTER_AGENT) % RANKS_MAX < cluster.plan.size;
}

static void
start_program(uint32_t who)
{
    cluster.programs[who] = who == CLUSTER_COORDINATOR
                                ? program_coordinator()
                                : program_agent(who - CLUSTER_AGENT, cluster.plan.size);
}

static void *(*body_of(uint32_t who))(void *)
{
    return who == CLUSTER_CONTROLLER ? cluster_run_controller
           : who >= CLUSTER_VISITOR  ? cluster_run_visitor
                                     : cluster_run_rank;
}

static void
start_user(uint32_t who, uint32_t next)
{
    cluster_user *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        sim_fail("no memory");
    }
    self->who = who;
    self->next = next;
    self->process = program_number();
    cluster.users[who] = self;
    self->task = sim_task_new(self->process, body_of(who), self);
}

static void
restart(void *arg, uint64_t who)
{
    (void)arg;
    sim_note("%llu is started anew", (unsigned long long)who);
    if (is_program((uint32_t)who)) {
        start_program((uint32_t)who);
    } else {
        start_user((uint32_t)who, cluster.ghosts[cluster.ghost_count - 1]->next);
    }
}

static int
process_of(uint32_t who)
{
    if (is_program(who)) {
        return cluster.programs[who] == NULL ? SIM_DRIVER : program_process(cluster.programs[who]);
    }
    return cluster.users[who] == NULL ? SIM_DRIVER : cluster.users[who]->process;
}

/* ------------------------------------------------------------------------------ killing */

static void
retire(uint32_t who)
{
    if (cluster.past_count == CLUSTER_LIVES_MAX) {
        sim_fail("%u has ended too often", who);
    }
    cluster.past[cluster.past_count++] = cluster.programs[who];
    cluster.programs[who] = NULL;
}

static void
kill_one(uint32_t who, bool silent, uint64_t span_ns)
{
    if (process_of(who) == SIM_DRIVER) {
        return; /* it is not there just now */
    }
    if (is_program(who)) {
        program_kill(cluster.programs[who], silent);
        cluster.store_is_new = cluster.store_is_new || who == CLUSTER_COORDINATOR;
        retire(who);
    } else if (cluster.users[who]->through) {
        return;
    } else {
        cluster.users[who]->killed = true;
        sim_freeze(cluster.users[who]->process, true);
        core_kill(cluster.users[who]->process, silent);
        cluster.ghosts[cluster.ghost_count++] = cluster.users[who];
        cluster.users[who] = NULL;
    }
    sim_at(sim_now_ns() + 20 * TUTTI_NS_PER_MS + span_ns, restart, NULL, who);
}

/* An agent that the job has refused, or that was replaced, is started anew as well. */
static void
look_at_agents(void)
{
    uint32_t who;
    tutti_error why;

    for (who = CLUSTER_AGENT; who < CLUSTER_AGENT + cluster.plan.size; who++) {
        if (cluster.programs[who] != NULL && program_failed(cluster.programs[who], &why)) {
            retire(who);
            sim_at(sim_now_ns() + TUTTI_NS_PER_S, restart, NULL, who);
        }
    }
}

/* ------------------------------------------------------------------------------ faults */

static void
note_stop(uint32_t who, bool stopped)
{
    cluster_user *user = is_program(who) ? NULL : cluster.users[who];

    if (user == NULL || user->stopped == stopped) {
        return;
    }
    user->stopped = stopped;
    if (stopped) {
        user->stopped_since_ns = sim_now_ns();
    } else {
        user->stopped_ns += sim_now_ns() - user->stopped_since_ns;
    }
}

static void
thaw(void *arg, uint64_t process)
{
    const uint32_t who = (uint32_t)(uintptr_t)arg;

    if (process_of(who) == (int)process) {
        sim_note("%u goes on", who);
        note_stop(who, false);
        sim_freeze((int)process, false);
    }
}

static void
stop_one(uint32_t who, uint64_t span_ns)
{
    const int process = process_of(who);

    if (process != SIM_DRIVER && !sim_frozen(process)) {
        note_stop(who, true);
        sim_freeze(process, true);
        sim_at(sim_now_ns() + span_ns, thaw, (void *)(uintptr_t)who, (uint64_t)process);
    }
}

static void
cut_one_way(uint32_t from, uint32_t to, uint64_t until_ns)
{
    const int a = process_of(from);
    const int b = process_of(to);

    if (a != SIM_DRIVER && b != SIM_DRIVER) {
        core_cut(a, b, until_ns);
        wire_cut((uint32_t)a, (uint32_t)b, until_ns);
    }
}

static void
end_slow(void *arg, uint64_t number)
{
    (void)arg;
    (void)number;
    wire_slow(0);
    core_slow(0);
}

static void
befall(void *arg, uint64_t number)
{
    static const char *const names[] = {"is killed", "stops", "is cut off from", "is not heard by",
                                        "and all are slow"};
    const cluster_fault *fault = &cluster.plan.faults[number];

    (void)arg;
    if (cluster.calm) {
        return;
    }
    sim_note("%u %s (%u), %.3f ms", fault->who, names[fault->kind], fault->other,
             (double)fault->span_ns / 1e6);
    cluster.counts.faults++;
    switch (fault->kind) {
    case FAULT_KILL:
        kill_one(fault->who, fault->silent, fault->span_ns);
        break;
    case FAULT_STOP:
        stop_one(fault->who, fault->span_ns);
        break;
    case FAULT_CUT:
        cut_one_way(fault->other, fault->who, sim_now_ns() + fault->span_ns);
        cut_one_way(fault->who, fault->other, sim_now_ns() + fault->span_ns);
        break;
    case FAULT_ONE_WAY:
        cut_one_way(fault->who, fault->other, sim_now_ns() + fault->span_ns);
        break;
    default:
        wire_slow(fault->span_ns / 20);
        core_slow(fault->span_ns / 20);
        sim_at(sim_now_ns() + fault->span_ns, end_slow, NULL, 0);
    }
}

/* ------------------------------------------------------------------------------ the course of it */

static bool
are_through(void)
{
    uint32_t who;

    for (who = CLUSTER_PROGRAM; who < CLUSTER_PROGRAMS; who++) {
        if (is_there(who) && (cluster.users[who] == NULL || !cluster.users[who]->through)) {
            return false;
        }
    }
    return true;
}

static bool
is_whole(void)
{
    uint32_t who;

    for (who = 0; who < CLUSTER_AGENT + cluster.plan.size; who++) {
        if (cluster.programs[who] == NULL || !program_runs(cluster.programs[who])) {
            return false;
        }
    }
    return true;
}

static uint64_t calm_since_ns;

static bool
is_calm(void)
{
    return sim_now_ns() > calm_since_ns + CALM_NS;
}

static void
await(bool (*is_so)(void), uint64_t most_ns, const char *what)
{
    const uint64_t until_ns = sim_now_ns() + most_ns;

    while (!is_so()) {
        sim_sleep(LOOK_NS);
        look_at_agents();
        if (sim_now_ns() > until_ns) {
            sim_fail("%s for %.0f s", what, (double)most_ns / 1e9);
        }
    }
}

static void
start_all(void)
{
    uint32_t who;
    uint32_t i;

    for (who = 0; who < CLUSTER_PROGRAMS; who++) {
        if (is_there(who) && is_program(who)) {
            start_program(who);
        } else if (is_there(who)) {
            start_user(who, 0);
        }
    }
    for (i = 0; i < cluster.plan.fault_count; i++) {
        if (plan_plays(cluster.plan.fault_mask, i)) {
            sim_at(sim_now_ns() + cluster.plan.faults[i].at_ns, befall, NULL, i);
        }
    }
}

static void
free_user(cluster_user *user)
{
    if (user != NULL) {
        sim_freeze(user->process, false);
        sim_task_join(user->task);
        free(user);
    }
}

/* Agents first, as a job ends; then what was killed. */
static void
end_all(void)
{
    uint32_t i;

    for (i = 0; i < CLUSTER_PROGRAMS; i++) {
        free_user(cluster.users[i]);
    }
    for (i = CLUSTER_AGENT; i < CLUSTER_AGENT + cluster.plan.size; i++) {
        program_stop(cluster.programs[i]);
    }
    for (i = CLUSTER_AGENT; i < CLUSTER_AGENT + cluster.plan.size; i++) {
        program_free(cluster.programs[i]);
    }
    program_free(cluster.programs[CLUSTER_COORDINATOR]);
    for (i = 0; i < cluster.ghost_count; i++) {
        free_user(cluster.ghosts[i]);
    }
    for (i = 0; i < cluster.past_count; i++) {
        program_free(cluster.past[i]);
    }
}

static void *
run_all(void *arg)
{
    (void)arg;
    start_all();
    await(are_through, 40 * 60 * TUTTI_NS_PER_S, "programs are not through");
    cluster.calm = true;
    calm_since_ns = sim_now_ns();
    await(is_calm, 2 * CALM_NS, "a while has not passed");
    await(is_whole, HEALS_NS, "the job is not whole again");
    cluster_judge_end();
    cluster_judge_store();
    end_all();
    sim_sleep(FAREWELL_NS);
    return NULL;
}

void
cluster_play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts)
{
    tutti_error err;

    memset(&cluster, 0, sizeof(cluster));
    sim_open(seed, print);
    wire_open(NULL);
    core_open();
    program_open();
    cluster_store_open();
    if (client_library_enter(&err) != TUTTI_OK) { /* it stays begun while clients come and go */
        sim_fail("%s", err.text);
    }
    cluster_plan_draw(&cluster.plan, seed);
    cluster.plan.op_mask = ops;
    cluster.plan.fault_mask = faults;
    sim_run(sim_task_new(SIM_DRIVER, run_all, NULL));
    client_library_leave();
    cluster.counts.virtual_ns = sim_now_ns() - TUTTI_NS_PER_S;
    cluster.counts.hash = sim_hash();
    *ret_counts = cluster.counts;
    core_close();
    sim_close();
}
