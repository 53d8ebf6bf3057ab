/*
 * The judges, and what they ask:
 *   results     an op that succeeds on a rank has the result that a model of it has
 *   agreement   an op that ranks call differently succeeds on no rank, and ops behind which nothing lies fail on none
 *   errors      an op fails by a code that its plan allows
 *   time        an op ends by its deadline and LATE_NS, not counting time for which its process was stopped
 *   the end     once all is well again, ops of every group whose members live succeed, and nothing is left over
 */
#include "play.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/coll.h"
#include "coll/host/host.h"
#include "coll/select/select.h"
#include "coll/self/self.h"
#include "kernel.h"
#include "model.h"
#include "wire.h"

#define JOB 77
#define LATE_NS                                                                                    \
    (1500 * TUTTI_NS_PER_MS) /* behind the deadline: an op's memory is given up after 1 s */
#define LOST_NS (400 * TUTTI_NS_PER_MS)   /* until the coordinator has told of a death */
#define PROMPT_NS (100 * TUTTI_NS_PER_MS) /* until an op ends that waits for nobody */
#define GRACE_NS (500 * TUTTI_NS_PER_MS)  /* behind the news of a death: the engine's is 300 ms */
#define CALM_NS (8 * TUTTI_NS_PER_S)      /* before the last ops */
#define LAST_NS (10 * TUTTI_NS_PER_S)     /* their time */
#define GUARD 0x5aa55aa55aa55aa5ULL

typedef struct process process;

/* A thread of a process that calls ops: of the first group, or of the others. */
typedef struct client {
    process *process;
    uint32_t number;
    uint32_t under_way;
    sim_task *task;
    bool is_through;
} client;

#define CLIENTS 2

/* An op of one rank. */
typedef struct call {
    tutti_list_node link;
    tutti_coll_op op;
    process *process;
    client *client;  /* NULL: the driver */
    model_call part; /* part.what is NULL: a barrier of the end */
    int64_t *input;
    int64_t *output; /* with a guard behind it */
    int64_t output_count;
    uint32_t to[RANKS_MAX];
    uint64_t called_ns;
    uint64_t done_ns;
    uint64_t stopped_at_done_ns;
    uint64_t stopped_ns; /* of its process, when it was called */
    bool done;
    bool released;
    tutti_code code;
} call;

struct process {
    uint32_t rank;
    uint64_t incarnation;
    bool dead;
    uint64_t stopped_ns; /* in all, and since when */
    uint64_t stopped_since_ns;
    tutti_coll_engine *engine;
    tutti_coll_group *groups[GROUPS_MAX];
    tutti_selector *selector;
    tutti_list_node calls;
    uint32_t under_way;
    client clients[CLIENTS];
};

/* What has become of an op on all ranks. */
typedef struct standing {
    uint32_t calls;
    uint64_t last_call_ns;
    uint64_t failed_ns; /* on the first rank; 0 = on none */
} standing;

static struct {
    plan plan;
    standing standings[OPS_MAX];
    uint64_t lost_ns; /* when all have heard of a death last; SIM_NEVER = not yet */
    process processes[RANKS_MAX];
    bool calm; /* nothing befalls anybody any more */
    play_counts counts;
} our;

/* ------------------------------------------------------------------------------ judges */

static bool
is_odd(const call *self)
{
    return self->part.what != NULL && self->part.what->odd < self->part.size;
}

static bool
may_be(const call *self, tutti_code code)
{
    switch (code) {
    case TUTTI_UNAVAILABLE:
    case TUTTI_DEADLINE_EXCEEDED:
    case TUTTI_ABORTED:
        return true;
    case TUTTI_INVALID_ARGUMENT:
    case TUTTI_FAILED_PRECONDITION:
        return is_odd(self);
    default:
        return false;
    }
}

static const char *
words(const call *self)
{
    return self->part.what == NULL ? "the last barrier"
                                   : tutti_coll_kind_name(self->part.what->kind);
}

static void
judge_result(const call *self)
{
    int64_t i;

    if (is_odd(self) && self->part.what->kind != TUTTI_COLL_SEND) {
        sim_fail("op %u (%s) succeeded on rank %u, and group rank %u called another",
                 self->part.number, words(self), self->process->rank, self->part.what->odd);
    }
    for (i = 0; self->part.what != NULL && i < self->output_count; i++) {
        if (self->output[i] != model_element(&self->part, i)) {
            sim_fail("op %u (%s) on rank %u: element %lld is %lld and not %lld", self->part.number,
                     words(self), self->process->rank, (long long)i, (long long)self->output[i],
                     (long long)model_element(&self->part, i));
        }
    }
}

static uint64_t
stopped_until_now(const process *self)
{
    return self->stopped_ns +
           (sim_frozen((int)self->rank) ? sim_now_ns() - self->stopped_since_ns : 0);
}

static void
judge_time(const call *self)
{
    const uint64_t allowed_ns =
        self->op.deadline_ns + LATE_NS + (stopped_until_now(self->process) - self->stopped_ns);

    if (sim_now_ns() > allowed_ns && !self->process->dead) {
        sim_fail("op %u (%s) on rank %u ended %.3f s behind its deadline", self->part.number,
                 words(self), self->process->rank,
                 (double)(sim_now_ns() - self->op.deadline_ns) / 1e9);
    }
}

static uint32_t
count_callers(const call *self)
{
    return self->part.what->kind == TUTTI_COLL_SEND ? 2 : self->part.size;
}

static bool
has_dead_member(const call *self)
{
    const plan_group *group = &our.plan.groups[self->part.what->group];
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        const bool needed = self->part.what->kind != TUTTI_COLL_SEND ||
                            i == self->part.what->root || i == self->part.what->peer;

        if (needed && our.processes[group->ranks[i]].dead) {
            return true;
        }
    }
    return false;
}

/* Since when nothing keeps the op from its end, as far as the plan allows to say so. */
static uint64_t
free_since(const call *self)
{
    const standing *all = &our.standings[self->part.number];
    uint64_t since_ns = SIM_NEVER;

    if (our.plan.kind == PLAN_DEATHS && has_dead_member(self)) {
        return our.lost_ns == SIM_NEVER ? SIM_NEVER : our.lost_ns + GRACE_NS;
    }
    if (self->part.what->kind == TUTTI_COLL_SEND && all->failed_ns > 0) {
        return SIM_NEVER; /* they have no number: one that comes late waits for another */
    }
    if (all->calls == count_callers(self)) {
        since_ns = all->last_call_ns;
    }
    if (all->failed_ns > 0 && all->failed_ns < since_ns) {
        since_ns = all->failed_ns;
    }
    return since_ns;
}

static void
judge_promptness(const call *self)
{
    const uint64_t since_ns = free_since(self);
    const uint64_t begun_ns = since_ns > self->called_ns ? since_ns : self->called_ns;

    if (our.plan.kind != PLAN_ROUGH && since_ns != SIM_NEVER &&
        sim_now_ns() > begun_ns + PROMPT_NS) {
        sim_fail("op %u (%s) on rank %u ended %.3f s after nothing kept it any more",
                 self->part.number, words(self), self->process->rank,
                 (double)(sim_now_ns() - begun_ns) / 1e9);
    }
}

static void
judge_error(const call *self, const tutti_error *err)
{
    if (!may_be(self, err->code) || err->text[0] == '\0') {
        sim_fail("op %u (%s) on rank %u: code %d is none for what has befallen: %s",
                 self->part.number, words(self), self->process->rank, (int)err->code, err->text);
    }
    if (!is_odd(self) && (our.plan.kind == PLAN_GENTLE || self->part.what == NULL)) {
        sim_fail("op %u (%s) on rank %u failed, and nothing has befallen: %s", self->part.number,
                 words(self), self->process->rank, err->text);
    }
}

/* An op that has failed gets its memory back, whatever the others do: the engine tears it out of the connection. */
static void
judge_release(const call *self)
{
    const uint64_t took_ns = sim_now_ns() - self->done_ns -
                             (stopped_until_now(self->process) - self->stopped_at_done_ns);

    if (took_ns > LATE_NS && !self->process->dead) {
        sim_fail("op %u (%s) on rank %u was released %.3f s behind its end", self->part.number,
                 words(self), self->process->rank, (double)took_ns / 1e9);
    }
}

static void
judge_guard(const call *self)
{
    uint64_t guard;

    memcpy(&guard, self->output + self->output_count, sizeof(guard));
    if (guard != GUARD) {
        sim_fail("op %u (%s) on rank %u wrote behind its result", self->part.number, words(self),
                 self->process->rank);
    }
}

/* ------------------------------------------------------------------------------ calls */

static void
note_failure(const call *self, const tutti_error *err)
{
    standing *all = &our.standings[self->part.number];

    if (err != NULL && all->failed_ns == 0) {
        all->failed_ns = sim_now_ns();
    }
}

static void
on_done(tutti_coll_op *op, const tutti_error *err)
{
    call *self = tutti_container_of(op, call, op);

    sim_note("rank %u: op %u (%s) ends: %s", self->process->rank, self->part.number, words(self),
             err == NULL ? "well" : err->text);
    if (self->done) {
        sim_fail("op %u on rank %u ended twice", self->part.number, self->process->rank);
    }
    self->done = true;
    self->done_ns = sim_now_ns();
    self->stopped_at_done_ns = stopped_until_now(self->process);
    self->code = err == NULL ? TUTTI_OK : err->code;
    self->process->under_way--;
    if (self->client != NULL) {
        self->client->under_way--;
    }
    our.counts.calls++;
    our.counts.failed += err == NULL ? 0 : 1;
    if (self->process->dead) {
        return; /* nobody sees it */
    }
    judge_time(self);
    if (self->part.what != NULL) {
        judge_promptness(self);
        note_failure(self, err);
    }
    if (err == NULL) {
        judge_result(self);
    } else {
        judge_error(self, err);
    }
}

static void
on_released(tutti_coll_op *op)
{
    call *self = tutti_container_of(op, call, op);

    if (!self->done || self->released) {
        sim_fail("op %u on rank %u was released %s", self->part.number, self->process->rank,
                 self->done ? "twice" : "before it ended");
    }
    self->released = true;
    judge_guard(self);
    judge_release(self);
}

static tutti_code
on_spec(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err)
{
    call *self = tutti_container_of(op, call, op);

    if (tutti_spec_bytes(spec) != (uint64_t)self->output_count * sizeof(int64_t)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TEST", "the shape is another");
    }
    op->output = self->output;
    return TUTTI_OK;
}

static tutti_spec
spec_of(int64_t count)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_INT64, .dim_count = 1, .dims = {count}};
}

static int64_t *
new_values(int64_t count)
{
    int64_t *values = calloc((size_t)count + 1, sizeof(*values));
    const uint64_t guard = GUARD;

    if (values == NULL) {
        sim_fail("no memory");
    }
    memcpy(values + count, &guard, sizeof(guard));
    return values;
}

static call *
new_call(process *caller, uint32_t size, uint32_t group_rank, uint32_t number)
{
    call *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        sim_fail("no memory");
    }
    self->process = caller;
    self->part.number = number;
    self->part.size = size;
    self->part.group_rank = group_rank;
    self->stopped_ns = stopped_until_now(caller);
    self->op.on_done = on_done;
    self->op.on_released = on_released;
    self->op.on_spec = on_spec;
    return self;
}

static void
fill_args(call *self)
{
    tutti_coll_args *args = &self->op.args;
    const plan_op *what = self->part.what;
    uint32_t i;

    args->kind = what->kind;
    args->reduce = tutti_coll_is_reduction(what->kind) ? TUTTI_REDUCE_SUM : TUTTI_REDUCE_NONE;
    args->root = what->root;
    if (what->kind == TUTTI_COLL_SEND) {
        args->kind = self->part.group_rank == what->root ? TUTTI_COLL_SEND : TUTTI_COLL_RECV;
        args->peer = self->part.group_rank == what->root ? what->peer : what->root;
        args->tag = self->part.number; /* so that a failed one takes nobody else's message */
    }
    if (what->kind == TUTTI_COLL_PERMUTE) {
        for (i = 0; i < self->part.size; i++) {
            self->to[i] = (i + 1) % self->part.size;
        }
        args->to = self->to;
        args->to_count = self->part.size;
    }
    if (what->odd == self->part.group_rank && what->kind != TUTTI_COLL_SEND) {
        args->kind = what->kind == TUTTI_COLL_BARRIER ? TUTTI_COLL_ALL_REDUCE : TUTTI_COLL_BARRIER;
        args->reduce = args->kind == TUTTI_COLL_BARRIER ? TUTTI_REDUCE_NONE : TUTTI_REDUCE_SUM;
        args->to_count = 0;
    }
}

static void
fill_memory(call *self)
{
    const int64_t given = model_parts_given(&self->part) * self->part.what->count;
    int64_t i;

    self->output_count = model_parts_got(&self->part) * self->part.what->count;
    self->input = new_values(given);
    self->output = new_values(self->output_count);
    for (i = 0; i < given; i++) {
        self->input[i] = model_value(self->part.number, self->part.group_rank, i);
    }
    self->op.input = self->input;
    self->op.output = model_parts_got(&self->part) > 0 ? self->output : NULL;
    self->op.args.has_spec =
        self->op.args.kind != TUTTI_COLL_BARRIER && model_parts_given(&self->part) > 0;
    if (self->op.args.kind == TUTTI_COLL_ALL_REDUCE &&
        self->part.what->kind == TUTTI_COLL_BARRIER) {
        self->op.args.has_spec = true; /* the odd one */
    }
    self->op.args.spec = spec_of(given);
}

static void
post(call *self, tutti_coll_group *group, uint64_t timeout_ns)
{
    tutti_error err;

    self->op.deadline_ns = sim_now_ns() + timeout_ns;
    sim_note("rank %u calls op %u (%s)%s", self->process->rank, self->part.number, words(self),
             is_odd(self) && self->part.what->odd == self->part.group_rank ? ", but as another"
                                                                           : "");
    self->called_ns = sim_now_ns();
    if (self->part.what != NULL) {
        our.standings[self->part.number].calls++;
        our.standings[self->part.number].last_call_ns = sim_now_ns();
    }
    self->process->under_way++;
    if (self->client != NULL) {
        self->client->under_way++;
    }
    tutti_list_add(&self->process->calls, &self->link);
    if (tutti_coll_post(group, &self->op, 0, &err) != TUTTI_OK) {
        sim_fail("op %u on rank %u cannot be posted: %s", self->part.number, self->process->rank,
                 err.text);
    }
}

static void
free_call(call *self)
{
    free(self->input);
    free(self->output);
    free(self);
}

/* ------------------------------------------------------------------------------ clients */

static bool
has_room(void *arg)
{
    const client *self = arg;

    return self->under_way < our.plan.window;
}

static bool
has_none(void *arg)
{
    const client *self = arg;

    return self->under_way == 0;
}

static uint32_t
find_member(const plan_group *group, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < group->size && group->ranks[i] != rank; i++) {
    }
    return i;
}

static void
call_one(client *self, uint32_t number)
{
    const plan_op *what = &our.plan.ops[number];
    const plan_group *group = &our.plan.groups[what->group];
    const uint32_t rank = self->process->rank;
    const uint32_t group_rank = find_member(group, rank);
    call *one;

    if (group_rank == group->size ||
        (what->kind == TUTTI_COLL_SEND && group_rank != what->root && group_rank != what->peer)) {
        return;
    }
    sim_sleep(what->think_ns[rank]);
    (void)sim_wait(has_room, self, SIM_NEVER);
    one = new_call(self->process, group->size, group_rank, number);
    one->client = self;
    one->part.what = what;
    fill_args(one);
    fill_memory(one);
    post(one, self->process->groups[what->group], what->timeout_ns[rank]);
}

static void *
run_client(void *arg)
{
    client *self = arg;
    uint32_t i;

    for (i = 0; i < our.plan.op_count; i++) {
        if (plan_plays(our.plan.op_mask, i) &&
            (our.plan.ops[i].group == 0) == (self->number == 0)) {
            call_one(self, i);
        }
    }
    (void)sim_wait(has_none, self, SIM_NEVER);
    self->is_through = true;
    return NULL;
}

/* ------------------------------------------------------------------------------ processes */

static void
tell_of(process *self, uint32_t rank)
{
    process *other = &our.processes[rank];

    if (other->dead) {
        tutti_coll_lose_peer(self->engine, rank, other->incarnation, "it was killed");
    } else {
        tutti_coll_set_peer(
            self->engine, rank, other->incarnation,
            (tutti_bytes){(const unsigned char *)&other->rank, sizeof(other->rank)});
    }
}

static void
answer_peer(void *arg, uint64_t rank)
{
    process *self = arg;

    if (self->engine != NULL) {
        tell_of(self, (uint32_t)rank);
    }
}

/* The coordinator's answer takes a while. */
static void
on_need_peers(void *arg, const uint32_t *ranks, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        sim_at(sim_now_ns() + sim_draw(2 * TUTTI_NS_PER_MS), answer_peer, arg, ranks[i]);
    }
}

static void
choose_algorithms(process *self)
{
    tutti_selection selection;
    tutti_error err;

    if (our.plan.algorithms != NULL) {
        tutti_selection_init(&selection);
        if (tutti_selection_force(&selection, our.plan.algorithms, &err) != TUTTI_OK ||
            tutti_selector_new(&selection, true, &self->selector, &err) != TUTTI_OK) {
            sim_fail("%s", err.text);
        }
    }
}

static void
open_process(uint32_t rank)
{
    process *self = &our.processes[rank];
    tutti_coll_engine_options options = {.transport = wire_new(rank),
                                         .backend = &tutti_coll_host,
                                         .self_backend = &tutti_coll_self,
                                         .on_need_peers = on_need_peers,
                                         .arg = self};
    tutti_error err;
    uint32_t i;

    self->rank = rank;
    self->incarnation = 100 + rank;
    tutti_list_init(&self->calls);
    choose_algorithms(self);
    options.backend_arg = self->selector;
    sim_enter((int)rank);
    if (tutti_coll_engine_start(&options, &self->engine, &err) != TUTTI_OK) {
        sim_fail("%s", err.text);
    }
    sim_enter(SIM_DRIVER);
    tutti_coll_engine_sit(self->engine, JOB, rank, self->incarnation);
    for (i = 0; i < our.plan.group_count; i++) {
        const plan_group *group = &our.plan.groups[i];

        if (find_member(group, rank) < group->size &&
            tutti_coll_group_open(self->engine, 1 + i, i == 0 ? "world" : "part", 1, group->ranks,
                                  group->size, &self->groups[i], &err) != TUTTI_OK) {
            sim_fail("%s", err.text);
        }
    }
}

static void
close_process(process *self)
{
    tutti_list_node *node;

    tutti_coll_engine_stop(self->engine);
    self->engine = NULL;
    tutti_selector_free(self->selector);
    while ((node = tutti_list_pop(&self->calls)) != NULL) {
        call *one = tutti_container_of(node, call, link);

        if (!one->done || !one->released) {
            sim_fail("op %u on rank %u never ended", one->part.number, self->rank);
        }
        free_call(one);
    }
}

/* ------------------------------------------------------------------------------ faults */

static void
lose(void *arg, uint64_t rank)
{
    uint32_t i;

    (void)arg;
    our.lost_ns = sim_now_ns();
    sim_note("all hear that rank %llu is lost", (unsigned long long)rank);
    for (i = 0; i < our.plan.size; i++) {
        if (i != rank && !our.processes[i].dead) {
            tell_of(&our.processes[i], (uint32_t)rank);
        }
    }
}

static void
kill_process(uint32_t rank, bool silent)
{
    if (our.processes[rank].dead || our.calm) {
        return;
    }
    our.processes[rank].dead = true;
    our.lost_ns = SIM_NEVER;
    sim_freeze((int)rank, true);
    wire_kill(rank, silent);
    sim_at(sim_now_ns() + sim_draw(LOST_NS), lose, NULL, rank);
}

static void
thaw(void *arg, uint64_t rank)
{
    process *self = &our.processes[rank];

    (void)arg;
    if (!self->dead && sim_frozen((int)rank)) {
        sim_note("rank %llu goes on", (unsigned long long)rank);
        self->stopped_ns += sim_now_ns() - self->stopped_since_ns;
        sim_freeze((int)rank, false);
    }
}

static void
stop_process(uint32_t rank, uint64_t span_ns)
{
    process *self = &our.processes[rank];

    if (!self->dead && !sim_frozen((int)rank)) {
        self->stopped_since_ns = sim_now_ns();
        sim_freeze((int)rank, true);
        sim_at(sim_now_ns() + span_ns, thaw, NULL, rank);
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
befall(void *arg, uint64_t number)
{
    const plan_fault *fault = &our.plan.faults[number];
    static const char *const names[] = {"is killed", "stops", "is cut off from", "is not heard by",
                                        "and all are slow"};

    (void)arg;
    if (our.calm) {
        return;
    }
    sim_note("rank %u %s (rank %u), %.3f ms", fault->rank, names[fault->kind], fault->other,
             (double)fault->span_ns / 1e6);
    our.counts.faults++;
    switch (fault->kind) {
    case FAULT_KILL:
        kill_process(fault->rank, fault->silent);
        break;
    case FAULT_STOP:
        stop_process(fault->rank, fault->span_ns);
        break;
    case FAULT_CUT:
        wire_cut(fault->other, fault->rank, sim_now_ns() + fault->span_ns);
        wire_cut(fault->rank, fault->other, sim_now_ns() + fault->span_ns);
        break;
    case FAULT_ONE_WAY:
        wire_cut(fault->rank, fault->other, sim_now_ns() + fault->span_ns);
        break;
    default:
        wire_slow(fault->span_ns / 20);
        sim_at(sim_now_ns() + fault->span_ns, end_slow, NULL, 0);
    }
}

/* ------------------------------------------------------------------------------ the end */

static bool
lives(const plan_group *group)
{
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        if (our.processes[group->ranks[i]].dead) {
            return false;
        }
    }
    return true;
}

static void
call_last(uint32_t which)
{
    const plan_group *group = &our.plan.groups[which];
    uint32_t i;

    for (i = 0; i < group->size && lives(group); i++) {
        process *self = &our.processes[group->ranks[i]];
        call *one = new_call(self, group->size, i, 1000 + which);

        one->op.args.kind = TUTTI_COLL_BARRIER;
        one->output = new_values(0);
        post(one, self->groups[which], LAST_NS);
    }
}

static void
start_clients(process *self)
{
    uint32_t i;

    for (i = 0; i < CLIENTS; i++) {
        self->clients[i] = (client){.process = self, .number = i};
        self->clients[i].task = sim_task_new((int)self->rank, run_client, &self->clients[i]);
    }
}

static void
join_clients(process *self)
{
    uint32_t i;

    for (i = 0; i < CLIENTS; i++) {
        sim_task_join(self->clients[i].task);
    }
}

static bool
is_through(const process *self)
{
    return self->clients[0].is_through && self->clients[1].is_through;
}

static void
judge_rest(const process *self)
{
    tutti_coll_stats stats;

    tutti_coll_stat(self->engine, &stats);
    if (stats.running != 0 || stats.parked != 0) {
        sim_fail("rank %u: %llu ops and %llu packets are left over", self->rank,
                 (unsigned long long)stats.running, (unsigned long long)stats.parked);
    }
}

/* Dead processes are frozen: their engines end last, by themselves, to give their memory back. */
static void
close_all(void)
{
    uint32_t i;

    for (i = 0; i < our.plan.size; i++) {
        if (!our.processes[i].dead) {
            judge_rest(&our.processes[i]);
        }
    }
    for (i = 0; i < our.plan.size; i++) {
        if (!our.processes[i].dead) {
            close_process(&our.processes[i]);
        }
    }
    for (i = 0; i < our.plan.size; i++) {
        if (our.processes[i].dead) {
            sim_freeze((int)i, false);
            join_clients(&our.processes[i]);
            close_process(&our.processes[i]);
        }
    }
}

static bool
have_ended(void *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < our.plan.size; i++) {
        if (!our.processes[i].dead && our.processes[i].under_way > 0) {
            return false;
        }
    }
    return true;
}

/* Of a process that is killed nobody waits for the client. */
static bool
are_through(void *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < our.plan.size; i++) {
        if (!our.processes[i].dead && !is_through(&our.processes[i])) {
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
        open_process(i);
    }
    for (i = 0; i < our.plan.fault_count; i++) {
        if (plan_plays(our.plan.fault_mask, i)) {
            sim_at(sim_now_ns() + our.plan.faults[i].at_ns, befall, NULL, i);
        }
    }
    for (i = 0; i < our.plan.size; i++) {
        start_clients(&our.processes[i]);
    }
    (void)sim_wait(are_through, NULL, SIM_NEVER);
    for (i = 0; i < our.plan.size; i++) {
        if (!our.processes[i].dead) {
            join_clients(&our.processes[i]);
        }
    }
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

void
play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts)
{
    memset(&our, 0, sizeof(our));
    sim_open(seed, print);
    wire_open();
    plan_draw(&our.plan, seed);
    our.plan.op_mask = ops;
    our.plan.fault_mask = faults;
    sim_run(sim_task_new(SIM_DRIVER, run_all, NULL));
    our.counts.virtual_ns = sim_now_ns() - TUTTI_NS_PER_S;
    our.counts.hash = sim_hash();
    *ret_counts = our.counts;
    sim_close();
}
