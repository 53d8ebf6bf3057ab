/* Clients: each calls the ops of one group, in the plan's order, and begins anew with each epoch. */
#include "base/error/fail.h"
#include "job.h"
#include "memory.h"

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

static member *
group_of(const client *self)
{
    return &self->process->groups[self->group];
}

/* Is there a reason to look around: its group has become another, or all is over? */
static bool
is_called_back(void *arg)
{
    const client *self = arg;

    return our.calm || group_of(self)->epoch != self->epoch;
}

static bool
may_call(const client *self)
{
    return group_of(self)->state == MEMBER_OPEN && group_of(self)->epoch == self->epoch &&
           !self->process->leaving && !self->process->callers_gone;
}

/* ------------------------------------------------------------------------------ one call */

static bool
takes_part(const client *self, uint32_t number)
{
    const plan_op *what = &our.plan.ops[number];
    const plan_group *group = &our.plan.groups[self->group];
    const uint32_t own = member_of(group, self->process->rank);

    return plan_plays(our.plan.op_mask, number) && what->group == self->group &&
           own < group->size &&
           (what->kind != TUTTI_COLL_SEND || own == what->root || own == what->peer);
}

static void
cancel(process *self, uint64_t id, uint64_t unused)
{
    tutti_error why;

    (void)unused;
    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "the caller of rank %u went away",
                         self->rank);
    tutti_coll_cancel(self->engine, id, &why);
    play_see(SEEN_CANCEL);
}

/* Returns whether it has refused the call in the place of its caller. */
static bool
refuses(client *self, uint32_t number)
{
    const plan_op *what = &our.plan.ops[number];
    const plan_group *group = &our.plan.groups[self->group];
    const uint32_t own = member_of(group, self->process->rank);
    tutti_error why;

    if (what->refuser != own || (what->kind == TUTTI_COLL_SEND && own != what->root)) {
        return false;
    }
    memory_spare(true);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                         "the simulation has refused it");
    sim_note("rank %u refuses op %u", self->process->rank, number);
    if (what->kind == TUTTI_COLL_SEND) {
        our.parks = true;
        tutti_coll_refuse_send(group_of(self)->coll, what->peer, number, &why);
    } else {
        (void)tutti_coll_refuse(group_of(self)->coll, 0, &why);
        self->last_well = false;
        call_note_refused(number, self->epoch, self->process->rank);
    }
    memory_spare(false);
    play_see(SEEN_REFUSAL);
    return true;
}

static void
call_it(client *self, uint32_t number)
{
    const plan_op *what = &our.plan.ops[number];
    const uint32_t own = member_of(&our.plan.groups[self->group], self->process->rank);
    call *one = call_new(self->process, self->group, own, number);

    one->client = self;
    memory_spare(true);
    call_fill(one, what);
    memory_spare(false);
    one->op.follows = our.plan.follows && self->last_well && what->kind != TUTTI_COLL_SEND;
    call_post(one, what->timeout_ns[self->process->rank]);
    if (what->canceller == own) {
        member_tell(self->process, what->cancel_ns, cancel, one->op.id, 0);
    }
}

/* The ordinal of a collective is its number in the group, unless the group has skipped that number
 * here: then the others' call with it is over. */
static bool
is_over(client *self, uint32_t number)
{
    char words[64];

    if (our.plan.ops[number].kind == TUTTI_COLL_SEND) {
        return false;
    }
    self->ordinal++;
    const uint64_t last = tutti_coll_group_last(group_of(self)->coll, words, sizeof(words));

    if (last + 1 < self->ordinal) {
        sim_fail("rank %u: group %u counts %llu ops, and has called %llu", self->process->rank,
                 self->group, (unsigned long long)last, (unsigned long long)self->ordinal - 1);
    }
    return last >= self->ordinal;
}

static void
on_passed(tutti_coll_pass *pass)
{
    tutti_container_of(pass, client, pass)->passing = false;
}

static bool
has_passed(void *arg)
{
    const client *self = arg;

    return !self->passing;
}

/* A new program passes over what had ended before it came. */
static void
pass_over(client *self)
{
    (void)sim_wait(has_none, self, SIM_NEVER);
    (void)pthread_mutex_lock(&self->process->lock);
    self->restarted = self->process->restarts;
    self->last_well = false;
    if (may_call(self) && tutti_coll_group_has_ends(group_of(self)->coll)) {
        self->pass =
            (tutti_coll_pass){.caller_ns = self->process->caller_ns, .on_passed = on_passed};
        self->passing = tutti_coll_group_pass(group_of(self)->coll, &self->pass);
        play_see(SEEN_PASS);
    }
    (void)pthread_mutex_unlock(&self->process->lock);
    (void)sim_wait(has_passed, self, SIM_NEVER);
}

/* Returns whether it could call it. */
static bool
call_one(client *self, uint32_t number)
{
    const uint64_t think_ns = our.plan.ops[number].think_ns[self->process->rank];
    bool called;

    (void)sim_wait(is_called_back, self, sim_now_ns() + think_ns);
    (void)sim_wait(has_room, self, SIM_NEVER);
    if (self->restarted != self->process->restarts) {
        pass_over(self);
    }
    (void)pthread_mutex_lock(&self->process->lock);
    called = may_call(self);
    if (called && !is_over(self, number) && !refuses(self, number)) {
        call_it(self, number);
    }
    (void)pthread_mutex_unlock(&self->process->lock);
    return called;
}

/* ------------------------------------------------------------------------------ all */

/* It will not call this group any more, or not in this epoch. */
static bool
is_through(const client *self)
{
    return our.calm || group_of(self)->epoch != self->epoch ||
           group_of(self)->state == MEMBER_CLOSED || self->process->leaving;
}

static bool
is_ready(void *arg)
{
    const client *self = arg;

    return is_through(self) ||
           (group_of(self)->state == MEMBER_OPEN && !self->process->callers_gone);
}

static uint32_t
next_of(const client *self, uint32_t from)
{
    while (from < our.plan.op_count && !takes_part(self, from)) {
        from++;
    }
    return from;
}

static void
call_all(client *self, uint32_t next)
{
    next = next_of(self, next);
    while (next < our.plan.op_count) {
        (void)sim_wait(is_ready, self, SIM_NEVER);
        if (is_through(self)) {
            return;
        }
        if (call_one(self, next)) {
            next = next_of(self, next + 1);
        }
    }
}

static void *
run_client(void *arg)
{
    client *self = arg;

    while (!our.calm) {
        self->at_end = false;
        self->ordinal = 0;
        self->last_well = false;
        self->epoch = group_of(self)->epoch;
        call_all(self, our.groups[self->group].resume);
        (void)sim_wait(has_none, self, SIM_NEVER);
        self->at_end = true;
        (void)sim_wait(is_called_back, self, SIM_NEVER);
    }
    return NULL;
}

void
client_start_all(process *self)
{
    uint32_t i;

    for (i = 0; i < our.plan.group_count; i++) {
        if (member_of(&our.plan.groups[i], self->rank) < our.plan.groups[i].size) {
            self->clients[i] = (client){.process = self, .group = i};
            self->clients[i].task = sim_task_new((int)self->number, run_client, &self->clients[i]);
        }
    }
}

void
client_join_all(process *self)
{
    uint32_t i;

    for (i = 0; i < our.plan.group_count; i++) {
        if (self->clients[i].task != NULL) {
            sim_task_join(self->clients[i].task);
        }
    }
}

bool
client_are_at_end(const process *self)
{
    uint32_t i;

    for (i = 0; i < our.plan.group_count; i++) {
        const client *one = &self->clients[i];

        if (one->task != NULL && (!one->at_end || one->epoch != self->groups[i].epoch)) {
            return false;
        }
    }
    return true;
}
