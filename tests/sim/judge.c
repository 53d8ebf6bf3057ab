/*
 * The judges, and what they ask:
 *   results     an op that succeeds on a rank has the result that a model of it has
 *   agreement   an op that ranks call differently succeeds on no rank, and ops behind which nothing lies fail on none
 *   errors      an op fails by a code that its plan allows
 *   time        an op ends by its deadline and LATE_NS, not counting time for which its process was stopped
 *   order       a barrier ends behind what its rank has called before
 *   memory      an op is released when nobody has a region of its memory, and nobody writes there afterwards
 *   the end     once all is well again, ops of every group whose members live succeed, and nothing is left over
 */
#include <string.h>

#include "job.h"
#include "wire.h"

#define ABORT_NS TUTTI_NS_PER_S           /* until an op of an aborted group gives its memory up */
#define CLOSE_NS (2200 * TUTTI_NS_PER_MS) /* an op of a deleted group has a second, and one more */

bool
judge_is_odd(const call *self)
{
    return self->part.what != NULL && self->part.what->odd < self->part.size;
}

static bool
is_refused(const call *self)
{
    return self->part.what != NULL && self->part.what->refuser != NOBODY;
}

/* Ranks that have heard of different numbers of ends call different ops with one number: their steps
 * differ. */
static bool
may_differ(void)
{
    return our.plan.kind == PLAN_RETURNS || our.plan.kind == PLAN_ROUGH ||
           our.plan.kind == PLAN_LATE;
}

static bool
may_be(const call *self, const tutti_error *err)
{
    const plan_end end = our.plan.groups[self->group].end;

    switch (err->code) {
    case TUTTI_UNAVAILABLE:
    case TUTTI_DEADLINE_EXCEEDED:
        return true;
    case TUTTI_ABORTED:
        return end == END_ABORTED;
    case TUTTI_NOT_FOUND:
        return end == END_DELETED;
    case TUTTI_CANCELLED: /* its caller has gone, or that of the op that it follows */
        return our.plan.kind != PLAN_GENTLE;
    case TUTTI_RESOURCE_EXHAUSTED:
        return our.plan.kind == PLAN_ROUGH;
    case TUTTI_INVALID_ARGUMENT:
    case TUTTI_FAILED_PRECONDITION:
        return judge_is_odd(self) || is_refused(self) || may_differ();
    default:
        return false;
    }
}

const char *
judge_words(const call *self)
{
    return self->part.what == NULL ? "the last barrier"
                                   : tutti_coll_kind_name(self->part.what->kind);
}

static void
judge_meta(const call *self)
{
    const tutti_bytes *meta = &self->op.meta;
    const unsigned char *bytes = meta->data;
    const uint64_t size = model_meta_size(self->part.number);
    uint64_t i;

    if (meta->size != size) {
        sim_fail("op %u (%s) on rank %u: %zu bytes beside the tensor and not %zu",
                 self->part.number, judge_words(self), self->process->rank, meta->size,
                 (size_t)size);
    }
    for (i = 0; i < size; i++) {
        if (bytes[i] != model_meta(self->part.number, i)) {
            sim_fail("op %u (%s) on rank %u: byte %zu beside the tensor is another",
                     self->part.number, judge_words(self), self->process->rank, (size_t)i);
        }
    }
}

static void
judge_result(const call *self)
{
    int64_t i;

    if (judge_is_odd(self) && self->part.what->kind != TUTTI_COLL_SEND) {
        sim_fail("op %u (%s) succeeded on rank %u, and group rank %u called another",
                 self->part.number, judge_words(self), self->process->rank, self->part.what->odd);
    }
    if (is_refused(self) && self->part.what->kind != TUTTI_COLL_SEND) {
        sim_fail("op %u (%s) succeeded on rank %u, and group rank %u has refused it",
                 self->part.number, judge_words(self), self->process->rank,
                 self->part.what->refuser);
    }
    for (i = 0; self->part.what != NULL && i < self->output_count; i++) {
        if (self->output[i] != model_element(&self->part, i)) {
            sim_fail("op %u (%s) on rank %u: element %lld is %lld and not %lld", self->part.number,
                     judge_words(self), self->process->rank, (long long)i,
                     (long long)self->output[i], (long long)model_element(&self->part, i));
        }
    }
    if (self->part.what != NULL && self->part.what->shape == SHAPE_META) {
        judge_meta(self);
    }
}

uint64_t
judge_stopped(const process *self)
{
    return self->stopped_ns + (!self->dead && sim_frozen((int)self->number)
                                   ? sim_now_ns() - self->stopped_since_ns
                                   : 0);
}

/* Who shares memory with others waits for those of them that are stopped, too. */
uint64_t
judge_stopped_holders(const process *self)
{
    uint64_t stopped_ns = 0;
    uint32_t i;

    for (i = 0; i < our.process_count; i++) {
        if (&our.processes[i] == self || our.plan.shares) {
            stopped_ns += judge_stopped(&our.processes[i]);
        }
    }
    return stopped_ns;
}

static void
judge_time(const call *self)
{
    const uint64_t allowed_ns =
        self->deadline_ns + LATE_NS + (judge_stopped(self->process) - self->stopped_ns);

    if (sim_now_ns() > allowed_ns && !self->process->dead) {
        sim_fail("op %u (%s) on rank %u ended %.3f s behind its deadline", self->part.number,
                 judge_words(self), self->process->rank,
                 (double)(sim_now_ns() - self->deadline_ns) / 1e9);
    }
}

static uint32_t
count_callers(const call *self)
{
    return self->part.what->kind == TUTTI_COLL_SEND ? 2 : self->part.size;
}

/* Has a member that the op needs gone? `politely`: one that has, too. */
static bool
needs_gone(const call *self, bool politely)
{
    const plan_group *group = &our.plan.groups[self->group];
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        const process *other = &our.processes[self->members[i]];
        const bool needed = self->part.what->kind != TUTTI_COLL_SEND ||
                            i == self->part.what->root || i == self->part.what->peer;

        if (needed && (other->dead || (politely && other->leaving))) {
            return true;
        }
    }
    return false;
}

static uint64_t
earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* All have called it, or one has failed and told the others. */
static uint64_t
free_by_standing(const call *self)
{
    const standing *all = &our.standings[self->part.number];
    const bool is_p2p = self->part.what->kind == TUTTI_COLL_SEND;
    uint64_t since_ns = SIM_NEVER;

    if (all->epoch != self->epoch) {
        return SIM_NEVER;
    }
    if (all->calls == count_callers(self) && !(is_p2p && all->failed_ns > 0)) {
        since_ns = all->last_call_ns;
    }
    if (all->failed_ns > 0 &&
        !is_p2p) { /* they have no number: one that comes late waits for another */
        since_ns = earlier(since_ns, all->failed_ns);
    }
    return since_ns;
}

/* One that leaves tells the members of groups that live that it will not call it. */
static uint64_t
free_by_leaver(const call *self)
{
    const plan_group *group = &our.plan.groups[self->group];
    const uint32_t callers = our.standings[self->part.number].callers;
    uint64_t since_ns = SIM_NEVER;
    uint32_t i;

    for (i = 0; i < group->size && self->part.what->kind != TUTTI_COLL_SEND; i++) {
        const process *other = our.seats[group->ranks[i]];

        if ((other->left_groups >> self->group & 1) != 0 && !other->dead &&
            our.groups[self->group].end == END_NONE && (callers >> other->rank & 1) == 0) {
            since_ns = earlier(since_ns, other->leaving_ns);
        }
    }
    return since_ns;
}

/* Since when nothing keeps the op from its end, as far as the plan allows to say so. */
static uint64_t
free_since(const call *self)
{
    const bool is_p2p = self->part.what->kind == TUTTI_COLL_SEND;
    const member *group = &self->process->groups[self->group];
    const job_group *all = &our.groups[self->group];
    uint64_t since_ns = earlier(free_by_standing(self), free_by_leaver(self));

    if (all->epoch > self->epoch) {
        return group->epoch > self->epoch ? group->renewed_ns : SIM_NEVER;
    }
    if (group->aborted_ns > 0) {
        since_ns = earlier(since_ns, group->aborted_ns + ABORT_NS);
    }
    if (all->end == END_DELETED && all->unclosed == 0) {
        since_ns = earlier(since_ns, all->closed_ns + CLOSE_NS);
    }
    if (self->op.args.kind == TUTTI_COLL_RECV && self->op.args.peer == TUTTI_COLL_ANY_SOURCE) {
        return since_ns; /* another may send */
    }
    if (needs_gone(self, is_p2p)) {
        return our.lost_ns == SIM_NEVER  ? SIM_NEVER
               : all->end == END_DELETED ? later(our.lost_ns + GRACE_NS, all->closed_ns + CLOSE_NS)
                                         : our.lost_ns + GRACE_NS;
    }
    return since_ns;
}

/* What all others have called, and a program that has ended will not call, is refused in its place: by
 * the rank that the program was on, if no other program comes meanwhile. */
static void
judge_orphaned(const call *self)
{
    const plan_group *group = &our.plan.groups[self->group];
    const standing *all = &our.standings[self->part.number];
    uint64_t since_ns = self->called_ns;
    const process *orphan = NULL;
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        const process *other = our.seats[group->ranks[i]];

        if ((other->orphans >> self->group & 1) != 0 &&
            ((all->callers >> other->rank & 1) == 0 ||
             all->call_ns[other->rank] > other->gone_ns)) {
            orphan = orphan == NULL ? other : NULL;
            since_ns = later(since_ns, other->gone_ns);
        } else if ((all->callers >> other->rank & 1) == 0) {
            return;
        } else {
            since_ns = later(since_ns, all->call_ns[other->rank]);
        }
    }
    if (orphan != NULL && all->epoch == self->epoch && sim_now_ns() > since_ns + PROMPT_NS &&
        orphan->come_ns > since_ns + PROMPT_NS) {
        sim_fail("op %u (%s) on rank %u ended %.3f s after it waited for a program that has ended",
                 self->part.number, judge_words(self), self->process->rank,
                 (double)(sim_now_ns() - since_ns) / 1e9);
    }
}

static void
judge_promptness(const call *self)
{
    const uint64_t since_ns = free_since(self);
    const uint64_t begun_ns = since_ns > self->called_ns ? since_ns : self->called_ns;

    if (our.prompt && since_ns != SIM_NEVER && sim_now_ns() > begun_ns + PROMPT_NS) {
        sim_fail("op %u (%s) on rank %u ended %.3f s after nothing kept it any more",
                 self->part.number, judge_words(self), self->process->rank,
                 (double)(sim_now_ns() - begun_ns) / 1e9);
    }
}

/* A barrier is behind all that its rank has called before: who has heard of it may use that memory. */
static void
judge_order(const call *self)
{
    tutti_list_node *at;

    for (at = self->process->calls.next; at != &self->process->calls; at = at->next) {
        const call *one = tutti_container_of(at, call, link);

        if (one->group == self->group && one->epoch == self->epoch && one->op.sequence != 0 &&
            one->op.sequence < self->op.sequence &&
            (!one->done || (one->code == TUTTI_OK && !one->released))) {
            sim_fail("op %u (%s) on rank %u ended before op %u was over", self->part.number,
                     judge_words(self), self->process->rank, one->part.number);
        }
    }
}

/* A deletion lets the ops end that all had called before it. */
static void
judge_deletion(const call *self)
{
    const standing *all = &our.standings[self->part.number];

    if (our.prompt && self->part.what != NULL && all->epoch == self->epoch && all->failed_ns == 0 &&
        all->calls == count_callers(self) &&
        all->last_call_ns < our.groups[self->group].deleted_ns && !needs_gone(self, true)) {
        sim_fail("op %u (%s) on rank %u was ended by a deletion, and all had called it before",
                 self->part.number, judge_words(self), self->process->rank);
    }
}

static void
judge_error(const call *self, const tutti_error *err)
{
    if (!may_be(self, err) || err->text[0] == '\0') {
        sim_fail("op %u (%s) on rank %u: code %d is none for what has befallen: %s",
                 self->part.number, judge_words(self), self->process->rank, (int)err->code,
                 err->text);
    }
    if (!judge_is_odd(self) && (our.plan.kind == PLAN_GENTLE || self->part.what == NULL)) {
        sim_fail("op %u (%s) on rank %u failed, and nothing has befallen: %s", self->part.number,
                 judge_words(self), self->process->rank, err->text);
    }
}

/* An op that has failed gets its memory back, whatever the others do: the engine tears it out of the connection. */
static void
judge_release(const call *self)
{
    const uint64_t stopped_ns = judge_stopped_holders(self->process) - self->stopped_at_done_ns;

    if (sim_now_ns() > self->done_ns + stopped_ns + LATE_NS && !self->process->dead &&
        !(our.starved &&
          our.plan.shares)) { /* else one has the memory that it was not told to drop */
        sim_fail("op %u (%s) on rank %u was released %.3f s behind its end", self->part.number,
                 judge_words(self), self->process->rank,
                 (double)(sim_now_ns() - self->done_ns) / 1e9);
    }
}

static void
judge_guard(const call *self)
{
    uint64_t guard;

    memcpy(&guard, self->output + self->output_count, sizeof(guard));
    if (guard != GUARD) {
        sim_fail("op %u (%s) on rank %u wrote behind its result", self->part.number,
                 judge_words(self), self->process->rank);
    }
}

/* A process that is dead sees nothing. */
void
judge_done(const call *self, const tutti_error *err)
{
    judge_time(self);
    if (self->part.what != NULL) {
        judge_promptness(self);
        if (our.plan.kind == PLAN_LATE && !our.plan.follows &&
            self->part.what->kind != TUTTI_COLL_SEND && our.groups[self->group].end == END_NONE) {
            judge_orphaned(self);
        }
    }
    if (err == NULL && self->op.args.kind == TUTTI_COLL_BARRIER) {
        judge_order(self);
    }
    if (err != NULL && err->code == TUTTI_NOT_FOUND) {
        judge_deletion(self);
    }
    if (err == NULL) {
        judge_result(self);
    } else {
        judge_error(self, err);
    }
}

/* Not of a process that is dead: its engine ends when the job is over. */
static void
judge_loans(const call *self)
{
    if (!self->process->dead &&
        (wire_is_lent(self->input, (uint64_t)self->input_count * sizeof(int64_t)) ||
         wire_is_lent(self->output, (uint64_t)self->output_count * sizeof(int64_t)))) {
        sim_fail("op %u (%s) on rank %u was released, and others have its memory",
                 self->part.number, judge_words(self), self->process->rank);
    }
}

void
judge_released(const call *self)
{
    judge_guard(self);
    judge_release(self);
    judge_loans(self);
}

static void
judge_left_alone(const call *self, const int64_t *values, int64_t count)
{
    int64_t i;

    for (i = 0; i < count && values != NULL; i++) {
        if (values[i] != SPOILT) {
            sim_fail("op %u (%s) on rank %u: its memory was written behind its release",
                     self->part.number, judge_words(self), self->process->rank);
        }
    }
}

void
judge_spoilt(const call *self)
{
    judge_left_alone(self, self->input, self->input_count);
    judge_left_alone(self, self->output, self->output_count);
}

/* What a process sent before its end may be received as long as its group lives, and so may the word
 * that a send was refused; and what is sent to a group that was deleted before this process came waits here. */
void
judge_rest(const process *self)
{
    tutti_coll_stats stats;
    bool parks = our.parks;
    uint32_t i;

    for (i = 0; i < our.process_count; i++) {
        parks = parks || our.processes[i].dead || our.processes[i].left;
    }
    tutti_coll_stat(self->engine, &stats);
    if (self->probes != 0) {
        sim_fail("rank %u: %u probes have not ended", self->rank, self->probes);
    }
    if (stats.running != 0 || (stats.parked != 0 && !parks)) {
        sim_fail("rank %u: %llu ops and %llu packets are left over", self->rank,
                 (unsigned long long)stats.running, (unsigned long long)stats.parked);
    }
}
