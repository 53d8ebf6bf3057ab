/* Processes, and what they hear of each other and of their groups. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/host/host.h"
#include "coll/self/self.h"
#include "job.h"
#include "memory.h"
#include "wire.h"

#define STILL_NS TUTTI_NS_PER_S /* how long a process remembers that it stood still */

uint32_t
member_of(const plan_group *group, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < group->size && group->ranks[i] != rank; i++) {
    }
    return i;
}

bool
member_is_gone(const process *self)
{
    return self->dead || self->leaving;
}

/* ------------------------------------------------------------------------------ news */

typedef struct news {
    tutti_list_node link;
    process *to;
    member_news run;
    uint64_t a;
    uint64_t b;
} news;

static void
arrive(void *arg, uint64_t unused)
{
    news *self = arg;

    (void)unused;
    if (self->to->ends) {
        free(self);
    } else {
        tutti_list_add(&self->to->news, &self->link);
    }
}

static void
send_news(process *self, uint64_t at_ns, member_news run, uint64_t a, uint64_t b)
{
    news *one = sim_new(1, sizeof(*one));

    *one = (news){.to = self, .run = run, .a = a, .b = b};
    sim_at(at_ns, arrive, one, 0);
}

void
member_tell(process *self, uint64_t most_ns, member_news run, uint64_t a, uint64_t b)
{
    const uint64_t at_ns = sim_now_ns() + sim_draw(most_ns);

    self->heard_ns = at_ns > self->heard_ns ? at_ns : self->heard_ns;
    send_news(self, self->heard_ns, run, a, b);
}

static bool
has_news(void *arg)
{
    const process *self = arg;

    return self->ends || !tutti_list_empty(&self->news);
}

static void *
run_control(void *arg)
{
    process *self = arg;

    memory_spare(true); /* what it cannot hear it would never know */
    while (true) {
        tutti_list_node *node;

        (void)sim_wait(has_news, self, SIM_NEVER);
        node = tutti_list_pop(&self->news);
        if (node == NULL) {
            return NULL;
        }
        news one = *tutti_container_of(node, news, link);

        free(tutti_container_of(node, news, link));
        (void)pthread_mutex_lock(&self->lock);
        if (self->engine != NULL && !self->left && !self->ends) {
            one.run(self, one.a, one.b);
        }
        (void)pthread_mutex_unlock(&self->lock);
    }
}

void
member_hear_of(process *self, uint64_t number, uint64_t unused)
{
    const process *other = &our.processes[number];

    (void)unused;
    if (other->dead || other->left) {
        tutti_coll_lose_peer(self->engine, other->rank, other->incarnation,
                             other->left ? "it has left" : "it was killed");
    } else {
        tutti_coll_set_peer(
            self->engine, other->rank, other->incarnation,
            (tutti_bytes){(const unsigned char *)&other->number, sizeof(other->number)});
    }
    if ((other->dead || other->left) && our.untold == 0) {
        our.lost_ns = sim_now_ns();
    }
}

static void
answer_peer(process *self, uint64_t rank, uint64_t unused)
{
    member_hear_of(self, our.seats[rank]->number, unused);
}

/* The coordinator's answer takes a while. */
static void
on_need_peers(void *arg, const uint32_t *ranks, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        send_news(arg, sim_now_ns() + sim_draw(2 * TUTTI_NS_PER_MS), answer_peer, ranks[i], 0);
    }
}

/* ------------------------------------------------------------------------------ groups */

void
member_hear_open(process *self, uint64_t number, uint64_t epoch)
{
    const plan_group *group = &our.plan.groups[number];
    member *one = &self->groups[number];
    tutti_error err;

    if (self->leaving || one->state != MEMBER_WAITS ||
        member_of(group, self->rank) == group->size) {
        return;
    }
    if (tutti_coll_group_open(self->engine, 1 + number, number == 0 ? "world" : "part", epoch,
                              group->ranks, group->size, &one->coll, &err) != TUTTI_OK) {
        sim_fail("%s", err.text);
    }
    one->state = MEMBER_OPEN;
    one->epoch = epoch;
    if (number == 0) {
        tutti_coll_group_meet(one->coll);
    }
}

void
member_hear_deleted(process *self, uint64_t number, uint64_t unused)
{
    member *one = &self->groups[number];

    (void)unused;
    if (one->state == MEMBER_OPEN) {
        sim_note("rank %u: group %llu is deleted", self->rank, (unsigned long long)number);
        tutti_coll_group_close(one->coll);
    }
    tutti_coll_group_gone(self->engine, 1 + number);
    one->state = MEMBER_CLOSED;
    our.groups[number].closed_ns = sim_now_ns();
    our.groups[number].unclosed--;
}

void
member_hear_aborted(process *self, uint64_t number, uint64_t tells)
{
    member *one = &self->groups[number];
    tutti_error why;

    if (one->state == MEMBER_OPEN && one->aborted_ns == 0) {
        sim_note("rank %u: group %llu is aborted", self->rank, (unsigned long long)number);
        (void)TUTTI_FAIL_FOR(&why, TUTTI_ABORTED, TUTTI_COLL_ABORTED, "rank %u has aborted it",
                             our.plan.groups[number].ender);
        tutti_coll_group_abort(one->coll, &why, tells != 0);
        one->aborted_ns = sim_now_ns();
    }
}

void
member_hear_renewed(process *self, uint64_t number, uint64_t epoch)
{
    member *one = &self->groups[number];

    if (one->state == MEMBER_OPEN && one->epoch < epoch) {
        sim_note("rank %u: group %llu begins epoch %llu", self->rank, (unsigned long long)number,
                 (unsigned long long)epoch);
        tutti_coll_group_renew(one->coll, epoch);
        one->epoch = epoch;
        one->renewed_ns = sim_now_ns();
        one->aborted_ns = 0;
        if (self->leaving) {
            tutti_coll_group_leave(one->coll, "it leaves");
        }
    }
}

/* ------------------------------------------------------------------------------ a life */

static void
choose_algorithms(process *self)
{
    const char *forced = self->rank == our.plan.other_rank ? our.plan.others : our.plan.algorithms;
    tutti_selection selection;
    tutti_error err;

    if (forced != NULL) {
        tutti_selection_init(&selection);
        if ((forced[0] != '\0' && tutti_selection_force(&selection, forced, &err) != TUTTI_OK) ||
            tutti_selector_new(&selection, true, &self->selector, &err) != TUTTI_OK) {
            sim_fail("%s", err.text);
        }
    }
}

static uint64_t
stood_still(void *arg)
{
    const process *self = arg;

    return self->stopped_ns > 0 && sim_now_ns() < self->stopped_since_ns + STILL_NS
               ? self->stopped_ns
               : 0;
}

/* Who takes a rank may be on another host than who had it. */
static uint32_t
host_of(const process *self)
{
    const uint32_t moved = self->number < our.plan.size ? 0 : self->number;

    return our.plan.hosts[(self->rank + moved) % our.plan.size];
}

static void
start_engine(process *self)
{
    tutti_coll_engine_options options = {.transport =
                                             wire_new(self->number, host_of(self), our.plan.shares),
                                         .backend = &tutti_coll_host,
                                         .self_backend = &tutti_coll_self,
                                         .backend_arg = self->selector,
                                         .on_need_peers = on_need_peers,
                                         .stood_still_ns = stood_still,
                                         .arg = self};
    tutti_error err;

    sim_enter((int)self->number);
    self->control = sim_task_new((int)self->number, run_control, self);
    if (tutti_coll_engine_start(&options, &self->engine, &err) != TUTTI_OK) {
        sim_fail("%s", err.text);
    }
    sim_enter(SIM_DRIVER);
    tutti_coll_engine_sit(self->engine, JOB, self->rank, self->incarnation);
}

process *
member_new(uint32_t rank)
{
    process *self = &our.processes[our.process_count];
    uint32_t i;

    self->number = our.process_count++;
    self->rank = rank;
    self->incarnation = 100 + self->number;
    if (our.plan.skews) {
        sim_skew((int)self->number, sim_draw(1000) * TUTTI_NS_PER_S);
    }
    self->caller_ns = sim_clock((int)self->number);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_list_init(&self->news);
    tutti_list_init(&self->calls);
    choose_algorithms(self);
    our.seats[rank] = self;
    start_engine(self);
    for (i = 0; i < our.plan.group_count; i++) {
        if (our.groups[i].made && our.groups[i].end == END_NONE) {
            member_tell(self, TUTTI_NS_PER_MS, member_hear_open, i, our.groups[i].epoch);
        } else if (our.groups[i].made) {
            self->groups[i].state = MEMBER_CLOSED;
        }
    }
    return self;
}

void
member_close(process *self)
{
    tutti_list_node *at;

    self->ends = true;
    sim_task_join(self->control);
    if (self->leaver != NULL) {
        sim_task_join(self->leaver);
    }
    if (!self->left) {
        tutti_coll_engine_stop(self->engine);
        self->engine = NULL;
    }
    for (at = self->calls.next; at != &self->calls; at = at->next) {
        const call *one = tutti_container_of(at, call, link);

        if (!one->done || !one->released) {
            sim_fail("op %u on rank %u never ended", one->part.number, self->rank);
        }
    }
}

/* When all have closed: one that is dead may have had memory of others, as the kernel keeps it. */
void
member_free(process *self)
{
    tutti_list_node *node;

    tutti_selector_free(self->selector);
    (void)pthread_mutex_destroy(&self->lock);
    while ((node = tutti_list_pop(&self->calls)) != NULL) {
        call_free(tutti_container_of(node, call, link));
    }
}
