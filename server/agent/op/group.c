/*
 * Groups as this agent knows them, and the line of ops in front of each. Control loop.
 *
 * A group is made when a call first names it, and the coordinator is asked what it is. Its ops wait
 * in `queue` meanwhile, in the order of the calls, and later until they are ready (locks), until a
 * Backward before them is over, or for the back-off. agent_group_dispatch gives the engine all that
 * may go, and only from the head of the line: so the order of the calls on this rank is the order
 * of the ops in the group, on which MPI-like matching depends.
 *
 *   asking, coll == NULL     the coordinator is being asked; ops wait
 *   coll != NULL             open: ops go to the engine
 *   !asking, coll == NULL    unknown, deleted, or its world has changed. Ops that still wait for a
 *                            lock fail when they get it; when the line is empty, the group is freed
 *
 * So agent_group_dispatch may free the group: callers touch it no more, and loops over
 * agent->groups read the next node before they call it.
 *
 * The coordinator, or a member, may go away at any time: what runs is the engine's to fail. What is
 * in line waits for news for a short time (back-off, below) or fails with the reason that is known.
 */
#include "server/agent/op/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/group_lookup.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/algorithms.h"
#include "server/agent/state/group.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

static bool is_backing_off(agent_group *group, const agent_op *op);
static bool is_passing(agent_group *group, const agent_op *op);

agent_group *
agent_group_find(tutti_agent *agent, const char *name)
{
    tutti_map_node *node = tutti_map_find(&agent->groups, tutti_bytes_of(name));

    return node == NULL ? NULL : tutti_container_of(node, agent_group, by_name);
}

agent_group *
agent_group_of(tutti_agent *agent, const char *name, tutti_error *err)
{
    agent_group *group = agent_group_find(agent, name);

    if (group != NULL) {
        return group;
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        (void)TUTTI_FAIL_MEMORY(err, "no memory for group %s", name);
        return NULL;
    }
    group->agent = agent;
    (void)snprintf(group->name, sizeof(group->name), "%s", name);
    group->by_name.key = tutti_bytes_of(group->name);
    tutti_list_init(&group->queue);
    tutti_list_init(&group->running);
    (void)tutti_map_add(&agent->groups, &group->by_name);
    return group;
}

/*
 * The head of the line, if it may go; NULL when it has to wait. is_backing_off comes last since it
 * starts the timer that looks again.
 */
static agent_op *
next_op(agent_group *group)
{
    agent_op *op;

    if (tutti_list_empty(&group->queue) || group->checking) {
        return NULL;
    }
    op = tutti_container_of(group->queue.next, agent_op, link);
    return op->ready && !is_backing_off(group, op) && !is_passing(group, op) ? op : NULL;
}

/*
 * Fail what is in line. The line is moved to a list of our own first: end_early runs hooks that may
 * add ops to this queue, and those must not be failed with the others.
 */
void
agent_group_fail_before(agent_group *group, uint64_t since_ns, const tutti_error *err)
{
    tutti_list_node mine;
    tutti_list_node *link;

    tutti_list_init(&mine);
    tutti_list_splice(&mine, &group->queue);
    while ((link = tutti_list_pop(&mine)) != NULL) {
        agent_op *op = tutti_container_of(link, agent_op, link);

        if (since_ns != 0 && op->enqueued_ns >= since_ns) {
            tutti_list_add(&group->queue, &op->link);
            continue;
        }
        if (!op->ready) {
            /*
             * A lock set in line may not be released before its on_ready has run (table.h): the
             * task may be on its way. The op fails when its turn comes there; on_claimed dispatches
             * it then.
             */
            op->failed = true;
            op->err = *err;
            tutti_list_add(&group->queue, &op->link);
            continue;
        }
        op->agent->hooks->end_early(op, op->failed ? &op->err : err);
    }
}

/*
 * Ops in the engine may outlive their group: they end without it. A Sync of the group by name has
 * to know them still, so each gets a copy of the name. Done here and not for each op that comes, so
 * ops that end before their group (nearly all) pay nothing.
 */
static void
forget_running(agent_group *group)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&group->running)) != NULL) {
        agent_op *op = tutti_container_of(link, agent_op, link);

        memcpy(op->former_group, group->name, sizeof(op->former_group));
        op->group = NULL;
    }
}

static void
fail_queue(agent_group *group, const tutti_error *err)
{
    agent_group_fail_before(group, 0, err);
}

/*
 * The last of the group on this agent. The engine forgets its own part when the ops in it have
 * ended.
 */
static void
drop_group(agent_group *group)
{
    forget_running(group);
    if (group->coll != NULL) {
        tutti_coll_group_close(group->coll);
        group->coll = NULL;
    }
    tutti_rpc_loop_timer_stop(group->agent->control, &group->backoff);
    tutti_map_remove(&group->agent->groups, &group->by_name);
    free(group);
}

/*
 * The engine has stopped, and its groups with it: no other rank can be told. `pumping` keeps the
 * ends of these ops from dispatching the same group again, from inside of the loop.
 */
static void
end_stopped(agent_group *group)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "this agent is stopping");
    group->pumping = true;
    fail_queue(group, &err);
    group->pumping = false;
}

/*
 * Sends and receives are matched by peer and tag and have no numbers, so they may pass a Backward
 * that holds the line. They may not pass each other: the first that is not ready ends the loop.
 */
static void
pass_messages(agent_group *group)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &group->queue)
    {
        agent_op *op = tutti_container_of(link, agent_op, link);

        if (agent_op_is_p2p(op)) {
            if (!op->ready) {
                return;
            }
            tutti_list_remove(&op->link);
            op->agent->hooks->launch(op);
        }
    }
}

/*
 * Give the engine whatever may go, in order. May free the group.
 *
 * `pumping` makes this function not re-entrant: a launched op may be refused and end inside of
 * launch, and its end calls hooks that dispatch again. The outer loop sees what they would have
 * done.
 */
void
agent_group_dispatch(agent_group *group)
{
    agent_op *op;

    if (group->pumping) {
        return;
    }
    if (group->agent->engine == NULL) {
        end_stopped(group);
        return;
    }
    group->pumping = true;
    while (group->coll != NULL && (op = next_op(group)) != NULL) {
        if (op->barriers && !op->failed) {
            /*
             * A Backward has reached the head. Its place stays there until the Backward takes it
             * out, and holds back all collectives behind it; it posts its own ops past the line.
             */
            op->agent->hooks->place_reached(op);
            pass_messages(group);
            break;
        }
        tutti_list_remove(&op->link);
        op->agent->hooks->launch(op);
    }
    while (group->coll == NULL && !group->asking && (op = next_op(group)) != NULL) {
        tutti_list_remove(&op->link); /* left over from when it was found to be none of ours */
        op->agent->hooks->end_early(op, &op->err);
    }
    group->pumping = false;
    if (group->coll == NULL && !group->asking && tutti_list_empty(&group->queue)) {
        drop_group(group);
    }
}

/*
 * Its ops are refused until it is made anew, and the news of that may be on its way still: who has
 * deleted it and created it again calls its next op at once. So an op for it asks.
 */
static bool
may_be_made_anew(const agent_group *group)
{
    return group->coll != NULL && (group->aborted || atomic_load(&group->abort_met)) &&
           strcmp(group->name, "world") != 0;
}

/*
 * The op gets its place. The first op of an unknown group asks the coordinator. `pumping` is set
 * around that: the question may fail at once, and agent_group_unknown would free the group under
 * our feet.
 */
static void
ask_for(agent_group *group)
{
    const bool anew = may_be_made_anew(group);

    if ((group->coll == NULL && !group->asking) || (anew && !group->checking)) {
        group->asking = group->coll == NULL;
        group->checking = anew;
        group->pumping = true; /* it must not go away in here */
        agent_wire_get_group(group);
        group->pumping = false;
    }
    agent_group_dispatch(group);
}

void
agent_group_want(tutti_agent *agent, const char *name)
{
    agent_group *group = agent_group_of(agent, name, NULL);

    if (group != NULL && agent->engine != NULL) {
        ask_for(group);
    }
}

void
agent_group_add(agent_group *group, agent_op *op)
{
    agent_op_move(op, AGENT_OP_QUEUED);
    tutti_list_add(&group->queue, &op->link);
    group->check_again = group->checking;
    ask_for(group);
}

/*
 * Is the question whether the group was made anew asked again? The op that came since it was asked may be for
 * a group that was made after the answer. As many ops are in flight as the agent takes, so this comes to an end.
 */
static bool
check_again(agent_group *group)
{
    if (!group->checking || !group->check_again) {
        return false;
    }
    group->check_again = false;
    agent_wire_get_group(group);
    return true;
}

/* The group is still the one that was aborted, or nobody knows: ops in line are refused now. */
static void
end_check(agent_group *group)
{
    group->checking = false;
    agent_group_dispatch(group);
}

/* The name stands for another group now: ops in line are for that one, and are its first. */
static void
close_old(agent_group *group)
{
    if (group->coll == NULL) {
        return;
    }
    tutti_coll_group_close(group->coll);
    group->coll = NULL;
    group->aborted = false;
    atomic_store(&group->abort_met, false);
    group->checking = false;
    group->check_again = false;
    group->broken = false;
    group->entered = 0;
    agent_group_count_again(group);
}

/*
 * The group was open and was asked for again, after a time without the coordinator. Another id
 * means that it was deleted and made anew meanwhile: ops of the old one end, and the next op asks.
 */
static void
check_known(agent_group *group, const agent_group_found *found)
{
    if (check_again(group)) {
        return;
    }
    if (group->checking && found->abort.text != NULL) { /* perhaps this is the first news of it */
        agent_group_aborted(group->agent, group->name, found->id, &found->abort);
    }
    if (group->checking) {
        end_check(group);
    } else if (group->id != found->id) { /* deleted, and made anew: the next op asks */
        agent_group_deleted(group->agent, group->name);
    } else if (found->abort.text != NULL) {
        agent_group_aborted(group->agent, group->name, found->id, &found->abort);
    }
}

/*
 * From now on the numbers of later ops are not known: nobody can say how many ops the Backward
 * makes.
 */
void
agent_group_add_slot(agent_op *hold)
{
    hold->barriers = true;
    hold->group->barriers++;
    agent_group_add(hold->group, hold);
}

/*
 * The engine's number is the truth, as it counts ops at the post. The ops in line are numbered from
 * there, in their order. A group that is not open yet has had no ops.
 */
void
agent_group_count_again(agent_group *group)
{
    char words[64];
    tutti_list_node *link;

    if (group->agent->engine == NULL) {
        return;
    }
    group->sequence =
        group->coll == NULL ? 0 : tutti_coll_group_last(group->coll, words, sizeof(words));
    for (link = group->queue.next; link != &group->queue; link = link->next) {
        agent_op *op = tutti_container_of(link, agent_op, link);

        if (!agent_op_is_p2p(op)) {
            op->sequence = ++group->sequence;
        }
    }
}

void
agent_group_unhold(agent_op *hold)
{
    agent_group *group = hold->group;

    assert(group->barriers > 0);
    group->barriers--;
    if (group->barriers == 0) {
        agent_group_count_again(group);
    }
}

/*
 * The engine first, so that ops that come after this line are refused there. Ops in line end here:
 * no other rank needs to hear of their numbers, as no op of the group will meet another one.
 */
static void
abort_group(agent_group *group, const agent_group_abort *abort)
{
    tutti_error err;

    if (group->aborted || abort->epoch < group->epoch) {
        return;
    }
    group->aborted = true;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "GROUP_ABORTED", "%s", abort->text);
    tutti_error_set_op(&err, group->name, 0, (int32_t)abort->rank);
    err.scope = TUTTI_SCOPE_GROUP;
    TUTTI_LOG("agent", INFO, "%s", abort->text);
    tutti_coll_group_abort(group->coll, &err, abort->rank == group->agent->rank);
    if (!group->checking) { /* else ops in line came behind the abort: the check's answer decides */
        agent_group_fail_before(group, 0, &err);
    }
    agent_group_count_again(group);
}

void
agent_group_aborted(tutti_agent *agent, const char *name, uint64_t id,
                    const agent_group_abort *abort)
{
    agent_group *group = agent_group_find(agent, name);

    if (group == NULL || agent->engine == NULL) {
        return;
    }
    if (group->coll == NULL) {
        group->abort_heard = true;
    } else if (group->id == id) {
        abort_group(group, abort);
        agent_group_dispatch(group);
    }
}

/*
 * The coordinator's answer. The agent may have begun to leave, or its engine may have stopped,
 * since it asked: then the group is not opened any more.
 */
void
agent_group_known(agent_group *group, const agent_group_found *found)
{
    tutti_error err;

    if (group->coll != NULL && !(group->checking && group->id != found->id)) {
        check_known(group, found);
        return;
    }
    close_old(group);
    group->asking = false;
    if (agent_check_open(group->agent, &err) != TUTTI_OK) {
        agent_group_unknown(group, &err);
        return;
    }
    if (tutti_coll_group_open(group->agent->engine, found->id, group->name, found->epoch,
                              found->ranks, found->count, &group->coll, &err) != TUTTI_OK) {
        group->coll = NULL;
        agent_group_unknown(group, &err);
        return;
    }
    group->id = found->id;
    group->epoch = found->epoch;
    group->timeout_ns = found->timeout_ms * TUTTI_NS_PER_MS;
    agent_group_limit(group);
    group->passed_ns = 0;
    group->orphan = false;
    group->silent = false;
    if (found->count <= AGENT_MEET_MAX && strcmp(group->name, "world") == 0) {
        tutti_coll_group_meet(group->coll);
    }
    TUTTI_LOG("agent", INFO, "group %s opened with %" PRIu32 " ranks", group->name, found->count);
    if (group->abort_heard && found->abort.text == NULL) {
        agent_wire_get_group(group); /* the answer may have been on its way before the abort */
    }
    group->abort_heard = false;
    if (found->abort.text != NULL) {
        abort_group(group, &found->abort);
    }
    agent_group_dispatch(group);
}

/*
 * This rank is in no such group, or the question failed. The ops in line simply fail: no other rank
 * counts ops of this rank in that group. Numbers begin again, should the group come to exist.
 */
void
agent_group_unknown(agent_group *group, const tutti_error *err)
{
    if (group->coll != NULL) { /* only asked whether it is still there */
        const bool checking = group->checking;

        if (check_again(group)) {
            return;
        }
        group->checking = false;
        if (err->code == TUTTI_NOT_FOUND) {
            agent_group_deleted(group->agent, group->name);
        } else if (checking) {
            end_check(group);
        }
        return;
    }
    group->asking = false;
    group->sequence = 0;
    group->entered = 0;
    fail_queue(group, err);
    agent_group_dispatch(group);
}

/*
 * For how long an op that was refused waits for the group to be known, so that the others hear of it: they
 * would wait until their deadlines. Its caller waits as long.
 */
#define REFUSED_NS (2 * TUTTI_NS_PER_S)

static uint64_t
wants_until(const agent_op *op)
{
    const uint64_t until = tutti_clock_add(op->enqueued_ns, REFUSED_NS);

    return op->failed && until < op->deadline_ns ? until : op->deadline_ns;
}

/*
 * The latest deadline of the ops that still wait. The question to the coordinator is asked for as
 * long as one of them has time.
 */
uint64_t
agent_group_waits_until(const agent_group *group)
{
    uint64_t until = tutti_clock_ns();
    const uint64_t now = until;
    const tutti_list_node *link;

    for (link = group->queue.next; link != &group->queue; link = link->next) {
        const agent_op *op = tutti_container_of(link, agent_op, link);

        if (wants_until(op) > until) {
            until = wants_until(op);
        }
    }
    return until > now ? until : 0;
}

/*
 * The coordinator was away and is back. Groups may have been deleted meanwhile, and the news of it
 * is lost. "world" cannot be deleted; its changes come with the session.
 */
void
agent_groups_check(tutti_agent *agent)
{
    tutti_map_node *node;
    tutti_map_node *next;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = next) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        next = tutti_map_next(node);
        if (group->coll != NULL && strcmp(group->name, "world") != 0) {
            agent_wire_get_group(group);
        }
    }
}

/*
 * Ops in the engine go on until they end, or fail there (tutti_coll_group_close); those in line
 * fail now, unless they have asked already what the name stands for. agent_group_unknown frees the
 * group when nothing is left in line.
 */
void
agent_group_deleted(tutti_agent *agent, const char *name)
{
    agent_group *group = agent_group_find(agent, name);
    tutti_error err;

    if (group == NULL || group->coll == NULL) {
        return;
    }
    if (group->checking) {
        close_old(group);
        group->asking = true;
        agent_wire_get_group(group); /* what was asked for the check may have been asked before */
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_GROUP", "group %s was deleted", name);
    tutti_coll_group_close(group->coll);
    group->coll = NULL;
    group->aborted = false;
    atomic_store(&group->abort_met, false);
    agent_group_unknown(group, &err);
}

/*
 * The engine has stopped and every op has ended: groups are only names. The flight recorder's dump
 * names them, so it is written before.
 */
void
agent_groups_free(tutti_agent *agent)
{
    tutti_map_node *node;

    agent_dump_flush(agent); /* it tells of groups, too */
    while ((node = tutti_map_first(&agent->groups)) != NULL) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        assert(tutti_list_empty(&group->queue));
        forget_running(group);
        tutti_rpc_loop_timer_stop(agent->control, &group->backoff);
        tutti_map_remove(&agent->groups, node);
        free(group);
    }
}

/* ------------------------------------------------------------------------------ backoff */

#define LOOK_AGAIN_NS (10 * TUTTI_NS_PER_MS)

/*
 * One timer serves two waits: the head of the line backs off, or the world of an elastic job waits
 * for its running ops (change_ns). The second excludes the first, as no op begins during it.
 */
static void
on_backoff(tutti_timer *timer)
{
    agent_group *group = tutti_container_of(timer, agent_group, backoff);

    if (group->change_ns == 0) {
        agent_group_dispatch(group);
    } else if (tutti_list_empty(&group->running) || group->change_ns <= tutti_clock_ns()) {
        agent_world_changed(group->agent, group->next_epoch, "a member has left");
    } else {
        agent_group_watch(group);
    }
}

/*
 * Look every 10 ms whether the running ops have ended: no event tells it, and the wait is a second
 * at most.
 */
void
agent_group_watch(agent_group *group)
{
    group->backoff.on_expiry = on_backoff;
    tutti_rpc_loop_timer_start(group->agent->control, &group->backoff,
                               tutti_clock_ns() + LOOK_AGAIN_NS);
}

/*
 * Must the head of the line wait for news (AGENT_BACKOFF_NS in group.h)? Starts the timer that
 * looks again if so. Two reasons: some member was lost, and this call is younger than 250 ms; or
 * this process is fresh, and the others may not know its epoch yet (settled_ns). A failed op does
 * not wait: it will only be refused, for which no member is needed.
 */
static bool
is_backing_off(agent_group *group, const agent_op *op)
{
    tutti_agent *agent = group->agent;
    const uint64_t now = tutti_clock_ns();
    uint64_t until = agent->settled_ns;

    if (group->broken && op->enqueued_ns + AGENT_BACKOFF_NS > until) {
        until = op->enqueued_ns + AGENT_BACKOFF_NS;
    }
    if (group->change_ns != 0 && !op->failed) {
        return true; /* its world is another one soon: agent_group_watch */
    }
    if (op->failed || until <= now || agent->state != AGENT_JOINED) {
        return false;
    }
    group->backoff.on_expiry = on_backoff;
    tutti_rpc_loop_timer_start(agent->control, &group->backoff, until);
    return true;
}

bool
agent_group_has(const agent_group *group, uint32_t rank)
{
    const uint32_t *ranks = tutti_coll_group_ranks(group->coll);
    uint32_t i;

    for (i = 0; i < tutti_coll_group_size(group->coll); i++) {
        if (ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/*
 * An op's end is the only proof that a group works, or does not. A success clears `broken`, a lost
 * or leaving rank sets it; other errors say nothing about members. The group is looked for by its
 * engine handle, because the op may have outlived it.
 *
 * agent->broken is true while any group is, so that ends of ops cost nothing when nothing is
 * broken.
 */
void
agent_groups_note_end(tutti_agent *agent, const agent_op *op)
{
    const bool lost = op->failed && (strcmp(op->err.reason, "RANK_LOST") == 0 ||
                                     strcmp(op->err.reason, "RANK_LEAVING") == 0);
    tutti_map_node *node;
    bool any = false;

    if (op->op.group == NULL || (!lost && (op->failed || !agent->broken))) {
        return;
    }
    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll == op->op.group) {
            group->broken = lost;
        }
        any = any || group->broken;
    }
    agent->broken = any;
}

/* The coordinator says that a rank is lost, perhaps before any op has noticed. */
void
agent_groups_note_lost(tutti_agent *agent, uint32_t rank)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll != NULL && agent_group_has(group, rank)) {
            group->broken = true;
            agent->broken = true;
        }
    }
}

/* ------------------------------------------------------------------------------ ends of other runs */

/* A question to the engine. It knows the group by its name, since the group may go meanwhile. */
typedef struct agent_pass {
    tutti_coll_pass pass;
    tutti_rpc_task told; /* engine -> control loop */
    tutti_agent *agent;
    char name[TUTTI_NAME_MAX + 1];
} agent_pass;

/* Ops in line are numbered anew; an async one whose caller was told its number before keeps the
 * wrong one. With Backwards in line they are numbered later. */
static void
on_pass_told(tutti_rpc_task *task)
{
    agent_pass *self = tutti_container_of(task, agent_pass, told);
    agent_group *group = agent_group_find(self->agent, self->name);

    if (group != NULL && group->passing == self) {
        group->passing = NULL;
        group->passed_ns = self->pass.caller_ns;
        if (group->barriers == 0) {
            agent_group_count_again(group);
        }
        agent_group_dispatch(group);
    }
    free(self);
}

static void
on_passed(tutti_coll_pass *pass)
{
    agent_pass *self = tutti_container_of(pass, agent_pass, pass);

    self->told.on_run = on_pass_told;
    tutti_rpc_loop_post(self->agent->control, &self->told);
}

static void
begin_pass(agent_group *group, const agent_op *op)
{
    agent_pass *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return;
    }
    self->pass = (tutti_coll_pass){.caller_ns = op->came_ns, .on_passed = on_passed};
    self->agent = group->agent;
    memcpy(self->name, group->name, sizeof(self->name));
    if (tutti_coll_group_pass(group->coll, &self->pass)) {
        group->passing = self;
    } else {
        free(self);
    }
}

/*
 * Ops of this group may have ended on other ranks, by the clock or the end of a program over there,
 * before this op's client came: they were called by another run, and the client shall not be told of
 * them as the ends of its own first calls (docs/decisions/0049). One that asks for a number means
 * just that op.
 */
static bool
is_passing(agent_group *group, const agent_op *op)
{
    if (group->coll == NULL) {
        return false;
    }
    if (group->passing == NULL && op->came_ns > group->passed_ns && op->options.sequence == 0 &&
        !agent_op_is_p2p(op) && tutti_coll_group_has_ends(group->coll)) {
        begin_pass(group, op);
    }
    return group->passing != NULL;
}

/*
 * Its failed ops shall not be told to clients of other ranks that come from now on. A group knows
 * the client of the last one only: another one's stay for some seconds.
 */
void
agent_groups_note_gone(tutti_agent *agent, uint64_t came_ns)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&agent->groups); node != NULL && came_ns != 0;
         node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->failed_ns == came_ns && group->coll != NULL && agent->engine != NULL) {
            group->failed_ns = 0;
            tutti_coll_group_over(group->coll);
        }
    }
}

/* ------------------------------------------------------------------------------ epoch */

#define SETTLE_NS TUTTI_NS_PER_S

/*
 * The engine tells the members of this group the number of our last op in it: later ones fail for
 * all of them by the same name (docs/decisions/0014). An announcement is good for one epoch.
 */
static void
say_leaving(agent_group *group)
{
    if (group->agent->draining && group->coll != NULL) {
        tutti_coll_group_leave(group->coll, group->agent->leave_reason);
    }
}

/*
 * The announcement comes first: from then on this rank begins no op of the group, and the ops in
 * line end without a number. Every member has the same last number of this rank.
 */
bool
agent_groups_leave(tutti_agent *agent)
{
    tutti_map_node *node;
    tutti_map_node *next;
    bool any = false;
    tutti_error why;

    (void)agent_check_open(agent, &why);
    for (node = tutti_map_first(&agent->groups); node != NULL; node = next) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        next = tutti_map_next(node);
        any = any || group->coll != NULL;
        say_leaving(group);
        agent_group_fail_before(group, 0, &why);
        agent_group_dispatch(group);
    }
    return any;
}

/*
 * A rank has come back: its groups begin a new epoch and count ops from 1 again. The order matters.
 * Ops in line that are older than the back-off fail with EPOCH_CHANGED, as a call of the old epoch
 * on another rank would have; younger ones waited for this news and stay, as the first of the new
 * epoch. Then the engine fails what runs and starts to count anew, and the ops in line are numbered
 * behind that.
 */
void
agent_groups_renew(tutti_agent *agent, uint32_t rank, uint64_t epoch)
{
    tutti_map_node *node;
    tutti_map_node *next;

    for (node = tutti_map_first(&agent->groups); node != NULL; node = next) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);
        tutti_error err;

        next = tutti_map_next(node);
        if (group->coll == NULL || epoch <= group->epoch || !agent_group_has(group, rank)) {
            continue;
        }
        if (group->aborted && strcmp(group->name, "world") != 0) {
            continue; /* until it is made anew */
        }
        group->aborted = false;
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "EPOCH_CHANGED",
                             "group %s: rank %" PRIu32 " has come back: call again", group->name,
                             rank);
        group->epoch = epoch;
        group->entered = 0;
        agent_group_changed(group);
        group->broken = false;
        agent_group_fail_before(group, tutti_clock_ns() - AGENT_BACKOFF_NS, &err);
        tutti_coll_group_renew(group->coll, epoch);
        say_leaving(group);
        agent_group_count_again(group);
        TUTTI_LOG("agent", INFO, "group %s goes on at epoch %" PRIu64, group->name, epoch);
        agent_group_dispatch(group);
    }
}

/*
 * The world of an elastic job, if this epoch is news to it. In a job of fixed size, "world" is
 * renewed like any other group. Epoch 0: of a job that has begun anew.
 */
static agent_group *
find_world(tutti_agent *agent, uint64_t epoch)
{
    agent_group *group = agent_group_find(agent, "world");
    const bool open = group != NULL && group->coll != NULL;

    return open && (epoch == 0 || (agent->elastic && epoch > group->epoch)) ? group : NULL;
}

/*
 * A member has left politely: ops that it took part in can still end, so they get SETTLE_NS before
 * the world changes. No op begins meanwhile (is_backing_off).
 */
bool
agent_world_settles(tutti_agent *agent, uint64_t epoch)
{
    agent_group *group = find_world(agent, epoch);

    if (group == NULL || tutti_list_empty(&group->running)) {
        return false;
    }
    group->next_epoch = epoch;
    group->change_ns = tutti_clock_ns() + SETTLE_NS;
    agent_group_watch(group);
    return true;
}

/*
 * "world" is another group from now on, with another id, so that ops of two memberships never meet.
 * Ops in line that came within the back-off stay, and the coordinator is asked for its ranks.
 */
void
agent_world_changed(tutti_agent *agent, uint64_t epoch, const char *why)
{
    agent_group *group = find_world(agent, epoch);
    tutti_error err;

    if (group == NULL) {
        return;
    }
    group->change_ns = 0;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "EPOCH_CHANGED",
                         "group world: %s (epoch %" PRIu64 "): call again", why,
                         epoch == 0 ? agent->epoch : epoch);
    tutti_coll_group_renew(group->coll, epoch == 0 ? group->epoch + 1 : epoch);
    /*
     * Behind the renewal: a close alone would fail what runs with NO_GROUP, and the caller must
     * read EPOCH_CHANGED.
     */
    tutti_coll_group_close(group->coll);
    group->coll = NULL;
    group->aborted = false;
    group->broken = false;
    group->entered = 0;
    agent_group_changed(group);
    agent_group_fail_before(group, tutti_clock_ns() - AGENT_BACKOFF_NS, &err);
    agent_group_count_again(group);
    if (!tutti_list_empty(&group->queue)) {
        group->asking = true;
        agent_wire_get_group(group);
    }
    agent_group_dispatch(group);
}
