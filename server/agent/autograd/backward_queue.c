/*
 * The places of a Backward in the queues of its groups, and the ops that came before it. Control
 * loop.
 *
 * A place is an agent_op of its own (the slot), with `barriers` set, in the group's queue. While it
 * is there, collectives that came later wait behind it, and the ops of the pass are launched past
 * the queue. The slot leaves by agent_backward_release_slot, or as a refused op when the pass has
 * failed and the others do not know.
 *
 * The pass takes its places when it comes, before it has started: otherwise ops called behind it
 * would be numbered between its ops, differently on each rank.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/autograd/backward.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/op/group.h"
#include "server/agent/op/op.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/* ------------------------------------------------------------------------------ opening */

/* Counted in ops_live but not in agent->ops: Sync counts the pass itself (as_op), not its parts. */
agent_op *
agent_backward_op(agent_backward_pass *backward, agent_group *group, void (*on_end)(agent_op *op),
                  void *owner)
{
    agent_op *op = calloc(1, sizeof(*op));

    if (op == NULL) {
        return NULL;
    }
    op->agent = backward->agent;
    op->group = group;
    op->on_end = on_end;
    op->owner = owner;
    op->options.async = true; /* no call waits for it */
    op->ready = true;
    op->enqueued_ns = tutti_clock_ns();
    op->deadline_ns = backward->deadline_ns;
    tutti_list_init(&op->link);
    tutti_list_init(&op->live);
    backward->agent->ops_live++;
    return op;
}

/*
 * The slot is over: let go, refused, or failed by the group (deleted, a new epoch, the agent
 * stops). In the last case the pass fails with it.
 */
static void
on_slot_end(agent_op *slot)
{
    grad_queue *queue = slot->owner;
    agent_backward_pass *backward = queue->backward;

    agent_group_unhold(slot);
    queue->slot = NULL;
    if (slot->failed && !backward->failed) { /* the group is gone, or has begun a new epoch */
        agent_backward_fail(backward, &slot->err, queue);
    }
    if (queue->flying == 0 || backward->failed) {
        agent_backward_post(backward);
    }
}

static grad_queue *
find_queue(const agent_backward_pass *backward, const char *group)
{
    const tutti_list_node *link;

    for (link = backward->queues.next; link != &backward->queues; link = link->next) {
        grad_queue *queue = tutti_container_of(link, grad_queue, link);

        if (strcmp(queue->name, group) == 0) {
            return queue;
        }
    }
    return NULL;
}

/*
 * The slot must look like a collective, as it may be refused and is then counted as one. It goes in
 * line last, behind all that can fail: agent_group_add_slot may call back at once.
 */
static grad_queue *
open_queue(agent_backward_pass *backward, const char *name, tutti_error *err)
{
    agent_group *group = agent_group_of(backward->agent, name, err);
    grad_queue *queue = group == NULL ? NULL : calloc(1, sizeof(*queue));

    if (queue != NULL) {
        queue->slot = agent_backward_op(backward, group, on_slot_end, queue);
    }
    if (queue == NULL || queue->slot == NULL) {
        free(queue);
        (void)TUTTI_FAIL_MEMORY(err, "no memory to wait in group %s", name);
        return NULL;
    }
    queue->backward = backward;
    queue->group = group;
    (void)snprintf(queue->name, sizeof(queue->name), "%s", name);
    tutti_list_init(&queue->link);
    tutti_list_add(&backward->queues, &queue->link);
    queue->slot->op.args.kind = TUTTI_COLL_BARRIER; /* should it have to be refused */
    agent_group_add_slot(queue->slot);
    return queue;
}

grad_queue *
agent_backward_find_queue(agent_backward_pass *backward, const char *group, bool shared,
                          tutti_error *err)
{
    grad_queue *queue = find_queue(backward, group);

    if (queue == NULL) {
        queue = open_queue(backward, group, err);
    }
    if (queue != NULL) {
        queue->shared = queue->shared || shared;
    }
    return queue;
}

/*
 * A place in every group that the tape names, whether or not gradients will flow there: that is
 * known only after agreements.
 */
tutti_code
agent_backward_open_queues(agent_backward_pass *backward, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    tutti_list_node *link;

    for (link = backward->tape->records.next; link != &backward->tape->records && code == TUTTI_OK;
         link = link->next) {
        const tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);
        const bool p2p =
            record->args.kind == TUTTI_COLL_SEND || record->args.kind == TUTTI_COLL_RECV;

        if (!record->local &&
            agent_backward_find_queue(backward, record->group, !p2p, err) == NULL) {
            code = err->code;
        }
    }
    return code;
}

/* ------------------------------------------------------------------------------ the end */

/* The group calls this with each dispatch while the slot is at its head. */
void
agent_backward_on_slot_reached(agent_op *slot)
{
    grad_queue *queue = slot->owner;

    if (!queue->reached) {
        queue->reached = true;
        agent_backward_post(queue->backward);
    }
}

/*
 * `group` is read first: the slot is freed by agent_op_finish, and the dispatch may free the group.
 */
void
agent_backward_release_slot(grad_queue *queue)
{
    agent_group *group = queue->group;
    agent_op *slot = queue->slot;

    if (slot != NULL) {
        tutti_list_remove(&slot->link);
        agent_op_finish(slot);
        agent_group_dispatch(group);
    }
}

/*
 * A place is let go as soon as no collective of the pass needs it, so that ops behind it go on
 * while the pass works elsewhere. Messages need no place once it was reached: the group is open
 * then, and they are not numbered.
 */
void
agent_backward_release_idle_slots(agent_backward_pass *backward)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &backward->queues)
    {
        grad_queue *queue = tutti_container_of(link, grad_queue, link);

        if (queue->left == 0 && queue->flying == 0 && (queue->reached || queue->messages == 0)) {
            agent_backward_release_slot(queue);
        }
        if (queue->slot == NULL && queue->left == 0 && queue->messages == 0) {
            tutti_list_remove(&queue->link);
            free(queue);
        }
    }
}

/*
 * Ranks whose time was up at the same moment may have come to different ops of the pass: one more
 * than the others, at most. The engine lets a rank skip the number then (skip_op in
 * lib/coll/engine/abort.c).
 */
static void
resync_queue(const grad_queue *queue)
{
    if (queue->group->coll != NULL && queue->backward->started &&
        queue->backward->agent->engine != NULL) {
        tutti_coll_group_resync(queue->group->coll);
    }
}

/*
 * The slot becomes an op that is refused when its turn comes: the others hear the reason at their
 * next agreement, under the number that this slot gets.
 */
static void
refuse_queue(grad_queue *queue)
{
    agent_op *slot = queue->slot;

    if (!slot->failed) {
        slot->failed = true;
        slot->err = queue->backward->err;
        agent_group_dispatch(queue->group);
    }
}

/*
 * For each place: tell the others, or let go. `others` is whether other ranks still expect ops of
 * this rank there: when the nodes are known, those that are not over; before that, whether the tape
 * had collectives in the group. `told` groups have seen an op of ours fail. Called again as ops
 * come back, until no place is left; nothing is done twice, as refuse_queue looks at slot->failed.
 */
void
agent_backward_fail_queues(agent_backward_pass *backward)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &backward->queues)
    {
        grad_queue *queue = tutti_container_of(link, grad_queue, link);
        const bool others =
            backward->started && backward->nodes != NULL ? queue->left > 0 : queue->shared;

        if (queue->slot != NULL && queue->flying == 0) {
            resync_queue(queue);
            if (others && !queue->told && backward->agent->engine != NULL) {
                refuse_queue(queue);
            } else {
                agent_backward_release_slot(queue);
            }
        }
        if (queue->slot == NULL && queue->flying == 0) {
            tutti_list_remove(&queue->link);
            free(queue);
        }
    }
}

/* ------------------------------ ops that came before */

/* A set of tensors: what ops that matter will make. */
typedef struct numbers {
    uint64_t *items;
    size_t count;
} numbers;

/* Linear: the set has at most as many tensors as ops are in flight. */
static bool
has_number(const numbers *set, uint64_t number)
{
    size_t i;

    for (i = 0; i < set->count; i++) {
        if (set->items[i] == number) {
            return true;
        }
    }
    return false;
}

static bool
is_recorded(const agent_op *op, const tutti_tape *tape)
{
    const tutti_tape_record *record;
    uint32_t i;

    for (record = op->records; record != NULL; record = record->of_op) {
        if (record->tape == tape) {
            return true;
        }
    }
    for (i = 0; i < op->tape_count; i++) {
        if (op->tapes[i] == tape) {
            return true;
        }
    }
    return false;
}

/*
 * Is the op on the tape, or will it be? Ops that were not launched yet have no records, so their
 * input is looked at: a tensor on the tape, or the result of an op that matters. An op that only
 * receives may turn out to be recorded when its root says so. It counts from its end (`told`),
 * which its caller may know before the control loop does: the caller may have called Backward
 * because of it. It does not count before: a receive that was called for later would hold up the
 * Backward, which perhaps sends what the receive waits for.
 */
static bool
does_op_matter(const agent_op *op, const tutti_tape *tape, const numbers *made)
{
    uint64_t number;

    if (is_recorded(op, tape)) {
        return true;
    }
    if (op->op.on_spec != NULL && atomic_load(&op->told)) {
        return true;
    }
    if (op->in == NULL || op->options.no_grad || op->state == AGENT_OP_POSTED) {
        return false;
    }
    number = tutti_table_number(op->in);
    return tutti_tape_var_of(tape, number) != NULL || has_number(made, number);
}

/*
 * The op's group gets a place as well: the op is not on the tape yet, so agent_backward_open_queues
 * has not seen it.
 */
static tutti_code
await_op(agent_backward_pass *backward, agent_op *op, tutti_error *err)
{
    const bool local = op->op.args.kind == TUTTI_COLL_BARRIER || op->options.local_grad ||
                       op->group == NULL; /* what becomes of it is told without a group */
    backward_wait *wait = malloc(sizeof(*wait));

    if (wait == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a Backward");
    }
    wait->backward = backward;
    wait->next = op->waits;
    op->waits = wait;
    backward->ops_waiting++;
    if (!local &&
        agent_backward_find_queue(backward, op->group->name, !agent_op_is_p2p(op), err) == NULL) {
        return err->code;
    }
    return TUTTI_OK;
}

/* In the order of arrival, so that what an earlier op makes is known when a later one reads it. */
tutti_code
agent_backward_find_earlier(agent_backward_pass *backward, tutti_error *err)
{
    const tutti_list_node *ops = &backward->agent->ops;
    numbers made = {.items = calloc(backward->agent->ops_live + 1, sizeof(uint64_t))};
    tutti_code code = TUTTI_OK;
    const tutti_list_node *link;

    if (made.items == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a Backward");
    }
    for (link = ops->next; link != ops && code == TUTTI_OK; link = link->next) {
        agent_op *op = tutti_container_of(link, agent_op, live);

        if (does_op_matter(op, backward->tape, &made)) {
            if (op->out != NULL) {
                made.items[made.count++] = tutti_table_number(op->out);
            }
            code = await_op(backward, op, err);
        }
    }
    free(made.items);
    return code;
}

void
agent_walks_op_ended(agent_op *op)
{
    backward_wait *wait;

    while ((wait = op->waits) != NULL) {
        op->waits = wait->next;
        assert(wait->backward->ops_waiting > 0);
        wait->backward->ops_waiting--;
        agent_backward_post(wait->backward);
        free(wait);
    }
}

/*
 * Of one tape only one pass runs at a time, in the order of the calls: gradients lie on its
 * variables.
 */
bool
agent_backward_must_wait(const agent_backward_pass *backward)
{
    const tutti_list_node *link;

    for (link = backward->agent->backwards.next; link != &backward->link; link = link->next) {
        if (tutti_container_of(link, agent_backward_pass, link)->tape == backward->tape) {
            return true;
        }
    }
    return backward->ops_waiting > 0 || backward->lock_sets_waiting > 0;
}
